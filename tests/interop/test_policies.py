"""Whole lives with policies: whatever is slow, dies or changes, a message is decided once.

A seed decides everything: when commits are done, which worker answers when and which dies, when
clients go and come back, when variables and policies change, and when the broker crashes. A policy
counts its decisions in a variable, and what it sends says the count, so at the end everything that
came can be laid side by side: counts have no gap, a count stands for one message, versions of a
policy never go back, and what was acknowledged to a publisher was decided.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from rove.broker.policies.agents import Isolation
from rove.mqtt.packets import Properties, Puback, Publish
from rove.policy.limits import PolicyLimits
from rove.testing.mqtt import EXPIRES_NEVER_S, SimulatedBroker, SimulatedClient
from rove.testing.policies import SimulatedWorkers

STEPS = 400
TEXT = """
VERSION = {version}

def arrived(m, me):
    me.count = get("count", 0) + 1
    if m.n % 5 == 0:
        total = 0
        for i in range(12000):
            total = total + i
    m.count = me.count
    m.version = VERSION
    return m
"""
LIMITS = PolicyLimits(waiting_max=100_000, offences_max=1_000_000, share=1.0)


class Life:
    """One broker, one publisher and some doctors, through whatever comes."""

    def __init__(self, seed: int, isolation: Isolation, kill_share: float) -> None:
        self.chance = random.Random(seed)
        self.workers = SimulatedWorkers(seed)
        self.workers.holds_jobs = True
        self.workers.kill_share = kill_share
        self.world = SimulatedBroker(
            policies=LIMITS, workers=self.workers, isolation=isolation, holds_commits=True
        )
        self.publisher = self._client("publisher")
        self.doctors = [self._client(f"doctor{number}") for number in range(3)]
        self.versions = [0] * 3
        """Of each doctor's policy, the last that was asked for."""
        self.granted = [0] * 3
        self.asked: dict[tuple[int, int], int] = {}
        """Packets with policies that were not answered: doctor and packet, and the version."""
        self.published = 0
        self.open: dict[int, int] = {}
        self.acknowledged: set[int] = set()
        self.due: list[dict[int, int]] = []
        """For each number, the versions that were granted when it was published."""
        self.got: list[list[dict[str, Any]]] = [[], [], []]
        for number, doctor in enumerate(self.doctors):
            user = (("policy", TEXT.format(version=0)),) if number == 2 else ()
            properties = Properties(user=user, subscription_ids=(9,))
            doctor.send_subscribe("t", qos=1, properties=properties)
        self.calm()
        for number in (0, 1):
            self.set_policy(number)
        self.calm()

    def _client(self, name: str) -> SimulatedClient:
        client = self.world.client(name)
        client.send_connect(expiry_s=EXPIRES_NEVER_S)
        self.world.turn()
        self.world.commit()
        return client

    # -- what happens --------------------------------------------------------------------------

    def step(self) -> None:
        chance = self.chance
        happening = chance.choices(
            [
                self.publish,
                self.work,
                self.commit,
                self.pass_time,
                self.change,
                self.away,
                self.crash,
            ],
            [40, 25, 60, 5, 8, 8, 2],
        )[0]
        happening()
        self.collect()

    def publish(self) -> None:
        if self.publisher.is_closed():
            self.come_back(self.publisher)
        for _ in range(self.chance.randrange(1, 5)):
            number = self.published
            self.published += 1
            self.due.append(dict(enumerate(self.granted)))
            packet_id = self.publisher.publish("t", b'{"n": %d}' % number, 1)
            self.open[packet_id] = number

    def work(self) -> None:
        self.world.work(self.chance.randrange(1, 4))

    def commit(self) -> None:
        self.world.commit(self.chance.randrange(1, 3))

    def pass_time(self) -> None:
        self.world.advance(self.chance.choice((0.01, 1.0, 40.0)))

    def change(self) -> None:
        number = self.chance.randrange(3)
        doctor = self.doctors[number]
        if doctor.is_closed():
            return
        if self.chance.random() < 0.5:
            self.set_policy(number)
        elif self.chance.random() < 0.5:
            doctor.publish("$rove/me", b'{"x": %d}' % self.chance.randrange(9), 1)
        else:
            doctor.publish("$rove/report", b'{"battery": 0.5, "received": 3}', 1)

    def set_policy(self, number: int) -> None:
        self.versions[number] += 1
        user = (("subscription", "9"),) if number == 2 else ()
        text = TEXT.format(version=self.versions[number]).encode()
        packet_id = self.doctors[number].publish(
            "$rove/policy", text, 1, properties=Properties(user=user)
        )
        self.asked[number, packet_id] = self.versions[number]

    def away(self) -> None:
        client = self.chance.choice([*self.doctors, self.publisher])
        if client.is_closed():
            self.come_back(client)
        else:
            client.drop()
            self.forget(client)

    def crash(self) -> None:
        self.collect()
        self.world.crash()
        for client in (*self.doctors, self.publisher):
            self.forget(client)

    def forget(self, client: SimulatedClient) -> None:
        """What was not answered may have happened or not."""
        if client is self.publisher:
            self.open.clear()
        else:
            number = self.doctors.index(client)
            self.asked = {key: it for key, it in self.asked.items() if key[0] != number}

    def come_back(self, client: SimulatedClient) -> None:
        client.send_connect(clean_start=False, expiry_s=EXPIRES_NEVER_S)
        self.world.turn()

    def collect(self) -> None:
        for answer in self.publisher.take(Puback):
            if answer.packet_id in self.open:
                self.acknowledged.add(self.open.pop(answer.packet_id))
        for number, doctor in enumerate(self.doctors):
            for answer in doctor.take(Puback):
                version = self.asked.pop((number, answer.packet_id), None)
                if version is not None:
                    assert answer.reason == 0
                    self.granted[number] = version
            for one in doctor.take(Publish):
                self.got[number].append(json.loads(one.payload))
                doctor.send(Puback(one.packet_id))

    def calm(self) -> None:
        """Let everything come to an end."""
        while True:
            for client in (*self.doctors, self.publisher):
                if client.is_closed():
                    self.come_back(client)
            self.world.work()
            self.world.commit()
            self.world.advance(0.5)
            self.collect()
            if not (self.workers.waiting or self.world.uncommitted or self._is_waiting()):
                return

    def _is_waiting(self) -> bool:
        sessions = self.world.broker.context.sessions.values()
        view = self.world.broker.view.policies()
        return any(one.waiting for one in view.policies) or any(
            session.queue or session.inflight for session in sessions
        )

    # -- what must hold ------------------------------------------------------------------------

    def check(self, *, is_complete: bool) -> None:
        for number, got in enumerate(self.got):
            by_count = {value["count"]: value for value in got}
            assert sorted(by_count) == list(range(1, len(by_count) + 1))
            for value in got:
                assert by_count[value["count"]] == value
            in_order = [by_count[count] for count in sorted(by_count)]
            versions = [value["version"] for value in in_order]
            assert versions == sorted(versions)
            assert all(value["version"] >= self.due[value["n"]][number] for value in in_order)
            decided = [value["n"] for value in in_order]
            assert decided == sorted(decided)
            assert len(set(decided)) == len(decided)
            if is_complete:
                assert self.acknowledged <= set(decided)
        sizes = self.world.disk.sizes()
        assert "cases" not in sizes
        assert sizes["agents"] == 3
        assert "publications" not in sizes


@pytest.mark.parametrize("isolation", ["none", "process"])
@pytest.mark.parametrize("seed", range(3))
def test_a_life(seed: int, isolation: Isolation) -> None:
    live(seed, isolation, 0.0)


def test_a_life_in_which_workers_die() -> None:
    live(3, "none", 0.1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(300))
def test_many_lives(seed: int) -> None:
    live(1_000 + seed, ("none", "process")[seed % 2], (0.0, 0.0, 0.1)[seed % 3])


def live(seed: int, isolation: Isolation, kill_share: float) -> None:
    life = Life(seed, isolation, 0.0)
    life.workers.kill_share = kill_share
    for _ in range(STEPS):
        life.step()
    life.calm()
    life.check(is_complete=not kill_share)
    assert len(life.acknowledged) > 5
