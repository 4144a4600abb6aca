"""`make soak` in parts: what has passed is not done again, until something is committed."""

import contextlib
from pathlib import Path

from tests.soak import Outcome, State, line, parts, run_all, run_part


def test_every_folder_is_a_part(tmp_path: Path) -> None:
    for name in ("match/test_a.py", "lang/test_b.py", "test_tidy.py", "effort.py", "data/x.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert parts(tmp_path) == {
        "lang": [tmp_path / "lang"],
        "match": [tmp_path / "match"],
        "rest": [tmp_path / "test_tidy.py"],
    }


def test_a_module_may_be_a_part_of_its_own(tmp_path: Path) -> None:
    for name in ("interop/test_a.py", "interop/test_spark_versions.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert parts(tmp_path) == {
        "interop": [tmp_path / "interop" / "test_a.py"],
        "spark-versions": [tmp_path / "interop" / "test_spark_versions.py"],
        "rest": [],
    }


def test_no_test_is_in_no_part() -> None:
    tests = Path(__file__).parent
    in_parts = [
        file
        for paths in parts(tests).values()
        for path in paths
        for file in (path.rglob("test_*.py") if path.is_dir() else [path])
    ]
    assert sorted(in_parts) == sorted(tests.rglob("test_*.py"))


def test_what_has_passed_is_skipped_and_the_rest_is_done_again(tmp_path: Path) -> None:
    state_file = tmp_path / "soak.json"
    done: list[str] = []

    def run(part: str) -> Outcome:
        done.append(part)
        if done.count("match") == 2:
            raise KeyboardInterrupt
        return Outcome(part != "match", 3723.4, "7 passed")

    wanted = ["lang", "match", "world"]
    first = run_all(wanted, State(state_file, "c0ffee"), run)
    assert first[0] == "passed  lang             1:02:03  7 passed"
    assert [said.split()[0] for said in first] == ["passed", "FAILED", "passed"]
    with contextlib.suppress(KeyboardInterrupt):
        run_all(wanted, State(state_file, "c0ffee"), run)
    assert run_all(wanted, State(state_file, "c0ffee"), run)[2] == first[2]
    assert done == ["lang", "match", "world", "match", "match"]
    run_all(["lang"], State(state_file, "another"), run)
    assert done[-1] == "lang"


def test_a_damaged_state_is_none(tmp_path: Path) -> None:
    (tmp_path / "soak.json").write_text("{")
    assert State(tmp_path / "soak.json", "c0ffee").outcomes == {}


def test_a_part_is_run(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_a(): pass\ndef test_b(): assert 0\n")
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", "/dev/null"]
    outcome = run_part([tmp_path / "test_it.py"], options)
    assert not outcome.has_passed
    assert outcome.counts == "1 failed, 1 passed"
    assert line("it", outcome).startswith("FAILED  it")
    assert run_part([tmp_path], [*options, "-k", "nothing"]).has_passed
