"""The harness runs the parts of a suite in order and checks the options of the command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rove.bench.harness import Bench, Setting, Suite, SuiteOptions
from rove.bench.measure import Measure
from rove.errors import UsageError


class FruitOptions(SuiteOptions, frozen=True, kw_only=True):
    fruits: tuple[str, ...] = ("apple", "pear")
    sizes: tuple[int, ...] = (1,)


def one(bench: Bench[FruitOptions]) -> Iterator[Measure]:
    for fruit in bench.options.fruits:
        yield Measure(f"one.{fruit}", 1.0, "s")


def two(bench: Bench[FruitOptions]) -> Iterator[Measure]:
    yield Measure("two", 2.0, "s")
    if (path := bench.plot("fruit-two")) is not None:
        path.write_bytes(b"")


SUITE = Suite(
    name="fruit",
    parts={"one": one, "two": two},
    options=FruitOptions(),
    quick=FruitOptions(sizes=(0,)),
    accepts={
        "fruit": Setting("fruits", also=("none",)),
        "size": Setting("sizes"),
        "plots": Setting("plots", parts=("two",)),
    },
)


def test_parts_run_in_order_and_each_is_reported_first() -> None:
    told: list[str] = []
    assert [m.name for m in SUITE.run(tell=told.append)] == ["one.apple", "one.pear", "two"]
    assert told == ["one", "two"]


def test_only_the_chosen_parts_run() -> None:
    assert [m.name for m in SUITE.run(FruitOptions(parts=("two",)))] == ["two"]


def test_plots_go_into_a_folder_that_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    bench = Bench(FruitOptions(plots=folder))
    list(SUITE.measures(bench))
    assert bench.plots == [folder / "fruit-two.png"]
    assert bench.plots[0].exists()
    assert Bench(FruitOptions()).plot("fruit-two") is None


def test_resources_are_closed_at_the_end() -> None:
    closed = []

    @contextmanager
    def resource() -> Iterator[str]:
        yield "opened"
        closed.append(True)

    with Bench(FruitOptions()) as bench:
        assert bench.open(resource()) == "opened"
        folder = bench.folder
        assert folder.is_dir()
        assert not closed
    assert closed
    assert not folder.exists()


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, FruitOptions()),
        ({"quick": True}, FruitOptions(sizes=(0,))),
        ({"part": ["two", "one", "two"]}, FruitOptions(parts=["one", "two"])),
        ({"fruit": ["pear", "none"]}, FruitOptions(fruits=["pear"])),  # type: ignore[arg-type]
        ({"size": [3, 1, 3], "quick": True}, FruitOptions(sizes=[1, 3])),  # type: ignore[arg-type]
        ({"plots": Path("here")}, FruitOptions(plots=Path("here"))),
    ],
)
def test_options_of_the_command_line_are_applied(
    given: dict[str, Any], options: FruitOptions
) -> None:
    assert SUITE.options_of(given) == options


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"seconds": 3}, "--seconds is not for `rove bench fruit`, which accepts --part, --fruit"),
        ({"part": ["six"]}, "there is no part 'six'; choose from one, two"),
        ({"fruit": ["fig"]}, "there is no fruit 'fig'; choose from none, apple, pear"),
        ({"part": ["one"], "plots": Path()}, "--plots is for the part `two`; add it to --part"),
        ({"full": True}, "--full is not for `rove bench fruit`"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        SUITE.options_of(given)
