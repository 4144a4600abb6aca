"""What goes between coordinator and matchers arrives as it was sent, or is refused."""

from __future__ import annotations

import math
import random
from contextlib import suppress

import msgspec
import pytest

from rove.elastic.commands import (
    Add,
    AnyCommand,
    ChangeState,
    Close,
    Failed,
    Match,
    MatchReply,
    MatchRow,
    Open,
    RankedMatch,
    Remove,
    Replies,
    Save,
    Saved,
    Unsaved,
    decoded_commands,
    decoded_replies,
    decoded_rows,
    encoded_commands,
    encoded_replies,
    encoded_rows,
)

ROWS = [
    MatchRow(1, "air/a", b"\xff\x00 no JSON", (("k", "v"), ("k", "w")), 1.5, (1, 2)),
    MatchRow(2**62, "ž/✓/\U0001f30d", b"", (), 1e9, ()),
]
COMMANDS: list[AnyCommand] = [
    Open(1),
    Open(2, "/tmp/cell"),
    Add(1, 2**62, "x > me.x", 7, 0.25, {"x": 1.5, "kind": "car", "on": True}, "pes 500ms"),
    Add(1, 3, "x > 1", 7, 0.25),
    Remove(1, [1, 2**62]),
    ChangeState(1, 3, {"x": None, "y": -(2**63), "z": 2**64 - 1, "s": "ž", "f": 5e-324}),
    Match(1, 5, 6, encoded_rows(ROWS)),
    Match(1, -1, -1, encoded_rows([]), 12.5),
    Save(1, "/tmp/cell"),
    Close(1),
]
REPLIES = Replies(
    [
        MatchReply(
            1, 6, b"\x01\x00\x00\x00", bytes(8), [RankedMatch(1, 2, 3.5, 4, True)], math.inf, 0.001
        ),
        MatchReply(1, 7, b"", b"", [RankedMatch(1, 2, 3.5, -0.5, False)], 12.5, 0.0),
        Saved(1, "/tmp/cell", [1, 2, 3]),
        Unsaved(1, "/tmp/cell", "[Errno 28] No space left on device"),
        Failed(1, "Add: ValueError('ž')"),
    ],
    0.5,
    0.25,
    100,
    20_000,
)


def test_commands_arrive_as_they_were_sent() -> None:
    arrived = decoded_commands(encoded_commands(COMMANDS))
    assert arrived == COMMANDS
    assert [type(one) for one in arrived] == [type(one) for one in COMMANDS]


def test_rows_arrive_as_they_were_sent() -> None:
    [command] = decoded_commands(encoded_commands([COMMANDS[6]]))
    assert isinstance(command, Match)
    assert decoded_rows(command.rows) == ROWS


def test_replies_arrive_as_they_were_said() -> None:
    assert decoded_replies(encoded_replies(REPLIES)) == REPLIES


@pytest.mark.parametrize("seed", range(3))
def test_rubbish_is_refused_and_nothing_else_happens(seed: int) -> None:
    chance = random.Random(seed)
    good = (encoded_commands(COMMANDS), encoded_replies(REPLIES), bytes(encoded_rows(ROWS)))
    for _ in range(1000):
        message = bytearray(chance.choice((*good, chance.randbytes(chance.randint(0, 60)))))
        for _ in range(chance.randint(0, 3)):
            if message:
                message[chance.randrange(len(message))] = chance.randrange(256)
        cut = bytes(message[: chance.randint(0, len(message))])
        for data in (bytes(message), cut):
            for decoded in (decoded_commands, decoded_replies):
                with suppress(msgspec.MsgspecError):
                    decoded(data)
            with suppress(msgspec.MsgspecError):
                decoded_rows(msgspec.Raw(data))


def test_a_command_is_not_taken_for_a_reply() -> None:
    with pytest.raises(msgspec.ValidationError):
        decoded_replies(encoded_commands(COMMANDS))
    with pytest.raises(msgspec.ValidationError):
        decoded_commands(encoded_replies(REPLIES))
