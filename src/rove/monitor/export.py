"""A recorded run as one HTML file that can be mailed: figures, charts, and the engines compared.

The file has no scripts and loads nothing: charts are SVG (`rove.monitor.svg`), light and dark
colours are in its own style sheet, and a content security policy forbids everything else, so mail
programs may open it. Names of engines and scenarios may come from anybody's file, so all of them
are escaped.

A template engine would be a dependency for one page. A run of seven engines is about 150 KB and
takes a second or two, most of it in the database.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from rove import __version__
from rove.errors import RoveError
from rove.metrics.database import Database, RunRecord
from rove.metrics.records import kind_of, labels_of
from rove.metrics.world_readings import metric_name
from rove.monitor import svg
from rove.monitor.comparison import MetricLine, differences

POINTS: Final = 600
NEWEST: Final = "last"
_LAST_S: Final = 120.0
"""How far before the end the last reading is looked for."""
_NOTHING: Final = "–"
_FACTS: Final = {"live": "live engine", "seconds": "seconds of the scenario"}
"""Facts whose names do not say enough."""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"


class ExportError(RoveError):
    """There is no such run, or nothing was recorded of it."""


class Figure(NamedTuple):
    """A figure that is reported of each engine."""

    name: str
    """As `rove.world.engines.bus` has it."""
    title: str
    unit: str
    """Of the axis: of a total that grows, by the second."""
    whole: str = ""
    """Of the figure at the end of the run."""
    factor: float = 1.0


FIGURES: Final = (
    Figure("subscriptions", "Subscriptions", "subscriptions"),
    Figure("subscribes", "Subscribe operations", "operations/s"),
    Figure("unsubscribes", "Unsubscribe operations", "operations/s"),
    Figure("publications", "Publications", "publications/s"),
    Figure("replica_messages", "Replica messages", "messages/s"),
    Figure("update_notifications", "Update notifications", "notifications/s"),
    Figure("delivered_bytes", "Bytes delivered", "B/s", "B"),
    Figure("matching_s", "Matching time", "ms/s", "ms", 1000.0),
    Figure("missing_s", "Missing replicas", "replica-s/s", "replica-s"),
    Figure("stale_s", "Stale replicas", "replica-s/s", "replica-s"),
)
"""Titles and units are those of the page (`page/graphs/metrics.js`)."""


class LineStyle(NamedTuple):
    """How an engine is drawn."""

    light: str
    dark: str
    dash: str


LINE_STYLES: Final[Mapping[str, LineStyle]] = {
    "object": LineStyle("#0072b2", "#56b4e9", ""),
    "tile": LineStyle("#d55e00", "#e69f00", "6 3"),
    "area": LineStyle("#b05a8a", "#cc79a7", "2 2"),
    "evolving": LineStyle("#00815e", "#2fc79b", "10 3"),
    "pes": LineStyle("#8c6a00", "#f0e442", "8 3 2 3"),
    "lees": LineStyle("#7a3b1e", "#e8a07c", "12 4"),
    "clees": LineStyle("#4d7a1f", "#a6d96a", "4 2 1 2"),
    "static": LineStyle("#6a7079", "#9aa3af", "1 3"),
    "other1": LineStyle("#3c4f9e", "#93a5f5", "5 2 1 2"),
    "other2": LineStyle("#9e2a4f", "#f090ae", "5 2 1 2"),
    "other3": LineStyle("#2a7a7a", "#6fcaca", "5 2 1 2"),
}
"""As on the page (`page/style.css`, `page/app.js`)."""


def line_style_of(engine: str, number: int) -> str:
    """The name of an engine's look; engines that nobody foresaw share three."""
    last = engine.rpartition("-")[2]
    return last if last in LINE_STYLES else f"other{number % 3 + 1}"


# --- what there is --------------------------------------------------------------------------------


class RecordedFigure(NamedTuple):
    """A figure of an engine in a run."""

    line: MetricLine
    """Over the seconds of the run: of a total, its rate."""
    last: float
    """At the end."""


FigureTable = dict[str, dict[str, RecordedFigure]]
"""By figure and engine."""


def report(database: Database, wanted: str) -> str:
    """The HTML of a run; `last` is the newest."""
    run = _run(database, wanted)
    engines = _engines(database, run)
    if not engines:
        raise ExportError(f"nothing was recorded of run {run.id}; a report would be empty")
    table = _table(database, run, engines)
    return _page(run, engines, table)


def _run(database: Database, wanted: str) -> RunRecord:
    runs = database.runs()
    if not runs:
        raise ExportError(
            f"no run was recorded in {database.name}; `rove monitor SCENARIO` records"
        )
    if wanted == NEWEST:
        return runs[0]
    found = next((run for run in runs if run.id == wanted), None)
    if found is None:
        known = ", ".join(run.id for run in runs[:5])
        more = "" if len(runs) <= 5 else f" and {len(runs) - 5} others"
        raise ExportError(f"there is no run {wanted}; there are {known}{more}, and {NEWEST}")
    return found


