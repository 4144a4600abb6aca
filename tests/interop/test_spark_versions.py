"""Every version of Spark that Rove says it runs on gives the right answers; the next one is tried.

`make soak PART=spark-versions`: some minutes and 400 MB of downloads for each. An environment has
a PySpark of its own and Rove's wheel; everything else is that of the tests. It is removed again,
unless ROVE_KEEP_SPARK is set.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

import rove
from rove.pipeline.java import cache_folder
from rove.pipeline.packaging import write_wheel
from tests.effort import PATIENCE_S
from tests.interop.recorded import Recording
from tests.interop.spark_answers import right

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = {"4.2": "==4.2.*", "4.3": "==4.3.*", "next": ">=4.4.dev0"}
NONE_YET = re.compile(r"only pyspark|no version|No solution", re.IGNORECASE)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    made = Recording(tmp_path_factory.mktemp("versions") / "lake", 42)
    made.play(300)
    return made


def environment(name: str, wanted: str) -> Path:
    """An interpreter that has this PySpark and our wheel before all that the tests have."""
    folder = cache_folder() / "spark-versions" / name
    shutil.rmtree(folder, ignore_errors=True)
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
    if done.returncode and name == "next" and NONE_YET.search(done.stderr):
        pytest.skip("there is none yet")
    assert done.returncode == 0, done.stderr
    return python


@pytest.mark.soak
@pytest.mark.parametrize("name", VERSIONS)
def test_a_version_answers_as_it_should(
    name: str, recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recording.folder.parent
    expected = right(folder, sorted([*one] for one in recording.notified()))
    python = environment(name, VERSIONS[name])
    try:
        look = "import pyspark, rove; print(pyspark.__version__, rove.__file__)"
        told = subprocess.run([python, "-c", look], capture_output=True, text=True, check=True)
        version, place = told.stdout.split()
        assert place.startswith(str(python.parents[1])), "the wheel"
        command = [str(python), "-m", "tests.interop.spark_answers", "local[2]", str(folder)]
        done = subprocess.run(
            [*command, str(recording.world.now)],
            capture_output=True, cwd=ROOT, timeout=5 * PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()[-3_000:]
        found = json.loads(done.stdout)
        assert found == expected
        with capsys.disabled():
            print(f"\nSpark {version}: {len(found)} answers are right")
    finally:
        if not os.environ.get("ROVE_KEEP_SPARK"):
            shutil.rmtree(python.parents[1])


def test_what_is_tried_is_what_can_be_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pin,) = [one for one in extras["optional-dependencies"]["spark"] if one.startswith("pyspark")]
    first = next(iter(VERSIONS))
    assert pin.startswith(f"pyspark>={first}"), "the oldest that was tried"
