"""Tables that are Parquet files as they lie: workers read them, and the JVM never sees a row.

Spark reads Parquet into its own rows, writes those as Arrow and sends them to Python, and that is
two fifths of the work of matching them (`rove bench pipeline`). Where a DataFrame is nothing but
files that a worker can open itself, it is told which, and gets the same batches for a quarter of
the processor time. Everything else (a filter, a join, a cache, partition columns, other formats,
types that both sides might read differently) goes Spark's way, so that a table means one thing.

Files are cut at row groups into slices of like size, some for each core; footers are only read of
files that are too large for one slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from rove.errors import RoveError
from rove.pipeline.session import ARROW_ROWS
from rove.pipeline.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SLICE_BYTES_MAX: Final = 16 * 2**20
SLICE_BYTES_MIN: Final = 2**20
"""Less is not worth a task of its own."""
_SLICES_PER_CORE: Final = 4
_SAME_TYPES: Final = frozenset(
    ("boolean", "byte", "short", "integer", "long", "float", "double", "string", "date")
)
"""Those that Parquet, Arrow and Spark agree on. Of times there are too many kinds but for one:"""
_TIME: Final = "timestamp"
_OPTIONS_OF_NO_MATTER: Final = frozenset(("", "path", "mergeschema"))
"""Once the schema and the files are known."""


class ScanError(RoveError):
    """A file of a table cannot be read."""


class Slice(msgspec.Struct, frozen=True):
    """A file, or some row groups of it."""

    path: str
    groups: tuple[int, ...] | None = None


class Scan(msgspec.Struct, frozen=True):
    """What workers are told: the work of each task, and the columns to read."""

    tasks: tuple[tuple[Slice, ...], ...]
    schema: bytes

    def read(self, task: int) -> Iterator[pa.RecordBatch]:
        """Batches of one task, with the columns in their order and of their types."""
        schema = pa.ipc.read_schema(pa.py_buffer(self.schema))
        for each in self.tasks[task]:
            try:
                yield from _read(each, schema)
            except (OSError, pa.ArrowException) as error:
                said = str(error).splitlines()[0]
                raise ScanError(f"cannot read {each.path}: {said}") from error


def map_batches(
    df: DataFrame,
    columns: Sequence[str],
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: Any,
) -> DataFrame:
    """`mapInArrow` over some columns of a table, by whichever way is the shorter."""
    scan = scan_of(df, columns)
    if scan is None:
        return df.select(*(quoted(name) for name in columns)).mapInArrow(function, schema)
    count = len(scan.tasks)
    tasks = df.sparkSession.range(0, count, 1, count)
    return tasks.mapInArrow(partial(_scanned, scan, function), schema)


def _scanned(
    scan: Scan,
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    given: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in given:
        for task in batch.column("id").to_pylist():
            yield from function(scan.read(task))


def scan_of(df: DataFrame, columns: Sequence[str]) -> Scan | None:
    """How workers can read some columns of a table themselves; None if Spark has to."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    if df.isStreaming:  # its files are those that come
        return None
    fields = [df.schema[name] for name in columns]
    if not fields or any(each.dataType.typeName() not in (*_SAME_TYPES, _TIME) for each in fields):
        return None
    paths = _files(df)
    if not paths:
        return None
    schema = to_arrow_schema(StructType(fields), timezone="UTC")
    tasks = tuple(cut(paths, df.sparkSession.sparkContext.defaultParallelism))
    return Scan(tasks, schema.serialize().to_pybytes())


def _files(df: DataFrame) -> list[str] | None:
    """The files that a DataFrame is, and all of them are it."""
    plan = df._jdf.queryExecution().withCachedData()
    while _class_of(plan) in ("SubqueryAlias", "View"):  # only names
        plan = plan.child()
    if _class_of(plan) != "LogicalRelation" or _class_of(plan.relation()) != "HadoopFsRelation":
        return None
    relation = plan.relation()
    options = set(relation.options().keySet().mkString(",").split(","))
    is_plain = relation.partitionSchema().isEmpty() and options <= _OPTIONS_OF_NO_MATTER
    if _class_of(relation.fileFormat()) != "ParquetFileFormat" or not is_plain:
        return None
    parts = [urlsplit(path) for path in relation.location().inputFiles()]
    if any(part.scheme != "file" for part in parts):
        return None
    return [unquote(part.path) for part in parts]


def _class_of(of_the_jvm: Any) -> str:
    return str(of_the_jvm.getClass().getSimpleName())


def cut(paths: Iterable[str], cores: int) -> Iterator[tuple[Slice, ...]]:
    """Tasks of like size, in the order of files."""
    sizes = {path: Path(path).stat().st_size for path in paths}
    even = sum(sizes.values()) // (cores * _SLICES_PER_CORE)
    most = max(SLICE_BYTES_MIN, min(SLICE_BYTES_MAX, even))
    waiting: list[Slice] = []
    taken = 0
    for piece, size in _pieces(sizes, most):
        if waiting and taken + size > most:
            yield tuple(waiting)
            waiting, taken = [], 0
        waiting.append(piece)
        taken += size
    if waiting:
        yield tuple(waiting)


def _pieces(sizes: dict[str, int], most: int) -> Iterator[tuple[Slice, int]]:
    for path, size in sizes.items():
        if size <= most:
            yield Slice(path), size
            continue
        groups = pq.read_metadata(path).num_row_groups
        for group in range(groups):
            yield Slice(path, (group,)), size // groups


def _read(one: Slice, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(one.path, coerce_int96_timestamp_unit="us") as file:
        names = _names_in(file.schema_arrow.names, schema.names)
        groups = range(file.num_row_groups) if one.groups is None else one.groups
        read = file.iter_batches(ARROW_ROWS, list(groups), list(names.values()), use_threads=False)
        for batch in read:
            columns = [
                batch.column(names[field.name]).cast(field.type)
                if field.name in names
                else pa.nulls(batch.num_rows, field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _names_in(there: Sequence[str], wanted: Sequence[str]) -> dict[str, str]:
    """What the wanted columns are called in a file, if it has them; Spark ignores case, too."""
    lowered = {name.lower(): name for name in there}
    found = {name: name if name in there else lowered.get(name.lower()) for name in wanted}
    return {name: own for name, own in found.items() if own is not None}