def _engines(database: Database, run: RunRecord) -> list[str]:
    """In the order of the run; all that anything was recorded of."""
    of_run = [labels_of(one.labels) for one in database.series()]
    recorded = {
        labels["engine"] for labels in of_run if labels.get("run") == run.id and "engine" in labels
    }
    told = run.facts.get("engines")
    order = [str(name) for name in told] if isinstance(told, list) else []
    return [name for name in order if name in recorded] + sorted(recorded - set(order))


def _table(database: Database, run: RunRecord, engines: Sequence[str]) -> FigureTable:
    found: FigureTable = {}
    for figure in FIGURES:
        metric = metric_name(figure.name)
        of_engines = {
            name: told
            for name in engines
            if (told := _told(database, run, metric, name, figure.factor)) is not None
        }
        if of_engines:
            found[figure.name] = of_engines
    return found


def _told(
    database: Database, run: RunRecord, metric: str, engine: str, factor: float
) -> RecordedFigure | None:
    labels = {"run": run.id, "engine": engine}
    points = database.points(metric, labels, run.began, None, POINTS)
    if not points:
        return None
    one = points[0]
    line = MetricLine([at - run.began for at in one.at], [value * factor for value in one.value])
    end = one.at[-1] + one.resolution_s
    readings = database.readings(metric, labels, end - _LAST_S, end + 1.0)
    if readings:
        last = readings[-1].value * factor
    elif kind_of(metric) == "gauge":
        last = line.value[-1]
    else:
        # Readings are forgotten before what was added up of them.
        last = sum(line.value) * one.resolution_s
    return RecordedFigure(line, last)


# --- the page -------------------------------------------------------------------------------------


def _page(run: RunRecord, engines: Sequence[str], table: FigureTable) -> str:
    title = f"{run.title or run.scenario}: a run of Rove"
    body = [
        f"<h1>{escape(run.title or run.scenario)}</h1>",
        f'<p class="lead">{escape(_lead(run, engines))}</p>',
        "<h2>Facts</h2>",
        _facts(run, engines),
        "<h2>At the end</h2>",
        _final(run, engines, table),
        "<h2>Over time</h2>",
        '<div class="charts">',
        *_charts(run, engines, table),
        "</div>",
        *_comparison(run, engines, table),
        f"<footer>Made by rove {escape(__version__)} from the metrics database.</footer>",
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en-GB"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>{escape(title)}</title>",
            f"<style>{_style()}</style></head><body><main>",
            *body,
            "</main></body></html>\n",
        ]
    )


def _lead(run: RunRecord, engines: Sequence[str]) -> str:
    many = "one engine" if len(engines) == 1 else f"{len(engines)} engines in the same history"
    if run.ended is None:
        return f"The scenario {run.scenario} with {many}; nobody has written down its end."
    length = svg.clock(run.ended - run.began)
    return f"The scenario {run.scenario} with {many}, for {length} (min:s)."


def _facts(run: RunRecord, engines: Sequence[str]) -> str:
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(run.began))
    facts = {
        "run": run.id, "scenario": run.scenario, "seed": run.seed, "began": began,
        "engines": ", ".join(engines),
    }  # fmt: skip
    facts |= {name: value for name, value in run.facts.items() if name not in facts}
    rows = [
        _row(escape(_FACTS.get(name, name.replace("_", " "))), [escape(_said(value))])
        for name, value in facts.items()
    ]
    return f'<div class="box"><table class="facts"><tbody>{"".join(rows)}</tbody></table></div>'


