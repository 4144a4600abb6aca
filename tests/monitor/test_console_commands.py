"""What can be said besides the world's own commands."""

from collections.abc import Sequence

import pytest

from rove.monitor.console_commands import (
    Begin,
    Halt,
    Help,
    completions,
    console_help,
    world_control,
)
from rove.world.runs.state import WorldError

SCENARIOS = ["air", "crowd", "dense"]


class Names:
    def words(self, slot: str) -> Sequence[str]:
        return ["player1", "player2"] if slot in ("WHO", "CROWD") else ["market"]


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("help", Help()),
        ("help gather", Help("gather")),
        ("scenario dense", Begin("dense")),
        ("  scenario dense seed 3 players 40 ", Begin("dense", 40, 3)),
        ("pause", Halt("pause")),
        ("restart", Halt("restart")),
        ("gather 5 at market", None),
        ("", None),
    ],
)
def test_control_commands(text: str, order: object) -> None:
    assert world_control(text) == order


@pytest.mark.parametrize(
    "text",
    [
        "scenario",
        "pause now",
        "help me please",
        "scenario dense players",
        "scenario dense players many",
        "scenario dense players -4",
        "scenario dense players 1000000",
        "scenario dense players 1 players 2",
        "scenario dense size 5",
        "scenario dense players ٣",
    ],
)
def test_what_is_wrong_says_what_would_be_right(text: str) -> None:
    with pytest.raises(WorldError, match="for example"):
        world_control(text)


def test_help_has_everything() -> None:
    text = console_help(None, SCENARIOS)
    assert all(word in text for word in ("gather", "pause", "scenario NAME", "air, crowd, dense"))
    assert "for example scenario dense" in console_help("scenario", SCENARIOS)
    assert "for example gather" in console_help("gather", SCENARIOS)
    with pytest.raises(WorldError, match="no command"):
        console_help("dance", SCENARIOS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("re", ["restart", "resume"]),
        ("g", ["gather", "give", "go"]),
        ("help sc", ["scenario"]),
        ("scenario ", SCENARIOS),
        ("scenario d", ["dense"]),
        ("scenario dense ", ["players", "seed"]),
        ("scenario dense players 5 ", ["seed"]),
        ("scenario dense players ", []),
        ("pause ", []),
        ("go pl", ["player1", "player2"]),
        ("go player1 to ", ["market"]),
    ],
)
def test_completion(text: str, words: list[str]) -> None:
    assert completions(text, Names(), SCENARIOS).words == words


def test_only_so_many_words_are_offered() -> None:
    found = completions("", Names(), SCENARIOS, most=3)
    assert len(found.words) == 3
    assert found.is_more
