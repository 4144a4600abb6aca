"""What neighbours send each other, as bytes and back.

A message is four bytes of length, one of type, and fields in network byte order. The first message
on a link is HELLO. It begins with the protocol's version and may grow at its end, so that any two
versions can at least refuse each other in plain words; every other message must have exactly the
bytes that it announces.

Most messages are frames, which travel through several brokers. A frame lists its targets, each with
a prefix of its own, and has one body for all of them. A broker on the way looks at the list, lowers
the number of hops that are left and passes the rest on as it came. Reading a frame costs about
1.5 µs, and writing one 1 µs.

The reader trusts nothing: each type has a limit of bytes, which is checked before anything is kept,
and whatever is wrong ends in a `MeshError` of one line. The caller closes the link then.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from rove.errors import RoveError
from rove.mesh.graph import Edge, Record

PROTOCOL: Final = 1
MAGIC: Final = b"rovemesh"
HELLO, WELCOME, REFUSE, PING, PONG, TAKEN, DIGEST, RECORD, OPEN, FRAME = range(1, 11)

NAME_CHARACTERS_MAX: Final = 64
REASON_BYTES_MAX: Final = 300
EDGES_MAX: Final = 1_000
TARGETS_MAX: Final = 255
HOPS_MAX: Final = 64
DIGEST_MAX: Final = 10_000
PAYLOAD_BYTES_MAX: Final = 64 * 1024
"""Of one frame: prefixes and body. What is longer is cut, so that it does not block a link."""
NUMBER_MAX: Final = (1 << 63) - 1

_NAME: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{NAME_CHARACTERS_MAX}}}")
_HEADER: Final = struct.Struct(">IB")
_HELLO: Final = struct.Struct(">8sHQQd")
_NUMBER: Final = struct.Struct(">I")
_PING: Final = struct.Struct(">dQ")
_PONG: Final = struct.Struct(">ddQ")
_TAKEN: Final = struct.Struct(">Q")
_PAIR: Final = struct.Struct(">QQ")
_RECORD: Final = struct.Struct(">QQQH")
_EDGE: Final = struct.Struct(">QIIqI")
_OPEN: Final = struct.Struct(">BQQIIB")
_FRAME: Final = struct.Struct(">IBB")
_ORIGIN: Final = struct.Struct(">QB")
_HEAD: Final = struct.Struct(">QQQQH")
_ONE: Final = struct.Struct(">IBBQBQQQQH")

BYTES_MAX: Final = {
    HELLO: 1_000,
    WELCOME: _NUMBER.size,
    REFUSE: REASON_BYTES_MAX,
    PING: _PING.size,
    PONG: _PONG.size,
    TAKEN: _TAKEN.size,
    DIGEST: DIGEST_MAX * _PAIR.size,
    RECORD: _RECORD.size + 1 + NAME_CHARACTERS_MAX + EDGES_MAX * _EDGE.size,
    OPEN: _OPEN.size,
    FRAME: 1 + _ORIGIN.size + TARGETS_MAX * _HEAD.size + PAYLOAD_BYTES_MAX,
}
"""What may follow the type."""
_TYPES: Final = (
    "", "HELLO", "WELCOME", "REFUSE", "PING", "PONG", "TAKEN", "DIGEST", "RECORD", "OPEN", "FRAME",
)  # fmt: skip


class MeshError(RoveError):
    """A neighbour sent what no broker sends; the text is one line for people."""


# -- messages ----------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True):
    """The first message on a link, both ways."""

    protocol: int
    version: str
    """Of Rove."""
    name: str
    epoch: int
    node: int
    now_s: float


class Welcome(msgspec.Struct, frozen=True):
    """The link may be used. The end with the smaller node sends it and numbers the link."""

    number: int


class Refuse(msgspec.Struct, frozen=True):
    """The last message on a link; empty if it is closed without a fault."""

    reason: str


class Ping(msgspec.Struct, frozen=True):
    sent_s: float
    taken: int
    """Bytes received over this link so far."""


class Pong(msgspec.Struct, frozen=True):
    sent_s: float
    """Of the ping."""
    now_s: float
    taken: int


class Taken(msgspec.Struct, frozen=True):
    """So many bytes have been received over this link."""

    taken: int


class Digest(msgspec.Struct, frozen=True):
    """The numbers of the records that the sender has, by node."""

    numbers: dict[int, int]


class Open(msgspec.Struct, frozen=True):
    """Opens a tunnel, or opens it again after a reset; travels like a frame."""

    hops: int
    origin: int
    target: int
    mine: int
    """The origin's number of the incarnation that it wants."""
    yours: int
    """The last number of the target that it received; 0 if none."""
    reason: int
    """Why it was reset, an index of `tunnel.REASONS`."""


Head = tuple[int, int, int, int, int]
"""Of one target of a frame: node, incarnation, position, acknowledged position, bytes of prefix."""


