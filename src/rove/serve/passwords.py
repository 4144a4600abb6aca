"""The password file, and the authentication of users.

    # one line per user, written by `rove passwd FILE USER`
    alice:scrypt$16384$8$1$c2FsdA==$aGFzaA==

Passwords are stored as scrypt hashes (of the standard library; argon2 would be one more dependency)
with N = 2**14, r = 8, p = 1: 16 MB of memory and about 50 ms of one core per guess. Every line has
its cost, so it can be raised later without new passwords.

50 ms would block the event loop, so the shell calls `Passwords.verify` in a thread (scrypt releases
the interpreter's lock). After a restart thousands of clients reconnect at once. For them, a correct
password is remembered as a digest, under a key that never leaves the process, and the next check
takes about 2 µs. Wrong passwords are never remembered: they take 50 ms each time, and so do unknown
users, so that the time does not reveal which names exist.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from rove.base.files import PRIVATE, replacing, set_mode
from rove.base.http import is_loopback
from rove.broker.access import Identity
from rove.errors import RoveError

SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
"""A line that needs more memory is refused: it could be used to crash the broker."""
PASSWORD_BYTES_MAX: Final = 65_535
"""The limit of a CONNECT packet."""
FORBIDDEN_IN_NAMES: Final = frozenset(':",*')
"""They have a meaning in this file or in access rules."""


class PasswordFileError(RoveError):
    """The password file, or a change of it, is invalid."""


class Hash(NamedTuple):
    """The hash of a password."""

    n: int
    r: int
    p: int
    salt: bytes
    key: bytes

    @classmethod
    def of(cls, password: bytes) -> Hash:
        """The hash of a password, with a new salt and today's cost."""
        salt = secrets.token_bytes(SALT_BYTES)
        draft = cls(2**14, 8, 1, salt, b"\0" * HASH_BYTES)
        return draft._replace(key=draft.derive(password))

    @classmethod
    def parse(cls, text: str) -> Hash:
        """Parse the output of `__str__`; ValueError names the fault.

        It does not quote the text, which may be a password by mistake.
        """
        kind, _, rest = text.partition("$")
        fields = rest.split("$")
        if kind != "scrypt" or len(fields) != 5:
            raise ValueError("expected scrypt$N$r$p$salt$hash")
        try:
            n, r, p = (int(field) for field in fields[:3])
            salt, key = (base64.b64decode(field, validate=True) for field in fields[3:])
        except ValueError:
            raise ValueError("N, r and p are numbers, salt and hash are base64") from None
        found = cls(n, r, p, salt, key)
        if n < 2 or n & (n - 1) or r < 1 or p < 1 or found.memory_bytes > MEMORY_BYTES_MAX:
            raise ValueError(f"N={n}, r={r}, p={p} is no cost that is accepted here")
        if not salt or len(key) < SALT_BYTES:
            raise ValueError("salt or hash are too short")
        return found

    def __str__(self) -> str:
        salt, key = (base64.b64encode(each).decode() for each in (self.salt, self.key))
        return f"scrypt${self.n}${self.r}${self.p}${salt}${key}"

    @property
    def memory_bytes(self) -> int:
        return 128 * self.r * (self.n + self.p + 2)

    def derive(self, password: bytes) -> bytes:
        """The key of a password; takes about 50 ms."""
        return hashlib.scrypt(
            password, salt=self.salt, n=self.n, r=self.r, p=self.p,
            maxmem=2 * self.memory_bytes, dklen=len(self.key),
        )  # fmt: skip

    def fits(self, password: bytes) -> bool:
        """Whether the password is correct, in a time that does not depend on the similarity."""
        return hmac.compare_digest(self.derive(password), self.key)


class Passwords:
    """The users of a password file."""

    def __init__(self, hashes: Mapping[str, Hash]) -> None:
        self._hashes = dict(hashes)
        self._nobody = Hash.of(secrets.token_bytes(SALT_BYTES))
        self._digest_key = secrets.token_bytes(32)
        self._proved: dict[str, bytes] = {}

    @classmethod
    def load(cls, path: Path) -> Passwords:
        """Read a file; an error names the line."""
        return cls(_parsed(_read(path), path))

    @property
    def users(self) -> frozenset[str]:
        return frozenset(self._hashes)

    def verify(self, user: str, password: bytes) -> bool:
        """Whether the password is correct: 50 ms of CPU, or 2 µs if it was before.

        Several threads may call it at once.
        """
        digest = hashlib.blake2b(password, key=self._digest_key, salt=_salt_of(user)).digest()
        if hmac.compare_digest(self._proved.get(user, b""), digest):
            return True
        if not self._hashes.get(user, self._nobody).fits(password) or user not in self._hashes:
            return False
        self._proved[user] = digest
        return True


def _salt_of(user: str) -> bytes:
    """So that two users with one password have two digests."""
    return hashlib.blake2b(user.encode(errors="surrogatepass"), digest_size=16).digest()


# --- authentication ---------------------------------------------------------------------------


