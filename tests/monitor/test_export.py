"""A run as a file that can be mailed: complete, small, and inert whatever names it holds."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rove.metrics.database import Database, Reading, RunRecord
from rove.metrics.world_readings import metric_name, world_labels
from rove.monitor import export
from rove.monitor.export import FIGURES, LINE_STYLES, ExportError, line_style_of, report

PAGE = Path(export.__file__).parent / "page"
BEGAN = 1_790_000_000.0
ENGINES = ["object", "tile", "area"]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(str(tmp_path / "metrics.sqlite")) as made:
        yield made


def record(
    database: Database, run: str, engines: list[str], seconds: int = 60, **facts: object
) -> None:
    """A run in which each engine does n times what the first does, a little unevenly."""
    told = {"engines": engines, "live": engines[0], "players": 60, **facts}
    database.put_run(RunRecord(run, "dense", "High density", 1, BEGAN, BEGAN + seconds, told))
    readings = []
    for place, engine in enumerate(engines, start=1):
        labels = world_labels(engine, run, "dense")
        for figure in FIGURES:
            metric = metric_name(figure.name)
            for second in range(seconds + 1):
                total = place * (10.0 * second + second % 5)
                value = total if metric.endswith("_total") else place * (100.0 + second % 5)
                readings.append(Reading(metric, labels, BEGAN + second, value))
    database.put_readings(readings)


class Outline(HTMLParser):
    """Tags, and what stands in table cells by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []
        self._is_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._is_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._is_cell = False

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.rows[-1][-1] += data

    def row(self, head: str, number: int = 0) -> list[str]:
        return [row for row in self.rows if row[0].startswith(head)][number]


def test_a_report_has_facts_final_figures_charts_and_comparisons(database: Database) -> None:
    record(database, "dense-1", ENGINES)
    outline = Outline(report(database, "dense-1"))
    assert outline.row("players") == ["players", "60"]
    assert outline.row("live engine") == ["live engine", "object"]
    assert ["", "object (live)", "tile", "area"] in outline.rows
    # 10 · 60 operations of the first engine by the end, twice and three times as many of the others
    assert outline.row("Subscribe operations") == ["Subscribe operations", "600", "1.2 k", "1.8 k"]
    assert outline.row("Subscriptions") == ["Subscriptions", "100", "200", "300"]
    assert outline.row("Matching time") == ["Matching time (ms)", "600 k", "1.2 M", "1.8 M"]
    assert outline.tags.count("svg") == len(FIGURES)
    beside = outline.row("Subscribe operations", 1)
    assert beside == ["Subscribe operations", "2 × (2 to 2)", "3 × (3 to 3)"]


def test_the_newest_is_called_last(database: Database) -> None:
    record(database, "dense-1", ENGINES)
    database.put_run(RunRecord("older", "sparse", "Low density", 1, BEGAN - 100, BEGAN - 50))
    assert "dense-1" in report(database, "last")


def test_what_cannot_be_told_apart_is_grey(database: Database) -> None:
    record(database, "dense-1", ["object", "tile"])
    labels = world_labels("tile", "dense-1", "dense")
    same = [
        Reading(metric_name("publications"), labels, BEGAN + second, 10.0 * second + second % 3)
        for second in range(61)
    ]
    database.put_readings(same)
    text = report(database, "dense-1")
    [row] = re.findall(r"Publications</th><td>(<span class=\"untold\">.*?)</td>", text)
    assert "1 ×" in re.sub(r"<.*?>", "", row)


def test_the_report_is_inert_whatever_the_names(database: Database) -> None:
    hostile = '<img src=x onerror="alert(1)">'
    record(database, "dense-1", [hostile, "</style><script>alert(2)</script>"], note="<b>&amp;")
    outline = Outline(report(database, "dense-1"))
    assert {"script", "img", "b", "iframe", "link", "a"}.isdisjoint(outline.tags)
    assert not any(
        name.startswith("on") or name in ("src", "href") for name, _ in outline.attributes
    )
    assert outline.row("note") == ["note", "<b>&amp;"]
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in outline.attributes


def test_nothing_is_fetched(database: Database) -> None:
    record(database, "dense-1", ENGINES)
    assert not re.search(r"https?:|url\(|@import", report(database, "dense-1"))


@pytest.mark.soak
def test_seven_engines_fit_into_a_letter(database: Database) -> None:
    engines = ["object", "tile", "area", "evolving", "evolving-pes", "evolving-lees"]
    record(database, "dense-1", [*engines, "evolving-clees"], seconds=600)
    assert len(report(database, "dense-1").encode()) <= 300_000


def test_a_run_that_is_not_there_is_named_with_those_that_are(database: Database) -> None:
    with pytest.raises(ExportError, match="no run was recorded"):
        report(database, "dense-1")
    record(database, "dense-1", ["object"])
    with pytest.raises(ExportError, match="there is no run dense-2; there are dense-1, and last"):
        report(database, "dense-2")


def test_a_run_of_which_nothing_was_recorded_is_refused(database: Database) -> None:
    database.put_run(RunRecord("dense-1", "dense", "High density", 1, BEGAN))
    with pytest.raises(ExportError, match="nothing was recorded of run dense-1"):
        report(database, "dense-1")


def test_one_engine_is_compared_with_nobody(database: Database) -> None:
    record(database, "dense-1", ["object"])
    assert "Beside" not in report(database, "dense-1")


# --- the page and the report look alike -----------------------------------------------------------


def test_colours_are_those_of_the_page() -> None:
    style = (PAGE / "style.css").read_text(encoding="utf-8")
    light, dark = style.split(':root[data-theme="dark"]', 1)
    for name, look in LINE_STYLES.items():
        assert f"--engine-{name}: {look.light};" in light
        assert f"--engine-{name}: {look.dark};" in dark


def test_dashes_are_those_of_the_page() -> None:
    source = (PAGE / "app.js").read_text(encoding="utf-8")
    for name, look in LINE_STYLES.items():
        if not name.startswith("other"):
            assert f"{name}: [{look.dash.replace(' ', ', ')}]," in source
    assert line_style_of("evolving-pes", 4) == "pes"
    assert line_style_of("somebody's own", 4) == "other2"


def test_titles_and_units_are_those_of_the_page() -> None:
    source = (PAGE / "graphs" / "metrics.js").read_text(encoding="utf-8")
    for figure in FIGURES:
        entry = source.split(f"{metric_name(figure.name)}: {{", 1)[1].split("}", 1)[0]
        assert f'title: "{figure.title}"' in entry
        assert f'unit: "{figure.unit}"' in entry
        assert ("factor: 1000" in entry) == (figure.factor == 1000)
