"""Policies at work on the past: what a stretch of the log makes of subscribers, row by row.

The rows are those of some subscribers, in the order of positions: what happened to their
policies, subscriptions and variables, and the notifications that reached a policy. The agents are
the broker's own (`rove.policy.agents`), so what they decide is what they decided. `Recorded`
repeats what there was; `Supposed` shows everything that subscribers were notified of to one
policy that was not there.

What the machine decided cannot be repeated and is taken from the log: that a call was stopped for
its time, for its share of a processor, by a crowd, or because a worker died. Everything else is
computed, the variables that policies set included: of these the log only says when they were set.

A worker holds its subscribers' variables and agents, and payloads as long as another of its
subscribers is about to be shown them. So a publication is read once for all of them, and a
picture that several want smaller is made smaller once. Beside the policies, a decision costs some
4 µs; to read its row from Arrow and to write what is sent costs 8 µs more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from rove.errors import RoveError
from rove.lang.attributes import attributes_of, selected
from rove.lang.parser import parse
from rove.lang.tree import Attribute, Literal, Subscription
from rove.lang.values import change_state
from rove.policy.agents import Agent, Decision, Kept
from rove.policy.automatic import OWN
from rove.policy.compiling import compiled
from rove.policy.errors import PolicyError
from rove.policy.jobs import Compress, Compressed, Compression, Outcome, Sent, Stopped, Wanted
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Arrived
from rove.policy.working import answer_of

MACHINE: Final = frozenset(("time", "share", "crowded"))
"""Kinds of stops that depend on the machine."""
UNSEEN: Final = -1
"""Stands for the position of a publication that the lake does not have."""

ENDED_MAX: Final = 1_000
"""Subscriptions of a client that are no more and whose SELECT is remembered."""

Select = tuple[Attribute, ...] | None


class DecidingError(RoveError):
    """A past that cannot be repeated."""


class Row(NamedTuple):
    """A line of the log, as it is shown here."""

    position: int
    at_us: int
    client_id: str
    told: bytes
    """What the log says, as JSON."""
    is_event: bool
    topic: str = ""
    id: str = ""
    user: tuple[tuple[str, str], ...] = ()
    numbers: tuple[int, ...] = ()
    """Of the subscriptions that were met."""
    published: int | None = None
    """The position of the publication."""
    payload: bytes | None = None
    """Of the publication; None if it was shown before, or is not there."""
    is_last: bool = True
    """Nobody else is about to be shown it."""


class Decided(NamedTuple):
    """What became of one notification."""

    row: Row
    subscription: int
    """The one whose policy it was; 0 for the session's."""
    verdict: str
    kind: str
    """Of a stop."""
    logged: str
    """The verdict in the log; empty if there is none."""
    steps: int
    size_bytes: int
    """Of the message as it was shown to the policy."""
    outputs: tuple[Sent, ...]


class _Told(msgspec.Struct):
    """An event of the log (docs/lake.md)."""

    event: str
    number: int = 0
    text: str = ""
    policy: str = ""
    me: dict[str, Any] | None = None
    automatic: tuple[str, ...] | None = None
    durable: bool = True
    replaces: int = 0
    kept: bytes | None = None
    changes: dict[str, Any] = {}
    by: str = ""
    policies: dict[str, Any] | None = None


class _Facts(msgspec.Struct):
    """What the log says of a decision."""

    policy: str = ""
    kind: str = ""
    subscription: int = 0
    lost: bool = False


_EVENT: Final = msgspec.json.Decoder(_Told)
_FACTS: Final = msgspec.json.Decoder(_Facts)
_NO_FACTS: Final = _Facts()


class _Subscriber:
    """What is known of one, at the row that is being looked at."""

    __slots__ = (
        "_ended",
        "agents",
        "automatic",
        "is_durable",
        "is_known",
        "me",
        "pending",
        "selects",
    )

    def __init__(self) -> None:
        self.me: dict[str, Any] = {}
        self.automatic: frozenset[str] = OWN
        self.agents: dict[int, Agent] = {}
        """By the number of their subscription; 0 for the session's."""
        self.is_durable = True
        self.is_known = False
        """Whether its variables are."""
        self.pending: deque[Mapping[str, Any]] = deque()
        """What policies have set, until the log says that it is set."""
        self.selects: dict[int, tuple[Attribute, ...]] = {}
        """Of those subscriptions that select anything."""
        self._ended: deque[int] = deque()
        """Of these, those that are no more: something that met them may still wait."""

    def end(self, number: int) -> None:
        """A subscription is no more."""
        self.agents.pop(number, None)
        if number in self.selects:
            self._ended.append(number)
        if len(self._ended) > ENDED_MAX:
            del self.selects[self._ended.popleft()]

    def select(self, numbers: Iterable[int]) -> Select:
        """What is selected of a publication that met these, as the broker selects it."""
        if not self.selects:
            return None
        chosen: dict[Attribute, None] = {}
        for number in numbers:
            select = self.selects.get(number)
            if select is None:
                return None
            chosen.update(dict.fromkeys(select))
        return tuple(chosen)

    def snapshot(self, told: _Told) -> None:
        """Take what an event says of all variables, if nothing is known of them."""
        if not self.is_known and told.me is not None:
            self.me = dict(told.me)
            self.is_known = True
            if told.automatic is not None:
                self.automatic = frozenset(told.automatic)

    def change(self, told: _Told) -> None:
        """Variables have changed, and not by a policy."""
        change_state(self.me, told.changes)
        if told.by == "report":
            names = {name for name, value in told.changes.items() if value is not None}
            self.automatic = (self.automatic - told.changes.keys()) | names | OWN


