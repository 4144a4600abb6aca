"""Lives of everything at once: whatever happens, what is kept is what is needed, and no more.

`test_policies` has few kinds of happenings and knows what every client has to receive. Here nearly
everything happens that a broker with policies knows: sessions that end, expire or are taken over,
clients of 3.1.1, wills, filters, ranks and shared subscriptions, feeds, policies of all kinds,
workers that die, limits that change, crashes, and matchers that split, merge and die. Nobody
could say what has to be received. But at any moment the rows on disk are those of what waits, a
publication counts who keeps it, and policies sit where they say. At the end of a life, when all
have come to rest, nothing waits; when all have left for good, nothing is left. And where the log
has all topics, every decision in it is repeated from the log alone and must come out the same.

A life of 1000 steps takes about half a second, with matchers twice as long.
"""

from __future__ import annotations

import base64
import io
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from PIL import Image

from rove.broker.access import AccessRules
from rove.broker.broker import Broker
from rove.broker.context import BrokerSettings, LakeStream
from rove.broker.limits import Limits
from rove.broker.policies.agents import Isolation
from rove.broker.publications.publication import Publication
from rove.broker.sessions.session import Subscription
from rove.broker.storage.records import LogRow
from rove.elastic.elasticity import ElasticitySettings
from rove.mqtt.packets import (
    NO_PROPERTIES,
    V5,
    V311,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Unsubscribe,
    Will,
)
from rove.pipeline.policies.decisions import PolicyRow, RecordedPolicies
from rove.policy.limits import PolicyLimits, Suspended
from rove.testing.matchers import SimulatedMatchers
from rove.testing.mqtt import EXPIRES_NEVER_S, SimulatedBroker, SimulatedClient
from rove.testing.policies import SimulatedWorkers

STEPS = 1_000
CALM_ROUNDS = 50
CLIENTS = ("a", "b", "c", "d")
TOPICS = ("t", "u", "t/a")
FILTERS = ("t", "t", "u", "t/#", "+", "$share/g/t", "$rove/me", "$rove/policy")
TEXTS = ("n > 20", "n > me.least", "SELECT n WHERE n > 3")
RANKED = "ORDER BY n DESC LIMIT 2 WITHIN 10 SECONDS"
RULES = """
allow user * publish,subscribe #
allow user * admin
deny user * subscribe u
"""
KEPT = frozenset(("publications", "notifications", "states"))
ISOLATIONS: tuple[Isolation, ...] = ("none", "process")
SUSPENDED: tuple[Suspended, ...] = ("nothing", "deliver")
NARROW = PolicyLimits(waiting_max=1, inline_steps_max=1, outputs_max=1)
VERDICTS = {"passed", "sent", "dropped", "stopped", "suspended"}
UNRUN = PolicyLimits(text_bytes_max=1)
"""With these, no policy that is on disk can be run."""

PASSES = "def arrived(m, me): return m"
DROPS = "def arrived(m, me): return None"
COUNTS = """
def arrived(m, me):
    me.count = get("count", 0) + 1
    if me.count % 3 == 0:
        return None
    m.c = me.count
    return [m, message(c=me.count)] if me.count % 3 == 1 else m
"""
SEVERAL = 'def arrived(m, me): return [m, message(a=1), m, drop(m, "n")]'
HEAVY = """
def arrived(m, me):
    t = 0
    for i in range(12000):
        t = t + i
    last = get("t", 0)
    me.t = m.n
    m.t = t
    return m if last < m.n else [m, message(last=last)]
"""
SMALLER = """
def arrived(m, me):
    m.ecg = compress(m.ecg, pixels_max=20)
    return m
"""
TWICE_SMALLER = """
def arrived(m, me):
    m.ecg = compress(compress(m.ecg, pixels_max=25), pixels_max=10)
    me.q = 1
    return m
"""
EVERY = """
def arrived(m, me):
    if every(5):
        return m
"""
CHANGED = """
def arrived(m, me):
    if changed("n", by=3):
        return [m, message(x=me.battery)]
"""
MOVES = """
def arrived(m, me):
    me.least = m.n % 7
    return m
"""
FOLLOWS = """
def arrived(m, me):
    if get("x", 0) != get("least", 0):
        return m
"""
FAILS = "def arrived(m, me): return 1 / 0"
LOOPS = """
def arrived(m, me):
    while True:
        pass
"""
POLICIES = (
    PASSES, DROPS, COUNTS, SEVERAL, HEAVY, SMALLER, TWICE_SMALLER, EVERY, CHANGED, MOVES,
    FOLLOWS, FAILS, LOOPS,
)  # fmt: skip


