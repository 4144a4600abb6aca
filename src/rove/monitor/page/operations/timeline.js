/**
 * What has happened, on a line of time: engines switched, scenarios begun, the broker gone and back,
 * matchers split and merged, sessions whose clients did not come back.
 *
 * The monitor sends a page that connects the last hundred notes, and then each as it comes. What the
 * broker rearranged comes with its matchers, and which sessions ended is asked: it keeps the last
 * hundred of both itself.
 */
import { Empty, Panel, count, useAnswer, useCell } from "../ui.js";
import { html, useState } from "../vendor/preact.js";
import { EVERY_S, timeOfDay } from "./answer_panel.js";
import { notesOf } from "./matchers.js";
import { ageText } from "./units.js";

const KINDS = {
  engine: { label: "Engines", sign: "⇄" },
  scenario: { label: "Scenarios", sign: "▶" },
  broker: { label: "Broker", sign: "●" },
  matchers: { label: "Matchers", sign: "⋔" },
  session: { label: "Sessions", sign: "⌛" },
  command: { label: "Commands", sign: "›" },
  refused: { label: "Refused", sign: "✘" },
};

const keyOf = ({ now, kind, text }) => `${now} ${kind} ${text}`;

/** @param {{items: any[]} | null} view sessions that ended because nobody came back */
function expiredNotes(view) {
  return (view?.items ?? []).map((row) => ({
    now: row.at,
    kind: "session",
    text: `${row.client} did not come back within ${ageText(row.expiry_s)}: its session ended, ${count(row.dropped)} notifications were lost`,
  }));
}

/** @param {{app: import("../app.js").App, matchers: any}} props */
export function Timeline({ app, matchers }) {
  const is_asked = Boolean(app.parts.broker && app.may_change);
  const expired = useAnswer(app, "/api/broker/expired", {}, { every_s: EVERY_S, is_on: is_asked });
  const notes = useCell(app.cells.notes);
  const [kind, setKind] = useState("");
  const all = [...notes, ...notesOf(matchers), ...expiredNotes(expired.data)].reverse().sort((a, b) => b.now - a.now);
  const kinds = Object.keys(KINDS).filter((name) => all.some((note) => note.kind === name));
  const shown = all.filter((note) => kind === "" || note.kind === kind);
  const choice = html`<label class="only-read" for="ops-timeline-kind">Which events</label>
    <select id="ops-timeline-kind" class="select" value=${kind} onChange=${(event) => setKind(event.currentTarget.value)}>
      <option value="">All events</option>
      ${kinds.map((name) => html`<option key=${name} value=${name}>${KINDS[name].label}</option>`)}
    </select>`;
  return html`<${Panel} title="Timeline" class="ops-panel" actions=${choice}>
    ${shown.length === 0
      ? html`<${Empty} title="No events yet" />`
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
