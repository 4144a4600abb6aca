"""Policies replayed over the log, row by row.

The rows are those of some subscribers, in the order of positions: changes of their policies,
subscriptions and variables, and the notifications that reached a policy. The agents are the
broker's own (`rove.policy.agents`), so their decisions are the broker's decisions.
`RecordedPolicies` replays the policies that were set; `HypotheticalPolicy` passes every
notification to one policy that was not.

Stops that depended on the machine cannot be computed again, and are taken from the log: a call that
was stopped for its time, for its share of a processor, by overload, or because a worker died.
Everything else is computed, including variables that policies set: the log only says when.

A worker holds its subscribers' variables and agents, and payloads that another of its subscribers
will soon get. So a publication is decoded once for all of them, and a picture that several policies
compress is compressed once. Besides the policies, a decision costs some 4 µs; reading its row from
Arrow and writing the output costs 8 µs more.

This is not part of `rove.pipeline.policies.replay` because workers import it: no compiled kernel is
needed here, and loading the kernels would take longer than many a job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from rove.errors import RoveError
from rove.lake.log import SCHEMA
from rove.lang.attributes import attributes_of, selected
from rove.lang.parser import parse
from rove.lang.tree import Attribute, Literal, Subscription
from rove.lang.values import change_state
from rove.pipeline.spark.workers import in_worker
from rove.policy.agents import Agent, PolicyDecision, StoredAgent
from rove.policy.automatic_variables import OWN
from rove.policy.compiler import compiled
from rove.policy.errors import PolicyError
from rove.policy.jobs import (
    CompressionJob,
    CompressionRequest,
    CompressionResult,
    Deferred,
    Stopped,
)
from rove.policy.limits import PolicyLimits
from rove.policy.messages import Completed, IncomingMessage, OutputMessage
from rove.policy.worker import result_of

MACHINE: Final = frozenset(("time", "share", "crowded"))
"""Kinds of stops that depended on the machine."""
UNSEEN: Final = -1
"""The position of a publication that is not in the lake."""

ENDED_MAX: Final = 1_000
"""Ended subscriptions of a client whose SELECT is kept."""

Select = tuple[Attribute, ...] | None


class DecidingError(RoveError):
    """A log that cannot be replayed."""


class PolicyRow(NamedTuple):
    """A row of the log."""

    position: int
    at_us: int
    client_id: str
    entry: bytes
    """The entry of the log, as JSON."""
    is_event: bool
    topic: str = ""
    id: str = ""
    user: tuple[tuple[str, str], ...] = ()
    numbers: tuple[int, ...] = ()
    """The numbers of the matching subscriptions."""
    published: int | None = None
    """The position of the publication."""
    payload: bytes | None = None
    """The payload of the publication; None if an earlier row had it, or it is missing."""
    is_last: bool = True
    """Whether the payload is not needed again soon."""


class Decided(NamedTuple):
    """The decision on a notification."""

    row: PolicyRow
    subscription: int
    """The subscription that has the policy; 0 for the session's policy."""
    verdict: str
    kind: str
    """The kind of a stop."""
    logged: str
    """The verdict in the log; empty if the log has none."""
    steps: int
    size_bytes: int
    """The size of the message that the policy got."""
    outputs: tuple[OutputMessage, ...]


class _EventPayload(msgspec.Struct):
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


class _DecisionPayload(msgspec.Struct):
    """A decision in the log."""

    policy: str = ""
    kind: str = ""
    subscription: int = 0
    lost: bool = False


_EVENT: Final = msgspec.json.Decoder(_EventPayload)
_FACTS: Final = msgspec.json.Decoder(_DecisionPayload)
_NO_FACTS: Final = _DecisionPayload()