def picture(angle: int) -> str:
    out = io.BytesIO()
    Image.linear_gradient("L").resize((30, 30)).rotate(angle).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


PICTURES = [picture(angle) for angle in (0, 30, 60)]
FED = json.dumps({"n": 5, "ecg": PICTURES[0]}).encode()
"""What a feed has found that nobody published here."""


def settings_of(log: str) -> BrokerSettings:
    """Let topics that meet this filter be logged."""
    return BrokerSettings(channels=(LakeStream("c", (log,), KEPT),), keeps_subscriptions=True)


Act = Callable[[], None]
ActOf = Callable[[SimulatedClient], None]


class LoggedWorld(SimulatedBroker):
    """A world that begins its log as a server does: before anything is due or done."""

    begun: Broker | None = None

    def turn(self) -> None:
        if self.settings is not None and self.begun is not self.broker:
            is_new, self.begun = self.begun is None, self.broker
            self.broker.begin_log(0, is_new=is_new, now=self.now)
            self.broker.tick(self.now)
        super().turn()

    def crash(self, index: bytes | None = None, *, down_s: float = 0.0) -> None:
        if self.settings is None:
            super().crash(index, down_s=down_s)
        else:
            # The first turn ticks, after the log has begun.
            self.now += down_s
            super().crash(index)


