"""The lake: tables in the open format Delta, in a folder or an object store, named by URI.

`rove.lake.delta` appends once, lists, compacts and cleans up; `rove.lake.log` says what the
broker's log looks like as a table; `rove.lake.storage` knows how locations are named. The broker
writes, the pipeline reads and writes, and everybody else's tools read without us.
"""
