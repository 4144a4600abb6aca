"""`rove policy check` and `test`; and what docs/policies.md says is so."""

from __future__ import annotations

import io
import json
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rove.cli import main
from rove.policy.compiler import compiled
from rove.policy.limits import PolicyLimits
from rove.policy.signatures import FUNCTIONS
from rove.policy.trial import PolicyTrial

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs" / "policies.md"
ICU = ROOT / "docs" / "examples" / "icu.policy"

KEEPS = """
def arrived(m, me):
    me.last = m.pulse
    if m.pulse > 100:
        return [keep(m, "pulse"), message(alarm=True)]
    return m if me.battery > 0.5 else keep(m, "pulse")
"""
LOOPS = "def arrived(m, me):\n    while m.forever:\n        pass\n    return m\n"


def written(folder: Path, text: str, name: str = "x.policy") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def lines_of(folder: Path, *records: Any) -> str:
    lines = [line if isinstance(line, str) else json.dumps(line) for line in records]
    return written(folder, "\n".join(lines), "messages.jsonl")


# --- check ----------------------------------------------------------------------------------------


def test_check_says_what_a_policy_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "check", str(ICU)]) == 0
    told = capsys.readouterr().out
    assert "uses clamp, compress, every, get, max, message, min, round" in told
    assert "in a worker" in told


def test_check_names_line_and_caret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = written(
        tmp_path, "def arrived(m, me):\n    f = lambda x: x\n    return m\n", "bad.policy"
    )
    assert main(["policy", "check", bad, str(ICU)]) == 1
    said = capsys.readouterr()
    assert said.err.splitlines()[0].startswith(f"{bad}: line 2: there is no lambda")
    assert said.err.splitlines()[1:] == ["      f = lambda x: x", "          ^"]
    assert "a policy of" in said.out, "the others are looked at all the same"


def test_check_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = written(tmp_path, "import os\n", "bad.policy")
    assert main(["policy", "check", "--json", bad, str(ICU)]) == 1
    refused, fine = map(json.loads, capsys.readouterr().out.splitlines())
    assert (refused["ok"], refused["line"], refused["column"]) == (False, 1, 1)
    assert (fine["ok"], fine["is_heavy"], fine["changes_state"]) == (True, True, True)


def test_what_cannot_be_read_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bytes.policy").write_bytes(b"\xff\xfe")
    assert main(["policy", "check", str(tmp_path / "bytes.policy")]) == 2
    assert main(["policy", "check", str(tmp_path / "none.policy")]) == 2
    assert "is not UTF-8" in capsys.readouterr().err


# --- test -----------------------------------------------------------------------------------------


def trial(folder: Path, text: str, records: list[Any], *more: str) -> int:
    words = [written(folder, text), "--messages", lines_of(folder, *records), *more]
    return main(["policy", "test", *words])


def test_input_and_output_stand_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    records = [{"pulse": 71, "spo2": 97}, {"$me": {"battery": 0.3}}, {"pulse": 72, "spo2": 96}]
    state = ["--state", '{"battery": 0.9}', "--every-s", "5"]
    assert trial(tmp_path, KEEPS, records, *state) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["#", "at", "topic,", "and", "what", "came", "what", "is", "sent"]
    del lines[0]
    assert re.fullmatch(r"   1       0 s  test +as it came +\d+ steps? +[\d.]+ [µm]s", lines[0])
    assert [line.split() for line in lines[1:4]] == [
        ["pulse", "71", "71"],
        ["spo2", "97", "97"],
        ["me.last", "+", "71"],
    ]
    assert re.fullmatch(r"   2       5 s  test +changed +\d+ steps? +[\d.]+ [µm]s", lines[4])
    assert [line.split() for line in lines[5:8]] == [
        ["pulse", "72", "72"],
        ["spo2", "96", "-"],
        ["me.last", "71", "~", "72"],
    ]
    assert lines[9].startswith("2 messages (44 B), 2 sent (34 B), 1 as they came, 1 changed")
    assert max(map(len, lines[:8])) <= 80


def test_several_outputs_stand_below_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trial(tmp_path, KEEPS, [{"pulse": 140, "spo2": 97}]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert "2 messages" in lines[0]
    assert [line.split() for line in lines[1:4]] == [
        ["pulse", "140", "140"],
        ["spo2", "97", "-"],
        ["alarm", "+", "true"],
    ]


def test_stopped_calls_are_told_and_known_by_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = ["--steps-max", "100", "--offences-max", "2", "--brief"]
    assert trial(tmp_path, LOOPS, [{"forever": True}] * 3, *few) == 1
    out = capsys.readouterr().out
    assert len(re.findall(r"steps: line [23]: ", out)) == 2
    assert "one stop too many: it is suspended" in out
    assert "2 stopped (2 by steps), 1 while suspended" in out


def test_lines_that_cannot_be_read_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trial(tmp_path, LOOPS, ["{", {"x": 1}]) == 2
    said = capsys.readouterr()
    assert "line 1, left out: not JSON" in said.err
    assert "1 message (7 B)" in said.out


def test_one_object_a_line_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = ["--start", "2026-11-17T08:00", "--state", '{"battery": 0.1}', "--json"]
    records = [{"pulse": 71, "x": 1}, {"topic": "a", "base64": "AAE="}]
    assert (
        trial(tmp_path, "def arrived(m, me):\n    me.h = hour()\n    return m\n", records, *start)
        == 0
    )
    first, second, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["at"], first["verdict"], first["topic"]) == (1794902400.0, "passed", "test")
    assert first["input"] == first["outputs"][0] == {"pulse": 71, "x": 1}
    assert first["me"] == {"battery": 0.1, "h": 8}
    assert second["outputs"] == [{"payload": {"base64": "AAE="}}]
    assert "me" not in second, "nothing changed"
    assert summary["summary"]["calls"] == 2


