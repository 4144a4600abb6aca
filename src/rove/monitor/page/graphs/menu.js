/**
 * What can be done with a chart: move it, widen it, change its axis, see it as a table, save it.
 *
 * A chart is moved by dragging its handle, or with the arrow keys while the handle has the focus.
 */
import { Toggle, announce } from "../ui.js";
import { html, useEffect, useRef } from "../vendor/preact.js";

const STEPS = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };
export const DRAG_TYPE = "application/x-rove-chart";

/** @param {{title: string, spec: object, place: number, places: number, change: Function}} props */
export function MoveHandle({ title, spec, place, places, change }) {
  const keys = (event) => {
    const to = place + (STEPS[event.key] ?? 0);
    if (to === place || to < 0 || to >= places) return;
    event.preventDefault();
    change({ type: "move", id: spec.id, to });
    announce(`${title} is now chart ${to + 1} of ${places}.`);
  };
  const drag = (event) => {
    event.dataTransfer.setData(DRAG_TYPE, spec.id);
    event.dataTransfer.effectAllowed = "move";
    const card = event.currentTarget.closest(".graph-item");
    event.dataTransfer.setDragImage(card, 20, 20);
  };
  return html`<button
    type="button"
    class="button small ghost graph-handle"
    draggable=${true}
    aria-label=${`Move ${title}: chart ${place + 1} of ${places}. Arrow keys move it.`}
    title="Drag to move, or use the arrow keys"
    onKeyDown=${keys}
    onDragStart=${drag}
  >
    <svg width="10" height="16" viewBox="0 0 10 16" aria-hidden="true">
      ${[3, 8, 13].map((y) => [2, 8].map((x) => html`<circle cx=${x} cy=${y} r="1.4" fill="currentColor" />`))}
    </svg>
  </button>`;
}

/** @param {{title: string, spec: object, change: Function, savePng: Function | null, saveCsv: Function | null}} props */
export function CardMenu({ title, spec, change, savePng, saveCsv }) {
  const details = useRef(null);
  useEffect(() => closesItself(details.current), []);
  const set = (option) => change({ type: "change", id: spec.id, change: option });
  const act = (action) => () => {
    details.current.open = false;
    action();
  };
  return html`<details class="graph-menu" ref=${details}>
    <summary class="button small ghost" aria-label=${`Options of ${title}`}>Options</summary>
    <div class="graph-menu-list">
      <${Toggle} label="Table" checked=${spec.table} onChange=${(table) => set({ table })} />
      <${Toggle} label="Two columns wide" checked=${spec.wide} onChange=${(wide) => set({ wide })} />
      <${Toggle} label="Axis from zero" checked=${spec.zero} disabled=${spec.log} onChange=${(zero) => set({ zero })} />
      <${Toggle} label="Logarithmic axis" checked=${spec.log} onChange=${(log) => set({ log })} />
      <button type="button" class="button small" disabled=${!savePng} onClick=${act(savePng)}>Save as PNG</button>
      <button type="button" class="button small" disabled=${!saveCsv} onClick=${act(saveCsv)}>Save as CSV</button>
      <button type="button" class="button small" onClick=${() => {
        change({ type: "remove", id: spec.id });
        announce(`${title} was removed.`);
      }}>Remove chart</button>
    </div>
  </details>`;
}

/** Closed by Escape and by a click elsewhere, as menus are. */
function closesItself(details) {
  const click = (event) => {
    if (details.open && !details.contains(event.target)) details.open = false;
  };
  const key = (event) => {
    if (event.key !== "Escape" || !details.open) return;
    details.open = false;
    details.querySelector("summary").focus();
  };
  document.addEventListener("click", click);
  details.addEventListener("keydown", key);
  return () => {
    document.removeEventListener("click", click);
    details.removeEventListener("keydown", key);
  };
}
