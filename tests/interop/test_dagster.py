"""The Dagster example runs where Dagster is installed: it brings 30 packages that nothing else here
needs, so it is none of ours."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

dagster = pytest.importorskip("dagster")
JOB = Path(__file__).resolve().parents[2] / "docs" / "examples" / "dagster_job.py"


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_both_assets_are_made(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROVE_EXAMPLE_FOLDER", str(tmp_path))
    job = runpy.run_path(str(JOB))
    with dagster.DagsterInstance.ephemeral() as instance:
        done = dagster.materialize([job["readings"], job["matched"]], instance=instance)
    assert done.success
    assert spark.read.parquet(str(tmp_path / "matched")).count() == 59 + 11
