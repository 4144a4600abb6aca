"""Faults: one is raised at every call that the broker makes while it handles something.

Whatever fails and wherever, the change is made whole or not at all, it costs one connection, and
nobody else notices: that is compared with a run in which nothing fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import astuple

import rove.broker
from rove.broker.broker import Broker
from rove.broker.context import BrokerSettings, LakeStream
from rove.broker.limits import Limits
from rove.broker.publications.publish import PublicationQueue
from rove.elastic.elasticity import ElasticitySettings
from rove.match.cell import Cell
from rove.mqtt.packets import (
    V5,
    V311,
    Auth,
    Connack,
    Disconnect,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Will,
)
from rove.policy import compiler
from rove.policy.automatic_variables import OWN
from rove.policy.limits import PolicyLimits
from rove.testing.matchers import SimulatedMatchers
from rove.testing.mqtt import EXPIRES_NEVER_S, SimulatedBroker, SimulatedClient
from rove.testing.policies import SimulatedWorkers

SOURCE: Final = Path(rove.broker.__file__).parents[1]
ROOMS: Final = tuple(str(SOURCE / room) for room in ("broker", "match", "elastic", "policy"))
BELOW: Final = tuple(str(SOURCE / room) for room in ("mqtt", "lang"))
"""Rooms that simulated clients use too: there, only what the broker calls is made to fail."""
COUNTED: Final = ("put", "take_out", "_prepare")
BOUNDARY: Final = frozenset(
    {
        # What stands between a fault and everybody else cannot be made to fail itself.
        *(f"Broker.{name}" for name in vars(Broker) if not name.startswith("_")),
        *("Broker._at", "Broker._change", "Broker._handle", "Broker._leave"),
        *(f"PublicationQueue.{name}" for name in vars(PublicationQueue) if name not in COUNTED),
        *("Publishing._failed", "Notifying.promote", "Agents._take", "Gate.take_ready"),
    }
)
BOUNDARY_FILES: Final = (str(SOURCE / "broker/faults.py"), str(SOURCE / "broker/steps.py"))
SAMPLED_EVERY: Final = 199
"""Of so many calls, one is made to fail in the quick test."""


class Injected(Exception):
    """A fault on purpose."""


class Workers(SimulatedWorkers):
    """What they do themselves does not fail."""

    def work(self, most: int | None = None) -> int:
        with _untraced():
            return super().work(most)

    def compile(self) -> int:
        with _untraced():
            return super().compile()


@contextmanager
def _untraced() -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(before)


class Injector:
    """Raises at the n-th call that something makes."""

    def __init__(self, nth: int) -> None:
        self._nth = nth
        self.calls = 0
        self.where = ""

    def run(self, act: Callable[[], None]) -> None:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            act()
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not _is_counted(frame):
            return
        self.calls += 1
        if self.calls == self._nth:
            self.where = f"{frame.f_code.co_filename}:{frame.f_code.co_qualname}"
            raise Injected(self.where)


def _is_counted(frame: FrameType) -> bool:
    code = frame.f_code
    if code.co_flags & CO_GENERATOR:
        # Part of whoever goes through it; it is also called to be closed.
        return False
    if code.co_filename.startswith(BELOW):
        caller = frame.f_back
        return caller is not None and caller.f_code.co_filename.startswith(ROOMS)
    return _is_inside(code)


def _is_inside(code: CodeType) -> bool:
    name = code.co_filename
    if not name.startswith(ROOMS) or name in BOUNDARY_FILES:
        return False
    return code.co_qualname not in BOUNDARY


# -- what is compared -----------------------------------------------------------------------------


def kept_state(broker: Broker) -> dict[str, Any]:
    """What has to survive, as the memory of a broker has it."""
    context = broker.context
    # One of QoS 2 is on disk with what it causes, and until then it may come again.
    unrouted = {(one.session, one.packet_id) for one in broker._queue.unrouted()}
    sessions = {}
    for client_id, one in context.sessions.items():
        if not one.is_durable:
            continue
        policies = {}
        for slot in broker.agents.policies.slots:
            if slot.session is one:
                topic_filter = slot.subscription.topic_filter if slot.subscription else ""
                waiting = [_publication(case.notification) for case in slot.waiting]
                assert slot.account.waiting_bytes == sum(len(payload) for _, payload in waiting)
                memory = dict(slot.agent.memory)
                policies[topic_filter] = (slot.agent.policy.text, memory, waiting)
        sessions[client_id] = {
            "version": one.version,
            "expiry_s": one.expiry_s,
            "will": one.will,
            "me": {name: value for name, value in one.me.items() if name not in OWN},
            "subscriptions": sorted(
                (key[0], made.qos, made.identifier, made.interest and made.interest.text)
                for key, made in one.subscriptions.items()
            ),
            "queue": [_notification(entry) for entry in one.queue],
            "inflight": [_notification(entry) for entry in one.inflight.values()],
            "received": sorted(id for id in one.received if (one, id) not in unrouted),
            "policies": policies,
            "spent": astuple(one.spent),
        }
    retained = broker.retained
    kept = (
        list(retained.find_retained("#", context.now)),
        list(retained.find_valid("#", context.now)),
    )
    return {
        "sessions": sessions,
        "kept": [sorted((one.topic, one.payload, one.kept > 0) for one in each) for each in kept],
        "bytes": (retained.retained_bytes, retained.valid_bytes),
        "feeds": dict(broker.feeds.last),
        "size": len(broker.router),
    }


def _publication(notification: Any) -> tuple[str, bytes]:
    return notification.publication.topic, notification.publication.payload


def _notification(entry: Any) -> tuple[object, ...]:
    return *_publication(entry), entry.qos, entry.retain, entry.ids, entry.released


def restored_state(world: SimulatedBroker) -> dict[str, Any]:
    """The same, as a restart would have it."""
    broker = Broker(
        now=world.now,
        new_name=lambda: "new",
        limits=LIMITS,
        settings=world.settings,
        policies=PolicyLimits(),
    )
    broker.restore(world.disk.rows())
    return kept_state(broker)


def check_restart(world: SimulatedBroker) -> None:
    """The disk says what the memory says, but for what ends with the broker."""
    memory, disk = kept_state(world.broker), restored_state(world)
    durable = sum(
        len(one.subscriptions) for one in world.broker.context.sessions.values() if one.is_durable
    )
    memory["size"] = durable
    assert disk == memory


# -- the scene ------------------------------------------------------------------------------------

POLICY: Final = """
def arrived(m, me):
    if changed("x", by=1):
        me.last = m.x
        return [keep(m, "x"), m]
