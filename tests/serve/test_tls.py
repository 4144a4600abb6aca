"""TLS, by real handshakes in memory with the certificates beside this file."""

from __future__ import annotations

import contextlib
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.serve.settings import TlsSettings
from rove.serve.tls import TlsError, load_certificate, server_context, user_of, validity, warnings

HERE = Path(__file__).parent / "certificates"
DAY_S = 24 * 60 * 60


def pem(name: str) -> str:
    return str(HERE / name)


def settings(**changes: Any) -> TlsSettings:
    return TlsSettings(**({"certificate": pem("server.pem"), "key": pem("server.key")} | changes))


def client_context(certificate: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=pem("authority.pem"))
    if certificate:
        context.load_cert_chain(pem(f"{certificate}.pem"), pem(f"{certificate}.key"))
    return context


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a connection; raises what either raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(5):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    ends[0].write(b"hello")
    assert ends[1].read() == b"hello"
    return ends


def test_a_client_that_trusts_the_authority_gets_through() -> None:
    client, server = handshake(server_context(settings()), client_context())
    assert client.version() == "TLSv1.3"
    assert server.getpeercert() is None


def test_1_2_with_forward_secrecy_is_the_least() -> None:
    old = client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    client, _ = handshake(server_context(settings()), old)
    cipher = client.cipher()
    assert cipher is not None
    assert cipher[0].startswith("ECDHE-ECDSA-")
    context = server_context(settings())
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    names = [cipher["name"] for cipher in context.get_ciphers()]
    assert all(name.startswith(("ECDHE-", "TLS_")) for name in names)
    old.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    with pytest.raises(ssl.SSLError):
        handshake(server_context(settings()), old)


def test_client_certificates_name_the_user() -> None:
    trusting = settings(client_ca=pem("authority.pem"))
    _, server = handshake(server_context(trusting), client_context("client"))
    certificate = server.getpeercert()
    assert user_of(certificate, trusting) == "alice"
    assert user_of(certificate, settings(user_from="alternative-name")) == "alice@example.com"
    _, server = handshake(server_context(trusting), client_context())
    assert user_of(server.getpeercert(), trusting) is None


def test_a_required_client_certificate_is_required() -> None:
    strict = server_context(
        settings(client_ca=pem("authority.pem"), client_certificates="required")
    )
    handshake(strict, client_context("client"))
    with pytest.raises(ssl.SSLError):
        handshake(strict, client_context())


@pytest.mark.parametrize("mode", ["optional", "required"])
def test_a_strangers_certificate_is_refused(mode: str) -> None:
    context = server_context(settings(client_ca=pem("authority.pem"), client_certificates=mode))
    with pytest.raises(ssl.SSLError):
        handshake(context, client_context("stranger"))


def test_a_new_certificate_serves_the_next_connection() -> None:
    context = server_context(settings())
    load_certificate(context, settings(certificate=pem("stranger.pem"), key=pem("stranger.key")))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, client_context())
    load_certificate(context, settings())
    handshake(context, client_context())


@pytest.mark.parametrize(
    ("certificate", "expected"),
    [
        (None, None),
        ({}, None),
        ({"subject": ((("organizationName", "x"),),)}, None),
        ({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, "b"),
        ({"subject": ((("commonName", ""),),)}, None),
    ],
)
def test_names_that_are_missing_or_many(certificate: Any, expected: str | None) -> None:
    assert user_of(certificate, TlsSettings()) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"certificate": "nowhere.pem"}, "[tls] certificate: cannot read nowhere.pem: No such"),
        ({"key": "nowhere.key"}, "[tls] key: cannot read nowhere.key: No such file"),
        ({"key": pem("client.key")}, "client.key does not belong to the certificate"),
        ({"certificate": pem("server.key")}, "server.key; it holds a private key"),
        ({"key": pem("server.pem")}, "server.pem; it holds a certificate"),
        ({"key": pem("README.md")}, "README.md; it should be PEM"),
        ({"key": pem("encrypted.key")}, "is encrypted, and a broker cannot ask"),
        ({"client_ca": pem("README.md")}, "[tls] client_ca: there is no certificate in"),
    ],
)
def test_errors_name_the_file_and_the_fault(changes: dict[str, str], message: str) -> None:
    with pytest.raises(TlsError) as caught:
        server_context(settings(**changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_damaged_files(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pem"
    text = Path(pem("server.pem")).read_text()
    damaged.write_text(text[:100] + text[140:])
    with pytest.raises(TlsError, match=r"damaged"):
        server_context(settings(certificate=str(damaged)))
    with pytest.raises(TlsError, match=r"damaged"):
        server_context(settings(client_ca=str(damaged)))
    key = tmp_path / "damaged.key"
    key.write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    with pytest.raises(TlsError, match=r"cannot use .*server.pem with .*damaged.key"):
        server_context(settings(key=str(key)))


# --- dates ------------------------------------------------------------------------------------


def der(name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(pem(name)).read_text())


def test_the_dates_are_those_that_the_library_reads() -> None:
    """Of a peer's certificate the library says them; ours are read from the file."""
    trusting = settings(client_ca=pem("authority.pem"))
    client, server = handshake(server_context(trusting), client_context("client"))
    for name, end in (("server.pem", client), ("client.pem", server)):
        certificate: Any = end.getpeercert()
        expected = [
            ssl.cert_time_to_seconds(certificate[each]) for each in ("notBefore", "notAfter")
        ]
        assert list(validity(der(name))) == expected


def test_warnings_before_and_after() -> None:
    dates = validity(der("server.pem"))
    quiet = settings(key="")
    assert list(warnings(quiet, dates.begins_at + DAY_S)) == []
    for now_s, message in (
        (dates.begins_at - DAY_S, "not valid yet"),
        (dates.ends_at - 13 * DAY_S, "ends soon"),
        (dates.ends_at + 1, "has expired"),
    ):
        (warning,) = warnings(quiet, now_s)
        assert message in warning
        assert pem("server.pem") in warning
    two = settings(key="", client_ca=pem("authority.pem"))
    assert len(list(warnings(two, dates.ends_at + 10 * DAY_S))) == 2


@pytest.mark.skipif(os.name != "posix", reason="needs file modes")
def test_a_key_that_everybody_can_read(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("x")
    key.chmod(0o604)
    (warning,) = warnings(TlsSettings(key=str(key)), 0)
    assert "can be read by every user" in warning
    key.chmod(0o600)
    assert list(warnings(TlsSettings(key=str(key)), 0)) == []


@given(st.data())
def test_damaged_bytes_are_dates_or_an_error_that_says_so(data: st.DataObject) -> None:
    whole = der("server.pem")
    position = data.draw(st.integers(0, len(whole) - 1))
    changed = data.draw(
        st.sampled_from(
            [whole[:position], whole[:position] + b"\xff" + whole[position + 1 :], whole[position:]]
        )
    )
    with contextlib.suppress(TlsError):
        assert len(validity(changed)) == 2
