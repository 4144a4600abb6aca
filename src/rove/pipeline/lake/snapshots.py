"""Snapshots of the active subscriptions, so that a job need not start at the beginning of the log.

The log itself is never truncated. A job whose snapshot is lost, of another lake, or of a position
that the job has not reached, reads the log from its beginning. So a snapshot only saves time. It is
a new file with a checksum; the previous one is deleted when the new one is complete.

A snapshot is written after as many events as there are subscriptions, and costs 1 µs for each.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

import msgspec
import pyarrow.fs as pa_fs

from rove.lake.storage import child, filesystem, lake_errors, read_bytes, remove, shown, write_whole
from rove.pipeline.lake.versions import Version

EVENTS_MIN: Final = 10_000
"""Reading fewer events again is faster than writing a snapshot."""
_FOLDER: Final = "_subscriptions"
_NAME: Final = re.compile(r"(\d+)\.snapshot")
_MAGIC: Final = b"rove snapshot\x00\x00\x01"


class SubscriptionSnapshot(msgspec.Struct, frozen=True):
    """The active subscriptions at a position."""

    lake: str
    """The id of the lake's table."""
    engine: str | None
    position: int
    versions: list[Version]
    """With the states of their subscribers at the position."""
    durable: list[int]
    """The numbers of those that survive a restart of the broker."""


def save(uri: str, snapshot: SubscriptionSnapshot) -> None:
    """Write a snapshot below a location, and delete earlier ones."""
    body = msgspec.msgpack.encode(snapshot)
    content = _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body
    write_whole(child(uri, _path(snapshot.position)), [content])
    for position in _positions(uri):
        if position != snapshot.position:
            remove(uri, _path(position))


def load(uri: str, lake: str, engine: str | None, up_to: int) -> SubscriptionSnapshot | None:
    """The latest valid snapshot of a lake at or before a position, if there is one."""
    for position in sorted(_positions(uri), reverse=True):
        if position <= up_to:
            found = _decoded(read_bytes(uri, _path(position)) or b"")
            if found is not None and (found.lake, found.engine) == (lake, engine):
                return found
    return None


def _path(position: int) -> str:
    return f"{_FOLDER}/{position}.snapshot"


def _positions(uri: str) -> list[int]:
    with lake_errors(f"cannot list the snapshots in {shown(uri)}"):
        selector = pa_fs.FileSelector(_FOLDER, allow_not_found=True)
        listed = filesystem(uri).get_file_info(selector)
    names = (_NAME.fullmatch(one.base_name) for one in listed if one.is_file)
    return [int(name[1]) for name in names if name is not None]


def _decoded(stored: bytes) -> SubscriptionSnapshot | None:
    """The snapshot; None if it is torn, or of another version of Rove."""
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