def test_messages_come_through_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"forever": false}\n')))
    words = ["policy", "test", written(tmp_path, LOOPS), "--messages", "-", "--brief"]
    assert main(words) == 0
    assert "1 as they came" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--state", "[1]"], "must be a JSON object"),
        (["--start", "noon"], "--start takes"),
        (["--steps-max", "0"], "not a whole number"),
    ],
)
def test_bad_options(
    words: list[str], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trial(tmp_path, LOOPS, [{}], *words) == 2
    assert what in capsys.readouterr().err


def test_a_refused_policy_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trial(tmp_path, "def arrived(m, me):\n    return m.x.y()\n", [{}]) == 2
    assert capsys.readouterr().err.splitlines()[-1].strip() == "^"


# --- the guide ------------------------------------------------------------------------------------


def blocks() -> list[str]:
    text = GUIDE.read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_every_policy_of_the_guide_is_one() -> None:
    policies = [block for block in blocks() if "def arrived" in block and ">>>" not in block]
    assert len(policies) >= 2
    for text in policies:
        compiled(text, bytes_max=PolicyLimits().text_bytes_max)


@pytest.mark.parametrize("block", [block for block in blocks() if "→" in block])
def test_every_arrow_of_the_guide_is_right(block: str) -> None:
    trial = PolicyTrial(block)
    lines = [line[2:] for line in block.splitlines() if "  →  " in line]
    assert lines
    for line in lines:
        came, _, sent = line.partition("  →  ")
        message = json.loads(came)
        tried = trial.show(message.encode() if isinstance(message, str) else message)
        if sent.startswith("stopped"):
            assert tried.stopped is not None, line
            assert f"stopped: {tried.stopped.kind}" == sent
            continue
        assert tried.stopped is None, (line, tried.stopped)
        found = [{k: v for k, v in one.items() if k != "topic"} for one in tried.messages]
        expected = [] if sent == "nothing" else [json.loads(one) for one in sent.split(" and ")]
        assert found == expected, line


def test_the_case_study_is_the_example() -> None:
    assert f"```python\n{ICU.read_text(encoding='utf-8')}```" in GUIDE.read_text(encoding="utf-8")


def test_the_first_example_is_the_one_to_try() -> None:
    phone = (ROOT / "docs" / "examples" / "phone.policy").read_text(encoding="utf-8")
    assert blocks()[0] == phone


def test_the_example_of_the_guide_runs(
    broker_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = runpy.run_path(str(ROOT / "docs" / "examples" / "icu.py"))
    names = example["main"].__globals__
    for name, value in {"SECONDS": 2.4, "TOLD_S": 99.0, "REPORT_S": 0.5}.items():
        monkeypatch.setitem(names, name, value)
    doctors = example["main"](broker_url)
    assert [doctor.policy is None for doctor in doctors] == [False, True] * 3
    assert all(doctor.messages > 0 for doctor in doctors if "bad spot" not in doctor.name)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["doctor", "battery", "network"]
    assert [line.partition(",")[0] for line in lines[2:8:2]] == list(example["DEVICES"])


def rows() -> Iterator[list[str]]:
    for line in GUIDE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def code(cell: str) -> str:
    return cell.strip("` ")


def test_every_example_gives_what_the_guide_says() -> None:
    examples = [(code(row[2]), code(row[3])) for row in rows() if len(row) == 4 and "`" in row[3]]
    assert len(examples) >= 30
    for expression, value in examples:
        expected = result_of(f"message({{'r': {value}}})")["r"]
        inside = result_of(f"message(r={expression})")
        found = inside["r"] if inside else result_of(expression)
        assert (found, type(found)) == (expected, type(expected)), expression


def result_of(expression: str) -> dict[str, Any]:
    """The message that an expression gives; an empty one if it is none."""
    tried = PolicyTrial(f"def arrived(m, me):\n    return {expression}\n").show({})
    return {k: v for one in tried.messages for k, v in one.items() if k != "topic"}


def test_every_function_stands_in_the_guide_with_an_example() -> None:
    named = set(re.findall(r"`(\w+)\(", " ".join(row[0] for row in rows())))
    assert FUNCTIONS.keys() <= named
    run = " ".join([*(row[2] for row in rows() if len(row) == 4), *blocks()])
    assert FUNCTIONS.keys() <= set(re.findall(r"\b(\w+)\(", run))


def test_every_limit_stands_in_the_guide_with_its_default() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for name in PolicyLimits.__struct_fields__:
        assert f"`{name}`" in text or f"`{name} =" in text, name
    for name in ("steps_max", "inline_steps_max", "time_ms", "outputs_max", "offences_max"):
        default = getattr(PolicyLimits(), name)
        assert re.search(rf"`{name}`[^\n]*?\b{default:,}\b", text), (name, default)
