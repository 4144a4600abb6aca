/**
 * Above the charts: which period, going on or paused, and what to do with all of them.
 */
import { announce } from "../ui.js";
import { html, useState } from "../vendor/preact.js";
import { RANGES } from "./layout.js";
import { timeText } from "./plot.js";

/** @param {{layout: object, change: Function, time: object, onAdd: () => void, onRestore: () => void}} props */
export function Toolbar({ layout, change, time, onAdd, onRestore }) {
  const pause = () => {
    time.setPausedAt(time.pausedAt === null ? time.now : null);
    announce(time.pausedAt === null ? "The charts are paused." : "The charts go on.");
  };
  const choose = (range) => {
    time.setZoom(null);
    change({ type: "range", range });
  };
  return html`<div class="graph-bar" role="toolbar" aria-label="All charts">
    <fieldset class="graph-ranges">
      <legend class="only-read">Period</legend>
      ${RANGES.map(
        ({ value, label }) => html`<label key=${value}>
          <input type="radio" name="graph-range" value=${value} checked=${layout.range === value}
            onChange=${() => choose(value)} /><span>${label}</span>
        </label>`,
      )}
    </fieldset>
    ${layout.range === "free" && html`<${FreeRange} time=${time} />`}
    <button type="button" class="button small" aria-pressed=${time.pausedAt !== null} onClick=${pause}>
      ${time.pausedAt === null ? "Pause" : "Go on"}
    </button>
    ${time.zoom &&
    html`<button type="button" class="button small" onClick=${() => time.setZoom(null)}>Back from zoom</button>
      <span class="quiet">${timeText(time.window[0], 1)} to ${timeText(time.window[1], 1)}</span>`}
    <span class="graph-bar-space"></span>
    <button type="button" class="button small" onClick=${onAdd}>Add a chart</button>
    <button type="button" class="button small ghost" onClick=${onRestore}>Reset the layout</button>
  </div>`;
}

/** Two moments in the visitor's own time. */
function FreeRange({ time }) {
  const [from, setFrom] = useState(localText(time.window[0]));
  const [to, setTo] = useState(localText(time.window[1]));
  const bounds = [new Date(from).getTime() / 1000, new Date(to).getTime() / 1000];
  const is_right = bounds[0] < bounds[1];
  const show = (event) => {
    event.preventDefault();
    if (is_right) time.setFree(bounds);
  };
  return html`<form class="graph-free" onSubmit=${show}>
    <label>from <input type="datetime-local" step="1" value=${from} onInput=${(event) => setFrom(event.currentTarget.value)} /></label>
    <label>to <input type="datetime-local" step="1" value=${to} onInput=${(event) => setTo(event.currentTarget.value)} /></label>
    <button type="submit" class="button small" disabled=${!is_right}>Show</button>
    ${!is_right && html`<span class="graph-fault" role="alert">It has to end after it begins.</span>`}
  </form>`;
}

/** As inputs write it: 2026-11-16T21:30:05. */
function localText(at) {
  const moment = new Date(at * 1000);
  const local = new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 19);
}
