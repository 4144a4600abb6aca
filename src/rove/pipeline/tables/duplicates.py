"""Which rows repeat an id that their client has used shortly before.

The only rule of quality that no row can be judged by alone: the first one may be in another file,
another task or a table that was written last month. So it is a job of its own, over four narrow
columns of the new rows and of the old ones that are near enough in time, grouped by Spark. It is
run only where the rule is set, and gives positions; of these there are few.

A row is a duplicate if an earlier one (by position) of the same client has the same id and came
at most so long before it, whatever became of that one: so the outcome does not depend on how runs
are cut. A row without an id is nobody's duplicate.

Costs some 3 s for a million rows on two cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from rove.pipeline.spark.file_frames import frame_of_files
from rove.pipeline.tables.typed_tables import BASE

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

_KEY: Final = pa.schema([BASE.field(name) for name in ("position", "at", "client_id", "id")])


def duplicate_positions(
    fresh: DataFrame, before: DataFrame | None, horizon_s: float
) -> NDArray[np.int64]:
    """Positions of new rows that came before; `before` is of `file_keys`."""
    from pyspark.sql import functions as f

    parts = [fresh.withColumn("is_new", f.lit(True))]
    if before is not None:
        earliest = fresh.agg(f.min("at")).first()
        if earliest is None or earliest[0] is None:
            return np.empty(0, np.int64)
        since = f.lit(earliest[0]) - f.make_dt_interval(secs=f.lit(horizon_s))
        parts.append(before.where(f.col("at") >= since).withColumn("is_new", f.lit(False)))
    flagged = with_duplicates(reduce(lambda left, right: left.unionByName(right), parts), horizon_s)
    found = flagged.where("is_new AND is_duplicate").select("position").toArrow()
    positions: NDArray[np.int64] = np.sort(found.column("position").to_numpy())
    return positions


def with_duplicates(rows: DataFrame, horizon_s: float) -> DataFrame:
    """Rows with a column `is_duplicate`; needs position, at, client_id, id and is_new."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    by_key = Window.partitionBy("client_id", "id").orderBy(
        "is_new", f.col("position").asc_nulls_first(), "at"
    )
    apart_s = f.col("at").cast("double") - f.lag("at").over(by_key).cast("double")
    is_again = (f.col("id") != "") & (apart_s <= horizon_s)
    return rows.withColumn("is_duplicate", f.coalesce(is_again, f.lit(False)))


def file_keys(spark: SparkSession, uri: str, paths: Sequence[str]) -> DataFrame:
    """The columns by which duplicates are found, of files of a table.

    Files that are broken or gone are left out: who reads all of them says so.
    """
    return frame_of_files(spark, uri, paths, _KEY, pa.schema([]), lenient=True)
