"""`rove policy set`, `remove` and `show` against a real broker; and `rove sub --policy`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rove.cli import main
from rove.client import sync
from rove.serve.settings import Config, DataSettings, ListenSettings
from tests.serve.conftest import Running, three_policies

KEEPS = "def arrived(m, me):\n    return keep(m, 'NO2') if m.NO2 > 40 else None\n"
SAYS = ["--client-id", "phone"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    listen = ListenSettings(mqtt_port=0, http_port=0)
    data = DataSettings(folder=str(tmp_path / "data"), durability="none")
    running = Running(Config(listen=listen, data=data))
    yield running
    running.stop()


def urls(broker: Running) -> tuple[str, str]:
    mqtt, http = broker.ports["mqtt"], broker.ports["http"]
    return f"mqtt://127.0.0.1:{mqtt}", f"http://127.0.0.1:{http}"


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "keeps.policy").write_text(KEEPS)
    return str(tmp_path / "keeps.policy")


def test_it_is_set_shown_and_removed(
    broker: Running, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mqtt, http = urls(broker)
    with sync.connect(mqtt, client_id="phone") as client:
        client.subscribe("air/#")
    assert main(["policy", "set", file, "--url", mqtt, *SAYS]) == 0
    assert "set: the policy of phone" in capsys.readouterr().err
    with sync.connect(mqtt) as client:
        client.publish("air/1", {"NO2": 50, "x": 1})
        client.publish("air/1", {"NO2": 30, "x": 1})
    assert main(["policy", "show", "--url", http]) == 0
    head, became, sent, *text = capsys.readouterr().out.splitlines()
    assert head.startswith("phone: the whole session, set ")
    assert became == "2 messages (32 B): 0 as they came, 1 changed, 1 not sent, 0 stopped"
    assert sent.startswith("10 B sent")
    assert "\n".join(line[2:] for line in text) == KEEPS.rstrip()
    assert main(["policy", "show", "phone", "--url", http, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tally"]["calls"] == 2
    assert main(["policy", "remove", "--url", mqtt, *SAYS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "client": "phone",
        "subscription": 0,
        "removed": True,
    }
    assert main(["policy", "show", "phone", "--url", http]) == 1
    assert "phone has no policy" in capsys.readouterr().err


def test_of_one_subscription_and_from_sub(
    broker: Running, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mqtt, http = urls(broker)
    with sync.connect(mqtt) as client:
        for value in (50, 30):
            client.publish("air/1", {"NO2": value, "x": 1}, valid_for="forever")
    words = ["sub", "air/#", "--policy", file, "--count", "1", "--json", "--url", mqtt, *SAYS]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["value"] == {"NO2": 50}
    main(["policy", "show", "--url", http, "--json"])
    (shown,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (shown["topic_filter"], shown["text"]) == ("air/#", KEEPS)
    own = ["--subscription", str(shown["identifier"])]
    assert main(["policy", "remove", "--url", mqtt, *SAYS, *own]) == 0
    assert main(["policy", "show", "--url", http]) == 1
    assert main(["policy", "set", file, "--url", mqtt, *SAYS, *own]) == 0
    capsys.readouterr()
    assert main(["policy", "show", "--url", http]) == 0
    assert capsys.readouterr().out.startswith(f"phone: subscription {shown['identifier']} (air/#)")


def test_a_policy_that_is_none_never_leaves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broker: Running
) -> None:
    (tmp_path / "bad").write_text("def arrived(m, me):\n    return m.x.y()\n")
    assert main(["policy", "set", str(tmp_path / "bad"), "--url", urls(broker)[0], *SAYS]) == 2
    assert capsys.readouterr().err.splitlines()[-1].strip() == "^"


def test_a_session_has_to_be_named(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "set", file]) == 2
    assert main(["policy", "remove"]) == 2
    assert capsys.readouterr().err.count("--client-id") == 2


def test_what_is_suspended_and_why_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view = msgspec.to_builtins(three_policies())
    monkeypatch.setattr("rove.cli.policy.setting.BrokerApi.ask", lambda *_: view)
    assert main(["policy", "show"]) == 0
    told = capsys.readouterr().out
    assert "tablet: subscription 12 (icu/+), set 1m 0s ago" in told
    assert "suspended for another 3m 5" in told
    assert "last trouble: line 3: more than 100000 steps" in told