class Life:
    """One broker and four clients, through whatever comes."""

    def __init__(self, seed: int, *, log: str = "", has_matchers: bool = False) -> None:
        """`log` is the filter of topics that are logged; empty is none."""
        self.chance = chance = random.Random(seed)
        self.log = log
        self.limits = PolicyLimits(
            waiting_max=chance.choice((3, 100)),
            offences_max=chance.choice((3, 1_000)),
            suspension_s=20,
            suspended=chance.choice(SUSPENDED),
            share=chance.choice((1.0, 0.1)),
        )
        self.workers = SimulatedWorkers(seed, count=chance.choice((1, 2, 4)))
        self.workers.holds_jobs = True
        self.workers.kill_share = chance.choice((0.0, 0.0, 0.1))
        self.workers.late_share = chance.choice((0.0, 0.0, 0.1))
        self.workers.job_s = chance.choice((0.0, 0.01, 0.3))
        self.matchers = SimulatedMatchers(seed) if has_matchers else None
        self.world = LoggedWorld(
            policies=self.limits,
            workers=self.workers,
            isolation=chance.choice(ISOLATIONS),
            holds_commits=chance.random() < 0.5,
            settings=settings_of(log) if log else None,
            limits=Limits(
                queue_messages_max=chance.choice((5, 1_000)),
                replay_messages_per_s=chance.choice((0, 50)),
            ),
            rules=AccessRules.parse(RULES, "rules"),
            matchers=self.matchers,
            elasticity=ElasticitySettings(matchers_min=0, matchers_max=3, pause_s=1e9),
        )
        versions = (V5, V5, V5, V311)
        self.clients = [self.world.client(name, chance.choice(versions)) for name in CLIENTS]
        self.named: list[tuple[SimulatedClient, str]] = []
        """Publications that may be taken back, and by whom."""
        self.happened: Counter[str] = Counter()
        self.steps_out = 0
        """Steps while matchers had the subscriptions."""
        self.acts: dict[Act, float] = {
            self.crash: 1.5,
            self.reconfigure: 0.5,
            self.feed: 1.5,
            self.work: 16,
            self.commit: 20,
            self.pass_time: 5,
        }
        self.acts_of: dict[ActOf, float] = {
            self.leave: 5,
            self.take_over: 3,
            self.publish: 30,
            self.subscribe: 14,
            self.unsubscribe: 3,
            self.set_policy: 6,
            self.set_variable: 4,
            self.report: 2,
            self.take_back: 3,
        }
        for client in self.clients:
            self.connect(client)

    # -- what happens --------------------------------------------------------------------------

    def step(self) -> None:
        self.rearrange()
        client = self.chance.choice(self.clients)
        if self.chance.random() < 0.45:
            (act,) = self.chance.choices(list(self.acts), list(self.acts.values()))
            self.happened[act.__name__] += 1
            act()
        elif client.is_closed():
            self.connect(client, clean_start=self.chance.random() < 0.15)
        else:
            (act_of,) = self.chance.choices(list(self.acts_of), list(self.acts_of.values()))
            self.happened[act_of.__name__] += 1
            act_of(client)
        if self.chance.random() < 0.6:
            self.acknowledge()

    def rearrange(self) -> None:
        """Of matchers, if there are any: one works, they split or merge, or one dies."""
        matchers, broker, now = self.matchers, self.world.broker, self.world.now
        if matchers is None:
            return
        self.steps_out += broker.router.expressions.is_offloaded
        lot = self.chance.random()
        if lot < 0.35:
            matchers.work()
        elif lot < 0.40:
            broker.force_split(now)
        elif lot < 0.42:
            broker.force_merge(now)
        elif lot < 0.425 and matchers.living:
            matchers.kill(self.chance.choice(matchers.living))
        else:
            return
        self.world.turn()

    def crash(self) -> None:
        self.world._policies = UNRUN if self.chance.random() < 0.1 else self.limits
        self.world.crash(down_s=self.chance.choice((0.0, 0.0, 50.0)))
        self.check()

    def reconfigure(self) -> None:
        broker, context = self.world.broker, self.world.broker.context
        policies = self.chance.choice((self.limits, NARROW))
        is_guarded = self.chance.random() < 0.5
        broker.reconfigure(context.limits, context.rules, is_guarded, policies)

    def feed(self) -> None:
        """Somebody tells what was found for those that the broker does not match itself."""
        broker = self.world.broker
        served = [one for one in self._subscriptions() if _is_served(one)]
        admin = next((one for one in self.clients if not one.is_closed()), None)
        if not served or admin is None:
            return
        last = broker.feeds.last.get("f", 0)
        found = [self._found(last + number, served) for number in (1, 2)]
        told = {"feed": "f", "after": last, "notifications": found}
        admin.publish("$rove/deliver", json.dumps(told).encode(), 1)

    def _subscriptions(self) -> Iterator[Subscription]:
        for session in self.world.broker.context.sessions.values():
            yield from session.subscriptions.values()

    def _found(self, sequence: int, served: list[Subscription]) -> dict[str, Any]:
        chance = self.chance
        chosen = chance.sample(served, chance.randrange(1, len(served) + 1))
        about = {
            "topic": "t",
            "at": self.world.now,
            "id": f"x{chance.randrange(9)}",
            "client_id": "zz",
            "payload": base64.b64encode(FED).decode(),
            "user": [["id", "x1"]] if chance.random() < 0.3 else [],
            "qos": chance.randrange(3),
        }
        logged = self._logged_publications()
        if logged and chance.random() < 0.5:
            position, row = chance.choice(logged)
            about = {
                "topic": row.topic,
                "at": row.at,
                "id": row.id,
                "client_id": row.client_id,
                "payload": base64.b64encode(row.payload).decode(),
                "user": row.user,
                "qos": row.qos,
                "position": position,
            }
        return {"sequence": sequence, "subscriptions": [one.number for one in chosen], **about}

    def _logged_publications(self) -> list[tuple[int, LogRow]]:
        rows = logged(self.world).items()
        return [(position, row) for position, row in rows if row.kind == "publications"]

    def work(self) -> None:
        self.world.work(self.chance.randrange(1, 4))

    def commit(self) -> None:
        self.world.commit(self.chance.choice((1, 2, None)))

    def pass_time(self) -> None:
        self.world.advance(self.chance.choice((0.01, 1.0, 25.0)))

    # -- what a client does --------------------------------------------------------------------

    def connect(self, client: SimulatedClient, *, clean_start: bool = False) -> None:
        chance, is_v5 = self.chance, client.version == V5
        will = None
        if chance.random() < 0.4:
            delay = Properties(will_delay_s=chance.choice((None, 0, 3)))
            properties = delay if is_v5 else NO_PROPERTIES
            retain = chance.random() < 0.2
            will = Will("t", b'{"n": 55}', chance.randrange(3), retain, properties)
        expiry_s = chance.choice((EXPIRES_NEVER_S, EXPIRES_NEVER_S, 30, 0))
        client.send_connect(
            clean_start=clean_start,
            expiry_s=expiry_s if is_v5 else None,
            keep_alive_s=chance.choice((0, 0, 10)),
            will=will,
        )
        self.world.turn()

    def leave(self, client: SimulatedClient) -> None:
        if self.chance.random() < 0.7:
            client.drop()
        else:
            client.disconnect()

    def take_over(self, client: SimulatedClient) -> None:
        """Connect while the older connection is there."""
        self.connect(client, clean_start=self.chance.random() < 0.3)

    def publish(self, client: SimulatedClient) -> None:
        chance = self.chance
        for _ in range(chance.randrange(1, 5)):
            user = []
            if chance.random() < 0.3:
                id = f"id{chance.randrange(20)}"
                self.named.append((client, id))
                user.append(("id", id))
            if chance.random() < 0.1:
                user.append(("valid-for", chance.choice(("5", "100"))))
            said = {"n": chance.randrange(100), "ecg": chance.choice(PICTURES)}
            client.publish(
                chance.choice(TOPICS),
                json.dumps(said).encode() if chance.random() < 0.95 else b"\xff",
                chance.randrange(3),
                retain=chance.random() < 0.1,
                properties=Properties(
                    user=tuple(user), message_expiry_s=chance.choice((None, None, 3, 100))
                ),
            )

    def subscribe(self, client: SimulatedClient) -> None:
        chance = self.chance
        topic_filter = chance.choice(FILTERS)
        user = []
        is_shared = topic_filter.startswith("$share")
        if not topic_filter.startswith("$rove") and chance.random() < 0.5:
            text = chance.choice(TEXTS if is_shared else (*TEXTS, RANKED))
            user.append(("filter", text))
            is_plain = topic_filter.startswith("t") and text != RANKED
            if self.log and is_plain and chance.random() < 0.5:
                user.append(("engine", "spark"))
        if chance.random() < 0.5:
            user.append(("policy", chance.choice(POLICIES)))
        ids = (chance.randrange(1, 4),) if chance.random() < 0.6 else ()
        properties = Properties(user=tuple(user), subscription_ids=ids)
        client.send_subscribe(topic_filter, qos=chance.randrange(3), properties=properties)

    def unsubscribe(self, client: SimulatedClient) -> None:
        session = self.world.broker.context.sessions.get(client.client_id)
        if session is not None and session.subscriptions:
            topic_filter, *_ = self.chance.choice(list(session.subscriptions))
            client.send(Unsubscribe(client.next_packet_id(), (topic_filter,)))

    def set_policy(self, client: SimulatedClient) -> None:
        """Of the session or of a subscription; sometimes none."""
        text = self.chance.choice((*POLICIES, "", ""))
        user: tuple[tuple[str, str], ...] = ()
        if self.chance.random() < 0.5:
            user = (("subscription", str(self.chance.randrange(1, 4))),)
        client.publish("$rove/policy", text.encode(), 1, properties=Properties(user=user))

    def set_variable(self, client: SimulatedClient) -> None:
        said = {self.chance.choice(("x", "least")): self.chance.choice((None, 1, 5))}
        client.publish("$rove/me", json.dumps(said).encode(), 1)

    def report(self, client: SimulatedClient) -> None:
        said = {"battery": self.chance.random(), "received": self.chance.randrange(9)}
        client.publish("$rove/report", json.dumps(said).encode(), 1)

    def take_back(self, client: SimulatedClient) -> None:
        if self.named:
            client, id = self.chance.choice(self.named)
            if not client.is_closed():
                client.publish("$rove/unpublish", id.encode(), 1)

    def acknowledge(self) -> None:
        """All answer everything that they were sent."""
        for client in self.clients:
            if not client.is_closed():
                for one in client.take(Publish):
                    if one.qos:
                        answer = Puback if one.qos == 1 else Pubrec
                        client.send(answer(one.packet_id))
                for received in client.take(Pubrec):
                    if received.reason < 128:
                        client.send(Pubrel(received.packet_id))
                for released in client.take(Pubrel):
                    client.send(Pubcomp(released.packet_id))
            client.inbox.clear()

    # -- the end -------------------------------------------------------------------------------

    def calm(self) -> None:
        """Let all come back, and have everything done that is to be done."""
        for _ in range(CALM_ROUNDS):
            for client in self.clients:
                if client.is_closed():
                    self.connect(client)
            self.world.work()
            self.world.commit()
            self.world.advance(0.5)
            self.acknowledge()
            if self.matchers is not None:
                for _ in range(20):
                    self.matchers.work()
                    self.world.turn()

    def leave_for_good(self) -> None:
        """All end their sessions, and time passes until nothing is valid any more."""
        self.world.commit()
        for client in self.clients:
            if not client.is_closed():
                client.drop()
            client.send_connect(clean_start=True, expiry_s=0 if client.version == V5 else None)
            self.world.turn()
            self.world.commit()
            client.disconnect()
            self.world.commit()
        for _ in range(20):
            self.world.work()
            self.world.commit()
        self.world.advance(200)
        self.world.commit()

    # -- what must hold ------------------------------------------------------------------------

    def check(self) -> None:
        """At any moment."""
        kept = self._kept()
        for publication, count in kept.items():
            assert publication.kept == count, (publication.number, publication.is_derived)
        self._check_places()
        if not self.world.uncommitted:
            self._check_disk(kept)

    def _kept(self) -> Counter[Publication]:
        """Who has to be on disk, and for how many reasons."""
        broker, context = self.world.broker, self.world.broker.context
        kept: Counter[Publication] = Counter()
        for session in context.sessions.values():
            if session.is_durable:
                kept.update(one.publication for one in session.inflight.values())
                kept.update(one.publication for one in session.queue)
        for slot in broker.agents.policies.slots:
            kept.update(case.notification.publication for case in slot.waiting if case.key)
        kept.update(broker.retained._retained.values())
        kept.update(broker.retained._valid.values())
        return kept

    def _check_places(self) -> None:
        """Policies sit where they say that they do, and who waits for a worker is waited for."""
        broker, context = self.world.broker, self.world.broker.context
        for session in context.sessions.values():
            if session.subscriber is not None:
                assert session.subscriber.is_asking or not session.subscriber.turns
                assert (
                    session.subscriber.slot is None
                    or session.subscriber.slot in broker.agents.policies.slots
                )
        for slot in broker.agents.policies.slots:
            assert context.sessions.get(slot.session.client_id) is slot.session
            if slot.subscription is not None:
                assert slot.subscription.slot is slot
                assert slot.session.subscriptions[slot.subscription.key] is slot.subscription

    def _check_disk(self, kept: Counter[Publication]) -> None:
        """When everything is committed."""
        rows, agents = self.world.disk.tables, self.world.broker.agents
        waiting = [case.key for slot in agents.policies.slots for case in slot.waiting if case.key]
        assert rows["cases"].keys() == set(waiting)
        durable = {slot.key for slot in agents.policies.slots if slot.session.is_durable}
        assert rows["agents"].keys() == durable | agents.policies.unrun
        assert rows["publications"].keys() == {one.number for one in kept}

    def check_calm(self) -> None:
        self.check()
        if not self.workers.waiting:
            view = self.world.broker.view.policies()
            assert not [one for one in view.policies if one.waiting]

    def check_nothing_left(self) -> None:
        """But for what is retained, the log, and how far feeds are."""
        sizes = self.world.disk.sizes()
        assert sizes.pop("publications", 0) == sizes.pop("retained", 0)
        assert sizes.keys() <= {"log", "feeds"}
        assert not self.world.broker.view.policies().count
        assert not self.world.broker.context.sessions


