"""Spark jobs over the stream and its history.

What the broker does for the present, the pipeline does for the past and for scale: it keeps the
stream in tables, answers the same texts over it, and hands notifications back to the broker. The
matching is the broker's own (`rove.match`), inside Spark's workers; Spark moves the data.
"""