class _SubscriberState:
    """The state of a subscriber at the current row."""

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
        """Agents by the number of their subscription; 0 for the session."""
        self.is_durable = True
        self.is_known = False
        """Whether its variables are known."""
        self.pending: deque[Mapping[str, Any]] = deque()
        """Variables that policies have set, until the log says that they are set."""
        self.selects: dict[int, tuple[Attribute, ...]] = {}
        """The SELECT of subscriptions that have one, by number."""
        self._ended: deque[int] = deque()
        """Ended subscriptions in `selects`: notifications of them may still be pending."""

    def end(self, number: int) -> None:
        """A subscription has ended."""
        self.agents.pop(number, None)
        if number in self.selects:
            self._ended.append(number)
        if len(self._ended) > ENDED_MAX:
            del self.selects[self._ended.popleft()]

    def select(self, numbers: Iterable[int]) -> Select:
        """The attributes that the broker selects for a match of these subscriptions; None: all."""
        if not self.selects:
            return None
        chosen: dict[Attribute, None] = {}
        for number in numbers:
            select = self.selects.get(number)
            if select is None:
                return None
            chosen.update(dict.fromkeys(select))
        return tuple(chosen)

    def snapshot(self, event: _EventPayload) -> None:
        """Set all variables from an event, if they are not known yet."""
        if not self.is_known and event.me is not None:
            self.me = dict(event.me)
            self.is_known = True
            if event.automatic is not None:
                self.automatic = frozenset(event.automatic)

    def change(self, event: _EventPayload) -> None:
        """Apply a change of variables that no policy has made."""
        change_state(self.me, event.changes)
        if event.by == "report":
            names = {name for name, value in event.changes.items() if value is not None}
            self.automatic = (self.automatic - event.changes.keys()) | names | OWN


class _Message(NamedTuple):
    """A publication as policies get it."""

    arrived: IncomingMessage
    pictures: dict[CompressionRequest, CompressionResult]
    """Its compressed pictures."""