class Frame(msgspec.Struct, gc=False):
    """A part of one stream, or of several that have the same body."""

    hops: int
    origin: int
    heads: tuple[Head, ...]
    start: int
    """Where the prefixes begin in `data`; the body follows the last of them."""
    data: bytes
    """Everything from the origin on, as it came."""


Message = Hello | Welcome | Refuse | Ping | Pong | Taken | Digest | Record | Open | Frame


def check_name(name: str) -> None:
    """Raise what is wrong with the name of a broker."""
    if _NAME.fullmatch(name) is None:
        raise MeshError(
            f"a broker cannot be called {name[:80]!r}: a name has 1 to {NAME_CHARACTERS_MAX}"
            " characters, which are letters, digits, '.', '_' and '-'"
        )


# -- writing -------------------------------------------------------------------------------------


def _message(kind: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return _HEADER.pack(len(body) + 1, kind) + body


def _text(text: str) -> bytes:
    data = text.encode()
    return bytes((len(data),)) + data


def encode(message: Hello | Welcome | Refuse | Ping | Pong | Taken | Record | Digest) -> bytes:
    """A message that goes no further than to the neighbour; records are passed on by it."""
    match message:
        case Hello(protocol, version, name, epoch, node, now_s):
            fixed = _HELLO.pack(MAGIC, protocol, epoch, node, now_s)
            return _message(HELLO, fixed, _text(version), _text(name))
        case Welcome(number):
            return _message(WELCOME, _NUMBER.pack(number))
        case Refuse(reason):
            cut = reason.encode()[:REASON_BYTES_MAX].decode(errors="ignore")
            return _message(REFUSE, cut.encode())
        case Ping(sent_s, taken):
            return _message(PING, _PING.pack(sent_s, taken))
        case Pong(sent_s, now_s, taken):
            return _message(PONG, _PONG.pack(sent_s, now_s, taken))
        case Taken(taken):
            return _message(TAKEN, _TAKEN.pack(taken))
        case Digest(numbers):
            return _message(DIGEST, *(_PAIR.pack(*pair) for pair in numbers.items()))
        case Record(node, name, epoch, number, edges):
            fixed = _RECORD.pack(node, epoch, number, len(edges))
            ends = (_EDGE.pack(*msgspec.structs.astuple(edge)) for edge in edges)
            return _message(RECORD, fixed, _text(name), *ends)


def encode_open(message: Open) -> bytes:
    return _message(OPEN, _OPEN.pack(*msgspec.structs.astuple(message)))


def encode_frame(origin: int, heads: Sequence[Head], payload: bytes, hops: int = HOPS_MAX) -> bytes:
    """A frame; the payload is all prefixes, in the order of the heads, and the body."""
    if len(heads) == 1:
        size = _ONE.size - 4 + len(payload)
        return _ONE.pack(size, FRAME, hops, origin, 1, *heads[0]) + payload
    listed = b"".join([_HEAD.pack(*head) for head in heads])
    size = 2 + _ORIGIN.size + len(listed) + len(payload)
    start = _FRAME.pack(size, FRAME, hops) + _ORIGIN.pack(origin, len(heads))
    return b"".join((start, listed, payload))


def frame_onward(frame: Frame) -> bytes:
    """The same frame, for the next broker."""
    data = frame.data
    return _FRAME.pack(len(data) + 2, FRAME, frame.hops - 1) + data


def frame_split(frame: Frame, targets: Iterable[int]) -> bytes:
    """The same frame for some of its targets, given by their positions, for the next broker."""
    heads, prefixes = [], []
    data, heads_all = frame.data, frame.heads
    places = prefix_places(frame)
    for index in targets:
        heads.append(heads_all[index])
        prefixes.append(data[places[index] : places[index + 1]])
    payload = b"".join((*prefixes, data[places[-1] :]))
    return encode_frame(frame.origin, heads, payload, frame.hops - 1)


def prefix_places(frame: Frame) -> list[int]:
    """Where each prefix begins in the data of a frame, and at the end where the body does."""
    place = frame.start
    places = [place]
    for head in frame.heads:
        place += head[4]
        places.append(place)
    return places


# -- reading -------------------------------------------------------------------------------------


class MessageReader:
    """Turns the bytes of one link into messages. Keeps at most one incomplete message."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._have = 0
        self._need = _HEADER.size
        self._is_first = True

    @property
    def kept_bytes(self) -> int:
        """Of a message that is not complete yet."""
        return self._have

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that these bytes complete; raises `MeshError`."""
        self._have += len(data)
        if self._parts:
            self._parts.append(data)
            if self._have < self._need:
                return
            data = b"".join(self._parts)
        self._parts = []
        position, size = 0, len(data)
        while True:
            left = size - position
            if left < _HEADER.size:
                self._need = _HEADER.size
                break
            length, kind = _HEADER.unpack_from(data, position)
            self._check(kind, length - 1, data[position : position + 16])
            if left < length + 4:
                self._need = length + 4
                break
            begin, end = position + _HEADER.size, position + 4 + length
            position = end
            if kind == FRAME:
                yield _frame(data, begin, end)
            else:
                yield _read(kind, data[begin:end])
        if left:
            self._parts = [data[position:] if position else data]
        self._have = left

    def _check(self, kind: int, size: int, begins: bytes) -> None:
        """Refuse a message by its header."""
        if self._is_first:
            if kind not in (HELLO, REFUSE):
                raise MeshError(
                    f"this is no link of a broker: it begins with {begins!r}, and not with HELLO"
                )
            self._is_first = False
        limit = BYTES_MAX.get(kind)
        if limit is None:
            raise MeshError(f"a message of the unknown type {kind}; known are 1 to {FRAME}")
        if not 0 <= size <= limit:
            raise MeshError(f"{_TYPES[kind]} of {size:,} bytes, at most {limit:,} are allowed")


def _read(kind: int, data: bytes) -> Message:
    """A message other than a frame."""
    try:
        return _DECODERS[kind](data)
    except (struct.error, UnicodeDecodeError, IndexError):
        what = f"{_TYPES[kind]} of {len(data)} bytes has not the fields that it must have"
        raise MeshError(what) from None


def _hello(data: bytes) -> Hello:
    magic, protocol, epoch, node, now_s = _HELLO.unpack_from(data)
    if magic != MAGIC:
        raise MeshError(f"HELLO of something else: it begins with {magic!r}, not with {MAGIC!r}")
    version, at = _text_at(data, _HELLO.size)
    name, _ = _text_at(data, at)
    _check_numbers("HELLO", epoch)
    _check_time("HELLO", now_s)
    return Hello(protocol, version, name, epoch, node, now_s)


def _text_at(data: bytes, at: int) -> tuple[str, int]:
    """A text with its length before it, and where it ends."""
    end = at + 1 + data[at]
    if end > len(data):
        raise IndexError
    return data[at + 1 : end].decode(), end


def _check_numbers(what: str, *numbers: int) -> None:
    for number in numbers:
        if number > NUMBER_MAX:
            raise MeshError(f"{what} with the number {number}, the largest allowed is {NUMBER_MAX}")


def _check_time(what: str, *times_s: float) -> None:
    for time_s in times_s:
        if not abs(time_s) < 1e12:
            raise MeshError(f"{what} with the time {time_s}, which no clock shows")


def _refuse(data: bytes) -> Refuse:
    text = data.decode()
    if not text.isprintable():
        raise MeshError("REFUSE with characters that cannot be printed")
    return Refuse(text)


def _ping(data: bytes) -> Ping:
    ping = Ping(*_PING.unpack(data))
    _check_time("PING", ping.sent_s)
    return ping


def _pong(data: bytes) -> Pong:
    pong = Pong(*_PONG.unpack(data))
    _check_time("PONG", pong.sent_s, pong.now_s)
    return pong


def _record(data: bytes) -> Record:
    node, epoch, number, count = _RECORD.unpack_from(data)
    name, at = _text_at(data, _RECORD.size)
    if len(data) != at + count * _EDGE.size:
        raise MeshError(f"RECORD of {len(data)} bytes cannot have {count} links")
    _check_numbers("RECORD", epoch, number)
    check_name(name)
    edges = tuple(Edge(*fields) for fields in _EDGE.iter_unpack(data[at:]))
    return Record(node, name, epoch, number, edges)


_DECODERS: Final[Mapping[int, Callable[[bytes], Message]]] = {
    HELLO: _hello,
    WELCOME: lambda data: Welcome(*_NUMBER.unpack(data)),
    REFUSE: _refuse,
    PING: _ping,
    PONG: _pong,
    TAKEN: lambda data: Taken(*_TAKEN.unpack(data)),
    DIGEST: lambda data: Digest(dict(_PAIR.iter_unpack(data))),
    RECORD: _record,
    OPEN: lambda data: Open(*_OPEN.unpack(data)),
}


def _frame(data: bytes, begin: int, end: int) -> Frame:
    """A frame between two positions."""
    body = data[begin + 1 : end]
    size = len(body)
    if size < _ORIGIN.size:
        raise MeshError(f"FRAME of {size} bytes, its origin is missing")
    origin, count = _ORIGIN.unpack_from(body)
    start = _ORIGIN.size + count * _HEAD.size
    if count == 0 or size < start:
        raise MeshError(f"FRAME of {size} bytes cannot have {count} targets")
    if count == 1:
        heads: tuple[Head, ...] = (_HEAD.unpack_from(body, _ORIGIN.size),)
        prefixes = heads[0][4]
    else:
        heads = tuple(_HEAD.iter_unpack(body[_ORIGIN.size : start]))
        prefixes = sum([head[4] for head in heads])
    if prefixes > size - start:
        raise MeshError(f"FRAME with {prefixes} bytes of prefixes, and only {size - start} follow")
    return Frame(data[begin], origin, heads, start, body)
