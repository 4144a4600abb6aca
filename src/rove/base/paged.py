"""Paged files: a head, and blocks aligned to pages, which can be used in a mapped file.

    magic │ length of the envelope │ envelope (MessagePack) │ padding │ block │ padding │ block …

The envelope has the kind of the file (`contents`), the head and the sizes of the blocks. A reader
decodes only the head: the blocks are loaded page by page from a mapped file as they are needed, and
processes that map the same file share them. Nothing is copied, and nothing in such a file can run
code. A file of another kind is refused by name.

This module does no I/O: `packed` returns the parts to write, `unpacked` takes read or mapped bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from rove.errors import RoveError

_MAGIC: Final = b"rove pages\x00\x00\x00\x00\x00\x01"
"""The last byte is the version of the format."""
_PAGE: Final = 4096
_BEGIN: Final = len(_MAGIC) + 8

Part: TypeAlias = bytes | memoryview
Block: TypeAlias = Sequence[Part]
"""Parts that are written together, from a page on."""
Head = TypeVar("Head")


class PagedFileError(RoveError):
    """Something that is no paged file, is damaged, or holds something else."""


class _Envelope(msgspec.Struct, frozen=True):
    contents: str
    head: msgspec.Raw
    sizes: list[int]
    """Of the blocks, in bytes."""


def packed(
    contents: str,
    head: object,
    blocks: Iterable[Block] = (),
    *,
    enc_hook: Callable[[Any], Any] | None = None,
) -> list[Part]:
    """The parts of a file, to be written one after another."""
    every = [[memoryview(part).cast("B") for part in block] for block in blocks]
    sizes = [sum(part.nbytes for part in block) for block in every]
    raw = msgspec.Raw(msgspec.msgpack.encode(head, enc_hook=enc_hook))
    envelope = msgspec.msgpack.encode(_Envelope(contents, raw, sizes))
    begin = _MAGIC + len(envelope).to_bytes(8, "little") + envelope
    parts: list[Part] = [begin + _padding(len(begin))]
    for block, size in zip(every, sizes, strict=True):
        parts += [*block, _padding(size)]
    return parts


def unpacked(
    content: Part,
    contents: str,
    head_type: type[Head],
    *,
    ext_hook: Callable[[int, memoryview], Any] | None = None,
) -> tuple[Head, list[memoryview]]:
    """The head of a file, and its blocks as views."""
    view = memoryview(content).cast("B")
    if len(view) < _BEGIN or bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise PagedFileError("it is not a file of this version of Rove")
    at = _BEGIN + int.from_bytes(view[len(_MAGIC) : _BEGIN], "little")
    if len(view) < at:
        raise PagedFileError(f"it is cut short after {len(view):,} bytes")
    try:
        envelope = msgspec.msgpack.decode(view[_BEGIN:at], type=_Envelope)
        if envelope.contents != contents:
            raise PagedFileError(f"it holds {envelope.contents}, not {contents}")
        head = msgspec.msgpack.decode(envelope.head, type=head_type, ext_hook=ext_hook)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PagedFileError(f"its head is damaged: {error}") from error
    blocks: list[memoryview] = []
    for size in envelope.sizes:
        at += -at % _PAGE
        blocks.append(view[at : at + size])
        at += size
    if at > len(view) or any(size < 0 for size in envelope.sizes):
        raise PagedFileError(f"it is cut short: it should have {at:,} bytes, and has {len(view):,}")
    return head, blocks


def _padding(size: int) -> bytes:
    return bytes(-size % _PAGE)
