"""`rove match`: files in, notifications out; bad lines named, good ones kept."""

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rove.cli import main
from rove.cli import match as command
from rove.testing.workloads import AirQuality
from tests.effort import PATIENCE_S

SUBSCRIPTIONS = [
    "NO2 > 40",
    {"id": "area", "filter": "x BETWEEN -3 + t AND 3 + t AND y BETWEEN -2 + t AND 2 + t"},
    {"id": "me", "filter": "SELECT x WHERE x > me.x", "me": {"x": 5}},
    {"id": "best", "filter": "ORDER BY x DESC LIMIT 1 WITHIN 3 SECONDS"},
    {"id": "late", "filter": "x = 4", "at": 2},
]
PUBLICATIONS = [
    {"id": "apple", "x": 4, "y": 3},
    {"id": "pear", "at": 1, "x": 4, "y": 3},
    {"at": 1.5, "$me": {"me": {"x": 3}}},
    {"at": 2, "x": 4, "y": 3, "NO2": 41.5},
    {"at": 2.5, "id": "less", "x": 3, "y": 30},
]


def write(folder: Path, name: str, records: list[Any]) -> str:
    file = folder / name
    lines = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in records]
    file.write_bytes(b"\n".join(lines) + b"\n")
    return str(file)


def match(tmp_path: Path, subscriptions: list[Any], publications: list[Any], *more: str) -> int:
    return main(
        [
            "match",
            "--subscriptions",
            write(tmp_path, "subscriptions.jsonl", subscriptions),
            "--publications",
            write(tmp_path, "publications.jsonl", publications),
            *more,
        ]
    )


def delivered(out: str) -> list[tuple[float, str, str]]:
    found = [json.loads(line) for line in out.splitlines()]
    return [(one["at"], one["subscription"], one["publication"]) for one in found]


