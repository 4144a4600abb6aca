"""What servers and clients of a world tell each other: batches of messages, in columns.

In a tick a thousand things are told, so a message is a line of a batch and no object. All kinds
share the columns; a kind uses those that its payload has (see `FIELDS`), the others are 0. A
column costs 0.3 µs a batch when nobody fills it.

Over MQTT a message is a JSON object, `payload`, with lengths to the millimetre. In process nothing
is encoded, but the bytes are counted, so `payload_bytes` computes for a whole batch how long each
payload would be. Both round in the same way and write whole numbers only, which is what makes the
sizes exact; formatting floats to see how long they get would cost 40 times as much. Measured: 28 ns
for the size of an update, 1.2 µs for its payload.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any, Final, Self

import msgspec
import numpy as np
import numpy.typing as npt

from rove.world.size_kernels import add_length_bytes, add_whole_number_bytes
from rove.world.state import Entities, Floats, Ints, Longs, WorldError


class What(enum.IntEnum):
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
FIELDS: Final[dict[What, tuple[str, ...]]] = {
    What.UPDATE: _MOVING,
    What.REPLICA: (*_MOVING, "kind", "tile", "sender"),
    What.LEFT: ("entity", "version", "tile", "tick"),
    What.REQUEST: ("sender", "tile", "tick"),
    What.AREA_REQUEST: (
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

    def __init__(self, what: What | npt.NDArray[np.int8], count: int, **columns: object) -> None:
        """`count` messages; a column is an array, or one value for all, or left out: 0."""
        self.what = _column(what, np.int8, count)
        for name, dtype in COLUMNS.items():
            setattr(self, name, _column(columns.pop(name, 0), dtype, count))
        if columns:
            unknown = ", ".join(columns)
            raise WorldError(f"messages have no {unknown}; they have {', '.join(COLUMNS)}")

    @classmethod
    def about(cls, what: What, entities: Entities, numbers: Ints, tick: int) -> Self:
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
        return cls(What.UPDATE, 0)

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
    what = What(int(messages.what[line]))
    members = [f'"what":"{what.name.lower()}"']
    for name in FIELDS[what]:
        value = getattr(messages, name)[line]
        text = _length_text(float(value)) if name in _LENGTHS else str(int(value))
        members.append(f'"{name}":{text}')
    return f"{{{','.join(members)}}}".encode()


def _length_text(metres: float) -> str:
    if math.isnan(metres):
        return "null"
    millimetres = round(metres * 1000.0)
    sign = "-" if millimetres < 0 else ""
    return f"{sign}{abs(millimetres) // 1000}.{abs(millimetres) % 1000:03d}"


def parse_payload(payload: bytes) -> Messages:
    """The one message of a payload; WorldError if it is none of ours."""
    try:
        members = msgspec.json.decode(payload, type=dict[str, str | int | float | None])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WorldError(f"a payload is no JSON object of texts and numbers: {error}") from None
    name = str(members.pop("what", ""))
    if name.upper() not in What.__members__:
        known = ", ".join(what.name.lower() for what in What)
        raise WorldError(f"a payload says that it is {name!r}; there are {known}")
    what = What[name.upper()]
    if tuple(members) != FIELDS[what]:
        given, right = ", ".join(members), ", ".join(FIELDS[what])
        raise WorldError(f"the payload of a {name} has {given}; it should have {right}")
    return Messages(what, 1, **{key: _read(key, value) for key, value in members.items()})


def _read(name: str, value: str | int | float | None) -> int | float:
    if name in _LENGTHS:
        if value is None:
            return NO_PLACE
        if isinstance(value, int | float):
            return value
        raise WorldError(f"a payload has {name} {value!r}; it should be a number")
    bits = COLUMNS[name]().itemsize * 8
    if isinstance(value, int) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        return value
    raise WorldError(f"a payload has {name} {value!r}; it should be whole, of {bits} bits")


def payload_bytes(messages: Messages) -> Longs:
    """How long the payload of each message is, to the byte."""
    sizes = np.zeros(len(messages), np.int64)
    for what in What:
        lines = np.flatnonzero(messages.what == what)
        if len(lines) == len(messages):
            return _sizes(messages, what)
        if len(lines):
            sizes[lines] = _sizes(messages.take(lines), what)
    return sizes


def _sizes(messages: Messages, what: What) -> Longs:
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
    what: len('{"what":""}') + len(what.name) + sum(len(f',"{name}":') for name in FIELDS[what])
    for what in What
}
"""What a payload has beside its values."""
