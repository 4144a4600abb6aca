"""A page of the documentation, used as its reader would use it: `python -m tests.pages README.md`.

The blocks of a page are run from top to bottom in the current folder, which is empty but for the
examples that come with the documentation:

- `console`: what follows `$` is typed into a shell, and the lines below it are what is printed. A
  command that does not end by itself runs on until the page ends, or until one like it is started.
- `python`: a script, or a session where lines begin with `>>>`. All of a page share one namespace.
  Only a page that tells its reader to use `python -m asyncio` may await outside of a function. What
  is printed is said in a comment: `print(x)  # 3`.
- `python` that defines `arrived` is a policy, and is compiled as one.
- A block of any language whose first line is a comment with the name of a file is that file.

A page has a network of its own where the system allows that, so that ports are as printed. Commands
of ours run in this process, since starting Python takes longer than most of them.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import ctypes
import doctest
import fcntl
import inspect
import io
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ("README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE: Final = re.compile(r"(?:#|--) (\S+\.\w+)(?:[ ;:].*)?\n")
PRINTED: Final = re.compile(r"^ *print\(.*\)  # (\S.*)$", re.MULTILINE)
WAIT_S: Final = 120.0
ARRIVAL_S: Final = 2.0
PORTS_TAKEN: Final = 75
"""The exit code of a run that had neither a network of its own nor the ports."""

NOT_RUN: Final = {
    ("README.md", "make "): "sets up or tests everything; CI's own first two commands",
    ("README.md", "rove world run crowd --live"): "100 s; see tests/live/test_launcher.py",
    ("README.md", "rove match --subscriptions"): "writes 7.5 GB",
    ("docs/broker.md", "rove bench"): "minutes, and means nothing on a busy machine",
    ("docs/elastic.md", "rove bench"): "minutes, and means nothing on a busy machine",
    ("docs/matching.md", "rove bench"): "a quarter of an hour",
    ("docs/policies.md", "rove bench"): "minutes to hours",
    ("docs/sensors.md", "for run in"): "five times a quarter of an hour",
    ("docs/sensors.md", "rove pipeline summary run"): "of the runs before",
    ("docs/sensors.md", "rove pipeline run metrics --database postgresql"): "needs a server",
    ("docs/bridge.md", "rove bridge kafka"): "needs a Kafka; see tests/interop/test_bridge.py",
    ("docs/tables.md", "rove pipeline export"): "needs a server, and a jar from outside",
    ("docs/tables.md", "rove pipeline ingest --kafka"): "needs a server, and a jar from outside",
    ("docs/operations.md", "rove passwd users alice"): "asks at a terminal",
    ("docs/backtest.md", 'rove backtest "NO2 > 50'): "of thirty days, 8 million publications",
}  # fmt: skip
"""What no test can run, by page and beginning, with the reason."""

SLOW: Final = {
    ("README.md", "rove world run intensive"): "tens of seconds",
    ("README.md", "rove world run crowd"): "tens of seconds",
    ("README.md", "rove backtest"): "Spark",
    ("README.md", "rove pipeline"): "Spark",
    ("README.md", "from rove.pipeline"): "Spark",
    ("README.md", "import json\nfrom pathlib"): "a million lines",
    ("docs/backtest.md", ""): "Spark",
    ("docs/lake.md", ""): "Spark",
    ("README.md", "rove monitor crowd"): "tests/monitor and tests/page start many",
    ("README.md", "rove up --monitor"): "tests/monitor and tests/page start many",
    ("docs/monitor.md", ""): "four monitors",
    ("docs/metrics.md", "rove world run dense"): "tens of seconds",
    ("docs/metrics.md", "rove pipeline"): "Spark",
    ("docs/pipeline.md", ""): "Spark",
    ("docs/sensors.md", ""): "Spark",
    ("docs/spark.md", ""): "Spark",
    ("docs/spark-clusters.md", "rove pipeline package"): "loads or compiles all kernels",
    ("docs/tables.md", ""): "Spark",
    ("docs/world.md", "rove world run crowd"): "tens of seconds",
    ("docs/world.md", "rove world run dense"): "tens of seconds",
    ("docs/world.md", "rove world run travel"): "tens of seconds",
    ("docs/world.md", "rove world run rush-hour"): "tens of seconds",
    ("docs/policies.md", "rove world run"): "tens of seconds",
}
"""What is left to `make soak`, likewise; an empty beginning is the whole page."""

FETCHED: Final = ("curl", "mosquitto_pub", "mosquitto_sub")
"""Programs that a machine may lack (tests/interop/fetch-tools.sh); then they are passed over."""

ELSEWHERE: Final = {"docs/transcript.md": "tests/interop/test_transcript.py makes it anew"}

MASKS: Final = (
    (re.compile(r"[\d.,]+ (?:µs|ms)\b"), "some time"),
    (re.compile(r"ticks in [\d.]+ s, [\d.]+x real time"), "ticks in some time"),
    (re.compile(r"\b[\d.]+ steps?\b|steps: .*? a message, \d+"), "some steps"),
    (re.compile(r"rove-[0-9a-f]{16}"), "rove-somebody"),
    (re.compile(r'"at":[\d.]+'), '"at":0'),
    (re.compile(r'"id":"[0-9a-f]{16}"'), '"id":"some"'),
    (re.compile(r"[ \t]+"), " "),
)
"""What differs from run to run and from machine to machine."""


class Block(NamedTuple):
    """A fenced block, and where it is."""

    page: str
    line: int
    language: str
    text: str


class Command(NamedTuple):
    """A line of a console, and what it prints."""

    line: int
    text: str
    printed: str


class PageError(Exception):
    """A page that does not do what it says."""


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in FENCE.finditer(text)
    ]


def commands(block: Block) -> Iterator[Command]:
    """What is typed in a console; a line that ends with a backslash goes on."""
    begun, typed, printed = block.line + 1, "", ""
    for number, line in enumerate(block.text.splitlines(keepends=True), block.line + 1):
        if line.startswith("$ "):
            if typed:
                yield Command(begun, typed.strip(), printed)
            begun, typed, printed = number, line[2:], ""
        elif typed.endswith("\\\n"):
            typed += line
        else:
            printed += line
    if typed:
        yield Command(begun, typed.strip(), printed)


def pieces(page: str) -> Iterator[tuple[Block, Command | None]]:
    """What is run of a page: each command of a console, and each other block as a whole."""
    for block in blocks(page):
        if block.language == "console":
            for command in commands(block):
                yield block, command
        else:
            yield block, None


def beginning(block: Block, command: Command | None) -> str:
    """What the tables above go by."""
    return block.text if command is None else command.text


def reason(table: dict[tuple[str, str], str], page: str, text: str) -> str | None:
    """Why something is in a table; None if it is not."""
    found = (why for (of, begins), why in table.items() if of == page and text.startswith(begins))
    return next(found, None)


# -- outputs ---------------------------------------------------------------------------------------


def masked(text: str) -> str:
    """Without what differs from run to run."""
    for varying, fixed in MASKS:
        text = varying.sub(fixed, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def is_as_printed(expected: str, found: str) -> bool:
    """Whether a page shows what came out; an ellipsis stands for anything."""
    pattern = re.escape(masked(expected)).replace("…", ".*")
    return re.fullmatch(pattern, masked(found), re.DOTALL) is not None


# -- programs that do not end by themselves --------------------------------------------------------

ENDLESS: Final = {
    "broker": re.compile(r"(?:\w+=\S+ )*rove up\b"),
    "monitor": re.compile(r"rove monitor (?!export)"),
    "subscriber": re.compile(r"rove sub |mosquitto_sub |curl -N"),
    "job": re.compile(r"rove pipeline run (?!(?:.|\n)*--once)"),
    "top": re.compile(r"rove top\b(?!.*--once)"),
}


class Running:
    """A program in the background, and all that it writes."""

    def __init__(self, kind: str, command: Command, folder: Path) -> None:
        self.kind, self.command = kind, command
        self.began_at = time.time()
        self.log = folder / f"{command.line}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", _in_shell(command.text)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def written(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, is_ready: Callable[[], bool]) -> None:
        """Until a condition holds; PageError if the program ends before."""
        deadline = time.monotonic() + WAIT_S
        while not is_ready():
            if self.process.poll() is not None:
                raise PageError(f"it has ended:\n{self.written()}")
            if time.monotonic() > deadline:
                raise PageError(f"not ready after {WAIT_S:.0f} s:\n{self.written()}")
            time.sleep(0.02)

    def _await_notifications(self) -> None:
        """Through several brokers they come a little later; the last line is printed at the end."""
        deadline = time.monotonic() + ARRIVAL_S
        lines = self.command.printed.count("\n") - 1
        while self.written().count("\n") < lines and time.monotonic() < deadline:
            time.sleep(0.02)

    def end(self) -> str | None:
        """As Ctrl-C does; what was wrong with it, if anything was."""
        named = f"{self.command.line}: {self.command.text}\n"
        if self.kind == "subscriber":
            self._await_notifications()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return f"{named}does not end by Ctrl-C"
        written = self.written()
        # Spark's own workers print theirs when a job is stopped while they start.
        if "Traceback" in written and self.kind != "job":
            return f"{named}has failed:\n{written}"
        if self.command.printed and not is_as_printed(self.command.printed, written):
            return f"{named}wrote something else:\n{written}"
        return None


def _in_shell(text: str) -> str:
    """A command line in a shell where curl fails when it is refused, and nothing is a group."""
    return f'curl() {{ command curl -sS --fail-with-body "$@"; }}\n{text}'


# -- a reader --------------------------------------------------------------------------------------


class Reader:
    """Somebody at a terminal, in a folder, with a page."""

    def __init__(self, page: str, *, slow: bool) -> None:
        self.page, self.slow = page, slow
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.running: list[Running] = []
        self.logs = Path(tempfile.mkdtemp(prefix="rove-page-"))
        text = (ROOT / page).read_text(encoding="utf-8")
        self.awaits = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if "python -m asyncio" in text else 0

    async def read(self) -> None:
        """The whole page; PageError says what did not go as it says."""
        try:
            for block, command in pieces(self.page):
                await self._step(block, command)
        except PageError:
            with contextlib.suppress(PageError):  # what went wrong first is told
                self._end(self.running)
            raise
        else:
            self._end(self.running)
        finally:
            shutil.rmtree(self.logs)

    def _end(self, chosen: Sequence[Running]) -> None:
        """As a reader does, the last first; all of them, whatever one says."""
        faults = [fault for one in reversed(chosen) if (fault := one.end())]
        self.running = [one for one in self.running if one not in chosen]
        if faults:
            raise PageError(f"{self.page}:{faults[0]}")

    async def _step(self, block: Block, command: Command | None) -> None:
        text = beginning(block, command)
        if reason(NOT_RUN, self.page, text) or (
            not self.slow and reason(SLOW, self.page, text) is not None
        ):
            return
        line = block.line if command is None else command.line
        try:
            if command is not None:
                await asyncio.to_thread(self._type, command)
            else:
                await self._take(block)
        except (Exception, SystemExit) as error:
            name = "" if isinstance(error, PageError) else f"{type(error).__name__}: "
            raise PageError(f"{self.page}:{line}: {text.strip()}\n{name}{error}") from error

    # -- blocks

    async def _take(self, block: Block) -> None:
        if (named := FILE.match(block.text)) is not None:
            Path(named[1]).write_text(block.text, encoding="utf-8")
        if block.language != "python":
            return
        if block.text.startswith(">>>"):
            await asyncio.to_thread(_run_session, block, self.names)
        elif _is_policy(block.text):
            _compile_policy(block.text)
        else:
            await self._run_script(block)

    async def _run_script(self, block: Block) -> None:
        code = compile(block.text, f"{block.page}:{block.line}", "exec", self.awaits)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            if code.co_flags & inspect.CO_COROUTINE:
                await asyncio.wait_for(eval(code, self.names), WAIT_S)
            else:
                await asyncio.to_thread(exec, code, self.names)
        lines = masked(printed.getvalue()).splitlines()
        for expected in PRINTED.findall(block.text):
            if not any(is_as_printed(expected, line) for line in lines):
                raise PageError(f"does not print {expected}, but:\n{printed.getvalue()}")

    # -- the console

    def _type(self, command: Command) -> None:
        program = command.text.partition(" ")[0]
        if program in FETCHED and shutil.which(program) is None:
            return
        kind = next((name for name, form in ENDLESS.items() if form.match(command.text)), None)
        if kind is not None:
            self._start(kind, command)
            return
        words = shlex.split(command.text.replace("\\\n", " "), comments=True)
        if "pipeline" in words or "backtest" in words:
            _wait_for_a_lake()
        is_plain = words[0] == "rove" and not set(words) & {"|", ">", "<", ";", "&&"}
        deadline = time.monotonic() + WAIT_S
        while True:
            code, out = _ours(words[1:]) if is_plain else _shell(command.text)
            if "try again when it is done" not in out or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        if command.printed and not is_as_printed(command.printed, out):
            raise PageError(f"prints something else:\n{out}")
        if code and not (command.printed and code == 1):  # 1 is an answer, too: it does not match
            raise PageError(f"ends with {code}:\n{out}")

    def _start(self, kind: str, command: Command) -> None:
        """Run something in the background, and wait until it does its work."""
        if kind in ("broker", "monitor"):  # there is one at a time: a reader ends the one before
            replaced = ("monitor",) if kind == "monitor" else (kind, "subscriber", "monitor")
            if "--join" not in command.text:  # a broker of a network is beside the others
                self._end([one for one in self.running if one.kind in replaced])
        before = _subscriptions() if kind == "subscriber" else 0
        running = Running(kind, command, self.logs)
        self.running.append(running)
        if kind == "broker":
            running.wait_for(lambda: "http on port" in running.written())
        elif kind == "subscriber":
            running.wait_for(lambda: _subscriptions() > before)
        elif kind == "monitor":
            running.wait_for(lambda: _answers(8090))
        elif kind == "job":
            running.wait_for(lambda: _has_told(running.began_at))


def _shell(text: str) -> tuple[int, str]:
    done = subprocess.run(
        ["/bin/sh", "-c", _in_shell(text)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def _ours(words: Sequence[str]) -> tuple[int, str]:
    """One of our commands, in this process."""
    from rove.cli import main

    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        code = main(list(words))
    return code, written.getvalue()


def _is_policy(text: str) -> bool:
    tops = ast.parse(text).body
    return any(isinstance(top, ast.FunctionDef) and top.name == "arrived" for top in tops)


def _compile_policy(text: str) -> None:
    from rove.policy.trial import PolicyTrial

    PolicyTrial(text)


def _run_session(block: Block, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, block.page, block.page, 0)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    if runner.run(test, out=said.append, clear_globs=False).failed:
        raise PageError("".join(said))
    names.update(test.globs)


def _subscriptions() -> int:
    """How many have been made: those of clients that have left are not there for long."""
    with urllib.request.urlopen("http://127.0.0.1:8080/metrics", timeout=WAIT_S) as answer:
        found = re.search(r"^rove_subscriptions_made_total (\d+)", answer.read().decode(), re.M)
    return int(found[1]) if found else 0


def _has_told(since: float) -> bool:
    """Whether a job of the pipeline has said how it is since then."""
    return any(path.stat().st_mtime > since for path in Path.cwd().rglob("_status.json"))


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _wait_for_a_lake() -> None:
    """A reader is slower than the second that it takes a broker to write what came."""
    deadline = time.monotonic() + 10
    while not any(Path.cwd().rglob("channel=*/day=*/[!.]*.parquet")):
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)


# -- the place -------------------------------------------------------------------------------------

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1


def enter_private_network() -> bool:
    """A loopback device that nobody else has, for this process and all that it starts."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_CLONE_NEWNET) != 0:
        if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
            return False
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket() as any_socket:
        request = struct.pack("16sH14x", b"lo", _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)
    return True


