"""What a matcher process does with commands; here in a thread, at one end of a socket pair."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from rove.elastic.cell_host import CellHost
from rove.elastic.commands import (
    Add,
    AnyCommand,
    Close,
    Failed,
    Match,
    MatchReply,
    MatchRow,
    Open,
    Replies,
    Save,
    Saved,
    decoded_replies,
    encoded_commands,
    encoded_rows,
)
from rove.match import engine
from rove.match.matcher import Work
from rove.serve.workers import matcher_process
from rove.serve.workers.children import HEADER
from rove.serve.workers.matcher_process import (
    MERGE_THREAD,
    MatcherWorker,
    Merges,
    asks,
    mapped,
    rows_in,
    save,
)
from tests.effort import PATIENCE_S


class Line:
    """The broker's end of a socket pair whose other end is served."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self._ours, self._theirs = socket.socketpair()
        self._ours.settimeout(PATIENCE_S)
        self._sent = 0
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        host = CellHost(mapped, save, time.perf_counter)
        try:
            with self._theirs:
                MatcherWorker(self._theirs, host).run()
        except Exception as error:
            self.error = error

    def say(self, *commands: AnyCommand) -> None:
        self.say_bytes(encoded_commands(commands))

    def say_bytes(self, message: bytes) -> None:
        self._sent += 1
        self._ours.sendall(HEADER.pack(len(message), self._sent) + message)

    def hear(self) -> tuple[int, Replies]:
        """The number of the last frame that was done, and what is said."""
        length, done = HEADER.unpack(self._heard(HEADER.size))
        return done, decoded_replies(self._heard(length))

    def _heard(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._ours.recv(size - len(data))
            assert more, "the other end was closed"
            data += more
        return data

    def join(self) -> None:
        """Wait until the other end is served no more."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self._ours.close()
        self.join()


@pytest.fixture
def line() -> Iterator[Line]:
    engine.warm_up()
    line = Line()
    assert line.hear()[1].replies == []  # it is there
    yield line
    line.close()


def rows(*values: int) -> msgspec.Raw:
    return encoded_rows(
        [MatchRow(number, "a", b'{"x": %d}' % x, (), 1.0, (7,)) for number, x in enumerate(values)]
    )


def test_commands_are_carried_out_and_those_that_ask_are_answered(
    line: Line, tmp_path: Path
) -> None:
    line.say(Open(1), Add(1, 10, "x > 1", 7, 0.0), Add(1, 11, "x > 2", 7, 0.0))
    line.say(Match(1, 5, 3, rows(1, 2, 3)))
    done, said = line.hear()
    (found,) = said.replies
    assert isinstance(found, MatchReply)
    assert (done, found.cell, found.part) == (2, 1, 3)
    assert np.frombuffer(found.counts, np.int32).tolist() == [0, 1, 2]
    assert sorted(np.frombuffer(found.ids, np.int64).tolist()) == [10, 10, 11]
    assert (said.messages, said.subscriptions) == (3, 2)
    path = str(tmp_path / "cell")
    line.say(Save(1, path), Open(2, path), Close(1), Match(2, 6, 0, rows(3)))
    done, said = line.hear()
    saved, found = said.replies
    assert isinstance(saved, Saved)
    assert isinstance(found, MatchReply)
    assert (saved.cell, saved.path, len(found.ids)) == (1, path, 2 * 8)
    assert (done, said.messages, said.subscriptions) == (3, 1, 2)


def test_a_ticket_is_counted_once_and_time_is_busy_or_waiting(line: Line) -> None:
    line.say(Open(1), Open(2))
    line.say(*(Match(cell, 8, cell, rows(1, 2)) for cell in (1, 2)))
    _, first = line.hear()
    line.say(Match(1, 8, 1, rows(1, 2)), Match(1, 9, 1, rows(1)))
    _, second = line.hear()
    assert (first.messages, second.messages) == (2, 1)
    assert len(first.replies) == len(second.replies) == 2
    assert first.busy_s > 0
    assert second.busy_s > 0
    lived_s = time.perf_counter() - line.began
    assert first.busy_s + first.waited_s + second.busy_s + second.waited_s < lived_s


def test_a_command_that_fails_ends_its_cell_and_nothing_else(line: Line, tmp_path: Path) -> None:
    line.say(Open(1), Add(1, 10, "x > 1", 7, 0.0))
    line.say(Open(2, str(tmp_path / "nowhere")))
    done, said = line.hear()
    (failed,) = said.replies
    assert isinstance(failed, Failed)
    assert (done, failed.cell) == (2, 2)
    assert "No such file" in failed.text
    line.say(Match(1, 1, 0, rows(2)))
    assert isinstance(line.hear()[1].replies[0], MatchReply)


def test_long_work_is_reported_before_it_is_done(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matcher_process, "REPORT_S", 0.0)
    line.say(Open(1), Match(1, 1, 0, rows(1)), Open(2))
    heard = [line.hear() for _ in range(4)]
    assert [done for done, _ in heard] == [0, 0, 0, 1]
    assert [len(said.replies) for _, said in heard] == [0, 1, 0, 0]
    assert [said.messages for _, said in heard] == [0, 1, 0, 0]


def test_a_closed_line_ends_it(line: Line) -> None:
    line.close()
    assert line.error is None


@pytest.mark.parametrize("message", [b"", b"\xc1", b"\x91\x01", b"\x91\x93\xa4What\x01\x02"])
def test_what_cannot_be_read_ends_it(line: Line, message: bytes) -> None:
    line.say_bytes(message)
    line.join()
    assert isinstance(line.error, msgspec.MsgspecError)


def test_what_asks_for_an_answer() -> None:
    assert asks([Open(1), Save(1, "p")])
    assert asks([Match(1, 1, 0, rows())])
    assert not asks([Open(1), Add(1, 2, "x > 1", 7, 0.0), Close(1)])


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_rows_are_counted_without_being_read(count: int) -> None:
    assert rows_in(msgspec.Raw(msgspec.msgpack.encode([None] * count))) == count


# --- files --------------------------------------------------------------------------------------


def test_files_are_written_whole_and_mapped_privately(tmp_path: Path) -> None:
    path = str(tmp_path / "cell")
    save(path, [b"one", memoryview(b"two")])
    view = mapped(path)
    view[:3] = b"six"
    assert bytes(view) == b"sixtwo"
    assert Path(path).read_bytes() == b"onetwo"
    save(path, [b"other"])
    assert bytes(view) == b"sixtwo"  # the file that it was is still there


# --- merges -------------------------------------------------------------------------------------


class Watched(CellHost):
    """Says what was installed, and how often it was asked for work."""

    def __init__(self, broken: Work | None = None) -> None:
        super().__init__(mapped, save, time.perf_counter)
        self.installed = self.asked = 0
        self._broken = broken

    def merge_due(self) -> Work | None:
        self.asked += 1
        return self._broken or super().merge_due()

    def install(self, work: Work) -> None:
        super().install(work)
        self.installed += 1


def test_merges_run_beside_and_are_installed_in_between() -> None:
    host = Watched()
    merges = Merges(host)
    host.handle(Open(1))
    end_at = time.monotonic() + PATIENCE_S
    added = 0
    while not host.installed and time.monotonic() < end_at:
        merges.changed()
        assert host.handle(Add(1, added, f"x > {added}", 7, 0.0)) == []
        added += 1
    assert host.installed
    assert host.asked <= added / 64 + 1
    (found,) = host.handle(Match(1, 1, 0, rows(50)))
    assert isinstance(found, MatchReply)
    assert len(found.ids) == 8 * 50


class Broken:
    """Work that cannot be done."""

    def run(self) -> Work:
        raise MemoryError("no room")

    def install(self) -> None:
        raise AssertionError("it was not done")

    def abandon(self) -> None:
        raise AssertionError("only a broker's own merges are tried again")


def test_a_merge_that_fails_is_told_and_tried_after_the_next_change(
    capfd: pytest.CaptureFixture[str],
) -> None:
    host = Watched(Broken())
    merges = Merges(host)
    for asked in (1, 2):
        end_at = time.monotonic() + PATIENCE_S
        while host.asked < asked and time.monotonic() < end_at:
            merges.changed()
            merges.go_on()
    for thread in threading.enumerate():
        if thread.name == MERGE_THREAD:
            thread.join()
    assert (host.asked, host.installed) == (2, 0)
    assert "a merge of the index failed: MemoryError('no room')" in capfd.readouterr().err
