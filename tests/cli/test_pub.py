"""`rove pub`: one value or many lines, and what comes of them at a subscriber."""

from __future__ import annotations

import argparse
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rove.cli import pub
from rove.client import PublishRefused, sync
from rove.client.sync import Subscription
from rove.errors import UsageError
from tests.effort import PATIENCE_S


def run(broker_url: str, *words: str) -> int:
    parser = argparse.ArgumentParser()
    pub.configure(parser)
    return pub.run(parser.parse_args([*words, "--url", broker_url]))


@pytest.fixture
def subscriber(broker_url: str) -> Iterator[Subscription[bytes]]:
    with sync.connect(broker_url) as client:
        yield client.subscribe("#", into=bytes)


def give_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_value_arrives_as_it_was_written(
    broker_url: str, subscriber: Subscription[bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(broker_url, "air/z", '{"NO2": 41.50}', "-D", "unit=ppb", "--id", "mine") == 0
    got = subscriber.get(timeout_s=10)
    assert (got.topic, got.payload, got.id) == ("air/z", b'{"NO2": 41.50}', "mine")
    assert got.user == {"unit": "ppb"}
    assert capfd.readouterr().out == "mine\n"


def test_text_is_text(broker_url: str, subscriber: Subscription[bytes]) -> None:
    assert run(broker_url, "t", "hello wörld", "-q", "2") == 0
    assert subscriber.get(timeout_s=10).payload == "hello wörld".encode()


def test_nobody_listening_is_told(broker_url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(broker_url, "t", "1", "--id", "x") == 0
    assert capfd.readouterr().out == "x (nobody has subscribed to it)\n"
    assert run(broker_url, "t", "1", "--id", "x", "--json") == 0
    assert json.loads(capfd.readouterr().out) == {"id": "x", "has_subscribers": False}


def test_from_standard_input_or_a_file(
    broker_url: str,
    subscriber: Subscription[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_stdin(monkeypatch, b"from stdin")
    assert run(broker_url, "t", "-") == 0
    (tmp_path / "f").write_bytes(b"\x00\xff")
    assert run(broker_url, "t", "--file", str(tmp_path / "f")) == 0
    assert subscriber.get(timeout_s=10).payload == b"from stdin"
    assert subscriber.get(timeout_s=10).payload == b"\x00\xff"


def test_what_is_kept_reaches_later_subscribers(broker_url: str) -> None:
    assert run(broker_url, "t", "1", "--valid-for", "forever", "--retain") == 0
    assert run(broker_url, "u", "2", "--valid-for", "60", "--expiry", "60") == 0
    with sync.connect(broker_url) as client, client.subscribe("#", into=int) as late:
        assert {late.get(timeout_s=10).value, late.get(timeout_s=10).value} == {1, 2}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["t"], "nothing to publish"),
        (["t", '{"NO2": }'], "the value is not JSON"),
        (["t", "--lines", "f", "--id", "x"], "--lines are many"),
        (["t", "1", "-D", "x"], "-D takes NAME=VALUE"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        run("mqtt://127.0.0.1:9", *words)


def test_a_refusal_is_an_error(broker_url: str) -> None:
    with pytest.raises(PublishRefused, match=r"\$rove/nothing"):
        run(broker_url, "$rove/nothing", "1")
    with pytest.raises(PublishRefused, match="valid_for is 'never'"):
        run(broker_url, "t", "1", "--valid-for", "never")


# -- lines --------------------------------------------------------------------------------------


def lines(folder: Path, *written: bytes) -> str:
    file = folder / "lines.jsonl"
    file.write_bytes(b"\n".join(written) + b"\n")
    return str(file)


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_every_line_is_a_publication_in_order(
    broker_url: str,
    subscriber: Subscription[bytes],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    qos: str,
) -> None:
    file = lines(tmp_path, *(b"%d" % number for number in range(2_500)), b"", b"  ")
    assert run(broker_url, "t", "--lines", file, "-q", qos) == 0
    # QoS 1 at most is what the subscriber asked for; of QoS 0 its inbox holds a thousand.
    count = 1_000 if qos == "0" else 2_500
    got = [subscriber.get(timeout_s=10).payload for _ in range(count)]
    assert got == [b"%d" % number for number in range(count)]
    assert "2,500 published, 0 left out" in capfd.readouterr().err


def test_bad_lines_are_named_and_lose_nothing_else(
    broker_url: str,
    subscriber: Subscription[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    give_stdin(monkeypatch, b'{"x": 1}\nnonsense\n{"x": 2}\r\n' + b"?\n" * 30)
    assert run(broker_url, "t", "--lines", "-") == 2
    assert [subscriber.get(timeout_s=10).payload for _ in range(2)] == [b'{"x": 1}', b'{"x": 2}']
    err = capfd.readouterr().err
    assert "rove: -, line 2: left out: not JSON" in err
    assert "2 published, 31 left out" in err
    assert "11 more lines left out" in err


def test_raw_lines_are_whatever_they_are(
    broker_url: str, subscriber: Subscription[bytes], tmp_path: Path
) -> None:
    assert run(broker_url, "t", "--lines", lines(tmp_path, b"{not", b"\xff"), "--raw") == 0
    assert [subscriber.get(timeout_s=10).payload for _ in range(2)] == [b"{not", b"\xff"]


def test_refused_lines_are_named(
    broker_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = lines(tmp_path, b"{}", b"{}")
    assert run(broker_url, "$rove/nothing", "--lines", file, "--json") == 2
    captured = capfd.readouterr()
    told: dict[str, Any] = json.loads(captured.out)
    assert (told["published"], told["left_out"]) == (0, 2)
    assert "line 2" in captured.err


def test_a_person_watching_sees_how_far_it_is(broker_url: str, tmp_path: Path) -> None:
    file = lines(tmp_path, *(b"%d" % number for number in range(3_000)))
    controller, terminal = pty.openpty()
    words = ["t", "--lines", file, "--url", broker_url]
    subprocess.run(
        [sys.executable, "-m", "rove", "pub", *words],
        stderr=terminal,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"},
        check=True,
        timeout=PATIENCE_S,
    )
    os.close(terminal)
    shown = os.read(controller, 65536).decode()
    os.close(controller)
    assert "publishing" in shown
    assert "3,000 published" in shown
