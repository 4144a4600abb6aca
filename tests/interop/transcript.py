"""Plays a session with clients that others have written, and prints it as docs/transcript.md.

    .venv/bin/python -m tests.interop.transcript > docs/transcript.md

Everything on the page was run: a broker in a process of its own, each terminal a program. The
commands are shown as one would type them beside a broker on its usual ports; here they are given
free ones instead. What differs from run to run (ports, names that the broker gives, times) is
replaced by something fixed, so that the page can be compared (`test_transcript.py`).
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.interop.conftest import TOOLS, Program, RunningBroker, tool

SCRIPT = Path(__file__).with_name("mqttjs.mjs")
SETTLED = (
    (re.compile(r"rove-[0-9a-f]{16}"), "rove-5f1c2d3e4a5b6c7d"),
    (re.compile(r'"at":[0-9.]+'), '"at":1794802000.25'),
    (re.compile(r"^\S+ \S+Z "), "2026-11-16 04:06:40.250Z "),
    (re.compile(r"link=127\.0\.0\.1:\d+"), "link=127.0.0.1:54321"),
)
WISH = (
    '{"subscribe": {"topic": "air/#", "qos": 1, "properties":'
    ' {"userProperties": {"filter": "NO2 > 40"}, "subscriptionIdentifier": 7}}}'
)
NODE = "node tests/interop/mqttjs.mjs .venv/interop/node_modules ws://localhost:8080/mqtt 5"
CURL = "curl -NsG localhost:8080/subscribe -d 'topic=air/%23' --data-urlencode 'filter=NO2 > 40'"
WANTS = "-D subscribe user-property filter"
ASKS = "-D subscribe user-property policy"
POLICY = 'def arrived(m, me): return keep(m, "NO2") if m.NO2 else None'
SUBSCRIBERS = {
    "filtered": (f"mosquitto_sub -V 5 -t 'air/#' {WANTS} 'NO2 > 40' -v", 3),
    "policy": (f"mosquitto_sub -V 5 -t 'air/#' {ASKS} '{POLICY}' -v", 4),
    "plain": ("mosquitto_sub -V 311 -t 'air/#' -v", 5),
    "text": ("mosquitto_sub -V 311 -t 'air/zagreb?NO2 > 40' -v", 1),
    "page": (f"{NODE} '{WISH}'", 4),
    "curl": (CURL, 12),
}
"""By their names on the page: a command, and how many lines it writes."""
REFUSED = f"mosquitto_sub -V 5 -t 'air/#' {WANTS} 'NO2 >'"

PAGE = """\
# A session, with clients that others have written

Made by `python -m tests.interop.transcript`, which runs all of this; a test compares. The broker
lets clients of 3.1.1 write `topic?text`:

{broker}

## Subscribers

Each in a terminal of its own; below each command is all that it wrote. Mosquitto's client with
MQTT 5 wants what is above 40, and no more than that is sent to it:

{filtered}

Or it leaves a policy, and is sent what that makes of it:

{policy}

With 3.1.1 it gets what any broker would give it, and with `topic?text` what it wants:

{plain}

{text}

A page in a browser, by mqtt.js over WebSocket ([the script](../tests/interop/mqttjs.mjs)):

{page}

curl:

{curl}

A text with a mistake is refused (the connection would stay; this client leaves by itself):

{refused}

The broker's log says why (a client of MQTT 5 can read it in the reason string):

{log}

## Publishers

MQTT 5, 3.1.1, and curl:

{publishers}
"""


class Session:
    """The broker and the terminals."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.programs: list[Program] = []
        self.subscriptions = 0

    def start(self, shown: str) -> Program:
        """Type a command into a new terminal."""
        name, *arguments = shlex.split(shown)
        path, environment = tool(name)
        port, http_port = str(self.broker.port), str(self.broker.http_port)
        places = {
            "localhost:8080": f"127.0.0.1:{http_port}",
            "tests/interop/mqttjs.mjs": str(SCRIPT),
            ".venv/interop/node_modules": str(TOOLS / "node_modules"),
        }
        for place, real in places.items():
            arguments = [argument.replace(place, real) for argument in arguments]
        if name.startswith("mosquitto"):
            arguments = ["-p", port, *arguments]
        program = Program([path, *arguments], environment)
        self.programs.append(program)
        return program

    def subscriber(self, shown: str) -> Program:
        """The same, and wait until the broker has one subscription more."""
        program = self.start(shown)
        self.subscriptions += 1
        deadline = time.monotonic() + 30
        url = f"http://127.0.0.1:{self.broker.http_port}/metrics"
        while True:
            with urllib.request.urlopen(url) as answer:
                if f"\nrove_subscriptions {self.subscriptions}\n" in answer.read().decode():
                    return program
            assert time.monotonic() < deadline, f"{shown} does not subscribe"
            time.sleep(0.02)

    def end(self) -> None:
        for program in self.programs:
            program.end()


def settled(line: str) -> str:
    for varying, fixed in SETTLED:
        line = varying.sub(fixed, line)
    return line


def console(*lines: str) -> str:
    text = "\n".join(map(settled, lines)).rstrip("\n")
    return f"```console\n{text}\n```"


def play(broker: RunningBroker) -> str:
    """The page."""
    session = Session(broker)
    try:
        running = {name: session.subscriber(shown) for name, (shown, _) in SUBSCRIBERS.items()}
        parts = {"refused": console(f"$ {REFUSED}", *session.start(REFUSED).rest())}
        parts["publishers"] = console(*_publish(session))
        for name, (shown, count) in SUBSCRIBERS.items():
            lines = [running[name].line() for _ in range(count)]
            running[name].end()
            assert running[name].rest() == [], f"{name} wrote more than {lines}"
            parts[name] = console(f"$ {shown}", *lines)
    finally:
        session.end()
    parts["broker"] = (
        console("$ ROVE_MQTT__TOPIC_TEXT=true rove up", *broker.written("rove: "))
        .replace(str(broker.port), "1883")
        .replace(str(broker.http_port), "8080")
    )
    parts["log"] = console(*broker.written("refused"))
    return PAGE.format(**parts)


def _publish(session: Session) -> list[str]:
    lines = []
    for shown in (
        """mosquitto_pub -V 5 -q 1 -t air/zagreb -m '{"NO2": 39}'""",
        """mosquitto_pub -V 5 -q 1 -t air/zagreb -m '{"NO2": 41, "site": "Trg"}'""",
        """mosquitto_pub -V 311 -q 2 -t air/split -m '{"NO2": 55}'""",
        """mosquitto_pub -V 5 -q 1 -t air/osijek -m 'no JSON'""",
        """curl -s 'localhost:8080/publish?topic=air/rijeka&id=r-1' -d '{"NO2": 99}'""",
    ):
        lines += [f"$ {shown}", *session.start(shown).rest()]
    return lines


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        broker = RunningBroker(Path(folder), ROVE_MQTT__TOPIC_TEXT="true")
        try:
            broker.start()
            sys.stdout.write(play(broker))
        finally:
            broker.kill()


if __name__ == "__main__":
    main()
