"""DuckDB reads a Delta table, in a process of its own.

When a process ends, DuckDB complains of what pytest keeps, and threads of the libraries may abort
it. So the process that asks it is another one, and it is left without an end of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

_SCRIPT: Final = """
import os
import sys
import duckdb
import pyarrow.parquet as pq
from deltalake import DeltaTable
found = DeltaTable(sys.argv[1]).to_pyarrow_dataset()
pq.write_table(duckdb.sql(sys.argv[2]).to_arrow_table(), sys.argv[3])
os._exit(0)
"""


def by_duckdb(table: Path, query: str, folder: Path) -> list[dict[str, Any]]:
    """What a query over `found`, the table, gives; `folder` is for the answer."""
    path = folder / "by_duckdb.parquet"
    subprocess.run([sys.executable, "-c", _SCRIPT, str(table), query, str(path)], check=True)
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows
