"""Looks after the broker while somebody looks at the page, and tells when its state changes.

One request every few seconds to `/healthz`, which is open to everybody and which the pages' own
requests share; none while no page is open. What it finds goes to the timeline as a note: the broker
does not answer, answers again, is ill and why, is well again.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from rove.base.http import HttpError
from rove.monitor.broker_client import BrokerAnswer, BrokerClient
from rove.monitor.hub import Hub

EVERY_S: Final = 5.0
WELL: Final = "the broker answers, and is well"


async def watch(broker: BrokerClient, hub: Hub) -> None:
    """Go on until it is cancelled."""
    before = WELL
    while True:
        if hub.pages:
            now = await _state(broker)
            if now != before:
                hub.note("broker", now)
            before = now
        await asyncio.sleep(EVERY_S)


async def _state(broker: BrokerClient) -> str:
    try:
        return state_of(await broker.get("/healthz"))
    except HttpError as fault:
        return fault.error


def state_of(answer: BrokerAnswer) -> str:
    """What a broker says of itself, in words."""
    if answer.status == 200:
        return WELL
    try:
        reasons = ", ".join(map(str, msgspec.json.decode(answer.body)["reasons"]))
    except (msgspec.DecodeError, KeyError, TypeError):
        reasons = f"it answers {answer.status}"
    return f"the broker is ill: {reasons}"
