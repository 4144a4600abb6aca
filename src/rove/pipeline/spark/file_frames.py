"""Files of a Delta table as a Spark DataFrame, without a jar.

The driver reads from the table's log which files belong to the table. In folders, Spark reads them
as Parquet, with filters and columns pushed down. In an object store Spark would need connectors and
credentials of its own; there the workers read with ours (`rove.lake.storage`), and only the columns
that the frame has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import pyarrow as pa

from rove.lake.files import NULL_PARTITION
from rove.lake.storage import LakeError, child, folder_of, open_parquet
from rove.pipeline.spark.dialect import ddl, quoted
from rove.pipeline.spark.session import ARROW_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
"""With more files, Spark lists them by a job with a task for each, which takes minutes."""
_VECTORED: Final = "parquet.hadoop.vectored.io.enabled"
"""Reads in other threads, which Spark's metrics miss; not faster on local disks."""
_FILES_PER_TASK: Final = 8


def frame_of_files(
    spark: SparkSession,
    uri: str,
    paths: Sequence[str],
    schema: pa.Schema,
    partitions: pa.Schema,
    *,
    lenient: bool = False,
) -> DataFrame:
    """Columns of a table's files, null where a file lacks one, and partition columns.

    If `lenient`, files that are broken or missing are skipped.
    """
    whole = pa.schema([*schema, *partitions])
    declared = ddl(whole)
    if not paths:
        return spark.createDataFrame([], declared)
    if folder_of(uri) is not None:
        with _quick_listing(spark, len(paths)):
            reader = spark.read.schema(declared).option("basePath", uri).option(_VECTORED, "false")
            for option in ("ignoreCorruptFiles", "ignoreMissingFiles"):
                reader = reader.option(option, str(lenient).lower())
            found = reader.parquet(*[child(uri, path) for path in paths])
        # Spark adds every partition that it finds in the paths.
        return found.select(*map(quoted, whole.names))
    groups = [paths[i : i + _FILES_PER_TASK] for i in range(0, len(paths), _FILES_PER_TASK)]
    read = partial(_read, uri, groups, schema, partitions, lenient)
    return spark.range(0, len(groups), 1, len(groups)).mapInArrow(read, declared)


@contextmanager
def _quick_listing(spark: SparkSession, files: int) -> Iterator[None]:
    """Let the driver list files itself, however many there are."""
    before = spark.conf.get(_LISTING)
    spark.conf.set(_LISTING, str(files + 1))
    try:
        yield
    finally:
        spark.conf.set(_LISTING, str(before))


def _read(
    uri: str,
    groups: Sequence[Sequence[str]],
    schema: pa.Schema,
    partitions: pa.Schema,
    lenient: bool,
    given: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The work of a task."""
    for batch in given:
        for number in batch.column("id").to_pylist():
            for path in groups[number]:
                with suppress(LakeError) if lenient else nullcontext():
                    yield from _read_file(uri, path, schema, partitions)


def _read_file(
    uri: str, path: str, schema: pa.Schema, partitions: pa.Schema
) -> Iterator[pa.RecordBatch]:
    values = partition_of(path)
    with open_parquet(uri, path) as file:
        there = set(file.schema_arrow.names)
        names = [name for name in schema.names if name in there]
        for batch in file.iter_batches(ARROW_ROWS, columns=names, use_threads=False):
            rows = batch.num_rows
            columns = [
                batch.column(field.name).cast(field.type)
                if field.name in there
                else pa.nulls(rows, field.type)
                for field in schema
            ]
            columns += [
                pa.array([values[field.name]] * rows, pa.string()).cast(field.type)
                for field in partitions
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=pa.schema([*schema, *partitions]))


def partition_of(path: str) -> dict[str, str | None]:
    """The values of partition columns in a file's path."""
    pairs = (folder.partition("=") for folder in path.split("/")[:-1])
    return {name: None if value == NULL_PARTITION else unquote(value) for name, _, value in pairs}
