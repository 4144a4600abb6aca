"""Tests a policy without a broker: messages in, the messages to the subscriber out.

For `rove policy test`, and for users' own tests: a `PolicyTrial` is one subscriber with its
variables and its policy, which runs as in the broker (`rove.policy.agents`), suspensions included.
Time is that of the messages. Limits that depend on the machine do not apply: no call waits for a
worker, and no share of a processor is used up.

Messages may come as lines of JSON, one each:

    {"pulse": 71, "patient": 3}                                 attributes, as they are published
    {"topic": "ward/3", "payload": {"pulse": 71}, "at": 12.5}   with topic and time; also `user`
    {"$me": {"battery": 0.2}, "at": 60}                         variables change; null removes one

The second form is what `rove sub --json` writes, where `payload` is called `value`, `text` or
`base64`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from rove.errors import RoveError
from rove.lang.errors import LanguageError
from rove.lang.values import admit, change_state
from rove.policy.agents import Agent, Verdict
from rove.policy.compiler import compiled
from rove.policy.jobs import Deferred, Stopped
from rove.policy.limits import PolicyLimits
from rove.policy.messages import (
    PAYLOAD,
    TOPIC,
    Completed,
    IncomingMessage,
    OutputMessage,
    UserProperties,
)
from rove.policy.view import PolicyCounts

TOPIC_OF_ALL: Final = "test"
"""Where a message is published that names no topic."""
_STATE: Final = "$me"
_BODIES: Final = (PAYLOAD, "value", "text", "base64")
_ENVELOPE: Final = {TOPIC, "at", "user", "id", "retained", *_BODIES}


class TrialError(RoveError):
    """Something that cannot be tried."""


class TrialResult(NamedTuple):
    """What became of one message."""

    at: float
    arrived: IncomingMessage
    verdict: Verdict
    outputs: tuple[OutputMessage, ...]
    """What is sent, also where it is the message as it came."""
    changes: dict[str, tuple[Any, Any]]
    """`me.` variables that are no longer what they were: before and after, None for none."""
    stopped: Stopped | None
    steps: int
    took_s: float
    is_now_suspended: bool
    """This was one stop too many."""

    @property
    def messages(self) -> list[dict[str, object]]:
        """The attributes of what is sent, `topic` included."""
        return [self.seen(one) for one in self.outputs]

    def seen(self, sent: OutputMessage) -> dict[str, object]:
        """An output as its receiver sees it; a payload that is no JSON object as `payload`."""
        return shown_attributes(self.arrived.topic, sent.payload, sent.user)


def shown_attributes(topic: str, payload: bytes, user: UserProperties = ()) -> dict[str, object]:
    """The attributes of a message, with whatever payload it has."""
    return dict(IncomingMessage(topic, payload, user).attributes)


class PolicyTrial:
    """A subscriber with a policy."""

    def __init__(
        self,
        text: str,
        me: Mapping[str, object] | None = None,
        *,
        automatic: Collection[str] = (),
        limits: PolicyLimits | None = None,
        at: float = 0.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """PolicyError says what is wrong with a text. `automatic` variables can only be read.

        Without a `clock` (in seconds) no call is stopped for its time, and none is measured.
        """
        self.limits = PolicyLimits() if limits is None else limits
        self.policy = compiled(text, bytes_max=self.limits.text_bytes_max)
        self.me: dict[str, object] = {}
        self.at = at
        self.change(me or {})
        self._automatic = frozenset(automatic)
        self._agent = Agent(self.policy, at)
        self._clock = clock

    @property
    def tally(self) -> PolicyCounts:
        """What became of all messages."""
        return self._agent.tally

    def change(self, changes: Mapping[str, object]) -> None:
        """Variables of the subscriber change, as by itself or by a report; None removes one."""
        try:
            change_state(self.me, changes)
        except LanguageError as error:
            raise TrialError(f"variables: {error}") from None

    def show(
        self,
        message: Mapping[str, object] | bytes,
        topic: str = TOPIC_OF_ALL,
        *,
        user: Iterable[tuple[str, str]] = (),
        at: float | None = None,
    ) -> TrialResult:
        """Show the policy a message: attributes, or a payload as it is."""
        self.at = self.at if at is None else at
        arrived = IncomingMessage(topic, payload_of(message), user)
        began = self._clock() if self._clock is not None else 0.0
        stopped, steps = None, 0
        before = self._agent.suspended_until
        size = len(arrived.payload)
        decision = self._agent.begin(self.at, self.limits, size_bytes=size)
        if decision is None:
            result = self._call(arrived)
            stopped, steps = (result if isinstance(result, Stopped) else None), result.steps
            decision = self._agent.settle(result, self.at, self.limits, size_bytes=size)
        took_s = self._clock() - began if self._clock is not None else 0.0
        changes = {
            name: (self.me.get(name), value)
            for name, value in decision.changes.items()
            if self.me.get(name) != value
        }
        change_state(self.me, decision.changes)
        came = (OutputMessage(arrived.payload, arrived.user),)
        return TrialResult(
            self.at,
            arrived,
            decision.verdict,
            came if decision.is_unchanged else decision.outputs,
            changes,
            stopped,
            steps,
            took_s,
            self._agent.suspended_until not in (None, before),
        )

    def _call(self, arrived: IncomingMessage) -> Completed | Stopped:
        result = self._agent.call(
            arrived, self.me, self.at, self.limits, automatic=self._automatic, clock=self._clock
        )
        assert not isinstance(result, Deferred), "nothing is put off without results"
        return result


def payload_of(message: Mapping[str, object] | bytes) -> bytes:
    """A message as it would be published."""
    if isinstance(message, bytes):
        return message
    try:
        admit(message)
        # `topic` is an attribute of every message, and of no payload.
        return msgspec.json.encode({name: message[name] for name in message if name != TOPIC})
    except LanguageError as error:
        raise TrialError(f"a message that cannot be published: {error}") from None
    except TypeError as error:
        raise TrialError(f"a message that cannot be published: {error}") from None


# --- lines ----------------------------------------------------------------------------------------


class MessageLine(NamedTuple):
    """A line that is a message."""

    payload: bytes
    topic: str
    user: UserProperties
    at: float | None


class StateLine(NamedTuple):
    """A line by which variables change."""

    changes: dict[str, object]
    at: float | None


def read_line(line: bytes | str) -> MessageLine | StateLine:
    """What a line says; TrialError if it says nothing that is understood."""
    try:
        found = msgspec.json.decode(line)
    except (ValueError, RecursionError) as error:
        raise TrialError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise TrialError('not a message; write a JSON object such as {"pulse": 71}')
    at = _time(found.get("at"))
    if _STATE in found:
        return StateLine(_changes(found), at)
    if found.keys() & {TOPIC} and found.keys() <= _ENVELOPE and found.keys() & set(_BODIES):
        return _unpacked(found, at)
    topic = found.get(TOPIC, TOPIC_OF_ALL)
    return MessageLine(payload_of(found), _text(topic, TOPIC), (), at)


def _unpacked(found: Mapping[str, Any], at: float | None) -> MessageLine:
    bodies = [name for name in _BODIES if name in found]
    if len(bodies) > 1:
        raise TrialError(f"`{bodies[0]}` and `{bodies[1]}` are both the payload; give one of them")
    user = found.get("user", {})
    if not isinstance(user, dict) or not all(isinstance(each, str) for each in user.values()):
        raise TrialError('`user` has texts by their names, as {"unit": "mg"}')
    payload = _payload(bodies[0], found[bodies[0]])
    return MessageLine(payload, _text(found[TOPIC], TOPIC), tuple(user.items()), at)


def _payload(name: str, body: Any) -> bytes:
    if name == "base64":
        try:
            return base64.b64decode(_text(body, name), validate=True)
        except binascii.Error as error:
            raise TrialError(f"`base64` is none: {error}") from None
    if isinstance(body, str) and name != "value":
        return body.encode()
    return msgspec.json.encode(body)


def _changes(found: Mapping[str, Any]) -> dict[str, object]:
    if isinstance(found[_STATE], dict) and found.keys() <= {_STATE, "at"}:
        return dict(found[_STATE])
    raise TrialError(
        f'`{_STATE}` has variables by their names, as {{"{_STATE}": {{"battery": 1}}}}'
    )


def _text(found: object, name: str) -> str:
    if isinstance(found, str):
        return found
    raise TrialError(f"`{name}` is {found!r}; it is to be a text")


def _time(found: object) -> float | None:
    if found is None:
        return None
    if type(found) in (int, float):
        return float(found)  # type: ignore[arg-type]
    raise TrialError(f"`at` is {found!r}; the time is a number of seconds")
