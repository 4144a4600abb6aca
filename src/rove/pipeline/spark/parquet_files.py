"""Parquet files that workers read themselves, where a caller chooses that.

    match(spark.read.parquet("s3://bucket/air"), texts)     # Spark reads: the default
    match(ParquetFiles(spark, "s3://bucket/air"), texts)    # workers read

Spark reads Parquet into its own rows, converts those to Arrow and sends them to Python, which is
two fifths of the work of matching them (`rove bench pipeline`). Workers that open the files
themselves get the same batches for a quarter of the processor time.

The batches are the same because everything is refused that Spark might read differently: types
other than those that Parquet, Arrow and Spark agree on, dates that Spark rebases, files with
different columns or types, names that differ only in case, folders that are partition columns. A
missing file is an error. So the result does not depend on any setting of Spark.

Files are cut at row groups into slices of about the same size. The driver reads the footers only of
the first file and of files that are too large for one slice. A batch has `ARROW_BYTES` at most, or
1,024 rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from rove.errors import RoveError
from rove.lake import delta
from rove.lake.storage import (
    Location,
    child,
    filesystem,
    lake_errors,
    open_parquet,
    resolved,
    shown,
)
from rove.pipeline.spark.session import ARROW_BYTES, ARROW_ROWS
from rove.pipeline.spark.workers import parallelism

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SLICE_BYTES_MAX: Final = 16 * 2**20
SLICE_BYTES_MIN: Final = 2**20
"""Smaller slices are not worth a task of their own."""
_SLICES_PER_CORE: Final = 4
_TEXT_ROWS: Final = 1_024
"""Rows of a read if there are string columns, since strings may have any length."""
_LEGACY: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Metadata of files of old Spark versions: their dates are in another calendar."""
_TIME: Final = pa.timestamp("us", tz="UTC")
_PLAIN_TYPES: Final = frozenset(
    (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.float32(), pa.float64(), pa.string(), pa.date32(), _TIME),
    )
)
_TEXTS: Final = (pa.string(), pa.large_string(), pa.string_view())


class ParquetFilesError(RoveError):
    """Files that Spark might read differently, or that cannot be read."""


class FileSlice(msgspec.Struct, frozen=True):
    """A file, or some row groups of it."""

    path: str
    groups: tuple[int, ...] | None = None


class ParquetScan(msgspec.Struct, frozen=True):
    """The slices of each task and the columns to read, as they are sent to workers."""

    uri: str
    tasks: tuple[tuple[FileSlice, ...], ...]
    schema: bytes
    """The schema of all columns."""
    columns: tuple[str, ...]

    def read(self, task: int) -> Iterator[pa.RecordBatch]:
        """The batches of a task, with the given columns and types."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        for each in self.tasks[task]:
            with open_parquet(self.uri, each.path) as file:
                where = shown(child(self.uri, each.path))
                if not _schema_of(file, where, schema.names).equals(schema):
                    raise ParquetFilesError(
                        f"{where} has other columns or types than the first file; read them by "
                        "spark.read.parquet, which has rules for that"
                    )
                yield from _read(file, each, schema, self.columns)


class ParquetFiles:
    """Files as a table for `match` and `rank`."""

    isStreaming: Final = False  # noqa: N815 - as a DataFrame has it

    def __init__(
        self,
        spark: SparkSession,
        location: Location,
        *,
        columns: Sequence[str] | None = None,
    ) -> None:
        """A file, a folder of files or a Delta table, in any storage; all columns, or some."""
        self.sparkSession: Final = spark  # as a DataFrame has it
        uri = resolved(location)
        is_file = uri.endswith(".parquet")
        self._uri = uri.rpartition("/")[0] if is_file else uri
        with lake_errors(f"cannot read {shown(uri)}"):
            self._sizes = _listed(self._uri, uri.rpartition("/")[2] if is_file else None)
        first = next(iter(self._sizes), None)
        if first is None:
            raise ParquetFilesError(f"there are no Parquet files in {shown(uri)}")
        with open_parquet(self._uri, first) as file:
            self._schema = _schema_of(file, shown(child(self._uri, first)), columns)

    @property
    def columns(self) -> list[str]:
        return list(self._schema.names)

    @property
    def schema(self) -> StructType:
        """The schema as a Spark type."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._schema)

    def map_batches(
        self,
        columns: Sequence[str],
        function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        schema: Any,
    ) -> DataFrame:
        """`mapInArrow` over some columns."""
        scan = self.scan(columns)
        count = len(scan.tasks)
        tasks = self.sparkSession.range(0, count, 1, count)
        return tasks.mapInArrow(partial(_scanned, scan, function), schema)

    def scan(self, columns: Sequence[str]) -> ParquetScan:
        """The tasks that read the files."""
        most = max(1, parallelism(self.sparkSession) * _SLICES_PER_CORE)
        tasks = tuple(cut(self._uri, self._sizes, most))
        schema = self._schema.serialize().to_pybytes()
        return ParquetScan(self._uri, tasks, schema, tuple(columns))