def _is_served(one: Subscription) -> bool:
    return one.interest is not None and not one.interest.is_live


# -- the log -----------------------------------------------------------------------------------


def logged(world: SimulatedBroker) -> dict[int, LogRow]:
    """What is in the log, in the order of positions."""
    log = world.disk.read("log", LogRow)
    return {position: log[position] for position in sorted(log) if isinstance(position, int)}


def rows_of(log: dict[int, LogRow]) -> Iterator[PolicyRow]:
    """What happened to policies and what they were shown."""
    for position, one in log.items():
        at_us = round(one.at * 1e6)
        if one.kind == "subscriptions":
            yield PolicyRow(position, at_us, one.client_id, one.payload, True)
        elif one.kind == "notifications" and not one.earlier:
            facts = json.loads(one.payload or b"{}")
            if "policy" in facts:
                published = facts.get("position")
                payload = FED if published is None else log[published].payload
                yield PolicyRow(
                    position,
                    at_us,
                    one.client_id,
                    one.payload,
                    False,
                    topic=one.topic,
                    id=one.id,
                    user=one.user,
                    numbers=one.subscriptions,
                    payload=payload,
                )


def repeated(world: SimulatedBroker) -> Counter[str]:
    """Repeat every decision of the log and compare; how often there was which verdict."""
    verdicts: Counter[str] = Counter()
    for one in RecordedPolicies().take(rows_of(logged(world))):
        facts = json.loads(one.row.entry)
        assert (one.verdict, one.kind) == (one.logged, facts.get("kind", "")), one.row
        assert len(one.outputs) == facts["outputs"], one.row
        verdicts[one.verdict] += 1
    return verdicts