class Authenticator:
    """Authenticates users by certificate or password, or admits them without a name.

    `anonymous` says who may connect without a name: with `loopback`, clients on this machine while
    there are no users; with `never`, nobody; with `always`, everybody.
    """

    def __init__(
        self,
        passwords: Passwords | None = None,
        anonymous: Literal["loopback", "never", "always"] = "loopback",
        *,
        trusts_certificates: bool = False,
    ) -> None:
        self.passwords = passwords
        self.anonymous = anonymous
        self.has_users = passwords is not None or trusts_certificates

    def identify(
        self,
        client_id: str,
        peer_address: str,
        user: str | None,
        password: bytes | None,
        certificate_user: str | None = None,
    ) -> Identity | None:
        """The identity of a client; None if it is refused. A new password takes 50 ms: call it in a
        thread.

        A certificate decides alone: a user name has to be the same, and a password is ignored. A
        user name without proof counts for nothing: if no user has a password, a client with a user
        name is as anonymous as one without.
        """
        if certificate_user is not None:
            same = user in (None, "", certificate_user)
            return Identity(certificate_user, client_id, "certificate") if same else None
        if user and self.passwords is not None:
            known = self.passwords.verify(user, password or b"")
            return Identity(user, client_id, "password") if known else None
        return Identity(None, client_id) if self._admits_anonymous(peer_address) else None

    def _admits_anonymous(self, peer_address: str) -> bool:
        if self.anonymous == "loopback":
            return not self.has_users and is_loopback(peer_address)
        return self.anonymous == "always"


# --- the file ---------------------------------------------------------------------------------


def set_password(path: Path, user: str, password: bytes) -> bool:
    """Add a user or change the password; the file is replaced as a whole. True if it was new."""
    if fault := name_fault(user):
        raise PasswordFileError(f"{user!r} is no user name: {fault}")
    if not 1 <= len(password) <= PASSWORD_BYTES_MAX:
        raise PasswordFileError(
            f"a password has 1 to {PASSWORD_BYTES_MAX} bytes, this one {len(password)}"
        )
    text = _read(path) if path.exists() else ""
    is_new = user not in _parsed(text, path)
    line = f"{user}:{Hash.of(password)}"
    lines = [line if _user_of(each) == user else each for each in text.splitlines()]
    _replace(path, [*lines, line] if is_new else lines)
    return is_new


def delete_user(path: Path, user: str) -> None:
    """Remove a user from the file."""
    text = _read(path)
    if user not in _parsed(text, path):
        raise PasswordFileError(f"{path}: there is no user {user!r}")
    _replace(path, [line for line in text.splitlines() if _user_of(line) != user])


def name_fault(user: str) -> str | None:
    """Why that cannot be a user's name, or None."""
    if not user or user != user.strip():
        return "it is empty, or begins or ends with a space"
    if not user.isprintable() or FORBIDDEN_IN_NAMES & set(user) or user.startswith("#"):
        return 'it may hold neither control characters nor any of : , * " nor begin with #'
    return None


def close_to_others(path: Path) -> str | None:
    """Make a password file unreadable for other users; a warning if it was readable."""
    with contextlib.suppress(OSError):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & stat.S_IRWXO and set_mode(path, mode & 0o770):
            return f"{path} could be read by every user of this machine; now it cannot"
    return None


def permissions_warning(path: Path) -> str | None:
    """A warning if every user of the machine can read a file with secrets."""
    with contextlib.suppress(OSError):
        if os.name == "posix" and path.stat().st_mode & stat.S_IROTH:
            return f"{path} can be read by every user of this machine; `chmod o-rwx {path}`"
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PasswordFileError(f"cannot read the password file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PasswordFileError(f"the password file {path} is not text in UTF-8") from None


def _user_of(line: str) -> str | None:
    """The user of a line; None for a comment or an empty line."""
    stripped = line.strip()
    return stripped.partition(":")[0] if stripped and not stripped.startswith("#") else None


def _parsed(text: str, path: Path) -> dict[str, Hash]:
    found: dict[str, Hash] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        user = _user_of(line)
        if user is None:
            continue
        if fault := name_fault(user):
            raise PasswordFileError(f"{path}:{number}: {user!r} is no user name: {fault}")
        if user in found:
            raise PasswordFileError(f"{path}:{number}: a second line for the user {user!r}")
        try:
            found[user] = Hash.parse(line.strip().partition(":")[2])
        except ValueError as error:
            raise PasswordFileError(
                f"{path}:{number}: what follows {user!r} is no hash ({error});"
                f" `rove passwd {path} {user}` writes one"
            ) from None
    return found


def _replace(path: Path, lines: Iterable[str]) -> None:
    """Replace the file, so that every reader gets the old content or the new."""
    path = path.resolve()
    try:
        old = path.stat() if path.exists() else None
        with replacing(path, mode=PRIVATE) as file:
            if old is not None:
                _keep_owner(file.fileno(), old)
            file.writelines(f"{line}\n".encode() for line in lines)
    except OSError as error:
        raise PasswordFileError(f"cannot write {path}: {error.strerror}") from None


def _keep_owner(handle: int, old: os.stat_result) -> None:
    """The owner of the old file can read the new one; others cannot."""
    if hasattr(os, "fchown"):
        os.fchmod(handle, stat.S_IMODE(old.st_mode) & ~stat.S_IRWXO)
        with contextlib.suppress(PermissionError):
            os.fchown(handle, old.st_uid, old.st_gid)