"""
LIMITS: Final = Limits(topic_alias_max=4)
LAKE: Final = BrokerSettings(
    channels=(LakeStream("air", ("a/#",), frozenset(("publications", "notifications", "states"))),),
    keeps_subscriptions=True,
    version="1.0",
)


class Scene:
    """A broker with all kinds of bystanders, and the one client that meets a fault."""

    def __init__(self, act: Act) -> None:
        works: dict[str, Any] = {}
        if act.works:
            works = {"workers": Workers(), "isolation": "process"}
        self.world = SimulatedBroker(limits=LIMITS, settings=act.settings, **works)
        self.clients: list[SimulatedClient] = []
        self.heard: dict[str, list[tuple[str, bytes]]] = {}
        self.has_pubrec = self.has_pubrel = False
        topics = "a/#"
        self.near = self._durable("near")
        self.near.subscribe(topics, qos=1)
        self.texted = self._durable("texted")
        self.texted.subscribe(topics, qos=2, filter="x > me.least")
        self.texted.publish("$rove/me", b'{"least": 1}', 1)
        self.ranked = self._durable("ranked")
        self.ranked.subscribe(topics, qos=1, filter="ORDER BY x DESC LIMIT 1 WITHIN 1 HOURS")
        self.ruled = self._durable("ruled")
        self.ruled.subscribe(topics, qos=1, policy=POLICY)
        self.light = self._come("light", properties=Properties(topic_alias_max=2))
        self.light.subscribe(topics)
        self.plain = self._come("plain", version=V311)
        self.plain.subscribe(topics, qos=1)
        for name in ("one", "two"):
            self._durable(name).subscribe("$share/group/a/#", qos=1)
        self.away = self._durable("away")
        self.away.subscribe(topics, qos=2)
        self.away.drop()
        self.other = self._durable("other")
        self.other.publish("a/kept", b'{"x": 0}', 1, retain=True)
        self.other.publish("a/first", b'{"x": 2}', 1)
        self.faulty = self._durable("faulty", **act.comes)
        self.faulty.subscribe("b/#", qos=2)
        self.faulty.subscribe("b/#", qos=1, identifier=7, filter="x > 5")
        self.listen()

    def _come(self, name: str, **options: Any) -> SimulatedClient:
        client = self.world.connect(name, **options)
        self.clients.append(client)
        return client

    def _durable(self, name: str, **options: Any) -> SimulatedClient:
        return self._come(name, **{"expiry_s": EXPIRES_NEVER_S} | options)

    def listen(self) -> None:
        """Let everybody take what came."""
        for client in self.clients:
            came = [] if client.is_closed() else client.take_all()
            heard = self.heard.setdefault(client.client_id, [])
            heard += [(packet.topic, packet.payload) for packet in came]

    def finish(self) -> dict[str, Any]:
        """Whoever is away comes back, something else happens, and that is how it ended."""
        world = self.world
        world.advance(60.0)
        if not self.has_pubrel and any(isinstance(one, Pubrec) for one in self.faulty.inbox):
            self.faulty.send(Pubrel(77))  # the answer came with a later turn
        self.listen()
        known = sorted(world.broker.context.sessions)
        for client in self.clients:
            if client.is_closed():
                client.come_back()
        world.advance(60.0)
        self.listen()
        self.other.publish("a/last", b'{"x": 50}', 1)
        self.other.publish("b/last", b'{"x": 50}', 1)
        assert len(answers := self.other.take(Puback)) == 2
        assert all(one.reason < Reason.UNSPECIFIED_ERROR for one in answers)
        self.listen()
        check_restart(world)
        # Whose turn it is in a group is nobody's promise.
        heard: dict[str, list[Any]] = dict(self.heard)
        heard["group"] = sorted(heard.pop("one") + heard.pop("two"))
        # What was under way to the one who was thrown out comes again.
        heard["faulty"] = sorted(set(heard["faulty"]))
        # Where the policy failed, the message went on as it came.
        heard["ruled"] = list(dict.fromkeys((at, decode(what)) for at, what in heard["ruled"]))
        return {"heard": heard, "known": known, "state": kept_state(world.broker)}


class Act(NamedTuple):
    """Something that a client does."""

    do: Callable[[Scene], None]
    before: Callable[[Scene], None] = lambda _scene: None
    settings: BrokerSettings | None = None
    comes: dict[str, Any] = {}  # noqa: RUF012
    """How the client has connected."""
    works: bool = False
    """Whether workers do everything that policies do."""
    is_repeated: bool = True
    """Whether the client does it again when it has been thrown out."""
    ignores_own: bool = False
    """Whether it depends on when it failed what the client itself has heard."""


def publish(topic: str = "a/b", payload: bytes = b'{"x": 3}', **options: Any) -> Act:
    return Act(lambda scene: _publish(scene, topic, payload, **options))


def _publish(scene: Scene, topic: str, payload: bytes, **options: Any) -> None:
    client = scene.faulty
    if options.get("qos") != 2:
        client.publish(topic, payload, **options)
        return
    # As a client does that remembers what it was told.
    if not scene.has_pubrec:
        client.publish(topic, payload, packet_id=77, **options)
        scene.has_pubrec = any(isinstance(one, Pubrec) for one in client.inbox)
    if scene.has_pubrec and not client.is_closed():
        client.send(Pubrel(77))
        scene.has_pubrel = True


def subscribe(topic_filter: str, **options: Any) -> Act:
    return Act(lambda scene: scene.faulty.send_subscribe(topic_filter, **options))


def _unsubscribe(*topic_filters: str) -> Callable[[Scene], None]:
    def do(scene: Scene) -> None:
        if not scene.faulty.is_closed():
            from rove.mqtt.packets import Unsubscribe

            scene.faulty.send(Unsubscribe(scene.faulty.next_packet_id(), topic_filters))

    return do


def _connect(**options: Any) -> Callable[[Scene], None]:
    def do(scene: Scene) -> None:
        client = scene.world.client("faulty", options.get("version", V5))
        scene.clients[scene.clients.index(scene.faulty)] = client
        scene.faulty = client
        settings = {"expiry_s": EXPIRES_NEVER_S, "clean_start": False} | options
        settings.pop("version", None)
        client.send_connect(**settings)

    return do


def decode(payload: bytes) -> str:
    return payload.decode().replace(" ", "") or "{}"


def _queued(scene: Scene, qos: int = 2) -> None:
    """Something is on its way to the client, and more waits for it."""
    for number in range(3):
        scene.other.publish("b/c", b'{"x": %d}' % number, qos)
    scene.other.take_all()


def _answer(kind: type[Puback | Pubrec | Pubcomp]) -> Callable[[Scene], None]:
    def do(scene: Scene) -> None:
        packet = next(one for one in scene.faulty.inbox if isinstance(one, Publish))
        scene.faulty.send(kind(packet.packet_id))

    return do


def _after(*acts: Act) -> Callable[[Scene], None]:
    def before(scene: Scene) -> None:
        for act in acts:
            act.do(scene)
        scene.listen()

    return before


def _drop(scene: Scene) -> None:
    scene.faulty.drop()


def _dropped_and_queued(scene: Scene) -> None:
    _drop(scene)
    _queued(scene)


def _wait(seconds: float) -> Callable[[Scene], None]:
    return lambda scene: scene.world.advance(seconds)


def _published_by_user(scene: Scene) -> None:
    """Another client of the same user has published."""
    other = scene.world.connect("anns", user="ann")
    other.publish("a/b", b'{"x": 3}', 1, id="v", valid_for="forever", retain=True)
    scene.listen()


def _forget_expression(_scene: Scene) -> None:
    """No text is known, so that workers compile it."""
    compiler._known.pop((HELD, PolicyLimits().text_bytes_max), None)


HELD: Final = f"{POLICY}# Compiled by a worker."
WILL: Final = Will("a/will", b'{"x": 9}', 1, True)
LATE_WILL: Final = Will("a/will", b'{"x": 9}', 1, True, Properties(will_delay_s=5))

ACTS: Final[dict[str, Act]] = {
    "publish 0": publish(),
    "publish 1": publish(qos=1),
    "publish 2": publish(qos=2),
    "publish 1 lake": publish(qos=1)._replace(settings=LAKE),
    "publish retained": publish("a/kept", qos=1, retain=True),
    "publish retained lake": publish("a/kept", qos=2, retain=True)._replace(settings=LAKE),
    "publish clearing": publish("a/kept", b"", qos=1, retain=True),
    "publish valid": publish(qos=1, id="v", valid_for="forever"),
    "unpublish": publish("$rove/unpublish", b"v", qos=1)._replace(
        before=_after(publish(qos=1, id="v", valid_for="forever", retain=True))
    ),
    "me": publish("$rove/me", b'{"y": 4, "least": 2}', qos=1)._replace(
        before=_after(subscribe("a/#", qos=1, filter="x > me.y"))
    ),
    "me lake": publish("$rove/me", b'{"y": 4}', qos=2)._replace(settings=LAKE),
    "report": publish("$rove/report", b'{"battery": 4, "received": 1}', qos=1),
    "policy": publish("$rove/policy", POLICY.encode(), qos=1),
    "policy off": publish("$rove/policy", b"", qos=1)._replace(
        before=_after(publish("$rove/policy", POLICY.encode(), qos=1))
    ),
    "subscribe": subscribe("a/+", qos=2),
    "subscribe lake": subscribe("a/+", qos=2)._replace(settings=LAKE),
    "subscribe text": subscribe("a/+", qos=1, filter="x > 1 AND y < 4 OR x = 0"),
    "subscribe ranked": subscribe("a/#", qos=1, filter="ORDER BY x DESC LIMIT 3 WITHIN 1 HOURS"),
    "subscribe ranked if": subscribe("a/#", filter="x > 1 ORDER BY x LIMIT 3 WITHIN 1 HOURS"),
    "subscribe evolving": subscribe("a/#", qos=1, filter="x < 10 + 0.1 * t", evolve="clees 500ms"),
    "subscribe shared": subscribe("$share/group/a/#", qos=1),
    "subscribe shared text": subscribe("$share/group/a/#", qos=1, filter="x > 1"),
    "subscribe again": subscribe("b/#", qos=1, filter="x > 5", identifier=7),
    "subscribe policy": subscribe("b/#", qos=1, policy=POLICY),
    "subscribe me": subscribe("$rove/me", qos=1),
    "unsubscribe": Act(_unsubscribe("b/#")),
    "unsubscribe ranked": Act(
        _unsubscribe("a/#"),
        before=_after(
            subscribe("a/#", qos=1, filter="ORDER BY x DESC LIMIT 3 WITHIN 1 HOURS"),
            subscribe("a/#", qos=1, identifier=3, policy=POLICY),
        ),
        settings=LAKE,
    ),
    "unsubscribe shared": Act(
        _unsubscribe("$share/group/a/#"), before=_after(subscribe("$share/group/a/#", qos=1))
    ),
    "puback": Act(_answer(Puback), before=lambda scene: _queued(scene, 1), is_repeated=False),
    "pubrec": Act(_answer(Pubrec), before=_queued, is_repeated=False),
    "disconnect": Act(
        lambda scene: scene.faulty.disconnect(4), comes={"will": WILL}, is_repeated=False
    ),
    "disconnect end": Act(
        lambda scene: scene.faulty.disconnect(0, Properties(session_expiry_s=0)),
        before=_queued,
        settings=LAKE,
        ignores_own=True,
    ),
    "auth": Act(lambda scene: scene.faulty.send(Auth(0x18)), is_repeated=False),
    "malformed": Act(lambda scene: scene.faulty.send_bytes(b"\xf1\x00"), is_repeated=False),
    "connect": Act(_connect(), before=_drop),
    "connect 3.1.1": Act(_connect(version=V311, expiry_s=None), before=_drop),
    "connect taking over": Act(_connect(), comes={"will": WILL}),
    "connect clean": Act(_connect(clean_start=True), settings=LAKE),
    "connect to a queue": Act(_connect(), before=_dropped_and_queued),
    "drop": Act(_drop, comes={"will": WILL}, settings=LAKE, is_repeated=False),
    "unpublish as a user": publish("$rove/unpublish", b"v", qos=1)._replace(
        before=_published_by_user, comes={"user": "ann"}
    ),
    "publish valid as a user": publish(qos=1, id="v", valid_for="forever")._replace(
        before=_published_by_user, comes={"user": "ann"}
    ),
    "publish through workers": publish(qos=1)._replace(works=True),
    "policy through workers": publish("$rove/policy", HELD.encode(), qos=1)._replace(
        before=_forget_expression, works=True
    ),
    "subscribe through workers": subscribe("b/#", qos=1, policy=HELD)._replace(
        before=_forget_expression, works=True
    ),
    "subscribe too dear": subscribe("a/#", filter="ORDER BY x LIMIT 1 WITHIN 4000 DAYS"),
    "session expires": Act(
        _wait(40.0),
        before=_dropped_and_queued,
        comes={"expiry_s": 30, "will": WILL},
        is_repeated=False,
        ignores_own=True,
    ),
    "late will": Act(_wait(6.0), before=_drop, comes={"will": LATE_WILL}, is_repeated=False),
    "keep-alive": Act(_wait(16.0), comes={"keep_alive_s": 10, "will": WILL}, is_repeated=False),
    "ranked slides": Act(
        _wait(3700.0),
        before=_after(publish("a/top", b'{"x": 40}', qos=1), publish("a/low", qos=1)),
        is_repeated=False,
    ),
}


def run(act: Act, nth: int) -> tuple[dict[str, Any], Injector]:
    """A scene in which the n-th call fails; 0 is none."""
    scene = Scene(act)
    act.before(scene)
    injector = Injector(nth)
    try:
        injector.run(lambda: act.do(scene))
    except Injected:
        # Before there is a connection, it is for the shell to refuse it.
        assert "__init__" in injector.where
        scene.world.broker.counters.faults += 1
    else:
        if injector.where:
            check_fault(scene)
    if scene.faulty.is_closed() and injector.where and act.is_repeated:
        if scene.faulty.version == V5:
            scene.faulty.come_back()
        act.do(scene)
    outcome = scene.finish()
    if act.ignores_own:
        outcome["heard"].pop("faulty")
    return outcome, injector


def check_fault(scene: Scene) -> None:
    """It was counted, it was told of, and the disk says what the memory says."""
    world = scene.world
    assert world.broker.counters.faults == 1, world.notes
    note = next(note for note in world.notes if note.event == "fault")
    assert (note.level, type(note.error)) == ("error", Injected)
    assert not world.broker.context.steps.undo
    check_restart(world)


def check_act(name: str, first: int, every: int) -> None:
    act = ACTS[name]
    expected, counted = run(act, 0)
    for nth in range(first, counted.calls + 1, every):
        outcome, injector = run(act, nth)
        assert outcome == expected, injector.where


@pytest.mark.parametrize("name", ACTS)
def test_a_fault_is_whole_or_nothing(name: str) -> None:
    check_act(name, sum(name.encode()) % SAMPLED_EVERY + 1, SAMPLED_EVERY)


@pytest.mark.soak
@pytest.mark.parametrize("name", ACTS)
def test_a_fault_anywhere_is_whole_or_nothing(name: str) -> None:
    check_act(name, 1, 1)


class TestTelling:
    def test_a_client_of_version_5_is_told_and_may_come_back(self) -> None:
        world = SimulatedBroker()
        other, client = world.connect("other"), world.connect("client", expiry_s=100)
        fail_once(world.broker.retained, "retain")
        client.publish("a", b"x", 1, retain=True)
        goodbye = client.only(Disconnect)
        assert goodbye.reason == Reason.UNSPECIFIED_ERROR
        assert "while it handled this PUBLISH" in (goodbye.properties.reason_string or "")
        assert (client.is_closed(), other.is_closed()) == (True, False)
        client.come_back()
        client.publish("a", b"x", 1, retain=True)
        assert client.only(Puback).reason < Reason.UNSPECIFIED_ERROR

    def test_a_client_of_version_3_is_closed(self) -> None:
        world = SimulatedBroker()
        client = world.connect("client", version=V311)
        fail_once(world.broker.retained, "retain")
        client.publish("a", b"x", 1, retain=True)
        assert (client.is_closed(), client.inbox) == (True, [])

    def test_the_log_says_whom_it_hit_and_where_it_was_raised(self) -> None:
        world = SimulatedBroker(settings=BrokerSettings(version="1.2.3"))
        client = world.connect("client")
        fail_once(world.broker.retained, "retain")
        client.publish("a", b"x", 1, retain=True)
        (note,) = [note for note in world.notes if note.event == "fault"]
        facts = note.facts
        assert (note.level, type(note.error)) == ("error", Injected)
        assert (facts["what"], facts["client"]) == ("PUBLISH", "client")
        assert facts["version"] == "1.2.3"
        assert "report it" in str(facts["report"])
        assert world.broker.counters.faults == 1

    def test_a_connect_that_fails_is_refused(self) -> None:
        world = SimulatedBroker()
        client = world.client("client")
        fail_once(world.broker.delivery, "resume")
        client.connect(expiry_s=100)
        client.drop()
        client.send_connect(clean_start=False, expiry_s=100)
        assert client.only(Connack).reason == Reason.UNSPECIFIED_ERROR
        assert client.is_closed()
        assert client.come_back().session_present


def fail_once(owner: object, name: str) -> None:
    """Let a method fail the next time that it is called."""

    def fail(*_: object, **__: object) -> None:
        delattr(owner, name)
        raise Injected(name)

    setattr(owner, name, fail)


def test_an_unmatchable_publication_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    matchers = SimulatedMatchers(1)
    elasticity = ElasticitySettings(matchers_max=2, pause_s=1e9)
    world = SimulatedBroker(matchers=matchers, elasticity=elasticity)
    near = world.connect("near")
    near.subscribe("a/#", filter="x > 1")
    clients = [world.connect(name, expiry_s=100) for name in ("one", "bad", "two")]
    assert world.broker.force_split(world.now) == ""
    coordinator = world.broker.coordinator
    assert coordinator is not None
    while not coordinator.is_offloaded:
        matchers.work()
        world.advance(0.02)
    match = Cell.match

    def fail(cell: Cell, shown: Any) -> Any:
        if any(one.attributes().get("topic") == "a/bad" for one in shown):
            raise Injected("match")
        return match(cell, shown)

    monkeypatch.setattr(Cell, "match", fail)
    for client in clients:
        client.say(Publish(f"a/{client.client_id}", b'{"x": 2}', 1, packet_id=9))
    world.turn()
    while not matchers.is_quiet:
        matchers.work()
    world.turn()
    one, bad, two = clients
    assert one.only(Puback).packet_id == two.only(Puback).packet_id == 9
    assert (bad.only(Disconnect).reason, bad.take(Puback)) == (Reason.UNSPECIFIED_ERROR, [])
    assert [packet.topic for packet in near.take_all()] == ["a/one", "a/two"]
    assert (world.broker.counters.faults, coordinator.is_offloaded) == (1, True)


@pytest.mark.parametrize("method", ["_matched", "route"])
def test_a_batch_in_which_one_fails_is_matched_without_it(method: str) -> None:
    world = SimulatedBroker()
    clients = [world.connect(name, expiry_s=100) for name in ("one", "bad", "two")]
    near = world.connect("near")
    near.subscribe("a/#", qos=1)
    near.subscribe("a/#", qos=1, identifier=2, filter="x > 1")
    router = world.broker.router
    owner: Any = router if method == "route" else router.expressions
    original = getattr(owner, method)

    def fail(asked: Any, *rest: Any) -> Any:
        topics = [asked] if isinstance(asked, str) else [one.key.topic for one in asked]
        if "a/bad" in topics:
            raise Injected(method)
        return original(asked, *rest)

    setattr(owner, method, fail)
    for client in clients:
        client.say(Publish(f"a/{client.client_id}", b'{"x": 2}', 1, True, packet_id=9))
    world.turn()
    one, bad, two = clients
    assert one.only(Puback).packet_id == two.only(Puback).packet_id == 9
    assert (bad.only(Disconnect).reason, bad.take(Puback)) == (Reason.UNSPECIFIED_ERROR, [])
    assert [packet.topic for packet in near.take_all()] == ["a/one", "a/two"]
    kept = [each.topic for each in world.broker.retained.find_retained("#", world.now)]
    assert sorted(kept) == ["a/one", "a/two"]
    check_restart(world)
    setattr(owner, method, original)
    bad.come_back()
    bad.publish("a/bad", b'{"x": 2}', 1)
    assert bad.only(Puback).reason == Reason.SUCCESS
