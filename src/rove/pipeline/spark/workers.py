"""Runs a function over a list of items in Spark's workers, one task for each item.

Our jobs often have their rows in files, which workers read best themselves; sending the rows
through the JVM would cost more than the work. Spark is needed to run tasks on all cores of all
machines and to retry those that fail. So tasks get only the number of an item, and only results are
sent back, as MessagePack.

A task has an overhead of some 10 ms.
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORKER: Final = "SPARK_REUSE_WORKER"
"""Spark sets this variable in workers that run one task after the other."""
Item = TypeVar("Item", bound=msgspec.Struct)
Result = TypeVar("Result", bound=msgspec.Struct)
Given = ParamSpec("Given")


def run_each(
    spark: SparkSession | None,
    run: Callable[[Item], Result],
    items: Sequence[Item],
    result: type[Result],
) -> list[Result]:
    """The results of `run` for all items, in order, by Spark; without Spark, in this process."""
    if spark is None:
        return [run(item) for item in items]
    if not items:
        return []
    item_type = type(items[0])
    encoded = [msgspec.msgpack.encode(item, enc_hook=_encoded) for item in items]

    @in_worker
    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                item = msgspec.msgpack.decode(encoded[number], type=item_type, dec_hook=_decoded)
                found = msgspec.msgpack.encode(run(item), enc_hook=_encoded)
                yield pa.RecordBatch.from_pydict({"number": [number], "found": [found]})

    count = len(items)
    rows = spark.range(0, count, 1, count).mapInArrow(work, "number long, found binary").collect()
    by_number = {row["number"]: bytes(row["found"]) for row in rows}
    return [
        msgspec.msgpack.decode(by_number[number], type=result, dec_hook=_decoded)
        for number in range(count)
    ]


def in_worker(task: Callable[Given, Iterator[Any]]) -> Callable[Given, Iterator[Any]]:
    """Decorate a function of Spark's workers so that garbage collection skips loaded modules.

    Between tasks, Spark runs a full garbage collection in a worker. With numba and its kernels
    loaded that takes 70 ms, far longer than many a task.
    """

    @functools.wraps(task)
    def run(*given: Given.args, **named: Given.kwargs) -> Iterator[Any]:
        yield from task(*given, **named)
        _settle()

    return run


@functools.cache
def _settle() -> None:
    if _WORKER in os.environ:
        gc.collect()
        gc.freeze()


def parallelism(spark: SparkSession | None) -> int:
    """How many tasks to run at the same time."""
    if spark is None:
        return 1
    return max(1, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))


def _encoded(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"a {type(value).__name__} cannot be sent to a worker")


def _decoded(wanted: type, value: Any) -> object:
    if issubclass(wanted, Path):
        return Path(value)
    if wanted is object:  # any value of a subscriber's state
        return value
    raise NotImplementedError(f"a {wanted.__name__} cannot be received by a worker")
