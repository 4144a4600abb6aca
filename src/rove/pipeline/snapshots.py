"""Who is subscribed at a position, kept beside a job: a start reads the log from there on.

The log itself is never cut: whoever asks for an earlier position reads it from its beginning, and
so does a job that has lost its snapshot, or finds one of another lake, or of a position that it has
not reached. So a snapshot is only ever a shorter way to the same. It is a file of its own name,
with a sum of its bytes; the one before goes when it is there.

One is made when as many events have come as there are subscriptions, and 1 µs each.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

import msgspec
import pyarrow.fs as pa_fs

from rove.lake.storage import Location, filesystem, resolved, shown, told
from rove.pipeline.versions import Version

EVENTS_MIN: Final = 10_000
"""Fewer are read again more quickly than a snapshot is worth."""
_FOLDER: Final = "_subscriptions"
_NAME: Final = re.compile(r"(\d+)\.snapshot")
_MAGIC: Final = b"rove snapshot\x00\x00\x01"


class Snapshot(msgspec.Struct, frozen=True):
    """The subscriptions that hold at a position."""

    lake: str
    """Which lake that is: the id of its table."""
    engine: str | None
    position: int
    versions: list[Version]
    """With the states of their subscribers at that position."""
    durable: list[int]
    """The numbers of those that outlive the broker."""


def save(folder: Location, snapshot: Snapshot) -> None:
    """Keep a snapshot instead of those before."""
    uri = resolved(folder)
    files = filesystem(uri)
    body = msgspec.msgpack.encode(snapshot)
    with told(f"cannot write a snapshot in {shown(uri)}"):
        files.create_dir(_FOLDER)
        with files.open_output_stream(_path(snapshot.position)) as file:
            file.write(_MAGIC + zlib.crc32(body).to_bytes(4, "little") + body)
        for position in _positions(files):
            if position != snapshot.position:
                files.delete_file(_path(position))


def load(folder: Location, lake: str, engine: str | None, up_to: int) -> Snapshot | None:
    """The latest of a lake at a position or before it, if there is one that is whole."""
    uri = resolved(folder)
    files = filesystem(uri)
    with told(f"cannot read the snapshots in {shown(uri)}"):
        for position in sorted(_positions(files), reverse=True):
            if position > up_to:
                continue
            with files.open_input_stream(_path(position)) as file:
                found = _decoded(file.read())
            if found is not None and (found.lake, found.engine) == (lake, engine):
                return found
    return None


def _path(position: int) -> str:
    return f"{_FOLDER}/{position}.snapshot"


def _positions(files: pa_fs.FileSystem) -> list[int]:
    listed = files.get_file_info(pa_fs.FileSelector(_FOLDER, allow_not_found=True))
    names = (_NAME.fullmatch(one.base_name) for one in listed if one.is_file)
    return [int(name[1]) for name in names if name is not None]


def _decoded(stored: bytes) -> Snapshot | None:
    """None if it is torn, or of another version of Rove."""
    begin = len(_MAGIC) + 4
    body = stored[begin:]
    if stored[: len(_MAGIC)] != _MAGIC or zlib.crc32(body) != int.from_bytes(
        stored[len(_MAGIC) : begin], "little"
    ):
        return None
    try:
        return msgspec.msgpack.decode(body, type=Snapshot)
    except msgspec.MsgspecError:
        return None
