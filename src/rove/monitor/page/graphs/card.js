/**
 * One chart with everything around it: title, legend, options, its table, and what it says when there
 * is nothing to draw.
 */
import { Empty, ErrorNote, Loading, Panel, Table, announce, useCell } from "../ui.js";
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { csvOf, fileName, pngOf, save } from "./files.js";
import { useHistory } from "./history.js";
import { Legend } from "./legend.js";
import { brokerSamplesOf } from "./live.js";
import { CardMenu, MoveHandle } from "./menu.js";
import { figureOf, meaningOfChart, shortValue } from "./metrics.js";
import { timeText } from "./plot.js";
import { PlotBox } from "./plot_box.js";
import { aligned, joined, liveTracks } from "./tracks.js";

const LIVE_WIDTH = 3;
const DUMMY_WIDTH = 1.5;
const MARGIN_S = 5;
const NOTHING = new Map();

/**
 * @typedef {object} Moment what all charts share
 * @property {[number, number]} window
 * @property {() => import("./history.js").Period} period
 * @property {string} periodKey
 * @property {number} length in seconds
 * @property {boolean} is_moving
 * @property {number} turn
 * @property {(at: number) => void} seen tells of the first moment that is known
 * @property {string | null} live the live engine
 * @property {string[]} engines of the present run, in its order
 */

/**
 * @param {{app: object, samples: import("./live.js").LiveSamples,
 *   spec: import("./metrics.js").ChartSpec, moment: Moment, place: number, places: number,
 *   change: (action: object) => void, onZoom: (window: [number, number]) => void,
 *   onReset: () => void}} props
 */
export function ChartCard({ app, samples, spec, moment, place, places, change, onZoom, onReset }) {
  const theme = useCell(app.cells.theme);
  const [hidden, setHidden] = useState(new Set());
  const cursor = useRef({ listener: null }).current;
  const plot = useRef(null);
  const meaning = meaningOfChart(spec);
  const history = useHistory(app, spec, moment.period, moment.periodKey, moment);
  const tracks = joined(history.tracks, useLive(app, samples, spec, moment, history));
  const lines = linesOf(app, tracks, moment, hidden);
  for (const track of tracks.values()) if (track.at.length > 0) moment.seen(track.at[0]);
  const data = aligned(
    lines.map((line) => tracks.get(line.name)),
    moment.window,
    meaning.factor,
  );
  const drawing = {
    ...data,
    lines,
    window: moment.window,
    unit: meaning.unit,
    log: spec.log,
    zero: spec.zero,
    is_clock: true,
    band: null,
  };
  const narrowed = Object.entries(spec.labels).map(([name, text]) => `${name} ${text}`);
  const toggle = (name) => {
    const next = new Set(hidden);
    if (!next.delete(name)) next.add(name);
    setHidden(next);
  };
  const savePng = async () => {
    const style = getComputedStyle(document.body);
    const about = { title: meaning.title, lines, ink: style.color, paper: style.backgroundColor };
    save(await pngOf(plot.current.canvas, about), fileName(meaning.title, "png"));
    announce("The picture was saved.");
  };
  const saveCsv = () => {
    const text = csvOf(data, lines, meaning.unit);
    save(new Blob([text], { type: "text/csv" }), fileName(meaning.title, "csv"));
    announce("The table was saved.");
  };
  const is_drawn = data.x.length > 0 && !spec.table;
  return html`<${Panel}
    title=${meaning.title}
    class="graph-card"
    note=${narrowed.join(", ")}
    actions=${html`<${MoveHandle} title=${meaning.title} spec=${spec} place=${place} places=${places} change=${change} />
      <${CardMenu} title=${meaning.title} spec=${spec} change=${change}
        savePng=${is_drawn ? savePng : null} saveCsv=${data.x.length > 0 ? saveCsv : null} />`}
  >
    ${data.x.length > 0 &&
    html`<${Legend} lines=${lines} data=${data} unit=${meaning.unit} about=${meaning.about} cursor=${cursor} onToggle=${toggle} />`}
    <${Body} app=${app} spec=${spec} title=${meaning.title} history=${history} drawing=${drawing} is_moving=${moment.is_moving}>
      ${is_drawn &&
      html`<${PlotBox} drawing=${drawing} label=${meaning.title} sync="rove-graphs" theme=${theme}
        onZoom=${onZoom} onReset=${onReset} onCursor=${(index) => cursor.listener?.(index)}
        onPlot=${(made) => (plot.current = made)} />`}
    <//>
    ${history.status === "error" &&
    data.x.length > 0 &&
    html`<p class="graph-fault" role="status">
      The past is missing: ${history.error.message}
      <button type="button" class="button small" onClick=${history.again}>Try again</button>
    </p>`}
  <//>`;
}

