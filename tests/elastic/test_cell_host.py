"""Matchers do as they are told; what they cannot do ends the cell, and they say so once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rove.elastic import cell_host
from rove.elastic.cell_host import CellHost, arrays_of, matched_of
from rove.elastic.commands import (
    Add,
    AnyCommand,
    AnyReply,
    ChangeState,
    Close,
    Failed,
    Match,
    MatchReply,
    MatchRow,
    Open,
    Remove,
    Save,
    Saved,
    Unsaved,
    encoded_rows,
)
from rove.lang.attributes import attributes_of
from rove.match.cell import CellMatches
from rove.match.patterns import automaton
from tests.elastic.conftest import row

RANKED = "ORDER BY x LIMIT 1 WITHIN 10 SECONDS"


class Host:
    """A host whose files are in memory, and a clock that goes on by a second at each look."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.seconds = 0.0
        self.is_full = False
        self.host = CellHost(lambda path: memoryview(self.files[path]), self.write, self.clock)

    def write(self, path: str, parts: Sequence[bytes | memoryview]) -> None:
        if self.is_full:
            raise OSError(28, "no room")
        self.files[path] = b"".join(parts)

    def clock(self) -> float:
        self.seconds += 1.0
        return self.seconds

    def do(self, *commands: AnyCommand) -> list[AnyReply]:
        return [reply for command in commands for reply in self.host.handle(command)]

    def asked(self, cell: int, *rows: MatchRow, advance_to: float | None = None) -> MatchReply:
        [reply] = self.do(Match(cell, 1, 7, encoded_rows(rows), advance_to))
        assert isinstance(reply, MatchReply)
        return reply


def met(found: MatchReply) -> dict[int, list[int]]:
    return {number: sorted(ids) for number, ids in matched_of(found).by_row()}


def failed(replies: list[AnyReply]) -> Failed:
    [reply] = replies
    assert isinstance(reply, Failed)
    return reply


class TestCommands:
    def test_everything_but_questions_is_done_without_a_word(self) -> None:
        host = Host()
        assert (
            host.do(
                Open(1),
                Add(1, 1, "x > me.x", 1, 0.0, {"x": 5}),
                Add(1, 2, "x > 1", 1, 0.0),
                ChangeState(1, 1, {"x": 3}),
                Remove(1, [2]),
            )
            == []
        )
        assert host.host.subscriptions == 1
        assert met(host.asked(1, row(1, x=4), row(2, x=3))) == {0: [1]}
        assert host.do(Close(1)) == []
        assert not host.host.cells

    def test_an_answer(self) -> None:
        host = Host()
        host.do(Open(1), Add(1, 1, "x > 5", 1, 0.0), Add(1, 2, RANKED, 1, 0.0))
        found = host.asked(1, row(1, x=6), row(2, x=7))
        assert (found.cell, found.part, found.took_s) == (1, 7, 1.0)
        assert met(found) == {0: [1], 1: [1]}
        assert [(one.subscription, one.number, one.promoted) for one in found.ranked] == [
            (2, 1, False)
        ]
        assert 11.0 <= found.next_change_at < 12.1

    def test_windows_slide_after_the_rows(self) -> None:
        host = Host()
        host.do(Open(1), Add(1, 2, RANKED, 1, 0.0))
        found = host.asked(1, row(1, x=6), row(2, x=7), advance_to=11.5)
        assert [(one.number, one.promoted) for one in found.ranked] == [(1, False), (2, True)]

    def test_a_probe_says_that_all_before_it_is_done(self) -> None:
        host = Host()
        host.do(Open(1))
        [reply] = host.do(Match(1, -1, -1, encoded_rows([])))
        assert isinstance(reply, MatchReply)
        assert (reply.part, reply.counts, reply.ids, reply.ranked) == (-1, b"", b"", [])

    def test_a_cell_is_saved_and_begins_elsewhere(self) -> None:
        host = Host()
        host.do(Open(1), Add(1, 1, "x > 5", 1, 0.0), Add(1, 2, RANKED, 1, 0.0))
        host.asked(1, row(1, x=6))
        assert host.do(Save(1, "a")) == [Saved(1, "a", [1])]
        host.do(Open(2, "a"))
        assert host.host.subscriptions == 4
        assert met(host.asked(2, row(2, x=6))) == {0: [1]}

    def test_opening_again_begins_anew(self) -> None:
        host = Host()
        host.do(Open(1), Add(1, 1, "x > 5", 1, 0.0), Open(1))
        assert host.host.subscriptions == 0

    def test_a_subscription_that_evolves_by_a_design(self) -> None:
        host = Host()
        host.do(Open(1), Add(1, 1, "x > t", 1, 0.0, None, "pes 500ms"))
        assert host.host.cells[1].stateful_ids() == {1}
        assert met(host.asked(1, row(1, x=3), row(2, x=1))) == {0: [1]}


