"""Live updates of the world for all open pages, and one connection for each page.

`LiveUpdates` keeps the latest state of the world process (`Motion`, `ClientAreas`, state, sample).
So a page that connects late gets everything in one frame, and a slow page gets in one frame all
changes since its last. Only answers and notes are queued, up to a limit. A frame is encoded once
for all pages that have the same one as their last.

Pages are not trusted: messages that cannot be decoded are answered with a note and ignored, and
commands beyond the rate limit are refused.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from rove.base.http import HttpError
from rove.monitor.motion_frames import AREAS, ClientAreas, Motion, header_of
from rove.monitor.world_process import WorldProcess
from rove.monitor.world_worker import CompleteCommand, ReadHeatMap, RunCommand, WatchEntities
from rove.world.runs.scenarios import Scenario

PAGES_MAX: Final = 50
READY_S: Final = 60.0
"""How long a request waits for a world that is being made."""
ANSWER_S: Final = 30.0
ALIVE_S: Final = 4.0
"""A page that hears nothing for longer believes the connection dead."""
RATE_HZ_MAX: Final = 10.0
TEXTS_MAX: Final = 200
SAID_PER_S: Final = 20.0
SAID_AT_ONCE: Final = 40.0
NOTES_KEPT: Final = 100
NAME_MAX: Final = 200
_BEFORE: Final = -1
"""A tick before all."""


class PendingRequest(NamedTuple):
    """A request that waits for an answer of the world process."""

    tell: Callable[[dict[str, Any]], None]
    id: Any


class LiveUpdates:
    """The latest state of the world that is played, and all open pages."""

    def __init__(self, scenario: Scenario | None) -> None:
        self._scenario = scenario
        self._process: WorldProcess | None = None
        self.pages: Final[set[PageConnection]] = set()
        self.view: dict[str, Any] | None = None
        """The world as `rove.monitor.world_worker` has it; None while there is none."""
        self.view_rest = b""
        """The same as JSON, without the brace at its beginning."""
        self.state: dict[str, Any] = {}
        self.sample: dict[str, Any] | None = None
        self.motion = Motion(0)
        self.areas = ClientAreas(0)
        self.notes: Final[deque[dict[str, Any]]] = deque(maxlen=NOTES_KEPT)
        self.on_begin: Callable[[dict[str, Any]], None] = lambda begun: None
        self.on_sample: Callable[[dict[str, Any]], None] = lambda sample: None
        self.on_end: Callable[[str], None] = lambda run: None
        self._numbers = 0
        self._asking: dict[int, PendingRequest] = {}
        self._watched: tuple[list[str], bool] = ([], False)
        self.listening: dict[str, dict[str, Any]] = {}
        """By name, the latest interest of entities that are selected on a page."""
        self._open_run: str | None = None
        self._frames: dict[tuple[int, int], bytes] = {}
        self._ready = asyncio.Event()
        """Set when there is a world, or a reason why there is none."""
        self._trouble = ""

    @property
    def has_world(self) -> bool:
        """Whether worlds are played here at all."""
        return self._scenario is not None

    @property
    def world_pid(self) -> int | None:
        """The process that plays the world."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start playing the scenario."""
        if self._scenario is not None:
            if self.view is None:
                self._ready.clear()
            self._process = WorldProcess(self._scenario)
            self._process.start(self._hear, self._ended)
            self._watched = ([], False)
            self.watch()

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()
            self._run_ended()

    async def ready(self) -> None:
        """Wait for a world; an `HttpError` if there is none in time."""
        if not self.has_world:
            raise HttpError(404, "no world is played here", "start `rove monitor SCENARIO`")
        try:
            await asyncio.wait_for(self._ready.wait(), READY_S)
        except TimeoutError:
            raise HttpError(503, "the world is still being made", "try again in a moment") from None
        if self.view is None:
            raise HttpError(503, self._trouble, "enter `restart` to try again")

    def present(self) -> dict[str, Any]:
        """The state of the world, with its time."""
        return {**self.state, "at": round(max(self.motion.at, 0.0), 3)}

    def world_bytes(self) -> bytes:
        """The world and its state, as JSON."""
        state = self.present()
        state.pop("type", None)
        state.pop("run", None)
        return msgspec.json.encode(state)[:-1] + b"," + self.view_rest

    # -- hearing -------------------------------------------------------------------------------

    def _hear(self, message: bytes) -> None:
        if self._process is None:
            return
        if message[:1] != b"{":
            self._take_frame(message)
            return
        said = msgspec.json.decode(message)
        match said["type"]:
            case "world":
                self._take_world(said)
            case "said" | "completions" | "heat":
                asking = self._asking.pop(said.pop("number"), None)
                if asking is not None:
                    asking.tell({**said, "id": asking.id})
            case "state":
                self.state = said
                self._tell_all(said)
                if said["is_over"]:
                    self._run_ended()
            case "sample":
                self.sample = said
                self.on_sample(said)
                self._tell_all(said)
            case "listening":
                self._take_listening(said)
            case _:
                self.notes.append(said)
                self._tell_all(said)

    def _take_listening(self, said: dict[str, Any]) -> None:
        name = said["select"]
        if name in self._watched[0]:
            self.listening[name] = said
        for page in self.pages:
            if page.select == name:
                page.tell(said)

    def _take_frame(self, frame: bytes) -> None:
        if header_of(frame).kind == AREAS:
            self.areas.take(frame)
        else:
            self.motion.take(frame)
        self._frames.clear()
        for page in self.pages:
            page.wake()

    def _take_world(self, said: dict[str, Any]) -> None:
        self._run_ended()
        view = said["view"]
        self.view, self.view_rest = view, msgspec.json.encode(view)[1:]
        self.motion = Motion(len(view["entities"]["names"]))
        self.areas = ClientAreas(len(view["clients"]["avatars"]))
        self.sample = None
        # The process reports the same in a moment, unless it ends before.
        live = said["facts"]["live"]
        self.state = {"run": view["run"], "is_paused": False, "is_over": False, "live": live}
        self._frames.clear()
        self.listening.clear()
        self._ready.set()
        self._open_run = view["run"]
        self.on_begin(said)
        for page in self.pages:
            page.begin()
            page.tell({"type": "world", "run": view["run"]})

    def _run_ended(self) -> None:
        run, self._open_run = self._open_run, None
        if run is not None:
            self.on_end(run)

    def _ended(self) -> None:
        """The process has ended unexpectedly."""
        if self._process is None:
            return
        self._process.stop()
        self._process = None
        for asking in self._asking.values():
            asking.tell(
                {"type": "said", "id": asking.id, "ok": False, "text": "the world has crashed"}
            )
        self._asking.clear()
        what = "the process that plays the world has ended; `restart` starts another"
        if self.view is None:
            said = [note["text"] for note in self.notes if note["kind"] == "scenario"]
            self._trouble = said[-1] if said else what
            self._ready.set()
        self.note("scenario", what)
        if self.view is not None:
            self.state = {**self.state, "type": "state", "is_over": True}
            self._tell_all(self.present())
            self._run_ended()

    def note(self, kind: str, text: str) -> None:
        """Add an event to the timeline of all pages."""
        note = {"type": "note", "now": time.time(), "kind": kind, "text": text}
        self.notes.append(note)
        self._tell_all(note)

    def _tell_all(self, message: dict[str, Any]) -> None:
        for page in self.pages:
            page.tell(message)

    # -- asking --------------------------------------------------------------------------------

    def say(self, text: str, asking: PendingRequest) -> None:
        """Execute a command; its result is sent to the request."""
        verb = (text.split() or [""])[0]
        if self._process is None and self.has_world and verb in ("restart", "scenario"):
            self.start()
            if verb == "restart":
                begun = {"type": "said", "ok": True, "text": "it restarts"}
                asking.tell({**begun, "id": asking.id})
                return
        self._ask(RunCommand(0, text), asking)

    def complete(self, text: str, asking: PendingRequest) -> None:
        """Complete the beginning of a command."""
        self._ask(CompleteCommand(0, text), asking)

    async def heat(self, attribute: str) -> dict[str, Any]:
        """Readings of sensors over the map."""
        await self.ready()
        loop = asyncio.get_running_loop()
        found: asyncio.Future[dict[str, Any]] = loop.create_future()

        def tell(message: dict[str, Any]) -> None:
            if not found.done():
                found.set_result(message)

        self._ask(ReadHeatMap(0, attribute), PendingRequest(tell, None))
        try:
            answer = await asyncio.wait_for(found, ANSWER_S)
        except TimeoutError:
            raise HttpError(503, "the world does not answer", "try again in a moment") from None
        if "heat" not in answer:
            raise HttpError(503, answer["text"])
        heat: dict[str, Any] = answer["heat"]
        return heat

    def _ask(
        self, what: RunCommand | CompleteCommand | ReadHeatMap, asking: PendingRequest
    ) -> None:
        self._numbers += 1
        what.number = self._numbers
        if self._process is not None and self._process.ask(what):
            self._asking[self._numbers] = asking
            return
        why = "the world is busy; try again" if self._process else "no world is running"
        asking.tell({"type": "said", "id": asking.id, "ok": False, "text": why})

    def watch(self) -> None:
        """Tell the world process which entities pages show, if that has changed."""
        selected = sorted({page.select for page in self.pages if page.select is not None})
        wants_areas = any(page.areas for page in self.pages)
        if (selected, wants_areas) != self._watched and self._process is not None:
            self._watched = selected, wants_areas
            for name in set(self.listening) - set(selected):
                del self.listening[name]
            self._process.ask(WatchEntities(selected, wants_areas))

    # -- frames --------------------------------------------------------------------------------

    def frame_since(self, tick: int) -> bytes:
        """All legs that began after a tick; everything if the page has nothing yet."""
        key = (0, tick)
        if key not in self._frames:
            is_new = tick == _BEFORE
            self._frames[key] = self.motion.whole() if is_new else self.motion.legs_since(tick)
        return self._frames[key]

    def areas_since(self, tick: int) -> bytes:
        """The same for rectangles."""
        key = (1, tick)
        if key not in self._frames:
            self._frames[key] = self.areas.since(tick)
        return self._frames[key]


