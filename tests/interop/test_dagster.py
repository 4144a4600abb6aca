"""The Dagster example is run by Dagster's own command, as its first lines say.

Dagster brings 50 packages that nothing else here needs, so it has an environment of its own, which
is removed again. It comes from the index; where it cannot be had, the test is skipped.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.effort import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
JOB = ROOT / "docs" / "examples" / "dagster_job.py"
FETCH_S_MAX = 600.0


def test_the_example_says_how_it_is_run() -> None:
    told = ast.get_docstring(ast.parse(JOB.read_text()))
    assert told is not None
    assert f"dagster asset materialize --select '*' -f {JOB.relative_to(ROOT)}" in told


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Path]:
    """An interpreter that has Dagster before all that the tests have."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # What is added by name is not searched for editable packages, which Rove is here.
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT / 'src'}\n")
    found = folder / "bin" / "python"
    try:
        subprocess.run(
            [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", found, "dagster"],
            env={**os.environ, "UV_SYSTEM_CERTS": "true"},
            capture_output=True, text=True, check=True, timeout=FETCH_S_MAX,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1:]
        pytest.skip(f"Dagster cannot be installed from the index: {' '.join(said)}")
    yield found
    shutil.rmtree(folder)


@pytest.mark.soak
def test_dagster_makes_both_assets(python: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [python, "-m", "dagster", "asset", "materialize", "--select", "*", "-f", JOB],
        env={
            **os.environ,
            # As in an environment that is active: Spark's workers are python3 of the PATH.
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            "DAGSTER_HOME": str(home),
            "DAGSTER_DISABLE_TELEMETRY": "true",
            "ROVE_EXAMPLE_FOLDER": str(tmp_path / "out"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True, text=True, cwd=tmp_path, timeout=5 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3_000:]
    assert pq.read_table(tmp_path / "out" / "matched").num_rows == 59 + 11
