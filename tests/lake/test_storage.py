"""Locations are resolved once and shown without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from rove.lake.storage import LakeError, child, folder_of, one_line, resolved, shown, told


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
    with pytest.raises(LakeError, match=r"^cannot do it: No such thing$"), told("cannot do it"):
        raise FileNotFoundError(2, "No such thing", "x")
    with pytest.raises(LakeError, match="as it was"), told("cannot do it"):
        raise LakeError("as it was")
