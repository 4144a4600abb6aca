"""Passwords: kept as hashes, compared as slowly for the unknown, remembered once right."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.broker.access import Identity
from rove.serve import passwords
from rove.serve.passwords import (
    Authenticator,
    Hash,
    PasswordFileError,
    Passwords,
    close_to_others,
    delete_user,
    name_fault,
    permissions_warning,
    set_password,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users"


@pytest.fixture
def derivations(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every password that scrypt is asked about from now on."""
    asked: list[bytes] = []
    derive = Hash.derive

    def counted(self: Hash, password: bytes) -> bytes:
        asked.append(password)
        return derive(self, password)

    monkeypatch.setattr(Hash, "derive", counted)
    return asked


def test_a_password_is_known_again_and_no_other(path: Path) -> None:
    assert set_password(path, "alice", b"secret")
    found = Passwords.load(path)
    assert found.users == {"alice"}
    assert found.verify("alice", b"secret")
    assert not found.verify("alice", b"Secret")
    assert not found.verify("alice", b"")
    assert not found.verify("bob", b"secret")


def test_the_file_holds_no_password_and_two_equal_ones_look_different(path: Path) -> None:
    set_password(path, "alice", b"secret")
    set_password(path, "bob", b"secret")
    text = path.read_text()
    assert "secret" not in text
    hashes = [line.partition(":")[2] for line in text.splitlines()]
    assert hashes[0] != hashes[1]
    assert all(text.startswith("scrypt$16384$8$1$") for text in hashes)


def test_a_right_password_is_derived_once_and_a_wrong_one_every_time(
    path: Path, derivations: list[bytes]
) -> None:
    set_password(path, "alice", b"secret")
    found = Passwords.load(path)
    derivations.clear()
    assert all(found.verify("alice", b"secret") for _ in range(5))
    assert derivations == [b"secret"]
    assert not any(found.verify("alice", b"wrong") for _ in range(2))
    assert derivations == [b"secret", b"wrong", b"wrong"]
    assert found.verify("alice", b"secret")


def test_an_unknown_user_costs_as_much_as_a_wrong_password(
    path: Path, derivations: list[bytes]
) -> None:
    set_password(path, "alice", b"secret")
    found = Passwords.load(path)
    derivations.clear()
    assert not found.verify("mallory", b"guess")
    assert derivations == [b"guess"]
    assert (found._nobody.n, found._nobody.r, found._nobody.p) == found._hashes["alice"][:3]


def test_verifying_in_threads(path: Path) -> None:
    set_password(path, "alice", b"secret")
    found = Passwords.load(path)
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda word=word: answers.append(found.verify("alice", word)))
        for word in (b"secret", b"wrong", b"secret")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False, True, True]


# --- the file ---------------------------------------------------------------------------------


def test_changing_and_deleting_leaves_everything_else_as_it_was(path: Path) -> None:
    for user in ("alice", "bob", "carol"):
        set_password(path, user, user.encode())
    path.write_text(f"# people\n\n{path.read_text()}")
    before = path.read_text().splitlines()
    assert not set_password(path, "bob", b"new")
    after = path.read_text().splitlines()
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, True, True, False, True]
    assert Passwords.load(path).verify("bob", b"new")
    delete_user(path, "bob")
    assert path.read_text().splitlines() == [*after[:3], after[4]]


@pytest.mark.skipif(os.name != "posix", reason="needs file modes")
def test_the_file_is_for_its_owner_only_and_a_group_may_be_given_rights(path: Path) -> None:
    set_password(path, "alice", b"secret")
    assert path.stat().st_mode & 0o777 == 0o600
    assert permissions_warning(path) is None
    path.chmod(0o644)
    warning = permissions_warning(path)
    assert warning is not None
    assert f"chmod o-rwx {path}" in warning
    set_password(path, "bob", b"secret")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_others_could_read_is_closed_to_them_and_that_is_said(path: Path) -> None:
    assert close_to_others(path) is None
    set_password(path, "alice", b"secret")
    assert close_to_others(path) is None
    path.chmod(0o645)
    told = f"{path} could be read by every user of this machine; now it cannot"
    assert close_to_others(path) == told
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link_and_no_draft_is_left(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    set_password(real, "alice", b"secret")
    link.symlink_to(real)
    set_password(link, "bob", b"secret")
    assert link.is_symlink()
    assert Passwords.load(real).users == {"alice", "bob"}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "real"]


