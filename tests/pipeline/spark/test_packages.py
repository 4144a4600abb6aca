"""What is written for `spark-submit` and for images can be installed, and is what runs here."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import rove
from rove.pipeline.spark import executors
from rove.pipeline.spark.packages import PackagingError, write_packages, write_wheel

LOOK = "import importlib.metadata as m, rove; print(rove.__file__, *m.requires('rove'), sep='\\n')"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wheel") / f"rove-{rove.__version__}-py3-none-any.whl"
    write_wheel(path)
    return path


def test_the_record_has_every_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        (record,) = [name for name in opened.namelist() if name.endswith("/RECORD")]
        lines = list(csv.reader(opened.read(record).decode().splitlines()))
        assert sorted(name for name, _, _ in lines) == sorted(opened.namelist())
        for name, digest, size in lines:
            content = opened.read(name)
            if name != record:
                made = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()
                assert (digest, size) == (f"sha256={made.rstrip('=')}", str(len(content)))
        names = {name.partition("/")[2] for name in opened.namelist()}
    assert {
        "METADATA",
        "WHEEL",
        "entry_points.txt",
        "py.typed",
        "pipeline/spark/executors.py",
    } <= names
    assert any(name.endswith("/LICENSE") for name in names)


def test_the_same_package_is_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    write_wheel(tmp_path / "other.whl")
    assert (tmp_path / "other.whl").read_bytes() == wheel.read_bytes()


def test_it_can_be_installed_without_a_network(wheel: Path, tmp_path: Path) -> None:
    place = ("--target", str(tmp_path / "place"), "--no-deps", "--offline", "--quiet")
    command = [sys.executable, "-m", "uv", "pip", "install", *place, str(wheel)]
    subprocess.run(command, check=True, env={**os.environ, "UV_CACHE_DIR": str(tmp_path / "uv")})
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "place")}
    done = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, text=True, env=environment, check=True
    )
    file, *required = done.stdout.splitlines()
    assert file == str(tmp_path / "place" / "rove" / "__init__.py")
    assert any(line.startswith("pyspark") for line in required)


def test_both_are_written_where_they_shall_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "kernel_files", dict)  # tests/interop/test_submit.py
    found = write_packages(tmp_path / "deep" / "dist")
    assert found.wheel.name == f"rove-{rove.__version__}-py3-none-any.whl"
    assert "match/index/search_kernels.py" in zipfile.ZipFile(found.archive).namelist()
    (tmp_path / "file").touch()
    with pytest.raises(PackagingError, match=r"cannot write in .*file: "):
        write_packages(tmp_path / "file")


def test_another_installed_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rove, "__version__", "99.0")
    with pytest.raises(PackagingError, match=r"Rove 99\.0 runs here, but .* install it again"):
        write_wheel(tmp_path / "rove.whl")

    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    with pytest.raises(PackagingError, match="Rove is not installed here"):
        write_wheel(tmp_path / "rove.whl")
