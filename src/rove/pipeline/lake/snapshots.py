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

from rove.lake.storage import child, filesystem, read_bytes, remove, shown, told, write_whole
from rove.pipeline.lake.versions import Version

EVENTS_MIN: Final = 10_000
"""Fewer are read again more quickly than a snapshot is worth."""
_FOLDER: Final = "_subscriptions"
_NAME: Final = re.compile(r"(\d+)\.snapshot")
_MAGIC: Final = b"rove snapshot\x00\x00\x01"


class SubscriptionSnapshot(msgspec.Struct, frozen=True):
    """The subscriptions that hold at a position."""

    lake: str
    """Which lake that is: the id of its table."""
    engine: str | None
    position: int
    versions: list[Version]
    """With the states of their subscribers at that position."""
    durable: list[int]
    """The numbers of those that outlive the broker."""


def save(uri: str, snapshot: SubscriptionSnapshot) -> None:
    """Keep a snapshot below a location, instead of those before."""
    body = msgspec.msgpack.encode(snapshot)
    content = _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body
    write_whole(child(uri, _path(snapshot.position)), [content])
    for position in _positions(uri):
        if position != snapshot.position:
            remove(uri, _path(position))


def load(uri: str, lake: str, engine: str | None, up_to: int) -> SubscriptionSnapshot | None:
    """The latest of a lake at a position or before it, if there is one that is whole."""
    for position in sorted(_positions(uri), reverse=True):
        if position <= up_to:
            found = _decoded(read_bytes(uri, _path(position)) or b"")
            if found is not None and (found.lake, found.engine) == (lake, engine):
                return found
    return None


def _path(position: int) -> str:
    return f"{_FOLDER}/{position}.snapshot"


def _positions(uri: str) -> list[int]:
    with told(f"cannot list the snapshots in {shown(uri)}"):
        selector = pa_fs.FileSelector(_FOLDER, allow_not_found=True)
        listed = filesystem(uri).get_file_info(selector)
    names = (_NAME.fullmatch(one.base_name) for one in listed if one.is_file)
    return [int(name[1]) for name in names if name is not None]


def _decoded(stored: bytes) -> SubscriptionSnapshot | None:
    """None if it is torn, or of another version of Rove."""
    begin = len(_MAGIC) + 4
    body = stored[begin:]
    if stored[: len(_MAGIC)] != _MAGIC or zlib.crc32(body) != int.from_bytes(
        stored[len(_MAGIC) : begin], "little"
    ):
        return None
    try:
        return msgspec.msgpack.decode(body, type=SubscriptionSnapshot)
    except msgspec.MsgspecError:
        return None
