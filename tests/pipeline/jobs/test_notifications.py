"""The output of `match`: what is done is done once, and it stays a bounded number of files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from rove.lake.delta import DeltaTable
from rove.lake.files import NewFile, write_file
from rove.lake.storage import LakeError
from rove.pipeline.jobs import notifications as module
from rove.pipeline.jobs.notifications import (
    SCHEMA,
    STATES,
    MatchOutput,
    OutputError,
    found_position,
    states_uri,
)
from tests.duckdb_reader import by_duckdb
from tests.effort import is_soak, share


def rows(*positions: int) -> pa.Table:
    nothing = {"id": "", "at": 0, "score": None, "promoted": False, "sequence": None}
    found = [{"subscription": 1, "position": position, **nothing} for position in positions]
    return pa.Table.from_pylist(found, SCHEMA)


def states(output: MatchOutput, last: int, *buckets: int) -> tuple[NewFile, tuple[int, ...]]:
    some = [{"bucket": each, "position": last, "state": b"x" * last} for each in buckets]
    return write_file(states_uri(output.uri), pa.Table.from_pylist(some, STATES)), buckets


def commit(output: MatchOutput, last: int, *buckets: int) -> None:
    files = [write_file(output.uri, rows(last))]
    output.commit(last, files, [states(output, last, *buckets)] if buckets else [], last)


def positions(output: MatchOutput) -> list[int]:
    return sorted(DeltaTable(output.uri).rows(["position"])["position"].to_pylist())


def test_what_is_done_is_known_again(tmp_path: Path) -> None:
    assert found_position(tmp_path) == -1
    output = MatchOutput(tmp_path, start=4)
    assert (output.position, output.done, output.sequence, output.states) == (4, 4, 0, {})
    commit(output, 9, 0, 1)
    commit(output, 20, 0, 1)
    commit(output, 30)  # nothing ranked has changed
    again = MatchOutput(tmp_path)
    assert (again.position, again.done, again.sequence) == (30, 30, 30)
    assert again.states == output.states
    assert set(again.states) == {0, 1}
    assert DeltaTable(states_uri(again.uri)).rows()["position"].to_pylist() == [20, 20]
    assert found_position(tmp_path) == 30


def test_a_batch_is_cut_where_only_the_notifications_are_there(tmp_path: Path) -> None:
    output = MatchOutput(tmp_path)
    commit(output, 9)
    output._found.commit(module.WRITER, 20, [write_file(output.uri, rows(15))])
    again = MatchOutput(tmp_path)
    assert (again.position, again.done) == (20, 9)
    assert again.missing(9, 20) == [(9, 20)]
    assert again.missing(-1, 30) == [(9, 20), (20, 30)]
    assert again.missing(5, 15) == [(9, 15)]
    assert again.missing(5, 9) == []
    commit(again, 15)
    assert again.missing(15, 40) == [(15, 20), (20, 40)]
    assert positions(again) == [9, 15], "what is there is not added again"
    with pytest.raises(OutputError, match=r"continues after position 16, but .* up to 15"):
        again.missing(16, 40)


def test_of_two_writers_one_gets_an_error(tmp_path: Path) -> None:
    one, other = MatchOutput(tmp_path), MatchOutput(tmp_path)
    commit(one, 9)
    with pytest.raises(LakeError, match="cannot write to the table"):
        commit(other, 8)
    assert positions(one) == [9]


def test_what_an_earlier_version_wrote_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "_manifests").mkdir()
    with pytest.raises(OutputError, match="was written by an earlier Rove; choose another --out"):
        MatchOutput(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["_manifests"]


def test_files_stay_few_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {"delta.deletedFileRetentionDuration": "interval 0 minutes"}
    monkeypatch.setattr(module, "_KEPT", short)
    monkeypatch.setattr(module, "_STATES_KEPT", short)
    monkeypatch.setattr(module, "TIDY_EVERY_S", 0.0)
    monkeypatch.setattr("rove.lake.compaction.SMALL_FILES_MAX", 8)
    output = MatchOutput(tmp_path)
    write_file(output.uri, rows(1000))  # a task that nobody waited for
    count = share(450)
    for last in range(count):
        commit(output, last, 0, 1)
        output.tidy()
        parts = [path for path in tmp_path.rglob("part-*.parquet") if path.is_file()]
        assert len(parts) <= 12
    assert positions(output) == list(range(count))
    assert MatchOutput(tmp_path).states == output.states


def test_others_read_it_without_us(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    output = MatchOutput(tmp_path)
    for last in (3, 5):
        commit(output, last, 0)
    assert sorted(pl.read_delta(str(tmp_path))["position"].to_list()) == [3, 5]
    query = "SELECT CAST(sum(position) AS BIGINT) AS total FROM found"
    assert by_duckdb(tmp_path, query, tmp_path_factory.mktemp("duckdb")) == [{"total": 8}]


DIES = """
import sys
from tests.pipeline.jobs.test_notifications import commit
from rove.pipeline.jobs.notifications import MatchOutput
output = MatchOutput(sys.argv[1])
print(output.done, flush=True)
for last in range(output.done + 1, 10_000):
    commit(output, last, 0, 1)
"""


def test_a_killed_process_leaves_a_whole_number_of_batches(tmp_path: Path) -> None:
    done = -1
    for delay_lines in (1, 2, 3) if is_soak() else (2,):
        process = subprocess.Popen(
            [sys.executable, "-c", DIES, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert int(process.stdout.readline()) == done
        while found_position(tmp_path) < done + 3 * delay_lines:
            assert process.poll() is None
        process.kill()
        process.communicate()
        output = MatchOutput(tmp_path)
        assert output.position - output.done in (0, 1)
        assert positions(output) == list(range(output.position + 1))
        state: dict[str, Any] = DeltaTable(states_uri(output.uri)).rows().to_pylist()[0]
        assert state["position"] == output.done
        done = output.done
