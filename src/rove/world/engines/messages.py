"""Messages between servers and clients of a world: batches, in columns.

A tick has a thousand messages, so a message is a line of a batch, not an object. All kinds share
the columns; a kind uses those of its payload (see `FIELDS`), the others are 0. An unused column
costs 1 µs a batch.

Over MQTT a message is a JSON object, `payload`, with lengths to the millimetre. In process nothing
is encoded, but the bytes are counted: `payload_bytes` computes the length of each payload of a
batch. Both round in the same way and write whole numbers only, so the sizes are exact; encoding
payloads only to measure them would cost 50 times as much. Measured with 1,000 updates at once, for
each: 40 ns for its size, 2.2 µs to write and 1.8 µs to read it. A single one costs ten times that,
so use `payloads` and `parse_payloads` for many.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Self, Union

import msgspec
import numpy as np
import numpy.typing as npt

from rove.world.engines.engine_kernels import add_length_bytes, add_whole_number_bytes
from rove.world.runs.state import Entities, Floats, Ints, Longs, WorldError


class MessageKind(enum.IntEnum):
    """What a message is."""

    UPDATE = 0
    """Something happened to an entity whose replica the receiver has."""
    REPLICA = 1
    """A full copy of an entity."""
    LEFT = 2
    """An entity has left the tile where this is published; `tile` is where it is now."""
    REQUEST = 3
    """A client asks for what there is in a tile."""
    AREA_REQUEST = 4
    """A client asks for what there is around (x, y), and was around (former_x, former_y) before."""


NO_PLACE: Final = math.nan
"""The former place of a client that asks for the first time."""

_LENGTHS: Final = frozenset(
    ("x", "y", "vx", "vy", "reach_x", "reach_y", "former_x", "former_y"),
)
_MOVING: Final = ("entity", "version", "x", "y", "vx", "vy", "holder", "uses", "tick")
FIELDS: Final[dict[MessageKind, tuple[str, ...]]] = {
    MessageKind.UPDATE: _MOVING,
    MessageKind.REPLICA: (*_MOVING, "kind", "tile", "sender"),
    MessageKind.LEFT: ("entity", "version", "tile", "tick"),
    MessageKind.REQUEST: ("sender", "tile", "tick"),
    MessageKind.AREA_REQUEST: (
        *("sender", "entity", "x", "y", "reach_x", "reach_y", "former_x", "former_y", "tick"),
    ),
}
"""The columns that each kind carries, in the order of its payload."""


class Messages:
    """Messages in columns of equal length."""

    __slots__ = (
        "entity",
        "former_x",
        "former_y",
        "holder",
        "kind",
        "reach_x",
        "reach_y",
        "sender",
        "tick",
        "tile",
        "uses",
        "version",
        "vx",
        "vy",
        "what",
        "x",
        "y",
    )

    what: npt.NDArray[np.int8]
    entity: Ints
    version: Longs
    x: Floats
    y: Floats
    """Where the entity is, or the client that asks. In an area table also where it is published."""
    vx: Floats
    vy: Floats
    tick: Longs
    """When the rest was so."""
    sender: Ints
    """Who tells: the server of a replica, the client of a request."""
    tile: Ints
    kind: npt.NDArray[np.int8]
    holder: Ints
    uses: Longs
    reach_x: Floats
    reach_y: Floats
    """Half the sides of the rectangle that is asked for."""
    former_x: Floats
    former_y: Floats
    """The centre of what was asked for before; NO_PLACE if nothing was."""

    def __init__(
        self, what: MessageKind | npt.NDArray[np.int8], count: int, **columns: object
    ) -> None:
        """`count` messages; a column is an array, or one value for all, or left out: 0."""
        self.what = _column(what, np.int8, count)
        for name, dtype in COLUMNS.items():
            setattr(self, name, _column(columns.pop(name, 0), dtype, count))
        if columns:
            unknown = ", ".join(columns)
            raise WorldError(f"messages have no {unknown}; they have {', '.join(COLUMNS)}")

    @classmethod
    def about(cls, what: MessageKind, entities: Entities, numbers: Ints, tick: int) -> Self:
        """One message on each of these entities, with all that they are now.

        The sender is the server that holds the entity.
        """
        return cls(
            what,
            len(numbers),
            entity=numbers,
            version=entities.version[numbers],
            x=entities.x[numbers],
            y=entities.y[numbers],
            vx=entities.vx[numbers],
            vy=entities.vy[numbers],
            tick=tick,
            sender=entities.server[numbers],
            tile=entities.tile[numbers],
            kind=entities.kind[numbers],
            holder=entities.holder[numbers],
            uses=entities.uses[numbers],
        )

    @classmethod
    def none(cls) -> Self:
        return cls(MessageKind.UPDATE, 0)

    def __len__(self) -> int:
        return len(self.what)

    def take(self, lines: Ints | Longs) -> Messages:
        """The messages at these lines."""
        taken = Messages.__new__(Messages)
        for name in Messages.__slots__:
            setattr(taken, name, getattr(self, name)[lines])
        return taken

    def put(self, lines: Ints | Longs, messages: Messages) -> None:
        """Write messages over those at these lines, each once."""
        for name in Messages.__slots__:
            getattr(self, name)[lines] = getattr(messages, name)

    @staticmethod
    def joined(batches: Sequence[Messages]) -> Messages:
        """All messages of some batches, one batch after the other."""
        if len(batches) == 1:
            return batches[0]
        if not batches:
            return Messages.none()
        joined = Messages.__new__(Messages)
        for name in Messages.__slots__:
            setattr(joined, name, np.concatenate([getattr(batch, name) for batch in batches]))
        return joined


COLUMNS: Final[dict[str, type[np.generic]]] = {
    "entity": np.int32,
    "version": np.int64,
    "x": np.float64,
    "y": np.float64,
    "vx": np.float64,
    "vy": np.float64,
    "tick": np.int64,
    "sender": np.int32,
    "tile": np.int32,
    "kind": np.int8,
    "holder": np.int32,
    "uses": np.int64,
    "reach_x": np.float64,
    "reach_y": np.float64,
    "former_x": np.float64,
    "former_y": np.float64,
}


def _column(values: object, dtype: type[np.generic], count: int) -> npt.NDArray[Any]:
    if not isinstance(values, np.ndarray):
        return np.full(count, values, dtype) if values else np.zeros(count, dtype)
    if values.shape != (count,):
        raise WorldError(f"a column of {count} messages has the shape {values.shape}")
    return np.ascontiguousarray(values, dtype)


# -- payloads -----------------------------------------------------------------------------


def payload(messages: Messages, line: int) -> bytes:
    """One message as it travels over MQTT: a JSON object, without spaces."""
    return _payloads(messages, MessageKind(int(messages.what[line])), np.array([line]))[0]


def payloads(messages: Messages) -> list[bytes]:
    """All messages of a batch, each as it travels over MQTT."""
    found: list[bytes] = [b""] * len(messages)
    for what, lines in _by_kind(messages):
        for line, text in zip(lines.tolist(), _payloads(messages, what, lines), strict=True):
            found[line] = text
    return found


def _payloads(messages: Messages, what: MessageKind, lines: Longs) -> list[bytes]:
    """The payloads of lines that are of one kind."""
    columns = []
    for name in FIELDS[what]:
        values = getattr(messages, name)[lines]
        if name in _LENGTHS:
            # To add 0 makes 0.0 of -0.0, which would be written with its sign.
            values = np.rint(values * 1000.0) / 1000.0 + 0.0
        columns.append(values.tolist())
    texts = [_FORMS[what] % members for members in zip(*columns, strict=True)]
    return [text.replace("nan", "null").encode() for text in texts]


def _by_kind(messages: Messages) -> Iterator[tuple[MessageKind, Longs]]:
    """The lines of each kind that there is."""
    for what in MessageKind:
        lines = np.flatnonzero(messages.what == what)
        if len(lines):
            yield what, lines


_FORMS: Final = {
    what: "".join(
        (
            f'{{"what":"{what.name.lower()}"',
            *(f',"{name}":{"%.3f" if name in _LENGTHS else "%d"}' for name in FIELDS[what]),
            "}",
        )
    )
    for what in MessageKind
}
"""A payload without its values."""


def parse_payload(payload: bytes) -> Messages:
    """The one message of a payload; WorldError if it is none of ours."""
    return parse_payloads([payload])


def parse_payloads(payloads: Sequence[bytes]) -> Messages:
    """The messages of many payloads, in their order; WorldError if one is none of ours."""
    whats, members = [], []
    for payload in payloads:
        try:
            told = _DECODER.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            start = payload[:100].decode(errors="replace")
            raise WorldError(f"a payload is no message of a world: {start}: {error}") from None
        whats.append(_WHAT_OF[type(told)])
        members.append(msgspec.structs.astuple(told))
    messages = Messages(np.array(whats, np.int8), len(whats))
    for what, lines in _by_kind(messages):
        columns = zip(*(members[line] for line in lines.tolist()), strict=True)
        for name, values in zip(FIELDS[what], columns, strict=True):
            getattr(messages, name)[lines] = np.array(values, COLUMNS[name])  # None becomes NaN
    return messages


def _type_of(name: str) -> Any:
    if name in _LENGTHS:
        return float | None if name.startswith("former") else float
    limit = 2 ** (8 * COLUMNS[name]().itemsize - 1)
    return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]


_PAYLOADS: Final = {
    what: msgspec.defstruct(
        what.name,
        [(name, _type_of(name)) for name in FIELDS[what]],
        tag_field="what",
        tag=what.name.lower(),
        forbid_unknown_fields=True,
    )
    for what in MessageKind
}
_WHAT_OF: Final[dict[type, MessageKind]] = {kind: what for what, kind in _PAYLOADS.items()}
_DECODER: Final = msgspec.json.Decoder(Union[tuple(_PAYLOADS.values())])  # noqa: UP007


def payload_bytes(messages: Messages) -> Longs:
    """How long the payload of each message is, to the byte."""
    sizes = np.zeros(len(messages), np.int64)
    for what, lines in _by_kind(messages):
        if len(lines) == len(messages):
            return _sizes(messages, what)
        sizes[lines] = _sizes(messages.take(lines), what)
    return sizes


def _sizes(messages: Messages, what: MessageKind) -> Longs:
    """The sizes of messages that are all of one kind."""
    sizes = np.full(len(messages), _FRAME_BYTES[what], np.int64)
    for name in FIELDS[what]:
        values = getattr(messages, name)
        if name in _LENGTHS:
            add_length_bytes(values, sizes)
        else:
            add_whole_number_bytes(values.astype(np.int64, copy=False), sizes)
    return sizes


_FRAME_BYTES: Final = {
    what: len(form.replace("%.3f", "").replace("%d", "")) for what, form in _FORMS.items()
}
"""What a payload has beside its values."""
