/**
 * Who is connected or away, what waits for whom, and who is too slow and why.
 *
 * The broker gives sessions in pages by number. A table here is one of its pages: sorting sorts that
 * page, and the buttons below go on to the next.
 */
import { Table, count, useAnswer } from "../ui.js";
import { html, useState } from "../vendor/preact.js";
import { AnswerPanel, EVERY_S } from "./answer_panel.js";
import { ageText, agoText, bytesText } from "./units.js";

const PAGE_ROWS = 200;

const CLIENT_COLUMNS = [
  { key: "client", title: "Client", sort: (row) => row.client, cell: (row) => html`<span class="ops-name">${row.client}</span>` },
  { key: "user", title: "User", sort: (row) => row.user ?? "", cell: (row) => row.user ?? "–" },
  {
    key: "connected",
    title: "State",
    sort: (row) => (row.connected ? 0 : 1),
    cell: (row) => `${row.connected ? "connected" : "away"} for ${agoText(row.since)}`,
  },
  { key: "address", title: "Address", sort: (row) => row.address ?? "", cell: (row) => row.address ?? "–" },
  { key: "version", title: "MQTT", sort: (row) => row.version },
  number("subscriptions", "Subscriptions"),
  number("queue_messages", "Waiting"),
  { key: "queue_bytes", title: "Waiting bytes", align: "right", sort: (row) => row.queue_bytes, cell: (row) => bytesText(row.queue_bytes) },
  number("inflight", "Unacknowledged"),
];

const QUEUE_COLUMNS = [
  { key: "client", title: "Client", sort: (row) => row.client, cell: (row) => html`<span class="ops-name">${row.client}</span>` },
  { key: "connected", title: "State", sort: (row) => (row.connected ? 0 : 1), cell: (row) => (row.connected ? "connected" : "away") },
  number("queue_messages", "Waiting"),
  { key: "queue_bytes", title: "Bytes", align: "right", sort: (row) => row.queue_bytes, cell: (row) => bytesText(row.queue_bytes) },
  { key: "oldest_s", title: "Oldest", align: "right", sort: (row) => row.oldest_s, cell: (row) => ageText(row.oldest_s) },
  number("inflight", "Unacknowledged"),
];

const SLOW_COLUMNS = [
  { key: "client", title: "Client", sort: (row) => row.client, cell: (row) => html`<span class="ops-name">${row.client}</span>` },
  { key: "why", title: "Why", sort: (row) => row.why },
  number("queued", "Waiting"),
  { key: "queued_bytes", title: "Bytes", align: "right", sort: (row) => row.queued_bytes, cell: (row) => bytesText(row.queued_bytes) },
  { key: "oldest_s", title: "Oldest", align: "right", sort: (row) => row.oldest_s, cell: (row) => ageText(row.oldest_s) },
  number("inflight", "Unacknowledged"),
];

function number(key, title) {
  return { key, title, align: "right", sort: (row) => row[key], cell: (row) => count(row[key]) };
}

/** @param {{app: import("../app.js").App}} props */
export function Clients({ app }) {
  const [pages, setPages] = useState([0]);
  const answer = useAnswer(app, "/api/broker/clients", { after: pages.at(-1), limit: PAGE_ROWS }, { every_s: EVERY_S });
  return html`<${AnswerPanel} title="Clients" class="is-wide" answer=${answer}>
    ${(data) => html`<${Table} caption="Sessions of clients" columns=${CLIENT_COLUMNS} rows=${data.items}
        rowKey=${(row) => String(row.number)} page_rows=${PAGE_ROWS} empty="No clients" />
      <${PageButtons} pages=${pages} setPages=${setPages} next=${data.next} what="clients" />`}
  <//>`;
}

/**
 * Backwards and forwards through pages that are known by their beginnings.
 * @param {{pages: number[], setPages: (pages: number[]) => void, next: number | null, what: string}} props
 */
export function PageButtons({ pages, setPages, next, what }) {
  if (pages.length === 1 && next === null) return null;
  return html`<nav class="pager" aria-label=${`Pages of ${what}`}>
    <button type="button" class="button small" disabled=${pages.length === 1} onClick=${() => setPages(pages.slice(0, -1))}>Previous</button>
    <span>Page ${pages.length}</span>
    <button type="button" class="button small" disabled=${next === null} onClick=${() => setPages([...pages, next])}>Next</button>
  </nav>`;
}

/** @param {{app: import("../app.js").App}} props */
export function Queues({ app }) {
  const answer = useAnswer(app, "/api/broker/queues", { limit: PAGE_ROWS }, { every_s: EVERY_S });
  return html`<${AnswerPanel} title="Queues" answer=${answer} note="the longest first">
    ${(data) => html`<${Table} caption="What waits for whom" columns=${QUEUE_COLUMNS} rows=${data.items}
      rowKey=${(row) => row.client} page_rows=${20} empty="No queued notifications" />`}
  <//>`;
}

/** @param {{app: import("../app.js").App}} props */
export function SlowConsumers({ app }) {
  const answer = useAnswer(app, "/api/broker/slow", {}, { every_s: EVERY_S });
  return html`<${AnswerPanel} title="Slow consumers" answer=${answer}>
    ${(data) => html`<${Table} caption="Slow consumers and reasons" columns=${SLOW_COLUMNS} rows=${data}
      rowKey=${(row) => row.client} page_rows=${20} empty="No slow consumers" />`}
  <//>`;
}