def _scanned(
    scan: ParquetScan,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    given: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in given:
        for task in batch.column("id").to_pylist():
            yield from function(scan.read(task))


# -- which files -----------------------------------------------------------------------------------


def _listed(uri: str, name: str | None) -> dict[str, int]:
    """The files below a location, in order, with their sizes in bytes."""
    import pyarrow.fs as pa_fs

    files = filesystem(uri)
    if name is not None:
        return {name: files.get_file_info(name).size}
    if delta.exists(uri):
        return _committed(uri)
    found = {
        info.path.removeprefix("/"): info.size
        for info in files.get_file_info(
            pa_fs.FileSelector("", allow_not_found=True, recursive=True)
        )
        if info.type == pa_fs.FileType.File and _is_data(info.path)
    }
    for path in found:
        if any("=" in part for part in PurePosixPath(path).parts[:-1]):
            raise ParquetFilesError(
                f"{shown(child(uri, path))} is in a folder that is a partition column; read such "
                "tables by spark.read.parquet"
            )
    return dict(sorted(found.items()))


def _committed(uri: str) -> dict[str, int]:
    files = delta.DeltaTable(uri).files()
    if any(name.startswith("partition.") for name in files.column_names):
        raise ParquetFilesError(f"{shown(uri)} has partition columns; read it by Spark")
    paths = [unquote(path) for path in files["path"].to_pylist()]
    return dict(sorted(zip(paths, files["size_bytes"].to_pylist(), strict=True)))


def _is_data(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return path.endswith(".parquet") and not any(part[0] in "_." for part in parts)


def cut(uri: str, sizes: dict[str, int], tasks: int) -> Iterator[tuple[FileSlice, ...]]:
    """About `tasks` tasks of similar size, in the order of files."""
    even = sum(sizes.values()) // tasks
    most = max(SLICE_BYTES_MIN, min(SLICE_BYTES_MAX, even))
    waiting: list[FileSlice] = []
    taken = 0
    for piece, size in _pieces(uri, sizes, most):
        if waiting and taken + size > most:
            yield tuple(waiting)
            waiting, taken = [], 0
        waiting.append(piece)
        taken += size
    if waiting:
        yield tuple(waiting)


def _pieces(uri: str, sizes: dict[str, int], most: int) -> Iterator[tuple[FileSlice, int]]:
    for path, size in sizes.items():
        if size <= most:
            yield FileSlice(path), size
            continue
        with open_parquet(uri, path) as file:
            groups = file.num_row_groups
        for group in range(groups):
            yield FileSlice(path, (group,)), size // groups


# -- what is in them -------------------------------------------------------------------------------


def _schema_of(file: pq.ParquetFile, where: str, columns: Sequence[str] | None) -> pa.Schema:
    """The columns as Spark would read them; ParquetFilesError if Spark might differ."""
    there = file.schema_arrow
    lowered = [name.lower() for name in there.names]
    for name in there.names:
        if lowered.count(name.lower()) > 1:
            raise ParquetFilesError(f"{where} has several columns {name} that differ only in case")
    missing = set(columns or ()) - set(there.names)
    if missing:
        raise ParquetFilesError(f"{where} has no column {min(missing)}")
    fields = [_field(file, there.field(name), where) for name in columns or there.names]
    return pa.schema(fields)


def _field(file: pq.ParquetFile, field: pa.Field, where: str) -> pa.Field:
    kind = _as_one(field.type)
    if kind not in _PLAIN_TYPES or _is_int96(file, field.name):
        raise ParquetFilesError(
            f"column {field.name} of {where} is of type {field.type}, which Spark might read "
            "differently; read it by spark.read.parquet, or name the columns that you need"
        )
    legacy = set(file.metadata.metadata or ()) & set(_LEGACY)
    if legacy and kind in (pa.date32(), _TIME):
        raise ParquetFilesError(
            f"column {field.name} of {where} has dates in the calendar of an old Spark; read it by "
            "spark.read.parquet"
        )
    return pa.field(field.name, kind)


def _as_one(kind: pa.DataType) -> pa.DataType:
    """One type for Arrow types that Spark does not distinguish."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if kind in _TEXTS:
        return pa.string()
    if pa.types.is_timestamp(kind) and kind.tz is not None and kind.unit in ("ms", "us"):
        return _TIME
    return kind


def _is_int96(file: pq.ParquetFile, name: str) -> bool:
    columns = (file.schema.column(number) for number in range(len(file.schema)))
    return any(each.path == name and each.physical_type == "INT96" for each in columns)


def _read(
    file: pq.ParquetFile, one: FileSlice, schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    wanted = pa.schema([schema.field(name) for name in columns])
    groups = list(range(file.num_row_groups) if one.groups is None else one.groups)
    if not columns:
        rows = sum(file.metadata.row_group(group).num_rows for group in groups)
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        return
    has_texts = any(field.type == pa.string() for field in wanted)
    step = _TEXT_ROWS if has_texts else ARROW_ROWS
    yield from _gathered(_cast(file.iter_batches(step, groups, list(columns)), wanted))


def _cast(batches: Iterable[pa.RecordBatch], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        arrays = [batch.column(field.name).cast(field.type) for field in wanted]
        yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge small batches up to the allowed size."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        is_full = rows + batch.num_rows > ARROW_ROWS or size + batch.nbytes > ARROW_BYTES
        if waiting and is_full:
            yield pa.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if waiting:
        yield pa.concat_batches(waiting)
