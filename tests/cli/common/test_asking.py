"""Asking a broker over HTTP: who asks, whom, and what is said when there is no answer."""

import argparse
import base64
from pathlib import Path

import pytest

from rove.cli.common.asking import AskingError, Broker, add_http_arguments
from rove.errors import UsageError


def broker(*words: str) -> Broker:
    parser = argparse.ArgumentParser()
    add_http_arguments(parser)
    return Broker(parser.parse_args(words))


def test_an_answer_is_json(http_url: str) -> None:
    assert broker("--url", http_url).ask("/healthz") == {"status": "ok"}


def test_the_url_may_come_from_a_variable(http_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROVE_HTTP_URL", f"{http_url}/")
    assert broker().ask("/healthz") == {"status": "ok"}


def test_what_is_refused_is_said_with_its_hint(http_url: str) -> None:
    with pytest.raises(AskingError, match="there is no /nothing; /docs lists all routes"):
        broker("--url", http_url).ask("/nothing")


def test_nobody_is_there(free_port: int) -> None:
    with pytest.raises(AskingError, match="Connection refused; is the broker up"):
        broker("--url", f"http://127.0.0.1:{free_port}").ask("/healthz")


@pytest.mark.parametrize("url", ["mqtt://localhost", "localhost:8080", "http://"])
def test_what_is_no_url_of_it(url: str) -> None:
    with pytest.raises(UsageError, match="--url takes"):
        broker("--url", url)


def test_a_password_is_no_argument() -> None:
    with pytest.raises(UsageError, match="can be read by everybody") as refused:
        broker("--url", "http://alice:secret@localhost")
    assert "secret@" not in str(refused.value)


def test_where_the_password_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROVE_PASSWORD", raising=False)
    with pytest.raises(UsageError, match="alice needs a password"):
        broker("--url", "http://alice@localhost:1")
    monkeypatch.setenv("ROVE_PASSWORD", "first")
    file = tmp_path / "password"
    file.write_text("second\nmore\n")
    for words, password in (((), "first"), (("--password-file", str(file)), "second")):
        found = broker("--url", "http://alice@localhost:1", *words)
        assert found.url == "http://localhost:1"
        encoded = base64.b64encode(f"alice:{password}".encode()).decode()
        assert found._headers == {"authorization": f"Basic {encoded}"}
