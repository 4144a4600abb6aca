"""Jars for tests and benchmarks: what is Java, and in no Python package.

Maven takes them, once, into the user's cache. A machine without Maven, or without its central
repository, has none, and whoever wants them is told so in one line.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rove.errors import RoveError
from rove.pipeline.spark.java import cache_folder

FETCH_S_MAX: Final = 300.0
RETRY_S: Final = 3_600.0
"""What could not be fetched is not asked for again for so long."""
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>rove</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY: Final = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "<exclusions>{}</exclusions></dependency>"
)
_EVERYTHING: Final = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
"""Where all is named: Spark's own descriptions ask for it at a mirror that may not be reachable."""


class JarsMissingError(RoveError):
    """Jars that cannot be had here; the text says why."""


def fetched(name: str, wanted: Sequence[str], *, alone: bool = False) -> Path:
    """A folder of the user's cache with these artifacts and, unless `alone`, what they need."""
    folder = cache_folder() / "jars" / f"{name}-{wanted[0].rpartition(':')[2]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of tests want it at once
        if not folder.is_dir():
            _fetch(folder, wanted, alone=alone)
    return folder


def _fetch(folder: Path, wanted: Sequence[str], *, alone: bool) -> None:
    failure = folder.with_suffix(".failed")
    if failure.exists() and time.time() - failure.stat().st_mtime < RETRY_S:
        raise JarsMissingError(failure.read_text(encoding="utf-8"))
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissingError(f"{wanted[0]} is fetched by Maven (mvn), which is not installed")
    work = folder.with_suffix(".unfinished")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    exclusions = _EVERYTHING if alone else ""
    each = [_DEPENDENCY.format(*one.split(":"), exclusions) for one in wanted]
    (work / "pom.xml").write_text(_POM.format(dependencies="".join(each)), encoding="utf-8")
    command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    command.append("-DoutputDirectory=jars")
    try:
        subprocess.run(
            command, cwd=work, capture_output=True, text=True, check=True, timeout=FETCH_S_MAX
        )
        (work / "jars").rename(folder)
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stdout", "") or error).strip().splitlines() or ["nothing"]
        text = f"{wanted[0]} cannot be fetched by Maven: {said[0]}"
        failure.write_text(text, encoding="utf-8")
        raise JarsMissingError(text) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
