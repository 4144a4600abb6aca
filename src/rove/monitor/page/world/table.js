/**
 * The world as a table: for screen readers, and for whoever wants figures. Read once a second.
 */
import { Table, count } from "../ui.js";
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { regionAt } from "./geometry.js";
import { KINDS } from "./palette.js";

const EVERY_MS = 1000;

/** @param {{app: any, model: import("./model.js").WorldModel, selected: string | null}} props */
export function WorldTable({ app, model, selected }) {
  const [text, setText] = useState("");
  const [kind, setKind] = useState("");
  const at = useBeat(EVERY_MS);
  const columns = useMemo(() => columnsOf(app, model), [app, model]);
  const rows = useMemo(() => rowsOf(model, text, kind), [model, text, kind, at]);
  const kinds = [...new Set(model.document.entities.kinds)].sort();
  return html`<div class="world-table">
    <div class="world-filter">
      <label class="field"><span>Name contains</span><input class="input" value=${text} onInput=${(event) => setText(event.currentTarget.value)} /></label>
      <label class="field"><span>Kind</span>
        <select class="select" value=${kind} onChange=${(event) => setKind(event.currentTarget.value)}>
          <option value="">all</option>
          ${kinds.map((number) => html`<option key=${number} value=${String(number)}>${KINDS[number]}</option>`)}
        </select>
      </label>
      <p class="quiet" role="status">${count(rows.length)} of ${count(model.names.length)}</p>
    </div>
    <${Table} caption="All entities of the world" columns=${columns} rows=${rows} rowKey=${(row) => row.name} page_rows=${50}
      empty="No entity matches the filter" selectedKey=${selected} />
  </div>`;
}

function columnsOf(app, model) {
  const number = (key, title, digits) => ({ key, title, align: "right", sort: (row) => row[key], cell: (row) => row[key].toFixed(digits) });
  const columns = [
    { key: "name", title: "Name", sort: (row) => row.name, cell: (row) => html`<button type="button" class="link" onClick=${() => app.select(row.name)}>${row.name}</button>` },
    { key: "kind", title: "Kind", sort: (row) => row.kind },
    number("x", "x (m)", 1),
    number("y", "y (m)", 1),
    number("speed", "Speed (m/s)", 1),
  ];
  return model.document.regions.length > 1 ? [...columns, number("server", "Server", 0)] : columns;
}

function rowsOf(model, text, kind) {
  const at = model.time();
  if (at === null || !model.dots.is_known) return [];
  const wanted = text.trim().toLowerCase();
  const { kinds } = model.document.entities;
  const rows = [];
  model.names.forEach((name, line) => {
    if (kind !== "" && kinds[line] !== Number(kind)) return;
    if (!name.toLowerCase().includes(wanted)) return;
    const { x, y, vx, vy } = model.dots.place(line, at);
    const server = regionAt(model.document.regions, x, y)?.server ?? -1;
    rows.push({ name, kind: KINDS[kinds[line]], x, y, speed: Math.hypot(vx, vy), server });
  });
  return rows;
}

function useBeat(every_ms) {
  const [beat, set] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && set((before) => before + 1), every_ms);
    return () => clearInterval(timer);
  }, [every_ms]);
  return beat;
}