class TestFailures:
    @pytest.mark.parametrize(
        "command",
        [
            Open(1, "nowhere"),
            Add(1, 2, "x >", 1, 0.0),
            Add(1, 1, "x > 5", 1, 0.0),
            Add(1, 2, "x > 5", 1, float("nan")),
            Add(1, 2, RANKED, 1, 0.0, None, "lees"),
            Remove(1, [1, 2]),
            ChangeState(1, 2, {"x": 1}),
            Save(1, "full/a"),
            Match(1, 1, 1, encoded_rows([row(1)])),
        ],
        ids=lambda command: type(command).__name__,
    )
    def test_a_cell_that_cannot_do_as_it_is_told_is_ended(
        self, command: AnyCommand, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host = Host()
        host.do(Open(1), Add(1, 1, "x > 5", 1, 0.0), Open(2))
        if isinstance(command, Match):
            monkeypatch.setattr(cell_host, "arrays_of", None)
        if isinstance(command, Save):
            monkeypatch.setattr(host.host, "_write", None)
        reply = failed(host.do(command))
        assert reply.cell == 1
        assert reply.text.startswith(f"{type(command).__name__}: ")
        assert list(host.host.cells) == [2], "the other goes on"

    def test_a_cell_that_cannot_be_written_is_as_it_was(self) -> None:
        host = Host()
        host.do(Open(1), Add(1, 1, "x > 5", 1, 0.0))
        host.is_full = True
        [reply] = host.do(Save(1, "a"))
        assert reply == Unsaved(1, "a", "[Errno 28] no room")
        assert met(host.asked(1, row(1, x=6))) == {0: [1]}

    def test_it_is_said_once(self) -> None:
        host = Host()
        host.do(Open(1))
        failed(host.do(Remove(1, [1])))
        assert host.do(Add(1, 1, "x > 5", 1, 0.0), Save(1, "a"), Remove(1, [1])) == []
        assert not host.files

    def test_until_the_cell_is_opened_again(self) -> None:
        host = Host()
        host.do(Open(1))
        failed(host.do(Remove(1, [1])))
        assert host.do(Remove(1, [2]), Open(1), Add(1, 1, "x > 5", 1, 0.0)) == []
        assert met(host.asked(1, row(1, x=6))) == {0: [1]}
        failed(host.do(Remove(1, [2])))

    def test_a_cell_that_failed_can_be_closed(self) -> None:
        host = Host()
        host.do(Open(1))
        failed(host.do(Remove(1, [1])))
        assert host.do(Close(1)) == []
        failed(host.do(Remove(1, [1])))

    def test_a_cell_that_was_never_opened(self) -> None:
        assert failed(Host().do(Remove(3, [1]))).cell == 3


class TestRows:
    def test_the_same_rows_for_two_cells_are_read_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host = Host()
        for cell in (1, 2):
            host.do(Open(cell), Add(cell, cell, "x > 5", 1, 0.0))
        read = list[bytes]()

        def counted(topic: str, payload: bytes, user: Sequence[tuple[str, str]]):  # type: ignore[no-untyped-def]
            read.append(payload)
            return attributes_of(topic, payload, user)

        monkeypatch.setattr(cell_host, "attributes_of", counted)
        assert met(host.asked(1, row(1, x=6))) == {0: [1]}
        assert met(host.asked(2, row(1, x=6))) == {0: [2]}
        assert len(read) == 1
        assert met(host.asked(2, row(1, x=7))) == {0: [2]}
        assert len(read) == 2

    def test_a_payload_is_not_read_for_nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        host = Host()
        host.do(Open(1), Add(1, 1, "x > 5", 1, 0.0))
        monkeypatch.setattr(cell_host, "attributes_of", None)
        assert met(host.asked(1, row(1, filters=(), x=6))) == {}

    def test_topic_payload_and_properties_are_attributes(self) -> None:
        host = Host()
        host.do(Open(1), Add(1, 1, "topic = 'a/b' AND x = 1 AND lang = 'hr'", 1, 0.0))
        found = host.asked(1, MatchRow(1, "a/b", b'{"x": 1}', (("lang", "hr"),), 0.0, (1,)))
        assert met(found) == {0: [1]}

    def test_who_was_passed_over_is_said_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(automaton, "PATTERN_STEPS_MAX", -64 * 2)
        host = Host()
        host.do(Open(1), Add(1, 5, "s LIKE '%x%y%'", 1, 0.0), Add(1, 6, "s LIKE 'x%'", 1, 0.0))
        found = host.asked(1, row(1, s="xy"))
        assert (met(found), found.undecided) == ({0: [6]}, [5])
        assert host.asked(1, row(2, s="z")).undecided == []


@pytest.mark.parametrize("counts", [[], [0, 2, 0, 1], [0, 0]])
def test_matches_travel_as_arrays(counts: list[int]) -> None:
    ids = np.arange(sum(counts), dtype=np.int64) + 2**62
    there = CellMatches(counts, ids, [])
    found = MatchReply(1, 1, *arrays_of(there), [], 0.0, 0.0)
    assert list(matched_of(found).by_row()) == list(there.by_row())


def test_index_work_is_done_beside() -> None:
    host = Host()
    host.do(Open(1))
    added = 0
    while (work := host.host.merge_due()) is None:
        host.do(Add(1, added, f"x > {added % 50}", 1, 0.0))
        added += 1
    assert added > 1
    work.run()
    host.do(Remove(1, [0]))
    host.host.install(work)
    assert len(met(host.asked(1, row(1, x=100)))[0]) == added - 1
