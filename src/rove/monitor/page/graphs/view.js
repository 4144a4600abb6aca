/**
 * The graphs: what every engine does, second by second, in charts that share their time.
 *
 * All charts show the same period and the same cursor, because the question is always the same: what
 * did this action do to that engine? The period moves with the present, until somebody pauses it,
 * zooms into it or asks for another. Charts are drawn again when a sample has come, at most twice a
 * second, and not at all while nobody looks.
 */
import { Empty, announce, useCell } from "../ui.js";
import { html, useCallback, useEffect, useMemo, useReducer, useRef, useState } from "../vendor/preact.js";
import { AddChart } from "./add.js";
import { ChartCard } from "./card.js";
import { changedLayout, loadLayout, saveLayout } from "./layout.js";
import { samplesOf } from "./live.js";
import { DRAG_TYPE } from "./menu.js";
import { defaultCharts, meaningOfChart } from "./metrics.js";
import { useTime } from "./time.js";
import { Toolbar } from "./toolbar.js";

const ZOOM_MIN_S = 1;

/** @param {{app: import("../app.js").App, is_beside?: boolean}} props */
export function GraphsView({ app, is_beside }) {
  const samples = samplesOf(app);
  const [layout, change] = useLayout(app);
  const [is_adding, setAdding] = useState(false);
  const time = useTime(app, samples, layout.range);
  const state = useCell(app.cells.state);
  const world = useCell(app.cells.world);
  const engines = useMemo(() => (world.document?.engines ?? []).map((engine) => engine.name), [world]);
  const moment = { ...time, live: state?.live ?? null, engines };
  const zoom = useCallback(([from, to]) => to - from >= ZOOM_MIN_S && time.setZoom([from, to]), []);
  const reset = useCallback(() => time.setZoom(null), []);
  const add = (chart) => {
    change({ type: "add", chart });
    setAdding(false);
    announce(`${meaningOfChart(chart).title} was added at the end.`);
  };
  const restore = () => {
    change({ type: "reset", layout: { charts: defaultCharts(app.parts), range: layout.range } });
    announce("The charts are as at the beginning.");
  };
  return html`<div class=${`graphs ${is_beside ? "is-beside" : ""}`}>
    <${Toolbar} layout=${layout} change=${change} time=${time} onAdd=${() => setAdding(true)} onRestore=${restore} />
    ${layout.charts.length === 0
      ? html`<${Empty} title="No chart is left">
          <button type="button" class="button" onClick=${restore}>Bring the usual ones back</button>
        <//>`
      : html`<ul class="graph-grid">
          ${layout.charts.map(
            (spec, place) => html`<${Item} key=${spec.id} spec=${spec} place=${place} change=${change}>
              <${ChartCard} app=${app} samples=${samples} spec=${spec} moment=${moment} place=${place}
                places=${layout.charts.length} change=${change} onZoom=${zoom} onReset=${reset} />
            <//>`,
          )}
        </ul>`}
    ${is_adding && html`<${AddChart} app=${app} onAdd=${add} onClose=${() => setAdding(false)} />`}
  </div>`;
}

/** A place in the grid, on which another chart can be dropped. */
function Item({ spec, place, change, children }) {
  const [is_over, setOver] = useState(false);
  const over = (event) => {
    if (!event.dataTransfer.types.includes(DRAG_TYPE)) return;
    event.preventDefault();
    setOver(true);
  };
  const drop = (event) => {
    event.preventDefault();
    setOver(false);
    change({ type: "move", id: event.dataTransfer.getData(DRAG_TYPE), to: place });
  };
  return html`<li
    class=${`graph-item ${spec.wide ? "is-wide" : ""} ${is_over ? "is-over" : ""}`}
    onDragOver=${over}
    onDragLeave=${() => setOver(false)}
    onDrop=${drop}
  >
    ${children}
  </li>`;
}

/** The layout; kept from the first change on. */
function useLayout(app) {
  const [layout, change] = useReducer(changedLayout, null, () => loadLayout(app));
  const first = useRef(layout);
  useEffect(() => {
    if (layout !== first.current) saveLayout(app, layout);
  }, [layout]);
  return [layout, change];
}
