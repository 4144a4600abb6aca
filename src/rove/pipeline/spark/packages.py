"""Rove as files for `spark-submit`: a wheel to install, and an archive for executors.

The archive is the one that `open_session` ships (`rove.pipeline.spark.executors`): sources and
compiled kernels, which Spark unpacks beside each executor. The wheel is for images and
environments; it is made from the installed package and the metadata of its distribution, without
the source folder or a build tool. Both are reproducible: the same contents give the same bytes.

A wheel among Spark's Python files (`--py-files`) is not enough: PySpark searches only zips and
eggs, and kernels of a zip have to be compiled again on every executor.

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
_METADATA: Final = ("METADATA", "entry_points.txt")
_LICENSES: Final = "licenses/"


class PackagingError(RoveError):
    """No wheel can be made of what runs here."""


class Packages(NamedTuple):
    """The files that were written."""

    wheel: Path
    archive: Path


def write_packages(folder: Path) -> Packages:
    """Write both files to a folder, which is created if necessary."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = Packages(folder / f"rove-{rove.__version__}-py3-none-any.whl", folder / "rove.zip")
        write_wheel(found.wheel)
        executors.write_package(found.archive)
    except OSError as error:
        raise PackagingError(f"cannot write in {folder}: {error.strerror or error}") from error
    return found


def write_wheel(wheel: Path) -> None:
    """Write the package and its metadata as a wheel."""
    info = f"rove-{rove.__version__}.dist-info"
    files = {f"rove/{name}": path.read_bytes() for name, path in executors.sources().items()}
    files |= {f"{info}/{name}": content for name, content in _metadata_files().items()}
    files[f"{info}/WHEEL"] = _WHEEL.encode()
    record = [f"{name},sha256={_digest(files[name])},{len(files[name])}" for name in sorted(files)]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    executors.write_zip(wheel, files)


def _metadata_files() -> dict[str, bytes]:
    try:
        installed = metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise PackagingError(
            "Rove is not installed here, so its dependencies are not known; install it with pip, "
            "and package that"
        ) from None
    if installed.version != rove.__version__:
        raise PackagingError(
            f"Rove {rove.__version__} runs here, but {installed.version} is installed; "
            "install it again"
        )
    found = {name: text.encode() for name in _METADATA if (text := installed.read_text(name))}
    for file in installed.files or ():
        inside = file.as_posix().partition(".dist-info/")[2]
        if inside.startswith(_LICENSES):
            found[inside] = file.read_binary()
    return found


def _digest(content: bytes) -> str:
    digest = hashlib.sha256(content).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