class _Message(NamedTuple):
    """A publication as policies see it."""

    arrived: Arrived
    pictures: dict[Compression, Compressed]
    """Those in it that were made smaller."""


class _Shown:
    """Publications as they are shown to policies, for as long as they are needed."""

    def __init__(self) -> None:
        self._payloads: dict[int, bytes] = {}
        self._messages: dict[tuple[int, Select], _Message] = {}

    def of(self, row: Row, select: Select) -> _Message:
        """What a row is about; `select` of it, if that is not None."""
        position = UNSEEN if row.published is None else row.published
        payload = self._payloads.get(position) if row.payload is None else row.payload
        if payload is None:
            raise DecidingError(
                f"the lake does not have the publication {row.id!r} on {row.topic!r} that "
                f"{row.client_id!r} was notified of at position {row.position}; policies can be "
                "repeated where channels keep publications and notifications"
            )
        message = self._messages.get((position, select))
        if message is None:
            message = _Message(_arrived(row, payload, select), {})
        if row.is_last:
            if row.payload is None:
                self._forget(position)
        else:
            self._payloads[position] = payload
            self._messages[position, select] = message
        return message

    def _forget(self, position: int) -> None:
        del self._payloads[position]
        for key in [key for key in self._messages if key[0] == position]:
            del self._messages[key]


def _arrived(row: Row, payload: bytes, select: Select) -> Arrived:
    if select is None:
        return Arrived(row.topic, payload, row.user)
    attributes = attributes_of(row.topic, payload, row.user)
    chosen = selected(Subscription(Literal(True), select), attributes)
    return Arrived(row.topic, msgspec.json.encode(chosen), row.user)


class _Past:
    """Takes rows in the order of positions, and knows the subscribers there were."""

    def __init__(self, limits: PolicyLimits | None = None) -> None:
        """`limits` instead of those that the log tells of."""
        self._given = limits
        self.limits = limits or PolicyLimits()
        self._subscribers: dict[str, _Subscriber] = {}
        self._shown = _Shown()

    def take(self, rows: Iterable[Row]) -> Iterator[Decided]:
        """Take rows; what was decided."""
        for row in rows:
            if not row.is_event:
                yield self._notified(row)
                continue
            told = _EVENT.decode(row.told)
            if row.client_id:
                self._happened(row, told)
            else:
                self._start(told)

    def _start(self, told: _Told) -> None:
        """The broker began anew, without what only its memory held; or only its limits did."""
        if self._given is None and told.policies is not None:
            self.limits = msgspec.convert(told.policies, PolicyLimits)
        if told.event != "started":
            return
        for client_id, one in list(self._subscribers.items()):
            one.pending.clear()
            if not one.is_durable:
                del self._subscribers[client_id]

    def _happened(self, row: Row, told: _Told) -> None:
        raise NotImplementedError

    def _notified(self, row: Row) -> Decided:
        raise NotImplementedError

    def _decided(
        self, row: Row, facts: _Facts, one: _Subscriber, agent: Agent
    ) -> tuple[Decided, Mapping[str, Any]]:
        """Show a message to an agent; what becomes of it, and of the variables."""
        message = self._shown.of(row, one.select(row.numbers))
        arrived, limits = message.arrived, self.limits
        now, size_bytes = row.at_us / 1e6, len(arrived.payload)
        steps = 0
        decision: Decision | None
        if facts.policy == "stopped" and (facts.lost or facts.kind in MACHINE):
            stop = Stopped(facts.kind, "")  # type: ignore[arg-type]
            decision = agent.settle(stop, now, limits, size_bytes=size_bytes)
        else:
            decision = agent.begin(now, limits, size_bytes=size_bytes)
        if decision is None:
            result = _called(one, agent, message, now, limits)
            steps = result.steps
            decision = agent.settle(result, now, limits, size_bytes=size_bytes)
        outputs = decision.outputs
        if decision.is_unchanged:
            outputs = (Sent(arrived.payload, arrived.user),)
        told = (facts.subscription, decision.verdict, decision.kind, facts.policy)
        return Decided(row, *told, steps, size_bytes, outputs), decision.changes