class WatchRequest(msgspec.Struct, tag="watch"):
    """What a page shows; fields that are left out do not change."""

    world: bool | None = None
    select: str | msgspec.UnsetType | None = msgspec.UNSET
    areas: bool | None = None
    rate_hz: float | None = None


class CommandRequest(msgspec.Struct, tag="say"):
    """A command."""

    id: int
    text: str


class CompletionRequest(msgspec.Struct, tag="complete"):
    """The beginning of one."""

    id: int
    text: str


_DECODE: Final = msgspec.json.Decoder(WatchRequest | CommandRequest | CompletionRequest).decode


class PageConnection:
    """One open page."""

    def __init__(
        self,
        hub: LiveUpdates,
        send: Callable[[str | bytes], Awaitable[None]],
        may_command: Callable[[], Awaitable[str | None]],
    ) -> None:
        """`may_command` returns why commands are refused, or None."""
        self._hub = hub
        self._send = send
        self._may_command = may_command
        self.world = False
        self.areas = False
        self.select: str | None = None
        self._every_s = 1.0 / RATE_HZ_MAX
        self._latest: dict[str, dict[str, Any]] = {}
        self._texts: deque[dict[str, Any]] = deque(maxlen=TEXTS_MAX)
        self._wake = asyncio.Event()
        self._seen_tick = self._seen_area_tick = _BEFORE
        self._sent_at = 0.0
        self._left = SAID_AT_ONCE
        self._left_at = time.monotonic()

    # -- updates -------------------------------------------------------------------------------

    def tell(self, message: dict[str, Any]) -> None:
        """Queue a message; of states and samples only the newest is kept."""
        if message["type"] in ("state", "sample", "listening", "world"):
            self._latest[message["type"]] = message
        else:
            self._texts.append(message)
        self._wake.set()

    def wake(self) -> None:
        """New frames are available."""
        if self.world or self.areas:
            self._wake.set()

    def begin(self) -> None:
        """A new world: the page has none of its frames."""
        self._seen_tick = self._seen_area_tick = _BEFORE

    # -- sending -------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Send, as fast as the page receives, until it is closed."""
        hub = self._hub
        run = hub.view["run"] if hub.view is not None else None
        await self._send_json({"type": "hello", "run": run, "now": time.time()})
        for message in (hub.present(), hub.sample, *hub.notes):
            if message and "type" in message:
                self.tell(message)
        while True:
            try:
                await asyncio.wait_for(self._wake.wait(), ALIVE_S)
            except TimeoutError:
                await self._send_json({"type": "alive", "now": time.time()})
            self._wake.clear()
            await self._send_texts()
            await self._send_frames()

    async def _send_texts(self) -> None:
        # "world" first: everything after it refers to the new one.
        for kind in ("world", "state", "sample", "listening"):
            if kind in self._latest:
                await self._send_json(self._latest.pop(kind))
        while self._texts:
            await self._send_json(self._texts.popleft())

    async def _send_frames(self) -> None:
        hub, now = self._hub, time.monotonic()
        if hub.view is None or not (self.world or self.areas):
            return
        left_s = self._sent_at + self._every_s - now
        # A tick may come a little early.
        if left_s > 0.25 * self._every_s:
            asyncio.get_running_loop().call_later(left_s, self._wake.set)
            return
        if self.world and hub.motion.tick > self._seen_tick:
            self._sent_at = now
            frame, self._seen_tick = hub.frame_since(self._seen_tick), hub.motion.tick
            await self._send(frame)
        if self.areas and hub.areas.tick > self._seen_area_tick:
            frame, self._seen_area_tick = hub.areas_since(self._seen_area_tick), hub.areas.tick
            head = header_of(frame)
            if head.number or head.is_whole:
                await self._send(frame)

    async def _send_json(self, message: dict[str, Any]) -> None:
        await self._send(msgspec.json.encode(message).decode())

    # -- hearing -------------------------------------------------------------------------------

    async def hear(self, message: str | bytes) -> None:
        """Handle a message of the page."""
        if isinstance(message, bytes):
            self._complain("send JSON, not bytes")
            return
        try:
            asked = _DECODE(message)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            self._complain(f"the message cannot be decoded: {error}")
            return
        if isinstance(asked, WatchRequest):
            self._watch(asked)
            return
        answer = PendingRequest(self.tell, asked.id)
        if not self._is_slow_enough():
            what = f"more than {SAID_PER_S:g} commands a second are too many"
            self.tell({"type": "said", "id": asked.id, "ok": False, "text": what})
        elif isinstance(asked, CompletionRequest):
            self._hub.complete(asked.text, answer)
        else:
            await self._say(asked, answer)

    async def _say(self, asked: CommandRequest, answer: PendingRequest) -> None:
        is_question = asked.text.split()[:1] == ["help"]
        why_not = None if is_question else await self._may_command()
        if why_not is not None:
            self.tell({"type": "said", "id": asked.id, "ok": False, "text": why_not})
        else:
            self._hub.say(asked.text, answer)

    def _complain(self, text: str) -> None:
        self.tell({"type": "note", "now": time.time(), "kind": "refused", "text": text[:300]})

    def _is_slow_enough(self) -> bool:
        now = time.monotonic()
        self._left = min(SAID_AT_ONCE, self._left + SAID_PER_S * (now - self._left_at))
        self._left_at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def _watch(self, wish: WatchRequest) -> None:
        if wish.world is not None and wish.world != self.world:
            self.world, self._seen_tick = wish.world, _BEFORE
        if wish.areas is not None and wish.areas != self.areas:
            self.areas, self._seen_area_tick = wish.areas, _BEFORE
        if wish.select is not msgspec.UNSET:
            self.select = None if wish.select is None else wish.select[:NAME_MAX]
            if self.select is not None and self.select in self._hub.listening:
                self.tell(self._hub.listening[self.select])
        if wish.rate_hz is not None and wish.rate_hz > 0:
            self._every_s = 1.0 / min(max(wish.rate_hz, 0.1), RATE_HZ_MAX)
        self._hub.watch()
        self._wake.set()
