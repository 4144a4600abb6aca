"""Two Dagster assets: readings, and who would have been told of them. `pip install dagster` too.

    dagster asset materialize --select '*' -f docs/examples/dagster_job.py

Paths go from one asset to the next, not DataFrames: an asset is what is kept. In Airflow, the two
functions are two tasks (`@task`), and the folder is what the first returns.
"""

import os
from pathlib import Path
from typing import Any

import dagster

FOLDER = Path(os.environ.get("ROVE_EXAMPLE_FOLDER", "rove-dagster"))
TEXTS = ["NO2 > 40", "NO2 BETWEEN 10 AND 20"]


def session() -> Any:
    """The session of this process; on a cluster `ship` brings Rove to its executors."""
    from pyspark.sql import SparkSession

    from rove.pipeline import ship

    spark = SparkSession.builder.appName("assets").getOrCreate()
    ship(spark)
    return spark


@dagster.asset
def readings() -> str:
    """A hundred readings as Parquet files."""
    table = session().range(100).selectExpr("id", "double(id) AS NO2")
    table.write.mode("overwrite").parquet(str(FOLDER / "readings"))
    return str(FOLDER / "readings")


@dagster.asset
def matched(context: dagster.AssetExecutionContext, readings: str) -> str:
    """A row for each match."""
    from rove.pipeline import match

    found = match(session().read.parquet(readings), TEXTS)
    found.write.mode("overwrite").parquet(str(FOLDER / "matched"))
    context.add_output_metadata({"rows": found.count()})
    return str(FOLDER / "matched")


definitions = dagster.Definitions(assets=[readings, matched])
