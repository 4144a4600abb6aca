/**
 * What has happened, on a line of time: engines switched, scenarios begun, the broker gone and back.
 *
 * The monitor keeps the last hundred notes for pages that come late; those that come while the page
 * is open are added. Both may bring the same note, which is shown once.
 */
import { Empty, Panel } from "../ui.js";
import { html, useEffect, useState } from "../vendor/preact.js";
import { timeOfDay } from "./asked.js";

const NOTES_MAX = 300;
const KINDS = {
  engine: { label: "Engines", sign: "⇄" },
  scenario: { label: "Scenarios", sign: "▶" },
  broker: { label: "Broker", sign: "●" },
  command: { label: "Commands", sign: "›" },
  refused: { label: "Refused", sign: "✘" },
};

/** @type {WeakMap<object, Notes>} */
const ofApps = new WeakMap();

/** The notes of a page, collected since it was first looked at. */
class Notes {
  constructor(app) {
    /** @type {{now: number, kind: string, text: string}[]} the newest first */
    this.all = [];
    this.listeners = new Set();
    app.live.on("note", (note) => this.take([note]));
    const ask = () => app.api.get("/api/notes").then((notes) => this.take(notes), () => {});
    app.live.on("open", ask);
    ask();
  }

  static of(app) {
    if (!ofApps.has(app)) ofApps.set(app, new Notes(app));
    return ofApps.get(app);
  }

  take(notes) {
    const known = new Set(this.all.map(keyOf));
    const fresh = notes.filter((note) => !known.has(keyOf(note)));
    if (fresh.length === 0) return;
    this.all = [...fresh, ...this.all].sort((a, b) => b.now - a.now).slice(0, NOTES_MAX);
    for (const listener of this.listeners) listener(this.all);
  }
}

const keyOf = ({ now, kind, text }) => `${now} ${kind} ${text}`;

/** @param {{app: import("../app.js").App}} props */
export function Timeline({ app }) {
  const notes = Notes.of(app);
  const [all, setAll] = useState(notes.all);
  const [kind, setKind] = useState("");
  useEffect(() => {
    notes.listeners.add(setAll);
    setAll(notes.all);
    return () => notes.listeners.delete(setAll);
  }, [notes]);
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
              <span class="ops-name">${note.text}</span>
            </li>`,
          )}
        </ol>`}
  <//>`;
}
