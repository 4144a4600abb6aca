/**
 * Buttons for what is said most: halt and go on, begin again, another scenario, another live engine.
 * Each only says what could be typed; the console shows it.
 */
import { useAnswer, useCell } from "../ui.js";
import { html, useState } from "../vendor/preact.js";

/** @param {{app: import("../app.js").App}} props */
export function WorldControls({ app }) {
  const world = useCell(app.cells.world);
  const state = useCell(app.cells.state);
  const connection = useCell(app.cells.connection);
  const scenarios = useAnswer(app, "/api/scenarios");
  const [is_busy, setBusy] = useState(false);
  const is_off = is_busy || connection.state !== "open" || world.status !== "ready" || !app.may_change;
  const say = async (text) => {
    setBusy(true);
    await app.say(text).catch(() => {}); // the log tells
    setBusy(false); // and what was chosen and refused is shown no longer
  };
  const halt = state?.is_paused ? "resume" : "pause";
  return html`<div class="world-controls">
    <button type="button" class="button small" disabled=${is_off || state?.is_over} onClick=${() => say(halt)}>
      <svg viewBox="0 0 12 12" width="10" height="10" aria-hidden="true"><path d=${halt === "pause" ? "M2 1h3v10H2zM7 1h3v10H7z" : "M2 1l9 5-9 5z"} fill="currentColor" /></svg>
      ${halt === "pause" ? "Pause" : "Resume"}</button>
    <button type="button" class="button small" disabled=${is_off} onClick=${() => say("restart")}>Restart</button>
    <label class="world-controls-choice"><span>Scenario</span>
      <select class="select" disabled=${is_off} value=${world.document?.scenario ?? ""} onChange=${(event) => say(`scenario ${event.currentTarget.value}`)}>
        ${choices(scenarios.data, world.document).map(({ name, title }) => html`<option key=${name} value=${name}>${title ?? name}</option>`)}
      </select>
    </label>
    ${world.document?.engines.length > 0 && html`<label class="world-controls-choice"><span>Live engine</span>
      <select class="select" disabled=${is_off || state?.is_over} value=${state?.live ?? ""} onChange=${(event) => say(`engine ${event.currentTarget.value}`)}>
        ${world.document.engines.map(({ name }) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select>
    </label>`}
  </div>`;
}

/** The scenarios that can be begun, with the one that runs, whatever it is. */
function choices(scenarios, document) {
  const known = scenarios ?? [];
  if (!document || known.some(({ name }) => name === document.scenario)) return known;
  return [{ name: document.scenario, title: document.title }, ...known];
}
