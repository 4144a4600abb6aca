"""Every version of Spark that Rove says it runs on gives the right answers; the next one is tried.

`make soak PART=spark-versions`: some minutes and 400 MB of downloads for each
(`tests/interop/spark_environment.py`).
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.effort import PATIENCE_S
from tests.interop.recorded import Recording
from tests.interop.spark_answers import right, right_stream
from tests.interop.spark_environment import spark_environment

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = {"4.1": "==4.1.*", "4.2": "==4.2.*", "4.3": "==4.3.*", "next": ">=4.4.dev0"}
NO_STREAMS = "streams of a lake need Spark 4.2 or newer, and this is 4.1"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    made = Recording(tmp_path_factory.mktemp("versions") / "lake", 42)
    made.play(300)
    return made


def asked(python: Path, recording: Recording) -> subprocess.CompletedProcess[str]:
    """What that Spark answers, streams too."""
    look = "import pyspark, rove; print(pyspark.__version__, rove.__file__)"
    told = subprocess.run([python, "-c", look], capture_output=True, text=True, check=True)
    assert told.stdout.split()[1].startswith(str(python.parents[1])), "the wheel"
    command = [str(python), "-m", "tests.interop.spark_answers", "local[2]"]
    return subprocess.run(
        [*command, str(recording.folder.parent), str(recording.world.now), "stream"],
        capture_output=True, text=True, cwd=ROOT, timeout=5 * PATIENCE_S, check=False,
    )  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("name", VERSIONS)
def test_a_version_answers_as_it_should(
    name: str, recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, notified = recording.folder.parent, sorted([*one] for one in recording.notified())
    with spark_environment(name, VERSIONS[name]) as python:
        done = asked(python, recording)
    assert done.returncode == 0, done.stderr[-3_000:]
    found = json.loads(done.stdout)
    streamed = found.pop("stream")
    assert found == right(folder, notified)
    if name == "4.1":
        assert streamed.startswith(NO_STREAMS)
    else:
        assert streamed == right_stream(notified)
    with capsys.disabled():
        print(f"\nSpark {name}: {len(found)} answers are right")


@pytest.mark.soak
def test_an_older_one_is_refused_in_a_line(recording: Recording) -> None:
    with spark_environment("4.0", "==4.0.*") as python:
        done = asked(python, recording)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "Rove needs Spark 4.1 or newer, and this is 4.0; pip install 'pyspark>=4.1'" in last


def test_what_is_tried_is_what_can_be_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pin,) = [one for one in extras["optional-dependencies"]["spark"] if one.startswith("pyspark")]
    first = next(iter(VERSIONS))
    assert pin.startswith(f"pyspark>={first}"), "the oldest that was tried"