function Body({ app, spec, title, history, drawing, is_moving, children }) {
  if (drawing.x.length > 0) {
    return spec.table ? html`<${DataTable} title=${title} drawing=${drawing} />` : children;
  }
  if (history.status === "loading") return html`<${Loading} what="Looking into the past" />`;
  if (history.status === "error") return html`<${ErrorNote} error=${history.error} retry=${history.again} />`;
  const is_world = spec.metrics.every((metric) => figureOf(metric));
  const is_waiting = is_moving && (is_world ? app.parts.world : app.parts.broker);
  return html`<${Empty} title=${is_waiting ? "Waiting for the first samples" : "No data in this period"} />`;
}

/** What has come while the page was open; of the broker only where the database knows nothing. */
function useLive(app, samples, spec, { period }, history) {
  const figures = spec.metrics.map(figureOf);
  const is_world = figures.every(Boolean);
  const is_asked = !is_world && app.parts.broker && history.status !== "loading" && history.tracks.size === 0;
  useEffect(() => (is_asked ? brokerSamplesOf(app).use() : undefined), [is_asked]);
  const { from, to, run } = period();
  if (is_asked) {
    const plain = spec.metrics.map((figure) => ({ figure, is_rate: figure.endsWith("_total") }));
    return liveTracks(brokerSamplesOf(app).samples, plain, from - MARGIN_S);
  }
  const others = Object.keys(spec.labels).filter((name) => name !== "engine" && name !== "audience");
  if (!is_world || others.length > 0 || (to !== null && to < (samples.samples[0]?.now ?? Infinity))) return NOTHING;
  const all = run === null ? samples.samples : samples.samples.filter((one) => one.run === samples.run);
  const tracks = liveTracks(all, figures, from - MARGIN_S);
  const wanted = spec.labels.engine ?? spec.labels.audience;
  return wanted === undefined ? tracks : new Map([...tracks].filter(([name]) => name === wanted));
}

/** Engines in the order of the run, then others by name; the live one is heavier and says so. */
function linesOf(app, tracks, { live, engines }, hidden) {
  const place = (name) => (engines.includes(name) ? engines.indexOf(name) : engines.length);
  const names = [...tracks.keys()].filter((name) => tracks.get(name).at.length > 0);
  names.sort((a, b) => place(a) - place(b) || a.localeCompare(b, "en-GB", { numeric: true }));
  return names.map((name, i) => {
    const is_live = name === live;
    const is_dummy = !is_live && engines.includes(name);
    const { colour, dash, label } = app.engineStyle(name, i);
    return {
      name,
      label: is_live ? `${label} (live)` : label,
      word: is_live ? "live" : is_dummy ? "dummy" : "",
      colour,
      dash,
      width: is_live ? LIVE_WIDTH : DUMMY_WIDTH,
      is_bold: is_live,
      is_shown: !hidden.has(name),
    };
  });
}

function DataTable({ title, drawing }) {
  const { x, values, lines, unit } = drawing;
  const columns = useMemo(
    () => [
      { key: "at", title: "Time", sort: (row) => row.at, cell: (row) => timeText(row.at, 1) },
      ...lines.map((line, i) => ({
        key: line.name,
        title: `${line.name}${line.word ? `, ${line.word}` : ""} (${unit})`,
        align: "right",
        sort: (row) => row.values[i] ?? -Infinity,
        cell: (row) => shortValue(row.values[i]),
      })),
    ],
    [lines.map((line) => line.name + line.word).join(), unit],
  );
  const rows = x.map((at, i) => ({ at, values: values.map((column) => column[i]) })).reverse();
  return html`<${Table} caption=${`${title}, the newest first`} columns=${columns} rows=${rows}
    rowKey=${(row) => String(row.at)} page_rows=${15} />`;
}