def _said(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_said(one) for one in value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _is_live(run: RunRecord, engine: str) -> bool:
    return run.facts.get("live") == engine


def _heads(run: RunRecord, engines: Iterable[str]) -> str:
    return "".join(
        f'<th scope="col">{escape(name)}{" (live)" if _is_live(run, name) else ""}</th>'
        for name in engines
    )


def _row(head: str, cells: Iterable[str]) -> str:
    return f'<tr><th scope="row">{head}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _final(run: RunRecord, engines: Sequence[str], table: FigureTable) -> str:
    rows = []
    for figure in FIGURES:
        if figure.name not in table:
            continue
        lasts = {name: told.last for name, told in table[figure.name].items()}
        cells = [svg.short(lasts[name]) if name in lasts else _NOTHING for name in engines]
        unit = f" <small>({escape(figure.whole)})</small>" if figure.whole else ""
        rows.append(_row(escape(figure.title) + unit, cells))
    return _numbers("Figures at the end of the run", _heads(run, engines), rows)


def _numbers(caption: str, heads: str, rows: Iterable[str]) -> str:
    return (
        f'<div class="box"><table class="numbers"><caption>{escape(caption)}</caption>'
        f"<thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _charts(run: RunRecord, engines: Sequence[str], table: FigureTable) -> Iterable[str]:
    for figure in FIGURES:
        if figure.name not in table:
            continue
        of_figure = table[figure.name]
        lines = [
            svg.ChartLine(
                f"{name} (live)" if _is_live(run, name) else name,
                line_style_of(name, number),
                LINE_STYLES[line_style_of(name, number)].dash,
                _is_live(run, name),
                of_figure[name].line.at,
                of_figure[name].line.value,
            )
            for number, name in enumerate(engines)
            if name in of_figure
        ]
        picture = svg.chart(figure.title, figure.unit, lines)
        yield f"<figure><figcaption>{escape(figure.title)}</figcaption>{picture}</figure>"


# --- who needs how much more ----------------------------------------------------------------------


def _comparison(run: RunRecord, engines: Sequence[str], table: FigureTable) -> Iterable[str]:
    """Every engine beside the live one, or the first; nothing for one alone."""
    if len(engines) < 2:
        return
    beside = next((name for name in engines if _is_live(run, name)), engines[0])
    others = [name for name in engines if name != beside]
    rows = []
    for figure in FIGURES:
        of_figure = table.get(figure.name, {})
        if beside not in of_figure:
            continue
        cells = [_times(of_figure, name, beside, figure) for name in others]
        rows.append(_row(escape(figure.title), cells))
    yield f"<h2>Beside {escape(beside)}</h2>"
    yield (
        f"<p>How many times as much as {escape(beside)}, with the interval that holds the true "
        "ratio in 95 of 100 cases (means of batches of the run, paired). What cannot be told apart "
        f"is grey. Where {escape(beside)} has none of it, the difference is given.</p>"
    )
    yield _numbers(f"Beside {beside}", _heads(run, others), rows)


def _times(of_figure: Mapping[str, RecordedFigure], name: str, beside: str, figure: Figure) -> str:
    if name not in of_figure:
        return _NOTHING
    found = differences(of_figure[name].line, of_figure[beside].line)
    ratio, difference = found["ratio"], found["difference"]
    if ratio is not None:
        return _with_interval(ratio, 1.0, "×")
    if difference is None:
        return _NOTHING
    if difference["mean"] == 0:
        return '<span class="untold">none in both</span>'
    return _with_interval(difference, 0.0, escape(figure.unit))


def _with_interval(found: Mapping[str, float | None], nothing: float, unit: str) -> str:
    mean, low, high = found["mean"], found["low"], found["high"]
    if mean is None:
        return _NOTHING
    if low is None or high is None:
        return f'<span class="untold">{svg.short(mean)} {unit}</span>'
    text = f"{svg.short(mean)} {unit} <small>({svg.short(low)} to {svg.short(high)})</small>"
    return f'<span class="untold">{text}</span>' if low <= nothing <= high else text


# --- how it looks ---------------------------------------------------------------------------------

_LIGHT: Final = {
    "bg": "#ffffff", "ink": "#191c22", "quiet": "#59616e", "line": "#dbdfe6", "soft": "#f5f6f8",
}  # fmt: skip
_DARK: Final = {
    "bg": "#0e1116", "ink": "#e7eaf0", "quiet": "#9ba5b4", "line": "#2a313c", "soft": "#161a21",
}  # fmt: skip
_RULES: Final = """
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:24px 16px 48px}
h1{font-size:26px;margin:8px 0}h2{font-size:18px;margin:32px 0 8px}.lead{font-size:17px;margin:0}
p,footer,.untold,small{color:var(--quiet)}.lead{color:var(--ink)}footer{margin-top:32px;font-size:13px}
.box{overflow-x:auto}table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:4px 16px 4px 0;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
.numbers td,.numbers thead th{text-align:right;white-space:nowrap}.facts td{overflow-wrap:anywhere}
caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
th{font-weight:600}tbody th{font-weight:500}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,480px),1fr));gap:16px}
figure{margin:0;padding:12px;border:1px solid var(--line);border-radius:8px;background:var(--soft)}
figcaption{font-weight:600}svg{display:block;width:100%;height:auto;font:12px system-ui,sans-serif}
svg text{fill:var(--quiet)}.grid{stroke:var(--line);fill:none}.line{fill:none;stroke-width:2}
.line.heavy{stroke-width:3.6}.end{font-weight:500}.end.heavy{font-weight:700}
@media print{figure{break-inside:avoid}}
"""


def _style() -> str:
    light = _tokens(_LIGHT, {name: look.light for name, look in LINE_STYLES.items()})
    dark = _tokens(_DARK, {name: look.dark for name, look in LINE_STYLES.items()})
    looks = "".join(
        f".line.{name}{{stroke:var(--{name})}}svg .end.{name},circle.{name}{{fill:var(--{name})}}"
        for name in LINE_STYLES
    )
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}{_RULES}{looks}"
    )


def _tokens(*groups: Mapping[str, str]) -> str:
    return "".join(f"--{name}:{value};" for group in groups for name, value in group.items())
