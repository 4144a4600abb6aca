"""TLS: contexts of listeners from PEM files, and the user name in a client certificate.

TLS 1.2 at least; with 1.2 only ciphers with forward secrecy (ECDHE) and authenticated encryption
(AES-GCM, ChaCha20). No compression, no renegotiation.

Python's `ssl` reports most mistakes as "[SSL] PEM lib". So each file is checked first, and an error
names the file and the fault. The dates of a certificate are read from its bytes, with the small
part of ASN.1 that this needs: the standard library parses only certificates of peers, and another
library would be one more dependency.

Building a context takes a few milliseconds; a handshake about one, in the event loop.
"""

from __future__ import annotations

import calendar
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from rove.errors import RoveError
from rove.serve.passwords import permissions_warning
from rove.serve.settings import MeshSettings, TlsSettings

CIPHERS_OF_1_2: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
SOON_S: Final = 14 * 24 * 60 * 60
"""A certificate that expires within two weeks causes a warning."""
CERTIFICATE: Final = re.compile(
    "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)
KEY: Final = re.compile("-----BEGIN ([A-Z ]*)PRIVATE KEY-----")


class TlsError(RoveError):
    """A certificate or key cannot be used."""


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context of the encrypted listeners."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS_OF_1_2)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.options |= ssl.OP_NO_RENEGOTIATION
    load_certificate(context, settings)
    if settings.client_ca:
        _trust(context, settings)
    return context


def joining_context(settings: MeshSettings) -> ssl.SSLContext:
    """The context for joining other brokers, whose certificates and host names are checked."""
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
    except (OSError, ssl.SSLError) as error:
        raise TlsError(f"[mesh] ca: cannot trust {settings.ca}: {error}") from None
    if settings.certificate:
        load_certificate(context, settings)
    return context


def load_certificate(context: ssl.SSLContext, settings: TlsSettings | MeshSettings) -> None:
    """Load the certificate of a context; again on SIGHUP, for later connections."""
    certificate, key = Path(settings.certificate), Path(settings.key)
    _certificates(certificate, "certificate")
    _look_at_key(key)
    try:
        # Without a password, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(
                f"the key {key} does not belong to the certificate {certificate}: the first"
                f" certificate in the file has to be the broker's own"
            ) from None
        reason = error.reason or "not understood"
        raise TlsError(f"cannot use {certificate} with {key}: {reason.lower()}") from None


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Request client certificates of an authority."""
    path = Path(settings.client_ca)
    _certificates(path, "client_ca")
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        reason = error.reason or "not understood"
        raise TlsError(f"cannot trust {path}: {reason.lower()}") from None
    required = settings.client_certificates == "required"
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL


def user_of(certificate: Mapping[str, Any] | None, settings: TlsSettings) -> str | None:
    """The user name in a verified certificate, from `SSLObject.getpeercert()`.

    None if there is no certificate, or no such name in it. The last of several common names
    counts, which is the most specific.
    """
    if not certificate:
        return None
    if settings.user_from == "alternative-name":
        names = _alternative_names(certificate.get("subjectAltName", ()))
    else:
        parts = (part for parts in certificate.get("subject", ()) for part in parts)
        names = [value for name, value in parts if name == "commonName"][::-1]
    return next((name for name in names if name), None)


def _alternative_names(names: Iterable[tuple[str, Any]]) -> list[str]:
    return [str(value) for kind, value in names if kind in ("email", "DNS", "URI")]


# --- checking the files -------------------------------------------------------------------------


class Validity(NamedTuple):
    """When a certificate is valid, in seconds since 1970."""

    begins_at: int
    ends_at: int


def warnings(settings: TlsSettings, now_s: float) -> Iterator[str]:
    """Problems that clients have, or will have soon; a line each."""
    files = {"certificate": settings.certificate, "client_ca": settings.client_ca}
    for role, name in files.items():
        if name:
            for der in _certificates(Path(name), role):
                yield from _date_warnings(name, validity(der), now_s)
    if settings.key and (warning := permissions_warning(Path(settings.key))):
        yield warning


def _date_warnings(name: str, dates: Validity, now_s: float) -> Iterator[str]:
    if now_s < dates.begins_at:
        yield f"{name} holds a certificate that is not valid yet: from {_day(dates.begins_at)} on"
    elif now_s > dates.ends_at:
        yield f"{name} holds a certificate that has expired: it ended on {_day(dates.ends_at)}"
    elif now_s > dates.ends_at - SOON_S:
        yield f"{name} holds a certificate that ends soon: on {_day(dates.ends_at)}"


def _day(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).date().isoformat()


def _certificates(path: Path, role: str) -> list[bytes]:
    """The certificates of a PEM file, as DER."""
    text = _text(path, role)
    found = CERTIFICATE.findall(text)
    if not found:
        hint = "it holds a private key" if KEY.search(text) else "it should be PEM"
        raise TlsError(f"[tls] {role}: there is no certificate in {path}; {hint}")
    try:
        return [ssl.PEM_cert_to_DER_cert(pem) for pem in found]
    except ValueError:
        raise TlsError(f"[tls] {role}: a certificate in {path} is damaged") from None


def _look_at_key(path: Path) -> None:
    text = _text(path, "key")
    found = KEY.search(text)
    if found is None:
        hint = "it holds a certificate" if CERTIFICATE.search(text) else "it should be PEM"
        raise TlsError(f"[tls] key: there is no private key in {path}; {hint}")
    if "ENCRYPTED" in found[1] or "Proc-Type: 4,ENCRYPTED" in text:
        raise TlsError(
            f"[tls] key: {path} is encrypted, and a broker cannot ask for the password;"
            f" `openssl pkey -in {path} -out FILE` decrypts it"
        )


def _text(path: Path, role: str) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise TlsError(f"[tls] {role}: cannot read {path}: {error.strerror}") from None


def validity(der: bytes) -> Validity:
    """The dates of a certificate.

    Certificate = sequence of (to be signed = sequence of ([0] version, serial number, signature's
    algorithm, issuer, validity = sequence of (from, until), ...), ...); the version is left out
    in the oldest.
    """
    try:
        _, certificate = next(_elements(der))
        _, to_be_signed = next(_elements(certificate))
        fields = [each for each in _elements(to_be_signed) if each[0] != 0xA0]
        begins, ends = _elements(fields[3][1])
        return Validity(_moment(*begins), _moment(*ends))
    except (IndexError, StopIteration, ValueError):
        raise TlsError("a certificate is damaged: it has no dates") from None


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The tags and contents of consecutive elements in DER."""
    at = 0
    while at < len(data):
        tag, size = data[at], data[at + 1]
        at += 2
        if size & 0x80:
            width = size & 0x7F
            size = int.from_bytes(data[at : at + width], "big")
            at += width
        if at + size > len(data):
            raise ValueError("cut off")
        yield tag, data[at : at + size]
        at += size


def _moment(tag: int, text: bytes) -> int:
    """Seconds since 1970 of UTCTime (tag 0x17, two digits of the year) or GeneralizedTime."""
    digits = text.decode("ascii").rstrip("Z")
    if tag == 0x17:
        digits = ("19" if digits >= "50" else "20") + digits
    year, month, day = int(digits[:4]), int(digits[4:6]), int(digits[6:8])
    hour, minute, second = int(digits[8:10]), int(digits[10:12]), int(digits[12:14])
    return calendar.timegm((year, month, day, hour, minute, second, 0, 0, 0))
