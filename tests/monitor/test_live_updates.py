"""Pages: late, slow, hostile and many, on a hub that hears what a process would say."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from rove.monitor.live_updates import (
    SAID_AT_ONCE,
    TEXTS_MAX,
    LiveUpdates,
    PageConnection,
    PendingRequest,
)
from rove.monitor.motion_frames import Motion
from rove.world.runs.state import Floats
from tests.effort import PATIENCE_S
from tests.monitor.conftest import Frame, read_frame, yard

COUNT = 50


class Recorded:
    """A page's other end; it takes nothing while it is blocked."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.is_free = asyncio.Event()
        self.is_free.set()

    async def send(self, message: str | bytes) -> None:
        await self.is_free.wait()
        is_frame = isinstance(message, bytes)
        self.got.append(read_frame(message) if is_frame else json.loads(message))  # type: ignore[arg-type]

    def frames(self) -> list[Frame]:
        return [one for one in self.got if isinstance(one, Frame)]

    def texts(self, type: str) -> list[Any]:
        return [one for one in self.got if isinstance(one, dict) and one["type"] == type]


class World:
    """Says to a hub what a process would."""

    def __init__(self, hub: LiveUpdates) -> None:
        self.hub = hub
        self.motion = Motion(COUNT)
        self.x: Floats = np.linspace(0.0, 10.0 * COUNT, COUNT)
        self.v = np.ones(COUNT)
        self.tick = 0

    def begin(self, name: str = "yard-1") -> None:
        view = {
            "run": name,
            "entities": {"names": [f"player{n}" for n in range(COUNT)]},
            "clients": {"avatars": list(range(COUNT))},
        }
        self.say({"type": "world", "began": 1.0, "facts": {"live": "area"}, "view": view})
        self.motion = Motion(COUNT)
        self.look()

    def say(self, message: dict[str, Any]) -> None:
        self.hub._hear(msgspec.json.encode(message))

    def look(self) -> None:
        still = np.zeros(COUNT)
        at = self.tick * 0.1
        self.hub._hear(self.motion.look(self.x, still, self.v, still, self.tick, at, 0.1))

    def step(self, turned: int = 0) -> None:
        """Everybody goes on, and so many turn round."""
        self.tick += 1
        self.x = self.x + self.v * 0.1
        self.v[:turned] = -self.v[:turned]
        self.look()


class Silent:
    """A process on which nobody plays; what it is asked is kept."""

    pid = 1

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def ask(self, what: Any) -> bool:
        self.asked.append(what)
        return True

    def stop(self) -> None:
        return


async def may() -> str | None:
    return None


