"""Where tables lie: a folder of this machine, or anything that has a URI.

`file`, `s3`, `gs`, `abfs` and `hdfs` are reached through the object store of the library deltalake,
which takes credentials from the environment as their own tools do. They are never part of what we
pass on or print: `shown` is a URI without them.

A location is resolved once, where it is given; a relative folder would be another one in a worker.
"""

from __future__ import annotations

import contextlib
import functools
import platform
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

from rove.base import files
from rove.errors import RoveError

if TYPE_CHECKING:
    import pyarrow.fs as pa_fs
    import pyarrow.parquet as pq

OPTIONS: Final = {
    "timeout": "30s",
    "connect_timeout": "5s",
    "max_retries": "4",
    "retry_timeout": "30s",
}
"""Of every object store: whoever waits has its own way of trying again, and says why it waits."""

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m|[↳╰╭│─▶·]+")
_SECRETS: Final = re.compile(r"(https?://)[^\s@/]*@|[?&](?:X-Amz-|sig=|se=|sp=|sv=)\S*", re.I)
_PIECE_BYTES: Final = 1024 * 1024
NAME_BYTES_MAX: Final = 80
"""Of a value that becomes part of a folder's name, where each byte may take three."""

Location: TypeAlias = str | Path
"""A folder or a URI."""


class LakeError(RoveError):
    """There is no such table, or it cannot be used now."""


class MissingFileError(LakeError):
    """A file that a table has is not to be found.

    What retention or compaction has removed from a table stays for hours, so it means that this
    process does not see what another does.
    """


def resolved(location: Location) -> str:
    """A URI as it is, a folder or `file:` URI as an absolute path."""
    text = str(location)
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(parts.path)
    elif "://" in text:
        return text.rstrip("/")
    return str(Path(text).resolve())


def folder_of(uri: str) -> Path | None:
    """The folder, if it is one of this machine."""
    return None if "://" in uri else Path(uri)


def child(uri: str, *names: str) -> str:
    """A location below another."""
    return "/".join([uri.rstrip("/"), *names])


def shown(uri: str) -> str:
    """For people: without credentials."""
    if "://" not in uri:
        return uri
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


@functools.lru_cache(maxsize=64)
def filesystem(uri: str) -> pa_fs.FileSystem:
    """What is below a location, for Arrow; names are relative to it."""
    import pyarrow.fs as pa_fs

    if (folder := folder_of(uri)) is not None:
        return pa_fs.SubTreeFileSystem(str(folder), pa_fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return pa_fs.PyFileSystem(DeltaStorageHandler(uri, dict(OPTIONS)))


def folders(uri: str) -> list[str]:
    """The names of the folders in a location, in order; none if it is not there."""
    import pyarrow.fs as pa_fs

    with told(f"cannot list {shown(uri)}"):
        if (folder := folder_of(uri)) is not None and not folder.is_dir():
            return []
        found = filesystem(uri).get_file_info(pa_fs.FileSelector("", allow_not_found=True))
    return sorted(each.base_name for each in found if each.type == pa_fs.FileType.Directory)


@contextlib.contextmanager
def open_parquet(uri: str, path: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file below a location; LakeError if it is missing or cannot be read."""
    import pyarrow.parquet as pq

    with told(f"cannot read {shown(child(uri, path))}"):
        try:
            if (folder := folder_of(uri)) is not None:
                opened = pq.ParquetFile(folder / path)
            else:
                opened = pq.ParquetFile(filesystem(uri).open_input_file(path))
        except FileNotFoundError as error:
            raise MissingFileError(
                f"{shown(child(uri, path))} is not to be found on {platform.node()}: does it see "
                "the same folder as the driver? An object store is seen from everywhere"
            ) from error
        with opened as file:
            yield file


def read_bytes(uri: str, path: str) -> bytes | None:
    """A small file below a location; None if there is none."""
    with told(f"cannot read {shown(child(uri, path))}"):
        try:
            with filesystem(uri).open_input_file(path) as file:
                return file.read()  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None


def remove(uri: str, path: str) -> None:
    """Let there be no such file below a location."""
    with told(f"cannot remove {shown(child(uri, path))}"), contextlib.suppress(FileNotFoundError):
        filesystem(uri).delete_file(path)


def clear(uri: str, path: str) -> None:
    """Let there be no file below a folder of a location."""
    import pyarrow.fs as pa_fs

    with told(f"cannot clear {shown(child(uri, path))}"):
        selector = pa_fs.FileSelector(path, allow_not_found=True, recursive=True)
        for found in filesystem(uri).get_file_info(selector):
            if found.type == pa_fs.FileType.File:
                remove(uri, found.path)


def write_whole(uri: str, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file anywhere, made with its folders: all of it is there, and on disk, or what was
    there before."""
    with told(f"cannot write {shown(uri)}"):
        if (path := folder_of(uri)) is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_whole(path, parts)
            return
        parent, _, name = uri.rpartition("/")
        # What is not buffered, Arrow hands on as an object that object stores do not take.
        with filesystem(parent).open_output_stream(name, buffer_size=2 * _PIECE_BYTES) as stream:
            for part in parts:
                whole = memoryview(part).cast("B")
                for begin in range(0, len(whole), _PIECE_BYTES):
                    stream.write(whole[begin : begin + _PIECE_BYTES])


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Errors of disks, networks and tables as one line for people."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        yield
    except LakeError:
        raise
    except (OSError, DeltaError, pa.ArrowException) as error:
        raise LakeError(f"{what}: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """What went wrong, without the drawing that the library makes of it, and without secrets."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    text = " ".join(_COLOURS.sub(" ", text).split())
    return _SECRETS.sub(lambda found: found[1] or "", text)
