"""Whether executors see what the driver sees, tried before they are given work.

A folder that only the driver has is a mistake that shows late: tasks write where nobody looks, or
fail one after the other with a page of Java each. So before the first task of a session the driver
puts a small file into every location that is written to; tasks look for it, and put theirs beside,
for which the driver looks. What is only read they have to find. Where everything runs on one
machine there is nothing to try.

Costs one small job of Spark for each session and set of locations.
"""

from __future__ import annotations

import platform
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rove.lake.storage import LakeError, filesystem, folder_of, one_line, shown, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS_MIN: Final = 4
_HOPE: Final = "an object store is seen from everywhere, a folder has to be shared"
_PREFIX: Final = ".rove-probe-"
_seen: set[tuple[str, ...]] = set()


class UnseenError(LakeError):
    """An executor does not see what the driver does, or the reverse."""


def probe(spark: SparkSession, *, reads: Sequence[str] = (), writes: Sequence[str] = ()) -> None:
    """UnseenError unless all executors see these locations as the driver does; once a session."""
    if _is_local(spark):
        return
    key = (str(spark.conf.get("spark.app.id", "")), *reads, *writes)
    if key not in _seen:
        probe_now(spark, reads, writes)
        _seen.add(key)


def _is_local(spark: SparkSession) -> bool:
    return str(spark.conf.get("spark.master", "")).startswith("local")


def probe_now(spark: SparkSession, reads: Sequence[str], writes: Sequence[str]) -> None:
    """The same, whatever was tried before."""
    name = f"{_PREFIX}{uuid.uuid4().hex}"
    written = [(uri, name) for uri in writes]
    try:
        for uri in writes:
            put(uri, name)
        tasks = max(_TASKS_MIN, 2 * int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
        task = partial(_tried, list(reads), list(writes), name)
        found = spark.range(0, tasks, 1, tasks).mapInArrow(task, _TOLD).collect()
        for row in found:
            if row["trouble"]:
                raise UnseenError(row["trouble"])
            written += [(uri, row["name"]) for uri in writes]
        for uri, theirs in written:
            if not _is_there(uri, theirs):
                host = next(row["host"] for row in found if row["name"] == theirs)
                raise UnseenError(
                    f"what an executor on {host} has written to {shown(uri)}, the driver on "
                    f"{platform.node()} does not see: {_HOPE}"
                )
    finally:
        for uri, theirs in written:
            _remove(uri, theirs)


_TOLD: Final = "host string, name string, trouble string"


def _tried(
    reads: Sequence[str], writes: Sequence[str], name: str, given: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The work of a task."""
    for batch in given:
        for number in batch.column("id").to_pylist():
            own = f"{name}-{number}"
            trouble = trouble_of(reads, writes, name, own)
            row: dict[str, Any] = {"host": [platform.node()], "name": [own], "trouble": [trouble]}
            types = pa.schema([(each, pa.string()) for each in row])
            yield pa.RecordBatch.from_pydict(row, types)


def trouble_of(reads: Sequence[str], writes: Sequence[str], name: str, own: str) -> str:
    """What is wrong here, in one line; nothing, if all is well."""
    host = platform.node()
    try:
        for uri in reads:
            if (folder := folder_of(uri)) is not None and not folder.is_dir():
                return f"an executor on {host} does not see {uri}: {_HOPE}"
        for uri in writes:
            if not _is_there(uri, name):
                return (
                    f"an executor on {host} does not see what the driver has written to "
                    f"{shown(uri)}: {_HOPE}"
                )
            put(uri, own)
    except (OSError, LakeError) as error:
        return f"an executor on {host} cannot use the locations: {one_line(error)}"
    return ""


def put(uri: str, name: str) -> None:
    """Write a small file."""
    with told(f"cannot write to {shown(uri)}"):
        if (folder := folder_of(uri)) is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with filesystem(uri).open_output_stream(name) as stream:
            stream.write(b"rove\n")


def _is_there(uri: str, name: str) -> bool:
    found = filesystem(uri).get_file_info(name)
    return bool(found.is_file)


def _remove(uri: str, name: str) -> None:
    with told(f"cannot remove {name} from {shown(uri)}"):
        if _is_there(uri, name):
            filesystem(uri).delete_file(name)