class Recorded(_Past):
    """The policies that there were."""

    def _happened(self, row: Row, told: _Told) -> None:
        one = self._subscribers.get(row.client_id)
        if one is None:
            if told.event not in ("policy", "made"):
                return
            one = self._subscribers[row.client_id] = _Subscriber()
        match told.event:
            case "policy":
                self._set_policy(one, told, row.at_us / 1e6)
            case "made":
                _make(one, told)
            case "ended":
                one.end(told.number)
            case "state":
                self._change(one, told)
        if not one.agents:
            self._leave(row.client_id, one)

    def _set_policy(self, one: _Subscriber, told: _Told, now: float) -> None:
        one.snapshot(told)
        one.is_durable = told.durable
        agent = one.agents.pop(told.replaces or told.number, None)
        if not told.policy:
            return
        if agent is None or agent.policy.text != told.policy:
            agent = self._agent(told, now)
        one.agents[told.number] = agent

    def _agent(self, told: _Told, now: float) -> Agent:
        try:
            policy = compiled(told.policy, bytes_max=self.limits.text_bytes_max)
        except PolicyError as error:
            raise DecidingError(f"a policy of the past is refused today: {error}") from error
        if told.kept is None:
            return Agent(policy, now)
        return Agent.restored(policy, msgspec.msgpack.decode(told.kept, type=Kept))

    def _change(self, one: _Subscriber, told: _Told) -> None:
        if told.by == "policy" and one.pending:
            change_state(one.me, one.pending.popleft())
        elif one.is_known:
            one.change(told)

    def _leave(self, client_id: str, one: _Subscriber) -> None:
        """It has no policy: the next one comes with all variables."""
        one.is_known = False
        one.pending.clear()
        if not one.selects:
            del self._subscribers[client_id]

    def _notified(self, row: Row) -> Decided:
        facts = _FACTS.decode(row.told)
        one = self._subscribers.get(row.client_id)
        agent = None if one is None else one.agents.get(facts.subscription)
        if one is None or agent is None:
            raise DecidingError(
                f"the lake does not say which policy {row.client_id!r} had at position "
                f"{row.position}; it does where it has `subscriptions = true`"
            )
        decided, changes = self._decided(row, facts, one, agent)
        if changes:
            one.pending.append(changes)
        return decided


class Supposed(_Past):
    """One policy for everybody, from the first notification on, whatever others there were."""

    def __init__(self, text: str, limits: PolicyLimits | None = None) -> None:
        """PolicyError says what is wrong with the text."""
        super().__init__(limits)
        self._policy = compiled(text, bytes_max=self.limits.text_bytes_max)

    def _happened(self, row: Row, told: _Told) -> None:
        one = self._subscribers.setdefault(row.client_id, _Subscriber())
        match told.event:
            case "policy":
                one.snapshot(told)
                one.is_durable = told.durable
            case "made":
                _make(one, told)
            case "ended":
                one.end(told.number)
            case "state" if told.by != "policy":
                one.change(told)
                one.is_known = True

    def _notified(self, row: Row) -> Decided:
        one = self._subscribers.setdefault(row.client_id, _Subscriber())
        agent = one.agents.get(0)
        if agent is None:
            agent = one.agents[0] = Agent(self._policy, row.at_us / 1e6)
        decided, changes = self._decided(row, _NO_FACTS, one, agent)
        change_state(one.me, changes)
        return decided


def _make(one: _Subscriber, told: _Told) -> None:
    one.is_durable = told.durable
    if "select" in told.text.lower():
        select = parse(told.text, accepted=True).select
        if select is not None:
            one.selects[told.number] = select


def _called(
    one: _Subscriber, agent: Agent, message: _Message, now: float, limits: PolicyLimits
) -> Outcome | Stopped:
    """Ask the policy, and make the pictures that it wants."""
    arrived, pictures = message
    while True:
        result = agent.call(arrived, one.me, now, limits, automatic=one.automatic, results=pictures)
        if not isinstance(result, Wanted):
            return result
        for request in result.requests:
            answer = answer_of(Compress(0, request), _no_clock)
            assert isinstance(answer, Compressed)
            pictures[request] = answer


def _no_clock() -> float:
    return 0.0
