"""A matcher as one buffer, for a file, a socket or a place in memory that many share.

The buffer begins with a short head, in which everything is plain values, trees and sets; behind
it, each at a whole page, lie the segments just as they are searched. So saving writes them out,
and loading a mapped file reads the head only: the segments come page by page as they are needed,
and processes that map the same file share them. Map it privately (copy on write): removing a
subscription clears a bit.

The head is pickled, since it holds trees; but what is read back may only be classes of the
language and plain values. A buffer from a stranger can be wrong, but cannot make anything run.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import numpy as np

from rove.errors import RoveError
from rove.match.index.layout import Buffer

_MAGIC: Final = b"rove matcher\x00\x00\x00\x01"
"""The last byte is the version of the format."""
_PAGE: Final = 4096
_LENGTHS: Final = struct.Struct("<QQ")
_CLASSES: Final[dict[str, set[str] | None]] = {
    "rove.lang.tree": None,
    "rove.lang.sets": {"ValueSet", "TOP"},
    "rove.lang.normal_form": {"Conjunction"},
    "rove.lang.patterns": {"Pattern"},
    "rove.lang.replay": {"RankedWindow", "Member"},
    "rove.match.designs.design": {"SavedSubscription", "DesignState", "Counters", "Evolve"},
    "builtins": {"frozenset", "set", "bytearray", "int"},
}
"""By module the names that a head may refer to; None for all structs in it."""
_RENAMED: Final = {
    "rove.lang.normal": "rove.lang.normal_form",
    "rove.lang.ranking": "rove.lang.replay",
}
"""Modules that had another name when older heads were written."""


class SavedError(RoveError):
    """A buffer that holds no matcher, or one of another version."""


def packed(head: Mapping[str, Any], buffers: Sequence[Buffer]) -> list[bytes | memoryview]:
    """The parts of a saved matcher, to be written one after another."""
    sizes = [buffer.nbytes for buffer in buffers]
    pickled = pickle.dumps({"head": dict(head), "sizes": sizes}, protocol=5)
    begin = len(_MAGIC) + _LENGTHS.size
    parts: list[bytes | memoryview] = [_MAGIC, _LENGTHS.pack(len(pickled), sum(sizes)), pickled]
    parts.append(bytes(-(begin + len(pickled)) % _PAGE))
    for buffer in buffers:
        parts.append(buffer.data.cast("B"))
        parts.append(bytes(-buffer.nbytes % _PAGE))
    return parts


def unpacked(saved: bytes | memoryview) -> tuple[dict[str, Any], list[Buffer]]:
    """Head and segments of a saved matcher; SavedError if it is none.

    Segments are views where `saved` can be written to (a private mapping), else copies.
    """
    view = memoryview(saved).cast("B")
    begin = len(_MAGIC) + _LENGTHS.size
    if bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise SavedError("this is no saved matcher, or one of another version of Rove")
    if len(view) < begin:
        raise SavedError("the saved matcher is cut short")
    pickled_size, _ = _LENGTHS.unpack(view[len(_MAGIC) : begin])
    if len(view) < begin + pickled_size:
        raise SavedError("the saved matcher is cut short")
    content = _read_head(view[begin : begin + pickled_size])
    buffers: list[Buffer] = []
    at = _next_page(begin + pickled_size)
    for size in content["sizes"]:
        if len(view) < at + size:
            raise SavedError("the saved matcher is cut short")
        buffer: Buffer = np.frombuffer(view[at : at + size], np.int64)
        buffers.append(buffer.copy() if view.readonly else buffer)
        at = _next_page(at + size)
    return content["head"], buffers


def _next_page(at: int) -> int:
    return at + -at % _PAGE


def _read_head(view: memoryview) -> dict[str, Any]:
    try:
        content = _Reader(_Bytes(view)).load()
    except SavedError:
        raise
    except Exception as error:
        raise SavedError(f"the saved matcher cannot be read: {error}") from error
    if not (isinstance(content, dict) and {"head", "sizes"} <= content.keys()):
        raise SavedError("the saved matcher has no head")
    return cast("dict[str, Any]", content)


class _Bytes:
    """What an unpickler reads from."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        end = len(self._view) if size < 0 else min(self._at + size, len(self._view))
        found = bytes(self._view[self._at : end])
        self._at = end
        return found

    def readline(self) -> bytes:
        rest = bytes(self._view[self._at : self._at + 256])
        return self.read(rest.find(b"\n") + 1 or len(rest))


class _Reader(pickle.Unpickler):
    """Reads trees, sets and plain values, and refuses to build anything else."""

    def find_class(self, module: str, name: str) -> Any:
        module = _RENAMED.get(module, module)
        names = _CLASSES.get(module, set())
        if "." not in name and (names is None or name in names):
            found = super().find_class(module, name)
            # Of a whole module only what holds values, not the functions that stand beside it.
            if names is not None or (isinstance(found, type) and issubclass(found, msgspec.Struct)):
                return found
        raise SavedError(f"a saved matcher holds no {module}.{name}")