def test_every_kind_of_subscription_over_a_stream(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert match(tmp_path, SUBSCRIPTIONS, PUBLICATIONS, "--until", "6") == 0
    captured = capfd.readouterr()
    assert delivered(captured.out) == [
        (0, "best", "apple"),
        (1, "area", "pear"),
        (1, "best", "pear"),
        (2, "1", "4"),
        (2, "area", "4"),
        (2, "me", "4"),
        (2, "best", "4"),
        (2, "late", "4"),
        (5, "best", "less"),
    ]
    assert "5 subscriptions, 4 publications, 9 notifications, 0 lines left out" in captured.err


def test_notifications_carry_what_was_selected_and_the_score(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert match(tmp_path, SUBSCRIPTIONS, PUBLICATIONS, "--until", "6") == 0
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert next(one for one in found if one["subscription"] == "me")["attributes"] == {"x": 4}
    assert found[0]["score"] == 4
    assert "promoted" not in found[0]
    assert found[-1]["promoted"] is True


def test_bad_lines_are_named_and_lose_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    subscriptions = ["x >", *SUBSCRIPTIONS, {"filtr": "x > 1"}, 17, {"id": "me", "filter": "x = 1"}]
    publications = [
        b"nonsense",
        *PUBLICATIONS,
        [1],
        {"at": "noon", "x": 1},
        {"at": 1, "x": 1},
        b'{"x": 1e999}',
        {"$me": {"nobody": {"x": 1}}},
        {"$me": 3},
        b"\xff\xfe",
    ]
    assert match(tmp_path, subscriptions, publications, "--until", "6") == 2
    captured = capfd.readouterr()
    assert len(delivered(captured.out)) == 9
    for complaint in (
        "subscriptions.jsonl, line 1, left out: column 4",
        "unknown field `filtr`",
        "already a subscription 'me'",
        "publications.jsonl, line 1, left out: not JSON",
        "not a publication",
        "the time is a number of seconds",
        "time cannot go from 2.5 s to 1 s",
        "no subscription 'nobody'",
        "$me must name subscriptions",
        "12 lines left out",
    ):
        assert complaint in captured.err


def test_a_refused_change_of_state_does_not_swallow_promotions(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    refused = {"at": 3.5, "$me": {"nobody": {"x": 1}}}
    stream = [{"x": 2}, {"at": 1, "x": 1}, refused, {"at": 3.5, "y": 1}]
    assert match(tmp_path, ["ORDER BY x DESC LIMIT 1 WITHIN 3 SECONDS"], stream) == 2
    assert delivered(capfd.readouterr().out) == [(0, "1", "1"), (3, "1", "2")]


def test_only_the_first_complaints_are_shown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert match(tmp_path, ["TRUE"], [b"?"] * 50) == 2
    err = capfd.readouterr().err
    assert err.count("left out: ") == 20
    assert "30 more lines left out" in err


def test_output_goes_to_a_file_that_is_complete_or_absent(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    assert match(tmp_path, ["TRUE"], [{"x": 1}, {"x": 2}], "--output", str(target)) == 0
    assert len(target.read_text().splitlines()) == 2
    assert not list(tmp_path.glob("*.unfinished"))
    failing = tmp_path / "failing.jsonl"
    assert match(tmp_path, ["TRUE"], [{}], "--until", "-5", "--output", str(failing)) == 2
    assert not failing.exists()


def test_names_and_times_may_have_other_keys(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stream = [{"when": 7, "name": "a"}]
    assert match(tmp_path, ["TRUE"], stream, "--time-key", "when", "--id-key", "name") == 0
    assert delivered(capfd.readouterr().out) == [(7, "1", "a")]


def test_publications_may_come_through_a_pipe(tmp_path: Path) -> None:
    file = write(tmp_path, "s.jsonl", ["x > 1"])
    command = [
        sys.executable,
        "-m",
        "rove",
        "match",
        "--subscriptions",
        file,
        "--publications",
        "-",
    ]
    done = subprocess.run(
        command,
        input=b'{"x": 1}\n\n{"x": 2}\n',
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert delivered(done.stdout.decode()) == [(0, "1", "3")]


def test_both_from_standard_input_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["match", "--subscriptions", "-", "--publications", "-"]) == 2
    assert "only one of the two" in capfd.readouterr().err


def test_a_person_watching_sees_how_far_it_is(tmp_path: Path) -> None:
    subscriptions = write(tmp_path, "s.jsonl", ["x > 1"])
    publications = write(tmp_path, "p.jsonl", [{"x": 2}] * 200)
    controller, terminal = pty.openpty()
    words = ["match", "--subscriptions", subscriptions, "--publications", publications]
    done = subprocess.run(
        [sys.executable, "-m", "rove", *words],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm-256color"},
        check=True,
        timeout=PATIENCE_S,
    )
    os.close(terminal)
    shown = os.read(controller, 65536).decode()
    os.close(controller)
    assert "matching" in shown
    assert "200 notifications" in shown
    assert len(done.stdout.splitlines()) == 200


# -- the engine and the oracle -------------------------------------------------------------------


def written(tmp_path: Path, *more: str) -> tuple[int, bytes]:
    """Both files of the last `match`, matched again."""
    target = tmp_path / "told.jsonl"
    words = ["--subscriptions", str(tmp_path / "subscriptions.jsonl")]
    words += ["--publications", str(tmp_path / "publications.jsonl"), "--output", str(target)]
    return main(["match", *words, *more]), target.read_bytes()


def test_the_oracle_writes_the_same_bytes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    publications = [*PUBLICATIONS, b"?", {"x": 9}, {"at": 1}, {"at": 3, "$me": {"me": {"x": None}}}]
    assert match(tmp_path, SUBSCRIPTIONS, publications) == 2
    told = capfd.readouterr()
    assert written(tmp_path, "--oracle") == (2, told.out.encode())
    complaints = [line for line in told.err.splitlines() if "left out: " in line]
    assert len(complaints) == 2
    assert complaints == [
        line for line in capfd.readouterr().err.splitlines() if "left out:" in line
    ]


def test_many_lines_are_the_same_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_KERNELS_AFTER_S", 0.0)  # and so they come in the midst of it
    air = AirQuality(4)
    subscriptions = [{"id": f"é{n}", "filter": text} for n, text in enumerate(air.texts(60))]
    publications = [{"at": n / 7, **one} for n, one in enumerate(air.publications(600))]
    assert match(tmp_path, [*subscriptions, *SUBSCRIPTIONS], publications, "--until", "1e6") == 0
    told = capfd.readouterr().out.encode()
    assert written(tmp_path, "--oracle", "--until", "1e6") == (0, told)
    assert told.count(b"\n") > 100


def test_throughput_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert match(tmp_path, ["TRUE"], [{}, {}]) == 0
    err = capfd.readouterr().err
    found = re.search(
        r"loaded in [\d.]+ s, matched in [\d.]+ s: "
        r"([\d,]+) publications/s, ([\d,]+) notifications/s",
        err,
    )
    assert found is not None
    assert found.group(1) == found.group(2) != "0"


@pytest.mark.parametrize("how", [[], ["--oracle"]])
def test_notifications_can_be_counted_only(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], how: list[str]
) -> None:
    assert match(tmp_path, SUBSCRIPTIONS, PUBLICATIONS, "--until", "6", "--count", *how) == 0
    captured = capfd.readouterr()
    assert captured.out == "9\n"
    assert "9 notifications" in captured.err


def test_kernels_that_cannot_be_loaded_are_told_and_missed_by_nobody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("no cache")

    monkeypatch.setattr(command, "_KERNELS_AFTER_S", 0.0)
    monkeypatch.setattr("rove.match.warm_up", broken)
    assert match(tmp_path, ["x > 1"], [{"x": 2}] * 5_000) == 0
    captured = capfd.readouterr()
    assert len(captured.out.splitlines()) == 5_000
    assert "slower than need be: the kernels could not be loaded: no cache" in captured.err


class TestDesigns:
    """--evolve for all, `evolve` for one."""

    STREAM: ClassVar = [{"x": 4, "y": 3}, {"at": 1, "x": 4, "y": 3}]
    AREA: ClassVar[dict[str, Any]] = {"id": "area", "filter": "x BETWEEN t + 3 AND t + 4"}

    @pytest.mark.parametrize("own", [None, "clees 5s"])
    @pytest.mark.parametrize("design", [None, "exact", "pes 10s", "lees"])
    def test_all_are_known(
        self,
        tmp_path: Path,
        capfd: pytest.CaptureFixture[str],
        design: str | None,
        own: str | None,
    ) -> None:
        how = [] if design is None else ["--evolve", design]
        assert match(tmp_path, [{**self.AREA, "evolve": own}], self.STREAM, *how) == 0
        assert [at for at, _, _ in delivered(capfd.readouterr().out)] == [0, 1]

    def test_a_periodic_one_is_as_old_as_it_may_be(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        moved_on = [{"x": 3.5}, {"at": 2, "x": 3.5}, {"at": 2, "x": 5.5}]
        assert match(tmp_path, [{**self.AREA, "evolve": "pes 10s"}], moved_on) == 0
        assert [one[2] for one in delivered(capfd.readouterr().out)] == ["1", "2"]
        assert match(tmp_path, [self.AREA], moved_on) == 0
        assert [one[2] for one in delivered(capfd.readouterr().out)] == ["1", "3"]

    def test_bad_ones_are_refused(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert match(tmp_path, [self.AREA], self.STREAM, "--evolve", "magic") == 2
        assert "there is no design magic" in capfd.readouterr().err
        assert match(tmp_path, [{**self.AREA, "evolve": "pes"}, self.AREA], self.STREAM) == 2
        captured = capfd.readouterr()
        assert "line 1, left out: column 1: pes needs an interval" in captured.err
        assert len(delivered(captured.out)) == 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--oracle", "--evolve", "lees"], "the oracle knows no designs"),
        (["--count", "--output", "x"], "--count writes no notifications"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    capfd: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert main(["match", "--subscriptions", "-", "--publications", "p", *words]) == 2
    assert complaint in capfd.readouterr().err
