/**
 * What has happened, on a line of time: engines switched, scenarios begun, the broker gone and back,
 * matchers split and merged.
 *
 * The monitor sends a page that connects the last hundred notes, and then each as it comes. What the
 * broker rearranged comes with its matchers: it keeps the last hundred itself.
 */
import { Empty, Panel, useCell } from "../ui.js";
import { html, useState } from "../vendor/preact.js";
import { timeOfDay } from "./asked.js";
import { notesOf } from "./matchers.js";

const KINDS = {
  engine: { label: "Engines", sign: "⇄" },
  scenario: { label: "Scenarios", sign: "▶" },
  broker: { label: "Broker", sign: "●" },
  matchers: { label: "Matchers", sign: "⋔" },
  command: { label: "Commands", sign: "›" },
  refused: { label: "Refused", sign: "✘" },
};

const keyOf = ({ now, kind, text }) => `${now} ${kind} ${text}`;

/** @param {{app: import("../app.js").App, matchers: any}} props */
export function Timeline({ app, matchers }) {
  const notes = useCell(app.cells.notes);
  const [kind, setKind] = useState("");
  const all = [...notes, ...notesOf(matchers)].reverse().sort((a, b) => b.now - a.now);
  const kinds = Object.keys(KINDS).filter((name) => all.some((note) => note.kind === name));
  const shown = all.filter((note) => kind === "" || note.kind === kind);
  const choice = html`<label class="only-read" for="ops-timeline-kind">Which events</label>
    <select id="ops-timeline-kind" class="select" value=${kind} onChange=${(event) => setKind(event.currentTarget.value)}>
      <option value="">All events</option>
      ${kinds.map((name) => html`<option key=${name} value=${name}>${KINDS[name].label}</option>`)}
    </select>`;
  return html`<${Panel} title="Timeline" class="ops-panel" actions=${choice}>
    ${shown.length === 0
      ? html`<${Empty} title="Nothing has happened yet" />`
      : html`<ol class="ops-timeline" tabindex="0" aria-label="Events, the newest first">
          ${shown.map(
            (note) => html`<li key=${keyOf(note)} class=${`is-${note.kind in KINDS ? note.kind : "other"}`}>
              <time datetime=${new Date(note.now * 1000).toISOString()}>${timeOfDay(note.now * 1000)}</time>
              <span class="ops-event" aria-hidden="true">${KINDS[note.kind]?.sign ?? "·"}</span>
              <span class="ops-name"><span class="only-read">${note.kind}: </span>${note.text}</span>
            </li>`,
          )}
        </ol>`}
  <//>`;
}