def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    with pytest.raises(PasswordFileError, match=r"cannot write .*: "):
        set_password(tmp_path / "nowhere" / "users", "alice", b"secret")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alice", "what follows 'alice' is no hash .expected scrypt"),
        ("alice:hunter2", "expected scrypt"),
        ("alice:scrypt$hunter2$8$1$YQ==$YQ==", "numbers"),
        ("alice:scrypt$16384$8$1$hunter2!$YQ==", "base64"),
        ("alice:scrypt$16385$8$1$YQ==$YQ==", "no cost that is accepted"),
        ("alice:scrypt$1073741824$8$1$YQ==$YQ==", "no cost that is accepted"),
        ("alice:scrypt$16384$8$1$YQ==$YQ==", "too short"),
        ("a*b:x", "is no user name"),
        (f"alice:{Hash(2, 1, 1, b's', b'k' * 32)}\n" * 2, "a second line for the user 'alice'"),
    ],
)
def test_a_wrong_line_is_named_but_never_quoted(path: Path, text: str, message: str) -> None:
    path.write_text(f"# first\n{text}\n")
    with pytest.raises(PasswordFileError, match=message) as caught:
        Passwords.load(path)
    assert f"{path}:{3 if 'second' in message else 2}: " in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_missing_file_and_a_binary_file_are_named(path: Path) -> None:
    with pytest.raises(PasswordFileError, match=r"cannot read the password file .*users: No such"):
        Passwords.load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PasswordFileError, match="not text in UTF-8"):
        Passwords.load(path)
    path.write_text("")
    with pytest.raises(PasswordFileError, match="there is no user 'bob'"):
        delete_user(path, "bob")


@pytest.mark.parametrize("user", ["", " a", "a:b", "a\nb", "*", "#a", 'a"b', "a,b"])
def test_names_that_would_be_misread_are_refused(path: Path, user: str) -> None:
    with pytest.raises(PasswordFileError, match="is no user name"):
        set_password(path, user, b"secret")
    assert not path.exists()


def test_an_empty_password_is_refused(path: Path) -> None:
    with pytest.raises(PasswordFileError, match="a password has 1 to 65535 bytes, this one 0"):
        set_password(path, "alice", b"")


@given(st.integers(1, 8), st.binary(min_size=1), st.binary(min_size=16))
def test_a_hash_is_read_as_it_was_written(power: int, salt: bytes, key: bytes) -> None:
    given_hash = Hash(2**power, 8, 1, salt, key)
    assert Hash.parse(str(given_hash)) == given_hash


@given(st.text())
def test_a_good_name_survives_the_file(user: str) -> None:
    if name_fault(user) is None:
        line = f"{user}:{Hash(2, 1, 1, b's', b'k' * 32)}"
        assert list(passwords._parsed(line, Path("users"))) == [user]


# --- the door ---------------------------------------------------------------------------------

HERE, THERE = "127.0.0.1", "192.0.2.7"


@pytest.fixture
def users(path: Path) -> Passwords:
    set_password(path, "alice", b"secret")
    return Passwords.load(path)


def test_by_password(users: Passwords) -> None:
    door = Authenticator(users)
    assert door.identify("c", THERE, "alice", b"secret") == Identity("alice", "c", "password")
    assert door.identify("c", THERE, "alice", b"wrong") is None
    assert door.identify("c", HERE, "alice", None) is None
    assert door.identify("c", HERE, "bob", b"secret") is None


def test_the_anonymous_come_in_only_from_here_and_only_while_there_are_no_users(
    users: Passwords,
) -> None:
    door = Authenticator()
    assert door.identify("c", HERE, None, None) == Identity(None, "c", "anonymous")
    assert door.identify("c", "::1", None, None) is not None
    assert door.identify("c", "::ffff:127.0.0.1", None, None) is not None
    assert door.identify("c", THERE, None, None) is None
    assert Authenticator(users).identify("c", HERE, None, None) is None
    assert Authenticator(trusts_certificates=True).identify("c", HERE, None, None) is None
    assert Authenticator(anonymous="never").identify("c", HERE, None, None) is None
    assert Authenticator(users, "always").identify("c", THERE, "", None) == Identity(None, "c")


def test_a_name_without_proof_is_no_name() -> None:
    assert Authenticator().identify("c", HERE, "admin", b"x") == Identity(None, "c", "anonymous")


def test_by_certificate(users: Passwords) -> None:
    door = Authenticator(users, trusts_certificates=True)
    known = Identity("bob", "c", "certificate")
    assert door.identify("c", THERE, None, None, "bob") == known
    assert door.identify("c", THERE, "bob", b"whatever", "bob") == known
    assert door.identify("c", THERE, "alice", b"secret", "bob") is None
