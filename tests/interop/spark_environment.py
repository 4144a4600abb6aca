"""An environment with a Spark of its own: 400 MB of downloads, once, and some minutes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

import rove
from rove.pipeline.spark.java import cache_folder
from rove.pipeline.spark.packages import write_wheel

NONE_YET = re.compile(r"only pyspark|no version|No solution", re.IGNORECASE)


@contextlib.contextmanager
def spark_environment(name: str, wanted: str) -> Iterator[Path]:
    """An interpreter that has this PySpark and our wheel before all that the tests have.

    It is removed again, unless ROVE_KEEP_SPARK is set.
    """
    folder = cache_folder() / "spark-versions" / name
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield _made(folder, wanted)
    finally:
        if not os.environ.get("ROVE_KEEP_SPARK"):
            shutil.rmtree(folder)


def _made(folder: Path, wanted: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    wheel = folder / f"rove-{rove.__version__}-py3-none-any.whl"
    write_wheel(wheel)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python"]
    python = folder / "bin" / "python"
    subprocess.run([*install, python, "--no-deps", wheel], check=True)
    done = subprocess.run(
        [*install, python, "--prerelease=allow", f"pyspark{wanted}"],
        env={**os.environ, "UV_SYSTEM_CERTS": "true"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode and folder.name == "next" and NONE_YET.search(done.stderr):
        pytest.skip("there is none yet")
    assert done.returncode == 0, done.stderr
    return python