class _MessageCache:
    """Caches publications as policies get them, as long as they are needed."""

    def __init__(self) -> None:
        self._payloads: dict[int, bytes] = {}
        self._messages: dict[tuple[int, Select], _Message] = {}

    def of(self, row: PolicyRow, select: Select) -> _Message:
        """The message of a row, restricted to `select` if that is not None."""
        position = UNSEEN if row.published is None else row.published
        payload = self._payloads.get(position) if row.payload is None else row.payload
        if payload is None:
            raise DecidingError(
                f"the lake does not have the publication {row.id!r} on {row.topic!r} that "
                f"{row.client_id!r} was notified of at position {row.position}; replaying "
                "policies needs channels that keep publications and notifications"
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


def _arrived(row: PolicyRow, payload: bytes, select: Select) -> IncomingMessage:
    if select is None:
        return IncomingMessage(row.topic, payload, row.user)
    attributes = attributes_of(row.topic, payload, row.user)
    chosen = selected(Subscription(Literal(True), select), attributes)
    return IncomingMessage(row.topic, msgspec.json.encode(chosen), row.user)


class _PolicyReplay:
    """Replays rows in the order of positions, and tracks the state of subscribers."""

    def __init__(self, limits: PolicyLimits | None = None) -> None:
        """With `limits`, those in the log are ignored."""
        self._given = limits
        self.limits = limits or PolicyLimits()
        self._subscribers: dict[str, _SubscriberState] = {}
        self._shown = _MessageCache()

    def take(self, rows: Iterable[PolicyRow]) -> Iterator[Decided]:
        """Replay rows; yields the decisions."""
        for row in rows:
            if not row.is_event:
                yield self._notified(row)
                continue
            event = _EVENT.decode(row.entry)
            if row.client_id:
                self._happened(row, event)
            else:
                self._start(event)

    def _start(self, event: _EventPayload) -> None:
        """The broker was started, without state that is not durable; or its limits changed."""
        if self._given is None and event.policies is not None:
            self.limits = msgspec.convert(event.policies, PolicyLimits)
        if event.event != "started":
            return
        for client_id, one in list(self._subscribers.items()):
            one.pending.clear()
            if not one.is_durable:
                del self._subscribers[client_id]

    def _happened(self, row: PolicyRow, event: _EventPayload) -> None:
        raise NotImplementedError

    def _notified(self, row: PolicyRow) -> Decided:
        raise NotImplementedError

    def _decided(
        self, row: PolicyRow, facts: _DecisionPayload, one: _SubscriberState, agent: Agent
    ) -> tuple[Decided, Mapping[str, Any]]:
        """Pass a message to an agent; returns its decision and changes of variables."""
        message = self._shown.of(row, one.select(row.numbers))
        arrived, limits = message.arrived, self.limits
        now, size_bytes = row.at_us / 1e6, len(arrived.payload)
        steps = 0
        decision: PolicyDecision | None
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
            outputs = (OutputMessage(arrived.payload, arrived.user),)
        columns = (facts.subscription, decision.verdict, decision.kind, facts.policy)
        return Decided(row, *columns, steps, size_bytes, outputs), decision.changes


class RecordedPolicies(_PolicyReplay):
    """Replays the policies that were set."""

    def _happened(self, row: PolicyRow, event: _EventPayload) -> None:
        one = self._subscribers.get(row.client_id)
        if one is None:
            if event.event not in ("policy", "made"):
                return
            one = self._subscribers[row.client_id] = _SubscriberState()
        match event.event:
            case "policy":
                self._set_policy(one, event, row.at_us / 1e6)
            case "made":
                _make(one, event)
            case "ended":
                one.end(event.number)
            case "state":
                self._change(one, event)
        if not one.agents:
            self._leave(row.client_id, one)

    def _set_policy(self, one: _SubscriberState, event: _EventPayload, now: float) -> None:
        one.snapshot(event)
        one.is_durable = event.durable
        agent = one.agents.pop(event.replaces or event.number, None)
        if not event.policy:
            return
        if agent is None or agent.policy.text != event.policy:
            agent = self._agent(event, now)
        one.agents[event.number] = agent

    def _agent(self, event: _EventPayload, now: float) -> Agent:
        try:
            policy = compiled(event.policy, bytes_max=self.limits.text_bytes_max)
        except PolicyError as error:
            raise DecidingError(f"a policy in the log is no longer valid: {error}") from error
        if event.kept is None:
            return Agent(policy, now)
        return Agent.restored(policy, msgspec.msgpack.decode(event.kept, type=StoredAgent))

    def _change(self, one: _SubscriberState, event: _EventPayload) -> None:
        if event.by == "policy" and one.pending:
            change_state(one.me, one.pending.popleft())
        elif one.is_known:
            one.change(event)

    def _leave(self, client_id: str, one: _SubscriberState) -> None:
        """It has no policy any more: an event that sets another one has all variables."""
        one.is_known = False
        one.pending.clear()
        if not one.selects:
            del self._subscribers[client_id]

    def _notified(self, row: PolicyRow) -> Decided:
        facts = _FACTS.decode(row.entry)
        one = self._subscribers.get(row.client_id)
        agent = None if one is None else one.agents.get(facts.subscription)
        if one is None or agent is None:
            raise DecidingError(
                f"the lake does not say which policy {row.client_id!r} had at position "
                f"{row.position}; the lake needs `subscriptions = true`"
            )
        decided, changes = self._decided(row, facts, one, agent)
        if changes:
            one.pending.append(changes)
        return decided


class HypotheticalPolicy(_PolicyReplay):
    """Passes all notifications to one policy, whatever policies were set."""

    def __init__(self, text: str, limits: PolicyLimits | None = None) -> None:
        """PolicyError if the policy is invalid."""
        super().__init__(limits)
        self._policy = compiled(text, bytes_max=self.limits.text_bytes_max)

    def _happened(self, row: PolicyRow, event: _EventPayload) -> None:
        one = self._subscribers.setdefault(row.client_id, _SubscriberState())
        match event.event:
            case "policy":
                one.snapshot(event)
                one.is_durable = event.durable
            case "made":
                _make(one, event)
            case "ended":
                one.end(event.number)
            case "state" if event.by != "policy":
                one.change(event)
                one.is_known = True

    def _notified(self, row: PolicyRow) -> Decided:
        one = self._subscribers.setdefault(row.client_id, _SubscriberState())
        agent = one.agents.get(0)
        if agent is None:
            agent = one.agents[0] = Agent(self._policy, row.at_us / 1e6)
        decided, changes = self._decided(row, _NO_FACTS, one, agent)
        change_state(one.me, changes)
        return decided


def _make(one: _SubscriberState, event: _EventPayload) -> None:
    one.is_durable = event.durable
    if "select" in event.text.lower():
        select = parse(event.text, accepted=True).select
        if select is not None:
            one.selects[event.number] = select


def _called(
    one: _SubscriberState, agent: Agent, message: _Message, now: float, limits: PolicyLimits
) -> Completed | Stopped:
    """Call the policy, and compress the pictures that it requests."""
    arrived, pictures = message
    while True:
        result = agent.call(arrived, one.me, now, limits, automatic=one.automatic, results=pictures)
        if not isinstance(result, Deferred):
            return result
        for request in result.requests:
            answer = result_of(CompressionJob(0, request), _no_clock)
            assert isinstance(answer, CompressionResult)
            pictures[request] = answer


def _no_clock() -> float:
    return 0.0


# -- as Arrow -------------------------------------------------------------------------------------

_ROWS_MAX: Final = 256
_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of a batch of results, at most."""
_AT: Final = SCHEMA.field("at").type
DECISIONS: Final = pa.schema(
    [
        *map(SCHEMA.field, ("position", "at", "client_id")),
        pa.field("subscription", pa.int64()),
        pa.field("published", pa.int64()),
        *map(SCHEMA.field, ("id", "topic")),
        pa.field("verdict", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("logged", pa.string()),
        pa.field("steps", pa.int64()),
        pa.field("bytes_in", pa.int64()),
        pa.field("number", pa.int32()),
        pa.field("bytes_out", pa.int64()),
        *map(SCHEMA.field, ("payload", "user")),
    ]
)
ROW: Final = (
    "bucket",
    "position",
    "at",
    "client_id",
    "entry",
    "is_event",
    "topic",
    "id",
    "user",
    "numbers",
    "published",
    "payload",
    "is_last",
)


class DecideTask(msgspec.Struct, frozen=True):
    """A replay task."""

    text: str | None
    """The policy to try; None for the policies that were set."""
    limits: PolicyLimits | None
    payloads: bool


@in_worker
def decide(work: DecideTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Replay a bucket; its rows are in order."""
    agents = (
        RecordedPolicies(work.limits)
        if work.text is None
        else HypotheticalPolicy(work.text, work.limits)
    )
    results = _Results(payloads=work.payloads)
    for batch in batches:
        for decided in agents.take(_rows(batch)):
            results.add(decided)
            if results.is_full:
                yield results.batch()
    yield results.batch()


def _rows(batch: pa.RecordBatch) -> Iterator[PolicyRow]:
    names = ROW[1:]
    moments = batch["at"].cast(_AT).cast(pa.int64())
    columns = {name: batch[name] for name in names} | {"at": moments}
    for first in range(0, batch.num_rows, _ROWS_MAX):
        part = (columns[name].slice(first, _ROWS_MAX).to_pylist() for name in names)
        for (
            position, at_us, client_id, entry, is_event, topic, id, user, numbers, published,
            payload, is_last,
        ) in zip(*part, strict=True):  # fmt: skip
            if is_event:
                yield PolicyRow(position, at_us, client_id, entry.encode(), True)
                continue
            pairs = tuple((one["name"], one["value"]) for one in user or ())
            yield PolicyRow(
                position, at_us, client_id, entry.encode(), False, topic, id, pairs,
                tuple(numbers or ()), published, payload, is_last,
            )  # fmt: skip


class _Results:
    """Collects decisions for Spark."""

    def __init__(self, *, payloads: bool) -> None:
        self._payloads = payloads
        self._rows: list[tuple[object, ...]] = []
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._bytes > _BYTES_MAX or len(self._rows) > 100 * _ROWS_MAX

    def add(self, decided: Decided) -> None:
        row = decided.row
        head = (
            row.position,
            row.at_us,
            row.client_id,
            decided.subscription,
            row.published,
            row.id,
            row.topic,
            decided.verdict,
            decided.kind,
            decided.logged,
            decided.steps,
            decided.size_bytes,
        )
        for number, sent in enumerate(decided.outputs):
            payload = sent.payload if self._payloads else None
            self._rows.append((*head, number, len(sent.payload), payload, _named(sent.user)))
            self._bytes += len(sent.payload) if self._payloads else 0
        if not decided.outputs:
            self._rows.append((*head, None, None, None, None))

    def batch(self) -> pa.RecordBatch:
        columns = zip(*self._rows, strict=True) if self._rows else ((),) * len(DECISIONS)
        arrays = [
            pa.array(list(values), pa.int64()).cast(_AT)
            if field.name == "at"
            else pa.array(list(values), field.type)
            for field, values in zip(DECISIONS, columns, strict=True)
        ]
        self._rows, self._bytes = [], 0
        return pa.RecordBatch.from_arrays(arrays, schema=DECISIONS)


def _named(user: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in user]