def with_hub(check: Callable[[LiveUpdates, World], Awaitable[None]]) -> None:
    async def run() -> None:
        hub = LiveUpdates(yard())
        hub._process = Silent()  # type: ignore[assignment]
        await asyncio.wait_for(check(hub, World(hub)), PATIENCE_S)

    asyncio.run(run())


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for something that a page does in time; `with_hub` ends what never comes."""
    await settle()
    while not is_so():
        await asyncio.sleep(0.001)


class Open:
    """A page that is served."""

    def __init__(
        self, hub: LiveUpdates, may_command: Callable[[], Awaitable[str | None]] = may
    ) -> None:
        self.other = Recorded()
        self.page = PageConnection(hub, self.other.send, may_command)
        self.page._every_s = 0.0
        hub.pages.add(self.page)
        self._task = asyncio.create_task(self.page.serve())

    async def hear(self, **message: Any) -> None:
        await self.page.hear(json.dumps(message))
        await settle()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def test_a_late_page_sees_everybody_and_then_what_changes() -> None:
    async def check(hub: LiveUpdates, world: World) -> None:
        world.begin()
        for _ in range(5):
            world.step(turned=3)
        one = Open(hub)
        await one.hear(type="watch", world=True)
        assert one.other.got[0]["type"] == "hello"
        assert one.other.got[0]["run"] == "yard-1"
        [whole] = one.other.frames()
        assert (whole.kind, len(whole.columns[0]), whole.tick) == (1, COUNT, 5)
        world.step(turned=2)
        await settle()
        legs = one.other.frames()[-1]
        assert (legs.kind, legs.columns[0]) == (2, (0, 1))
        await one.close()

    with_hub(check)


def test_a_slow_page_is_not_sent_what_it_missed_but_what_it_needs() -> None:
    async def check(hub: LiveUpdates, world: World) -> None:
        world.begin()
        slow, fast = Open(hub), Open(hub)
        for one in (slow, fast):
            await one.hear(type="watch", world=True)
        slow.other.is_free.clear()
        for turn in range(30):
            world.step(turned=3)
            world.say({"type": "sample", "now": float(turn), "at": 0.0})
            await settle()
        slow.other.is_free.set()
        await settle()
        assert len(fast.other.frames()) == 31
        assert len(slow.other.frames()) <= 3
        # Both have everybody where the other has.
        mirrors: list[Floats] = []
        for one in (slow, fast):
            frames = one.other.frames()
            assert frames[-1].tick == world.tick
            mirrors.append(replay(frames, world.tick * 0.1))
        assert np.allclose(mirrors[0], mirrors[1], atol=0.002)
        assert len(slow.other.texts("sample")) <= 3
        for one in (slow, fast):
            await one.close()

    with_hub(check)


def replay(frames: list[Frame], at: float) -> Floats:
    """Where everybody is by what a page was sent."""
    x, v, since = np.zeros(COUNT), np.zeros(COUNT), np.zeros(COUNT)
    for frame in frames:
        if frame.kind == 1:
            x, v = np.array(frame.columns[0]), np.array(frame.columns[2])
            since[:] = frame.at
        else:
            lines = np.array(frame.columns[0], np.int64)
            x[lines], v[lines] = frame.columns[1], np.array(frame.columns[3]) / 1000
            since[lines] = frame.at
    return x + v * (at - since)


def test_a_slower_rate_is_kept_and_nothing_is_lost() -> None:
    async def check(hub: LiveUpdates, world: World) -> None:
        world.begin()
        one = Open(hub)
        await one.hear(type="watch", world=True, rate_hz=0.1)
        for _ in range(6):
            world.step(turned=3)
            await settle()
        assert [frame.kind for frame in one.other.frames()] == [1], "the next is due in 10 s"
        one.page._sent_at = 0.0
        world.step()
        await settle()
        whole, legs = one.other.frames()
        assert [whole.tick, legs.tick] == [0, 7]
        assert list(legs.columns[0]) == [0, 1, 2]
        await one.close()

    with_hub(check)


def test_nothing_is_kept_without_bound() -> None:
    async def check(hub: LiveUpdates, world: World) -> None:
        world.begin()
        one = Open(hub)
        one.other.is_free.clear()
        for number in range(5 * TEXTS_MAX):
            world.say({"type": "note", "now": 0.0, "kind": "command", "text": str(number)})
        await settle()
        one.other.is_free.set()
        await until(lambda: one.other.texts("note")[-1]["text"] == str(5 * TEXTS_MAX - 1))
        assert len(one.other.texts("note")) <= TEXTS_MAX + 1
        await one.close()

    with_hub(check)


def test_another_world_is_told_before_its_frames() -> None:
    async def check(hub: LiveUpdates, world: World) -> None:
        world.begin()
        one = Open(hub)
        await one.hear(type="watch", world=True)
        world.begin("yard-2")
        await settle()
        kinds = [
            (message.kind, message.tick) if isinstance(message, Frame) else message["type"]
            for message in one.other.got
        ]
        assert kinds.index("world") < len(kinds) - 1
        assert kinds[-1] == (1, 0)
        await one.close()

    with_hub(check)


def test_a_selection_of_several_pages_is_requested_once() -> None:
    async def check(hub: LiveUpdates, world: World) -> None:
        world.begin()
        process: Any = hub._process
        one, two = Open(hub), Open(hub)
        await one.hear(type="watch", select="player1")
        world.say({"type": "listening", "select": "player1", "at": 1.0})
        await two.hear(type="watch", select="player1", areas=True)
        await two.hear(type="watch", rate_hz=5)
        wishes = [(asked.selected, asked.areas) for asked in process.asked]
        assert wishes == [(["player1"], False), (["player1"], True)]
        assert len(two.other.texts("listening")) == 1, "what is known is told at once"
        assert two.page.select == "player1"
        await two.hear(type="watch", select=None)
        world.say({"type": "listening", "select": "player1", "at": 2.0})
        await settle()
        assert len(one.other.texts("listening")) == 2
        assert len(two.other.texts("listening")) == 1
        for each in (one, two):
            await each.close()

    with_hub(check)


def test_answers_go_to_the_requesting_page() -> None:
    async def check(hub: LiveUpdates, world: World) -> None:
        process: Any = hub._process
        one, two = Open(hub), Open(hub)
        await one.hear(type="say", id=1, text="pause")
        await two.hear(type="complete", id=1, text="pa")
        first, second = process.asked
        world.say({"type": "completions", "number": second.number, "words": ["pause"]})
        world.say({"type": "said", "number": first.number, "ok": True, "text": "it stands"})
        world.say({"type": "said", "number": 999, "ok": True, "text": "to nobody"})
        await settle()
        assert one.other.texts("said") == [
            {"type": "said", "id": 1, "ok": True, "text": "it stands"}
        ]
        assert [found["words"] for found in two.other.texts("completions")] == [["pause"]]
        for each in (one, two):
            await each.close()

    with_hub(check)


def test_who_may_not_command_is_told_so_and_still_gets_help() -> None:
    async def may_not() -> str | None:
        return "only administrators may"

    async def check(hub: LiveUpdates, world: World) -> None:
        process: Any = hub._process
        one = Open(hub, may_not)
        await one.hear(type="say", id=1, text="end")
        assert one.other.texts("said")[0]["text"] == "only administrators may"
        assert not process.asked
        await one.hear(type="say", id=2, text="help")
        assert process.asked[0].text == "help"
        await one.close()

    with_hub(check)


def test_too_many_commands_are_refused() -> None:
    async def check(hub: LiveUpdates, world: World) -> None:
        process: Any = hub._process
        one = Open(hub)
        for number in range(int(SAID_AT_ONCE) + 20):
            await one.page.hear(json.dumps({"type": "say", "id": number, "text": "pause"}))
        await settle()
        assert len(process.asked) <= SAID_AT_ONCE + 5
        assert "too many" in one.other.texts("said")[-1]["text"]
        await one.close()

    with_hub(check)


def test_a_run_ends_with_the_monitor() -> None:
    async def check(hub: LiveUpdates, world: World) -> None:
        ended: list[str] = []
        hub.on_end = ended.append
        world.begin()
        world.begin("yard-2")
        assert ended == ["yard-1"]
        hub.stop()
        hub.stop()
        assert ended == ["yard-1", "yard-2"]

    with_hub(check)


def test_all_pages_are_notified_when_the_process_ends() -> None:
    async def check(hub: LiveUpdates, world: World) -> None:
        ended: list[str] = []
        hub.on_end = ended.append
        world.begin()
        one = Open(hub)
        waiting: list[dict[str, Any]] = []
        hub.say("pause", PendingRequest(waiting.append, 5))
        hub._ended()
        await settle()
        assert ended == ["yard-1"]
        assert waiting[0]["ok"] is False
        # The process has said nothing but its world: what run is over is known all the same.
        assert one.other.texts("state")[-1]["is_over"] is True
        assert one.other.texts("state")[-1]["run"] == "yard-1"
        await one.hear(type="say", id=6, text="pause")
        assert one.other.texts("said")[-1]["ok"] is False
        await one.close()

    with_hub(check)


def anything(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON, most of it like what a page says."""
    words = ["type", "watch", "say", "complete", "id", "text", "select", "world", "rate_hz", "\0"]
    match rng.randrange(8 if depth < 3 else 5):
        case 0:
            return rng.choice(words)
        case 1:
            return rng.choice([0, -1, 2**70, 1e308, 0.5])
        case 2:
            return rng.choice([None, True, False])
        case 3 | 4:
            return "".join(rng.choice("ab<&\"'\ud7ff\u2028") for _ in range(rng.randrange(9)))
        case 5:
            return [anything(rng, depth + 1) for _ in range(rng.randrange(4))]
        case _:
            made = {rng.choice(words): anything(rng, depth + 1) for _ in range(rng.randrange(5))}
            return {"type": rng.choice(["watch", "say", "complete"]), **made}


@pytest.mark.parametrize("seed", range(5))
def test_whatever_a_page_says_it_is_served_on(seed: int) -> None:
    async def check(hub: LiveUpdates, world: World) -> None:
        world.begin()
        one, rng = Open(hub), random.Random(seed)
        for _ in range(300):
            said = json.dumps(anything(rng))
            if rng.random() < 0.3:
                cut = rng.randrange(len(said) + 1)
                said = said[:cut] + rng.choice(["", "{", "\\u", "[" * 2000]) + said[cut:]
            await one.page.hear(rng.randbytes(20) if rng.random() < 0.1 else said)
        one.page.world = False
        await one.hear(type="watch", world=True, rate_hz=10)
        one.page._every_s = 0.0
        world.step(turned=2)
        await until(lambda: one.other.frames()[-1].tick == world.tick)
        await one.close()

    with_hub(check)
