"""Locations are resolved once and shown without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from rove.base.files import sync
from rove.lake.storage import (
    LakeError,
    child,
    clear,
    folder_of,
    lake_errors,
    one_line,
    read_bytes,
    remove,
    resolved,
    shown,
    write_whole,
)


def test_folders_become_absolute_and_uris_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolved("lake") == resolved(Path("x/../lake")) == str(tmp_path / "lake")
    assert resolved(f"file://{tmp_path}/a%20b") == str(tmp_path / "a b")
    assert resolved("s3://bucket/lake/") == "s3://bucket/lake"
    assert folder_of("s3://bucket/lake") is None
    assert folder_of(resolved("lake")) == tmp_path / "lake"
    assert child("s3://bucket/lake", "a", "b") == "s3://bucket/lake/a/b"


def test_no_secret_is_shown() -> None:
    assert shown("s3://key:secret@bucket/lake?token=x") == "s3://bucket/lake"
    assert shown("/data/lake") == "/data/lake"
    error = OSError("\x1b[31m↳\x1b[0m GET http://me:pw@host/x?X-Amz-Signature=abc\n  failed")
    assert one_line(error) == "GET http://host/x failed"


def test_errors_are_one_line() -> None:
    with (
        pytest.raises(LakeError, match=r"^cannot do it: No such thing$"),
        lake_errors("cannot do it"),
    ):
        raise FileNotFoundError(2, "No such thing", "x")
    with pytest.raises(LakeError, match="as it was"), lake_errors("cannot do it"):
        raise LakeError("as it was")


def test_files_and_folders_are_flushed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    sync(tmp_path / "file")
    sync(tmp_path)


def test_small_files_are_whole_or_not_there(tmp_path: Path) -> None:
    uri = str(tmp_path)
    assert read_bytes(uri, "a/b") is None
    remove(uri, "a/b")
    for content in (b"one", b"another"):
        write_whole(child(uri, "a/b"), [content])
        assert read_bytes(uri, "a/b") == content
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    remove(uri, "a/b")
    assert read_bytes(uri, "a/b") is None
    with pytest.raises(LakeError, match=f"cannot read {tmp_path}/a: "):
        read_bytes(uri, "a")
    for name in ("a/b", "a/c/d", "e"):
        write_whole(child(uri, name), [])
    clear(uri, "a")
    clear(uri, "nothing")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["e"]
