"""`rove passwd`: the file it writes, and that it asks twice."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import pytest

from rove.cli import passwd
from rove.errors import UsageError
from rove.serve.passwords import PasswordFileError, Passwords, set_password


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    passwd.configure(parser)
    return passwd.run(parser.parse_args(words))


def answer(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    """A terminal at which somebody types."""
    waiting = list(answers)
    monkeypatch.setattr(passwd, "getpass", lambda prompt: waiting.pop(0))


def test_asks_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "users"
    answer(monkeypatch, "secret", "secret")
    assert run(str(path), "alice") == 0
    assert Passwords.load(path).verify("alice", b"secret")
    written = capsys.readouterr()
    assert written.out == ""
    assert "alice added; a running broker takes it on SIGHUP" in written.err
    assert "secret" not in written.err


def test_two_different_answers_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, "secret", "secrte")
    with pytest.raises(UsageError, match="differ"):
        run(str(tmp_path / "users"), "alice")
    assert not (tmp_path / "users").exists()


def test_from_standard_input_and_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "users"
    for password, done in (("first", "added"), ("sécond", "changed")):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\nmore\n"))
        assert run(str(path), "alice", "--stdin") == 0
        assert f"alice {done}" in capsys.readouterr().err
    assert Passwords.load(path).verify("alice", "sécond".encode())
    assert run(str(path), "alice", "--delete") == 0
    assert Passwords.load(path).users == frozenset()
    with pytest.raises(PasswordFileError, match="no user 'alice'"):
        run(str(path), "alice", "--delete")


def test_a_file_that_everybody_could_read_is_closed_to_them_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "users"
    warning = f"rove: warning: {path} could be read by every user of this machine; now it cannot"
    set_password(path, "bob", b"secret")
    for words, answers in (("alice",), ("secret", "secret")), (("bob", "--delete"), ()):
        path.chmod(0o644)
        answer(monkeypatch, *answers)
        assert run(str(path), *words) == 0
        assert warning in capsys.readouterr().err
        assert path.stat().st_mode & 0o777 == 0o640
    answer(monkeypatch, "secret", "secret")
    assert run(str(path), "alice") == 0
    assert "warning" not in capsys.readouterr().err
