"""A console for a live world: it finds the world on a broker, sends commands and prints answers.

A world that is played is announced in a retained message (`Announcement`) with its scenario, so the
console needs only the broker's address. It makes the world of that scenario, which does not advance
here: enough for all names and places, for completion and to refuse impossible commands at once. A
command is published for a tick `LEAD_S` ahead, so that it reaches every process in time, and the
first server publishes its result.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from rove.client.sync import Client, Subscription, connect
from rove.errors import RoveError
from rove.live.engine_roles import Lockstep
from rove.live.role_process import (
    ANSWER_TOPIC,
    COMMAND_TOPIC,
    RUN_TOPIC,
    Announcement,
    CommandAnswer,
    ScheduledCommand,
)
from rove.world.people.commands import complete, help_text, parse_command
from rove.world.people.execution import check

LEAD_S: Final = 1.0
"""How long a command is on its way at most; else a process has to give up."""
_PATIENCE_S: Final = 5.0
_LOOK_S: Final = 2.0


class ConsoleError(RoveError):
    """There is no world to talk to, or it does not answer."""


class Console:
    """Talks to one world."""

    def __init__(
        self, client: Client, answers: Subscription[CommandAnswer], announced: Announcement
    ) -> None:
        self.announced: Final = announced
        self._client = client
        self._answers = answers
        self._world = Lockstep(announced.scenario).world

    @property
    def tick(self) -> int:
        """The present one; below 0 before the world begins."""
        passed_s = time.time() - self.announced.begins_at
        return math.floor(passed_s / self.announced.scenario.tick_s)

    @property
    def is_over(self) -> bool:
        """Whether the world has come to its end."""
        scenario = self.announced.scenario
        return self.tick * scenario.tick_s > scenario.seconds

    def say(self, text: str) -> str:
        """Have a command obeyed; in words, what became of it. WorldError if it can never be."""
        words = text.split()
        if words[:1] == ["help"]:
            return help_text(words[1] if len(words) > 1 else None)
        if self.is_over:
            raise ConsoleError("the world has come to its end")
        check(self._world, parse_command(text))
        lead = math.ceil(LEAD_S / self.announced.scenario.tick_s)
        order = ScheduledCommand(max(self.tick, 0) + lead, text, self.announced.run)
        self._client.publish(COMMAND_TOPIC, msgspec.json.encode(order))
        answer = self._answer_to(order)
        if answer.refused is not None:
            return f"tick {answer.tick}: not done, {answer.refused}"
        return f"tick {answer.tick}: done"

    def _answer_to(self, order: ScheduledCommand) -> CommandAnswer:
        waits_until = self.announced.begins_at + order.tick * self.announced.scenario.tick_s
        waits_until += _PATIENCE_S
        while (left_s := waits_until - time.time()) > 0:
            try:
                answer = self._answers.get(left_s).value
            except TimeoutError:
                break
            if (answer.tick, answer.text) == (order.tick, order.text):
                return answer
        raise ConsoleError(f"nobody says what became of {order.text!r}; is the world still there?")

    def complete(self, text: str) -> list[str]:
        """The words that can stand for the last, unfinished one, or follow after a space."""
        more = [word for word in ("help", "quit") if " " not in text and word.startswith(text)]
        return [*complete(text, self._world), *more]


@contextmanager
def console(url: str) -> Iterator[Console]:
    """Talk to the world that is played on a broker; ConsoleError if there is none."""
    with connect(url) as client:
        with client.subscribe(RUN_TOPIC, into=bytes) as runs:
            try:
                found = runs.get(_LOOK_S).value
            except TimeoutError:
                found = b""
        announced = _announced(found, url)
        with client.subscribe(ANSWER_TOPIC, into=CommandAnswer) as answers:
            yield Console(client, answers, announced)


def _announced(found: bytes, url: str) -> Announcement:
    try:
        return msgspec.json.decode(found, type=Announcement)
    except msgspec.DecodeError:
        raise ConsoleError(
            f"no world is played at {url}; start one with "
            f"`rove world run SCENARIO --live --broker {url}`"
        ) from None


class Completer:
    """What readline asks: the first, the second, … word that fits."""

    def __init__(self, talking: Console, line: Callable[[], str]) -> None:
        """`line` tells what has been typed so far."""
        self._talking = talking
        self._line = line

    def __call__(self, _: str, number: int) -> str | None:
        found = self._talking.complete(self._line())
        return f"{found[number]} " if number < len(found) else None
