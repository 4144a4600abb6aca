"""The `rove` command itself: finding commands, ending well, failing in one line."""

import argparse
import subprocess
import sys
import types

import pytest

from rove import RoveError, __version__
from rove.cli import COMMANDS, Command, main
from tests.effort import PATIENCE_S

PROBE = "rove_probe_command"


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A command `probe --number N` whose `run` each test sets as it likes."""
    module = types.ModuleType(PROBE)

    def configure(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--number", type=int)

    module.__dict__.update(configure=configure, run=lambda arguments: 0)
    monkeypatch.setitem(sys.modules, PROBE, module)
    monkeypatch.setitem(COMMANDS, "probe", Command(PROBE, "exist for this test"))
    return module


def raising(error: BaseException) -> types.FunctionType:
    def run(arguments: argparse.Namespace) -> int:
        raise error

    assert isinstance(run, types.FunctionType)
    return run


def rove(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rove", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)


class TestHelp:
    def test_lists_every_command(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--help"]) == 0
        out = capsys.readouterr().out
        assert all(name in out and command.summary in out for name, command in COMMANDS.items())

    def test_is_the_answer_to_no_arguments(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--help"]) == 0
        asked = capsys.readouterr().out
        assert main([]) == 0
        assert capsys.readouterr().out == asked

    @pytest.mark.parametrize("name", COMMANDS)
    def test_every_command_has_its_own(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([name, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"usage: rove {name} ")

    def test_imports_no_command_and_nothing_heavy(self) -> None:
        script = "import sys, rove.cli; rove.cli.main(['--help']); print(*sorted(sys.modules))"
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        loaded = set(done.stdout.splitlines()[-1].split())
        assert "rove.cli" in loaded
        assert loaded.isdisjoint({"rich", "msgspec", "numpy", "numba", "asyncio", "json"})
        assert loaded.isdisjoint(command.module for command in COMMANDS.values())
        assert {name for name in loaded if name.startswith("rove.")} == {"rove.cli", "rove.errors"}


class TestCommands:
    def test_exit_with_what_they_return(self, probe: types.ModuleType) -> None:
        probe.__dict__["run"] = lambda arguments: int(arguments.number)
        assert main(["probe", "--number", "3"]) == 3

    def test_version_is_also_an_option(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--version"]) == 0
        assert capsys.readouterr().out == f"rove {__version__}\n"

    def test_python_m_rove_is_rove(self) -> None:
        done = rove("--version")
        assert (done.returncode, done.stdout, done.stderr) == (0, f"rove {__version__}\n", "")


class TestErrors:
    @pytest.mark.parametrize(
        ("words", "complaint"),
        [
            (["verison"], "there is no command 'verison'; did you mean `version`?"),
            (["zzz"], "there is no command 'zzz'; `rove --help` lists the commands"),
            ([""], "there is no command ''; `rove --help` lists the commands"),
            (["a\nb"], r"there is no command 'a\nb'; `rove --help` lists the commands"),
            (["--nope"], "unrecognized arguments: --nope (see `rove --help`)"),
            (["version", "x\ny"], "unrecognized arguments: x y (see `rove version --help`)"),
            (["version", "--js"], "unrecognized arguments: --js (see `rove version --help`)"),
        ],
    )
    def test_a_wrong_command_line_gets_one_line(
        self, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(words) == 2
        captured = capsys.readouterr()
        assert captured.err == f"rove: error: {complaint}\n"
        assert captured.out == ""

    def test_a_malformed_value_is_named(
        self, probe: types.ModuleType, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["probe", "--number", "many"]) == 2
        assert "argument --number: invalid int value: 'many'" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("error", "line"),
        [
            (RoveError("no such\nthing"), "no such thing"),
            (FileNotFoundError(2, "No such file", "a b"), "No such file: 'a b'"),
            (OSError("disk on fire"), "disk on fire"),
            (
                KeyError("x"),
                "a bug in rove, KeyError: 'x' (run it again with --debug to see where)",
            ),
        ],
    )
    def test_every_error_is_one_line(
        self,
        error: Exception,
        line: str,
        probe: types.ModuleType,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        probe.__dict__["run"] = raising(error)
        assert main(["probe"]) == 2
        assert capsys.readouterr().err == f"rove: error: {line}\n"

    def test_an_error_of_the_language_keeps_its_caret(
        self,
        probe: types.ModuleType,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        class LanguageError(ValueError):
            pass

        stand_in = types.ModuleType("rove.lang.errors")
        stand_in.__dict__["LanguageError"] = LanguageError
        monkeypatch.setitem(sys.modules, "rove.lang.errors", stand_in)
        probe.__dict__["run"] = raising(LanguageError("what?\n  a >> 1\n    ^"))
        assert main(["probe"]) == 2
        assert capsys.readouterr().err == "rove: error: what?\n  a >> 1\n    ^\n"

    @pytest.mark.parametrize("words", [["--debug", "probe"], ["probe", "--debug"]])
    def test_debug_shows_the_traceback_on_either_side_of_the_command(
        self, words: list[str], probe: types.ModuleType, capsys: pytest.CaptureFixture[str]
    ) -> None:
        probe.__dict__["run"] = raising(RoveError("broken"))
        assert main(words) == 2
        err = capsys.readouterr().err
        assert err.startswith("Traceback (most recent call last):")
        assert err.endswith("rove: error: broken\n")


class TestEnds:
    def test_ctrl_c_is_quiet(
        self, probe: types.ModuleType, capsys: pytest.CaptureFixture[str]
    ) -> None:
        probe.__dict__["run"] = raising(KeyboardInterrupt())
        assert main(["probe"]) == 130
        assert capsys.readouterr() == ("", "")

    def test_a_reader_that_went_away_is_no_complaint(self) -> None:
        script = "import sys, rove.cli; sys.stdin.read(); sys.exit(rove.cli.main(['version']))"
        with subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            process.stdout.close()
            process.stdout = None
            _, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, err) == (141, b"")