# -- the tests ---------------------------------------------------------------------------------


def live(life: Life) -> Counter[str]:
    """From the first step to the last row; how often policies decided what."""
    for _ in range(STEPS):
        life.step()
        if life.chance.random() < 0.1:
            life.check()
    life.calm()
    life.check_calm()
    life.leave_for_good()
    life.check_nothing_left()
    return repeated(life.world) if life.log == "#" else Counter()


def test_a_life() -> None:
    life = Life(6, log="#")
    assert live(life).keys() == VERDICTS
    assert life.happened["crash"]


def test_a_life_with_matchers() -> None:
    life = Life(2, log="#", has_matchers=True)
    assert live(life).keys() == VERDICTS
    assert life.steps_out > STEPS / 4


def test_new_limits_hold_for_what_a_worker_is_busy_with() -> None:
    """What it says was said under the old ones: it is asked again, as the log will be."""
    workers = SimulatedWorkers()
    workers.holds_jobs = True
    world = LoggedWorld(workers=workers, isolation="process", settings=settings_of("#"))
    ann = world.connect("ann")
    ann.subscribe("t")
    ann.publish("$rove/policy", SEVERAL.encode(), 1)
    ann.publish("t", b'{"n": 1}')
    broker, context = world.broker, world.broker.context
    # With few steps, the second time would be two: a light call that does not suffice comes first.
    broker.reconfigure(context.limits, context.rules, False, PolicyLimits(outputs_max=1))
    while workers.waiting:
        world.work(1)
    assert workers.done == 2
    assert not ann.payloads()
    assert repeated(world) == {"stopped": 1}


def test_the_log_tells_of_the_end_of_policies_that_were_not_run() -> None:
    """Else whoever repeats it goes on with the variables of a session that is no more."""
    world = LoggedWorld(settings=settings_of("#"))
    ann = world.connect("ann", expiry_s=EXPIRES_NEVER_S)
    ann.publish("$rove/policy", FOLLOWS.encode(), 1)
    ann.publish("$rove/me", b'{"x": 5}', 1)
    limits, world._policies = world._policies, UNRUN
    world.crash()
    ann.connect(expiry_s=EXPIRES_NEVER_S)
    broker, context = world.broker, world.broker.context
    broker.reconfigure(context.limits, context.rules, False, limits)
    ann.subscribe("t", policy=FOLLOWS)
    ann.publish("$rove/me", b'{"least": 5}', 1)
    ann.publish("t", b'{"n": 1}')
    assert ann.payloads() == [b'{"n": 1}']
    assert repeated(world) == {"passed": 1}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(300))
def test_many_lives(seed: int) -> None:
    log = ("#", "", "#", "t/#")[seed % 4]
    live(Life(1_000 + seed, log=log, has_matchers=seed % 3 == 0))
