"""The grammar of commands: read, printed, completed, refused."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from rove.world.people.commands import (
    COMMAND_FORMS,
    BehaveCommand,
    CommandError,
    DropCommand,
    EngineCommand,
    FleeCommand,
    FollowCommand,
    GatherCommand,
    GiveCommand,
    GoCommand,
    PatrolCommand,
    PickCommand,
    SpeedCommand,
    SteerCommand,
    StopCommand,
    TradeCommand,
    TravelCommand,
    UseCommand,
    WanderCommand,
    WorldCommand,
    complete,
    help_text,
    parse_command,
)
from rove.world.runs.state import WorldError

EXAMPLES: list[tuple[str, WorldCommand]] = [
    ("go player1 to 10 20", GoCommand("player1", (10.0, 20.0))),
    ("go player? to market", GoCommand("player?", "market")),
    ("steer player1 -1 .5", SteerCommand("player1", -1.0, 0.5)),
    ("stop *", StopCommand("*")),
    ("wander npc*", WanderCommand("npc*")),
    ("travel npc1", TravelCommand("npc1")),
    ("follow npc7 player1", FollowCommand("npc7", "player1")),
    ("flee npc* player1", FleeCommand("npc*", "player1")),
    ("patrol npc1 via market, 1 2 ,gate", PatrolCommand("npc1", ("market", (1.0, 2.0), "gate"))),
    ("gather 50 at 120 80", GatherCommand(50, (120.0, 80.0))),
    ("gather npc* at gate within 7.5", GatherCommand("npc*", "gate", 7.5)),
    ("trade npc*", TradeCommand("npc*")),
    ("behave npc1 loiter", BehaveCommand("npc1", "loiter")),
    ("speed npc* 2", SpeedCommand("npc*", 2.0)),
    ("pick player1 apple3", PickCommand("player1", "apple3")),
    ("drop player1 apple3", DropCommand("player1", "apple3")),
    ("drop player1", DropCommand("player1")),
    ("use player1 apple3", UseCommand("player1", "apple3")),
    ("give player1 apple3 npc2", GiveCommand("player1", "apple3", "npc2")),
    ("engine area", EngineCommand("area")),
]


@pytest.mark.parametrize(("text", "command"), EXAMPLES)
def test_texts_and_what_they_mean(text: str, command: WorldCommand) -> None:
    assert parse_command(text) == command
    assert parse_command(f"\t {text}\n") == command
    assert parse_command(str(command)) == command


def test_every_form_has_an_example_above_and_one_in_the_help() -> None:
    assert {type(command) for _, command in EXAMPLES} == {
        form.command for form in COMMAND_FORMS.values()
    }
    for verb, form in COMMAND_FORMS.items():
        assert str(parse_command(form.example)) == form.example
        assert form.example in help_text(verb)
        assert form.syntax in help_text()


@pytest.mark.parametrize(
    ("text", "column", "what", "hint"),
    [
        ("", 1, "a command is missing", "begins with one of go, steer"),
        ("folow npc7 player1", 1, "no command folow", "did you mean follow, as in follow npc7"),
        ("go npc* at 2 3", 9, "at is not the word to", "write go WHO to POINT, for example"),
        ("go player1 to", 14, "a point such as 10 20, or the name of a place is missing", "go WHO"),
        ("go player1 to 3", 16, "a number is missing", "go WHO to POINT"),
        ("go 7up to 1 2", 4, "7up is not a name, or a pattern", "go WHO"),
        ("go player1 to 1e999 2", 15, "too large", "go WHO"),
        ("go player1 to nan 2", 19, "the command ends before 2", "go WHO"),
        ("follow npc7 player*", 13, "player* is not a name", "follow WHO NAME"),
        ("gather 0 at 1 1", 8, "a crowd of nobody", "gather CROWD"),
        ("gather 9999999999 at 1 1", 8, "is not a number of inhabitants", "gather CROWD"),
        ("gather 5 at 1 1 within 0", 24, "0 is not a number above 0", "gather CROWD"),
        ("gather 5 at 1 1 inside 3", 17, "inside is not the word within", "gather CROWD"),
        ("speed npc* fast", 12, "fast is not a number above 0", "speed WHO METRES"),
        ("speed npc* -2", 12, "-2 is not a number above 0", "speed WHO METRES"),
        ("patrol npc1 via market", 23, "a comma and a further point is missing", "patrol"),
        ("patrol npc1 via market,,gate", 24, ", is not a point", "patrol WHO via POINTS"),
        ("wander npc1 npc2", 13, "the command ends before npc2", "write wander WHO"),
        ("stop \x00\x1b[31m", 6, "⟨U+0000⟩⟨U+001B⟩[31m is not a name", "stop WHO"),
    ],
)
def test_refusals_point_at_the_fault(text: str, column: int, what: str, hint: str) -> None:
    with pytest.raises(CommandError) as refusal:
        parse_command(text)
    shown = str(refusal.value)
    assert isinstance(refusal.value, WorldError)
    assert shown.startswith(f"column {column}: ")
    assert what in shown
    assert hint in shown
    caret_line = next(line for line in shown.splitlines() if set(line) == {" ", "^"})
    if text.isprintable():
        assert caret_line.index("^") - 2 == column - 1


def test_a_refusal_of_an_endless_word_is_short() -> None:
    with pytest.raises(CommandError) as refusal:
        parse_command("stop " + "9" * 5000)
    assert len(str(refusal.value)) < 400


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,8}", fullmatch=True)
patterns = st.from_regex(r"[A-Za-z_*?][A-Za-z0-9_*?-]{0,8}", fullmatch=True)
numbers = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)
places = names | st.tuples(numbers, numbers)
commands = st.one_of(
    st.builds(GoCommand, patterns, places),
    st.builds(SteerCommand, patterns, numbers, numbers),
    st.builds(FollowCommand, patterns, names),
    st.builds(PatrolCommand, patterns, st.lists(places, min_size=2, max_size=5).map(tuple)),
    st.builds(GatherCommand, patterns | st.integers(1, 10**9 - 1), places, st.none() | positive),
    st.builds(SpeedCommand, patterns, positive),
    st.builds(DropCommand, names, st.none() | names),
    st.builds(GiveCommand, names, names, names),
    st.builds(EngineCommand, names),
    st.builds(BehaveCommand, patterns, names),
)


@given(commands)
def test_what_is_printed_is_read_as_the_same(command: WorldCommand) -> None:
    assert parse_command(str(command)) == command


words = st.sampled_from([*COMMAND_FORMS, "to", "via", "at", "within", ",", "npc*", "*", "market"])
wild = st.lists(words | st.text(max_size=6) | numbers.map(str), max_size=8).map(" ".join)


@given(st.text(max_size=60) | wild)
def test_no_text_harms(text: str) -> None:
    try:
        command = parse_command(text)
    except CommandError as refusal:
        event(f"refused for {refusal.expected}")
        str(refusal)
    else:
        assert parse_command(str(command)) == command
    assert complete(text, Village()) == sorted(complete(text, Village()))


class Village:
    """Names to complete."""

    def words(self, slot: str) -> Sequence[str]:
        inhabitants = ["player1", "npc1", "npc12"]
        return {
            "WHO": inhabitants,
            "NAME": inhabitants,
            "CROWD": inhabitants,
            "ITEM": ["apple1", "apple2"],
            "POINT": ["market", "gate"],
            "POINTS": ["market", "gate"],
            "BEHAVIOUR": ["wander", "stand"],
            "ENGINE": ["object", "tile"],
        }[slot]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", sorted(COMMAND_FORMS)),
        ("st", ["steer", "stop"]),
        ("stop ", ["npc1", "npc12", "player1"]),
        ("stop npc1", ["npc1", "npc12"]),
        ("stop npc1 ", []),
        ("go npc1 ", ["to"]),
        ("go npc1 to m", ["market"]),
        ("go npc1 to 1 ", []),
        ("patrol npc1 via gate, ", ["gate", "market"]),
        ("patrol npc1 via gate,m", ["market"]),
        ("gather 5 at gate ", ["within"]),
        ("gather 5 at gate w", ["within"]),
        ("gather 5 at gate within 3 ", []),
        ("give npc1 ", ["apple1", "apple2"]),
        ("give npc1 apple1 p", ["player1"]),
        ("drop npc1 ", ["apple1", "apple2"]),
        ("drop npc1 apple1 ", []),
        ("behave npc1 w", ["wander"]),
        ("engine ", ["object", "tile"]),
        ("fly ", []),
    ],
)
def test_completion(text: str, words: list[str]) -> None:
    assert complete(text, Village()) == words


def test_help_knows_what_there_is() -> None:
    assert len(help_text().splitlines()) == len(COMMAND_FORMS)
    assert re.match(r"follow WHO NAME: .*; for example follow npc7 player1", help_text("follow"))
    with pytest.raises(WorldError, match="no command wonder; did you mean wander"):
        help_text("wonder")
