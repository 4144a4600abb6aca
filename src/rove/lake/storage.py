"""Locations of tables: a folder of this machine, or anything with a URI.

`file`, `s3`, `gs`, `abfs` and `hdfs` are accessed with the library deltalake, which takes
credentials from the environment, as their own tools do. Credentials are never passed on or
printed: `shown` is a URI without them.

A location is resolved once, where it is given: in a worker, a relative path would be another
folder.
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
"""For every object store. Few retries, since callers retry by themselves and report why."""

_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m|[↳╰╭│─▶·]+")
_SECRETS: Final = re.compile(r"(https?://)[^\s@/]*@|[?&](?:X-Amz-|sig=|se=|sp=|sv=)\S*", re.I)
_PIECE_BYTES: Final = 1024 * 1024
NAME_BYTES_MAX: Final = 80
"""Bytes of a value that becomes part of a folder's name, where each may take three."""

Location: TypeAlias = str | Path
"""A folder or a URI."""


class LakeError(RoveError):
    """A table that does not exist, or cannot be used now."""


class MissingFileError(LakeError):
    """A file of a table cannot be found.

    Files that retention or compaction has removed from a table stay for hours. So it means that
    this process does not have the same storage as another one.
    """


def resolved(location: Location) -> str:
    """A URI unchanged; a folder, or a URI `file:`, as an absolute path."""
    text = str(location)
    parts = urlsplit(text)
    if parts.scheme == "file":
        text = unquote(parts.path)
    elif "://" in text:
        return text.rstrip("/")
    return str(Path(text).resolve())


def folder_of(uri: str) -> Path | None:
    """The folder of a location; None if it is not on this machine."""
    return None if "://" in uri else Path(uri)


def child(uri: str, *names: str) -> str:
    """A location below another."""
    return "/".join([uri.rstrip("/"), *names])


def shown(uri: str) -> str:
    """A URI for messages, without credentials."""
    if "://" not in uri:
        return uri
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


@functools.lru_cache(maxsize=64)
def filesystem(uri: str) -> pa_fs.FileSystem:
    """A location as a file system of Arrow; names are relative to it."""
    import pyarrow.fs as pa_fs

    if (folder := folder_of(uri)) is not None:
        return pa_fs.SubTreeFileSystem(str(folder), pa_fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler

    return pa_fs.PyFileSystem(DeltaStorageHandler(uri, dict(OPTIONS)))


def folders(uri: str) -> list[str]:
    """The sorted names of the folders in a location; none if it does not exist."""
    import pyarrow.fs as pa_fs

    with lake_errors(f"cannot list {shown(uri)}"):
        if (folder := folder_of(uri)) is not None and not folder.is_dir():
            return []
        found = filesystem(uri).get_file_info(pa_fs.FileSelector("", allow_not_found=True))
    return sorted(each.base_name for each in found if each.type == pa_fs.FileType.Directory)


@contextlib.contextmanager
def open_parquet(uri: str, path: str) -> Iterator[pq.ParquetFile]:
    """A Parquet file below a location; LakeError if it is missing or cannot be read."""
    import pyarrow.parquet as pq

    with lake_errors(f"cannot read {shown(child(uri, path))}"):
        try:
            if (folder := folder_of(uri)) is not None:
                opened = pq.ParquetFile(folder / path)
            else:
                opened = pq.ParquetFile(filesystem(uri).open_input_file(path))
        except FileNotFoundError as error:
            raise MissingFileError(
                f"{shown(child(uri, path))} was not found on {platform.node()}: has it the same "
                "folder as the driver? All machines can read an object store"
            ) from error
        with opened as file:
            yield file


def read_bytes(uri: str, path: str) -> bytes | None:
    """A small file below a location; None if there is none."""
    with lake_errors(f"cannot read {shown(child(uri, path))}"):
        try:
            with filesystem(uri).open_input_file(path) as file:
                return file.read()  # type: ignore[no-any-return]
        except FileNotFoundError:
            return None


def remove(uri: str, path: str) -> None:
    """Remove a file below a location, if it exists."""
    with (
        lake_errors(f"cannot remove {shown(child(uri, path))}"),
        contextlib.suppress(FileNotFoundError),
    ):
        filesystem(uri).delete_file(path)


def clear(uri: str, path: str) -> None:
    """Remove all files below a folder of a location."""
    import pyarrow.fs as pa_fs

    with lake_errors(f"cannot clear {shown(child(uri, path))}"):
        selector = pa_fs.FileSelector(path, allow_not_found=True, recursive=True)
        for found in filesystem(uri).get_file_info(selector):
            if found.type == pa_fs.FileType.File:
                remove(uri, found.path)


def write_whole(uri: str, parts: Iterable[bytes | memoryview]) -> None:
    """Write a file at any location, with its folders. Afterwards it is on disk; after a crash,
    there is either the whole new file or the old one."""
    with lake_errors(f"cannot write {shown(uri)}"):
        if (path := folder_of(uri)) is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write_whole(path, parts)
            return
        parent, _, name = uri.rpartition("/")
        # Without a buffer, Arrow passes objects on that object stores do not accept.
        with filesystem(parent).open_output_stream(name, buffer_size=2 * _PIECE_BYTES) as stream:
            for part in parts:
                whole = memoryview(part).cast("B")
                for begin in range(0, len(whole), _PIECE_BYTES):
                    stream.write(whole[begin : begin + _PIECE_BYTES])


@contextlib.contextmanager
def lake_errors(what: str) -> Iterator[None]:
    """Turn errors of disks, networks and tables into a `LakeError` of one line."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        yield
    except LakeError:
        raise
    except (OSError, DeltaError, pa.ArrowException) as error:
        raise LakeError(f"{what}: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The message of an error without the library's drawings, and without secrets."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    text = " ".join(_COLOURS.sub(" ", text).split())
    return _SECRETS.sub(lambda found: found[1] or "", text)
