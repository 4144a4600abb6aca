"""A publication as the input of policies, and the messages that a policy returns.

`m` is a mapping of the publication's attributes (`rove.lang.attributes`): the members of its
payload, its user properties and its `topic`; a missing attribute is None. A payload that is not a
JSON object, or has an integer that is too long for policies, is the attribute `payload`, as bytes.
On the way out, attributes that came as user properties and were not changed stay user properties;
everything else becomes a member of the payload. Two things stay whatever the policy does, because
others depend on them: the topic of the publication, and its user property `id`, by which receivers
detect duplicates.

An `IncomingMessage` is made once per publication and shared by all of its policies. A message that
passes unchanged keeps the payload of the publication, and if several policies make the same message
it is encoded once. Reading a message costs nothing, or a copy of its attributes if the policy may
change it, some 0.1 µs; a changed message costs its JSON encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from rove.lang.attributes import members_of
from rove.policy.limits import INT_MAX

PAYLOAD: Final = "payload"
TOPIC: Final = "topic"
ID: Final = "id"
ENCODED_MAX: Final = 64
"""Different outputs of one publication that are remembered."""
_DIGITS_MAX: Final = len(str(INT_MAX))
_DIGITS: Final = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
"""Translates every digit to a 0, and every other byte to a blank."""
_LONG_NUMBER: Final = b"0" * _DIGITS_MAX

UserProperties = tuple[tuple[str, str], ...]


class OutputMessage(msgspec.Struct, array_like=True, frozen=True):
    """One output of a call, as it is sent."""

    payload: bytes
    user: UserProperties

    @property
    def size_bytes(self) -> int:
        """What counts towards `output_bytes_max`."""
        size_bytes = len(self.payload)
        for name, value in self.user:
            size_bytes += len(name) + len(value)
        return size_bytes


class Completed(msgspec.Struct, array_like=True, tag=True, frozen=True):
    """How a call went that was not stopped; several calls may share one."""

    outputs: tuple[OutputMessage, ...]
    changes: dict[str, Any]
    """`me.` variables that it set; None removes one."""
    memory: dict[str, Any] | None
    """What `every`, `changed` and `summary` remember from now on; None for what they did before."""
    steps: int
    passes: bool = False
    """The only output is the message as it came."""


class Message(dict[str, object]):
    """`m`, and what `message()` makes."""

    __slots__ = ()

    def __missing__(self, name: str) -> None:
        return None


class Meter(Protocol):
    """What a call pays with (`rove.policy.library.PolicyCall`)."""

    steps: int

    def charge(self, steps: int) -> None:
        """Pay for work."""

    def weigh_output(self, message: Message) -> Any:
        """Pay for writing a message, and refuse what cannot be sent."""


class IncomingMessage:
    """One publication, as it is shown to policies; read when somebody first looks at it."""

    attributes: Message
    _from_user: dict[str, str]

    __slots__ = (
        "_encodings",
        "_from_user",
        "_kept",
        "_members",
        "attributes",
        "passed",
        "payload",
        "topic",
        "user",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        user: Iterable[tuple[str, str]] = (),
        members: Callable[[], dict[str, object] | None] | None = None,
    ) -> None:
        """`members` gives those of the payload, if somebody has decoded it or will."""
        self._members = members or partial(members_of, payload)
        self.topic = topic
        self.payload = payload
        self.user: UserProperties = tuple(user)
        self.passed: Completed | None = None
        """As `rove.policy.runner` says that it passes, once it has said so."""
        self._encodings: dict[tuple[object, ...], tuple[OutputMessage, int]] = {}
        """With the steps that each has cost: whoever makes it again pays the same."""
        self._kept: list[Message] = []
        """What the keys of `_encodings` are made of must stay alive."""

    def __getattr__(self, name: str) -> Any:
        """The attributes, read on first access: in a broker many publications meet no policy."""
        if name not in ("attributes", "_from_user"):
            raise AttributeError(name)
        payload, topic = self.payload, self.topic
        members = self._members()
        if members is not None and _has_long_integer(members, payload):
            members = None
        self._from_user = {}
        for key, value in self.user:
            if key != TOPIC and (members is None or key not in members):
                self._from_user[key] = value
        self.attributes = Message(self._from_user)
        if members is not None:
            self.attributes.update(members)
        elif payload and PAYLOAD not in self._from_user:
            self.attributes[PAYLOAD] = payload
        self.attributes[TOPIC] = topic
        return self.attributes if name == "attributes" else self._from_user

    def message(self) -> Message:
        """`m`, the policy's own to change."""
        return Message(self.attributes)

    def is_user_property(self, name: str, value: object) -> bool:
        """An attribute came as a user property and was left alone."""
        return name in self._from_user and self._from_user[name] is value

    @property
    def as_it_came(self) -> OutputMessage:
        return OutputMessage(self.payload, self.user)

    def encode(self, output: Message, meter: Meter) -> OutputMessage:
        """An output as it is sent, paid for before it is written; ValueError if it cannot be."""
        meter.charge(len(output))
        key = (*output, *map(id, output.values()))
        known = self._encodings.get(key)
        if known is not None:
            meter.charge(known[1])
            return known[0]
        before = meter.steps
        meter.weigh_output(output)
        steps = meter.steps - before
        found = self._encoded(output)
        if len(self._encodings) < ENCODED_MAX:
            self._encodings[key] = found, steps
            self._kept.append(Message(output))
        return found

    def _encoded(self, output: Message) -> OutputMessage:
        members: dict[str, object] = dict(output)
        members.pop(TOPIC, None)
        user = [named for named in self.user if named[0] == ID] if self.user else []
        for name, value in self._from_user.items():
            if name in members and members[name] is value:
                del members[name]
                if name != ID:
                    user.append((name, value))
        payload = members.get(PAYLOAD)
        if isinstance(payload, bytes):
            if len(members) > 1:
                other = next(name for name in members if name != PAYLOAD)
                raise ValueError(f"a message with a payload of bytes cannot also have {other!r}")
            return OutputMessage(payload, tuple(user))
        return OutputMessage(msgspec.json.encode(members), tuple(user))


def _has_long_integer(members: dict[str, object], payload: bytes) -> bool:
    """Whether a member, at any depth, is an integer that is too long for policies."""
    if len(payload) <= _DIGITS_MAX or _LONG_NUMBER not in payload.translate(_DIGITS):
        # No number has that many digits; to check each value would take ten times as long.
        return False
    waiting: list[Iterable[object]] = [members.values()]
    while waiting:
        for value in waiting.pop():
            if value.__class__ is int:
                if not -INT_MAX < value < INT_MAX:
                    return True
            elif value.__class__ is list:
                waiting.append(value)
            elif value.__class__ is dict:
                waiting.append(value.values())
    return False
