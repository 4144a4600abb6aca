/**
 * Which charts there are, in which order and form: kept by the browser, brought back to the default.
 *
 * What is stored may be of an older page, or edited by hand; whatever is not a chart is left out
 * rather than believed.
 */
import { chartOf, defaultCharts } from "./metrics.js";

const KEY = "graphs.layout";

/** What can be looked at, in seconds; `run` and `free` have no length of their own. */
export const RANGES = [
  { value: "60", label: "1 min" },
  { value: "300", label: "5 min" },
  { value: "3600", label: "1 h" },
  { value: "86400", label: "1 day" },
  { value: "run", label: "Whole run" },
  { value: "free", label: "From … to" },
];

/**
 * @typedef {{charts: import("./metrics.js").ChartSpec[], range: string}} Layout
 */

/**
 * @param {object} app
 * @returns {Layout}
 */
export function loadLayout(app) {
  const stored = app.store.get(KEY, null);
  const charts = Array.isArray(stored?.charts) ? stored.charts.filter(isChart) : null;
  const range = RANGES.some(({ value }) => value === stored?.range) ? stored.range : "300";
  return {
    charts: charts?.map((one) => chartOf(one.metrics, one)) ?? defaultCharts(app.parts),
    range: range === "free" ? "300" : range,
  };
}

function isChart(one) {
  const { metrics, labels, id } = one ?? {};
  return (
    typeof id === "string" &&
    Array.isArray(metrics) &&
    metrics.length > 0 &&
    metrics.every((metric) => typeof metric === "string") &&
    (labels === undefined || (typeof labels === "object" && labels !== null))
  );
}

/**
 * @param {object} app
 * @param {Layout | null} layout null forgets it
 */
export function saveLayout(app, layout) {
  app.store.set(KEY, layout);
}

/**
 * All but the charts stay; used as a reducer.
 * @param {Layout} layout
 * @param {{type: string, id?: string, chart?: import("./metrics.js").ChartSpec,
 *   change?: object, to?: number, range?: string, layout?: Layout}} action
 * @returns {Layout}
 */
export function changedLayout(layout, action) {
  const { charts } = layout;
  switch (action.type) {
    case "add":
      return { ...layout, charts: [...charts, { ...action.chart, id: freeId(charts, action.chart.id) }] };
    case "remove":
      return { ...layout, charts: charts.filter((one) => one.id !== action.id) };
    case "change":
      return {
        ...layout,
        charts: charts.map((one) => (one.id === action.id ? { ...one, ...action.change } : one)),
      };
    case "move":
      return { ...layout, charts: moved(charts, action.id, action.to) };
    case "range":
      return { ...layout, range: action.range };
    case "reset":
      return action.layout;
    default:
      throw new Error(`a layout cannot ${action.type}`);
  }
}

function moved(charts, id, to) {
  const from = charts.findIndex((one) => one.id === id);
  if (from < 0 || to < 0 || to >= charts.length) return charts;
  const others = charts.toSpliced(from, 1);
  return others.toSpliced(to, 0, charts[from]);
}

function freeId(charts, wanted) {
  let id = wanted;
  for (let n = 2; charts.some((one) => one.id === id); n++) id = `${wanted} ${n}`;
  return id;
}