@contextlib.contextmanager
def sole_use_of_ports() -> Iterator[bool]:
    """Where no network of its own can be had: whether the ports are free, one page at a time."""
    with (Path(tempfile.gettempdir()) / "rove-pages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield not any(map(_answers, (1883, 8080, 8090)))


def environment() -> dict[str, str]:
    """That of a reader who has installed the programs that pages use, and no settings."""
    unpacked = Path(sys.prefix) / "interop" / "mosquitto" / "usr"
    binaries = [str(Path(sys.prefix) / "bin"), str(unpacked / "bin"), os.environ["PATH"]]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ROVE_")}
    return {
        **plain,
        "PATH": os.pathsep.join(binaries),
        "LD_LIBRARY_PATH": str(next(unpacked.glob("lib/*-linux-gnu"), unpacked)),
        "COLUMNS": "160",
        "ROVE_SPARK_BRIEF": "1",
    }


def read(page: str, *, slow: bool = False) -> None:
    """Read a page here; PageError says what is not so."""
    asyncio.run(Reader(page, slow=slow).read())


def main(page: str, *options: str) -> int:
    """Read a page; 0 if all of it is so."""
    place: contextlib.AbstractContextManager[bool] = (
        contextlib.nullcontext(True) if enter_private_network() else sole_use_of_ports()
    )
    with place as is_free:
        if not is_free:
            return PORTS_TAKEN
        shutil.copytree(ROOT / "docs" / "examples", Path("docs/examples"))
        try:
            read(page, slow="--slow" in options)
        except PageError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
