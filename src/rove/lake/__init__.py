"""The lake: Delta tables in a folder or an object store, by URI.

`delta` appends exactly once, lists, compacts and cleans up; `log` has the schema of the broker's
log as a table; `storage` handles locations. The broker writes, the pipeline reads and writes, and
other tools can read without Rove.
"""
