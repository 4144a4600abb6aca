"""Rove as files for `spark-submit`: a wheel to install, and an archive for executors.

The archive is what `open_session` ships by itself (`rove.pipeline.spark.executors`): sources and
compiled kernels, which Spark unpacks beside each executor. The wheel is for images and
environments; it is written from the installed package and what its distribution says of it, so it
needs neither the sources' folder nor a build tool. Both are the same bytes for the same contents.

A wheel among Spark's Python files (`--py-files`) is not enough: PySpark looks into zips and eggs
only, and what is in a zip has to be compiled again on every executor.

Takes a second, and half a minute where kernels have to be compiled first.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple

import rove
from rove.errors import RoveError
from rove.pipeline.spark import executors

_DISTRIBUTION: Final = "rove"
_WHEEL: Final = "Wheel-Version: 1.0\nGenerator: rove\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_TOLD: Final = ("METADATA", "entry_points.txt")
_LICENSES: Final = "licenses/"


class PackagingError(RoveError):
    """No wheel can be made of what runs here."""


class Packages(NamedTuple):
    """What was written."""

    wheel: Path
    archive: Path


def write_packages(folder: Path) -> Packages:
    """Both files in a folder, which is made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = Packages(folder / f"rove-{rove.__version__}-py3-none-any.whl", folder / "rove.zip")
        write_wheel(found.wheel)
        executors.write_package(found.archive)
    except OSError as error:
        raise PackagingError(f"cannot write in {folder}: {error.strerror or error}") from error
    return found


def write_wheel(wheel: Path) -> None:
    """The package and what is told of it, as pip installs it."""
    told = f"rove-{rove.__version__}.dist-info"
    files = {f"rove/{name}": path.read_bytes() for name, path in executors.sources().items()}
    files |= {f"{told}/{name}": content for name, content in _told_files().items()}
    files[f"{told}/WHEEL"] = _WHEEL.encode()
    record = [f"{name},sha256={_digest(files[name])},{len(files[name])}" for name in sorted(files)]
    files[f"{told}/RECORD"] = "\n".join([*record, f"{told}/RECORD,,", ""]).encode()
    executors.write_zip(wheel, files)


def _told_files() -> dict[str, bytes]:
    try:
        installed = metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise PackagingError(
            "Rove runs here without being installed, so nothing says what it needs; "
            "pip install it, and package that"
        ) from None
    if installed.version != rove.__version__:
        raise PackagingError(
            f"Rove {rove.__version__} runs here, and {installed.version} is what was installed; "
            "install it again"
        )
    found = {name: text.encode() for name in _TOLD if (text := installed.read_text(name))}
    for file in installed.files or ():
        inside = file.as_posix().partition(".dist-info/")[2]
        if inside.startswith(_LICENSES):
            found[inside] = file.read_binary()
    return found


def _digest(content: bytes) -> str:
    digest = hashlib.sha256(content).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
