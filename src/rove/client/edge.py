"""Policies that run in this process, on notifications before the program gets them.

Agents, compiler and limits are those of the broker. This is for brokers that run no policies, and
for devices that are themselves the edge of a network. `client.me` has the subscriber's own
variables, which a policy may read and set; the automatic ones are the last result of the source of
reports and the facts of this connection. The memory of a policy (`every`, `changed`, `summary`)
lives as long as the subscription.

A policy runs within the turn of the event loop in which a notification arrives, compression of
pictures included: there are no other users whom that could delay, and a pool would cost a small
device more than it gains. For the same reason processor time is not counted per user. A
notification costs some 15 µs in addition to its policy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from rove.client.notifications import id_of
from rove.client.policies import DeviceContext, PolicyNotice, compiled
from rove.mqtt.packets import Publish
from rove.policy.agents import Agent, Notice
from rove.policy.automatic_variables import USUAL
from rove.policy.limits import PolicyLimits
from rove.policy.messages import IncomingMessage

LIMITS: Final = PolicyLimits()


class EdgePolicy:
    """The policy of one subscription that runs here."""

    def __init__(
        self,
        text: str,
        surroundings: DeviceContext,
        limits: PolicyLimits = LIMITS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._surroundings = surroundings
        self._limits = limits
        self._clock = clock
        self._agent: Agent | None = None
        self.replace(text)

    def replace(self, text: str) -> None:
        """Use this policy from now on, none if empty; PolicyRefused leaves the old one."""
        self._agent = Agent(compiled(text), self._clock()) if text else None

    def arrived(self, publish: Publish, identifier: int) -> Sequence[Publish]:
        """What the program gets instead of a notification of the subscription with that
        identifier."""
        if self._agent is None:
            return (publish,)
        around = self._surroundings
        automatic = around.automatic
        decision = self._agent.decide(
            IncomingMessage(publish.topic, publish.payload, publish.properties.user),
            {**around.own, **automatic},
            self._clock(),
            self._limits,
            automatic=USUAL.union(automatic),
            clock=time.monotonic,
        )
        if decision.changes:
            around.change(decision.changes)
        for notice in decision.notices:
            around.tell(_told(notice, publish, identifier))
        if decision.is_unchanged:
            return (publish,)
        replace = msgspec.structs.replace
        return [
            replace(
                publish,
                payload=sent.payload,
                properties=replace(publish.properties, user=sent.user),
            )
            for sent in decision.outputs
        ]


def _told(notice: Notice, publish: Publish, identifier: int) -> PolicyNotice:
    return PolicyNotice(
        event=notice.event,
        at=notice.at,
        kind=notice.kind,
        text=notice.text,
        line=notice.line,
        topic=publish.topic,
        publication=id_of(publish) or "",
        subscription=identifier,
        until=notice.until,
        missed=notice.missed,
    )
