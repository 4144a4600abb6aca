"""How commands reach their broker, over MQTT and HTTP."""

from __future__ import annotations

import argparse
import asyncio
import base64
from pathlib import Path

import pytest

from rove.cli.common.connection import (
    BrokerApi,
    BrokerRequestError,
    add_connection_arguments,
    add_http_arguments,
    named_values,
    open_client,
)
from rove.client import AddressError, ConnectionFailed
from rove.errors import UsageError

CERTIFICATES = Path(__file__).resolve().parents[2] / "serve" / "certificates"


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_connection_arguments(parser)
    return parser.parse_args(words)


def client_id(*words: str) -> str:
    async def connected() -> str:
        async with open_client(arguments(*words)) as client:
            return client.client_id

    return asyncio.run(connected())


def test_the_broker_is_named_by_an_option_or_a_variable(
    broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client_id("--url", broker_url, "--client-id", "me") == "me"
    monkeypatch.setenv("ROVE_URL", broker_url)
    assert client_id("--client-id", "me") == "me"
    with pytest.raises(AddressError, match="no scheme"):
        client_id("--url", "localhost")


def test_a_password_comes_from_a_file_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str | None] = []
    monkeypatch.setattr(
        "rove.client.connect", lambda _, **options: given.append(options["password"])
    )
    file = tmp_path / "password"
    file.write_text("from a file\nsecond line\n")
    open_client(arguments())
    monkeypatch.setenv("ROVE_PASSWORD", "from a variable")
    open_client(arguments())
    open_client(arguments("--password-file", str(file)))
    assert given == [None, "from a variable", "from a file"]
    file.write_text("")
    with pytest.raises(UsageError, match="is empty"):
        open_client(arguments("--password-file", str(file)))
    assert "password" not in vars(arguments())


def test_an_authority_goes_with_a_secure_address(tmp_path: Path, free_port: int) -> None:
    authority = str(CERTIFICATES / "authority.pem")
    with pytest.raises(ConnectionFailed):
        client_id("--url", f"mqtts://127.0.0.1:{free_port}", "--ca", authority)
    with pytest.raises(AddressError, match="write mqtts://"):
        client_id("--url", f"mqtt://127.0.0.1:{free_port}", "--ca", authority)
    (tmp_path / "no.pem").write_text("nothing")
    with pytest.raises(UsageError, match="is not a PEM certificate"):
        open_client(arguments("--ca", str(tmp_path / "no.pem")))


def test_names_and_values() -> None:
    assert named_values(["a=1", "b=x=y", "c="], "-D") == {"a": "1", "b": "x=y", "c": ""}
    for wrong in ("a", "=1"):
        with pytest.raises(UsageError, match="-D takes NAME=VALUE"):
            named_values([wrong], "-D")


def broker(*words: str) -> BrokerApi:
    parser = argparse.ArgumentParser()
    add_http_arguments(parser)
    return BrokerApi(parser.parse_args(words))


def test_an_answer_is_json(http_url: str) -> None:
    assert broker("--url", http_url).ask("/healthz") == {"status": "ok"}


def test_the_url_may_come_from_a_variable(http_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROVE_HTTP_URL", f"{http_url}/")
    assert broker().ask("/healthz") == {"status": "ok"}


def test_what_is_refused_is_said_with_its_hint(http_url: str) -> None:
    with pytest.raises(BrokerRequestError, match="there is no /nothing; /docs lists all routes"):
        broker("--url", http_url).ask("/nothing")


def test_nobody_is_there(free_port: int) -> None:
    with pytest.raises(BrokerRequestError, match="Connection refused; is the broker up"):
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
