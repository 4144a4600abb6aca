/**
 * Who wants what: searched, and asked why something did or did not arrive.
 *
 * The broker lists subscriptions by number and can narrow them to a client; the rest of the search is
 * done here over what was fetched, a thousand at a time, and says so when there are more.
 */
import { Table, count, useAnswer } from "../ui.js";
import { html, useMemo, useState } from "../vendor/preact.js";
import { AnswerPanel, EVERY_S } from "./answer_panel.js";
import { PageButtons } from "./clients.js";
import { agoText } from "./units.js";

const FETCHED = 1000;
const PAGE_ROWS = 15;
const PLACES = {
  any: { label: "Anywhere", of: (row) => [row.client, row.topic, row.filter, row.user ?? "", String(row.number)] },
  client: { label: "Client", of: (row) => [row.client] },
  topic: { label: "Topic", of: (row) => [row.topic] },
  text: { label: "Text", of: (row) => [row.filter] },
};

function columnsOf(onExplain) {
  return [
    { key: "number", title: "Number", align: "right", sort: (row) => row.number },
    { key: "client", title: "Client", sort: (row) => row.client, cell: (row) => html`<span class="ops-name">${row.client}</span>` },
    { key: "topic", title: "Topic", sort: (row) => row.topic, cell: (row) => html`<code class="ops-name">${row.topic}</code>` },
    { key: "filter", title: "Text", sort: (row) => row.filter, cell: (row) => html`<${Text} row=${row} />` },
    { key: "qos", title: "QoS", align: "right", sort: (row) => row.qos },
    { key: "accepted_at", title: "Age", align: "right", sort: (row) => -row.accepted_at, cell: (row) => agoText(row.accepted_at) },
    {
      key: "explain",
      title: "Why?",
      cell: (row) => html`<button type="button" class="button small" aria-label=${`Explain subscription ${row.number}`}
        onClick=${() => onExplain(row)}>Explain</button>`,
    },
  ];
}

function Text({ row }) {
  const more = [row.evolve && `evolve ${row.evolve}`, row.engine !== "broker" && `by ${row.engine}`].filter(Boolean);
  return html`${row.filter ? html`<code class="ops-name">${row.filter}</code>` : html`<span class="quiet">everything</span>`}
    ${more.length > 0 && html` <span class="quiet">${more.join(", ")}</span>`}`;
}

/** @param {{app: import("../app.js").App, onExplain: (row: any) => void}} props */
export function Subscriptions({ app, onExplain }) {
  const [text, setText] = useState("");
  const [place, setPlace] = useState("any");
  const [pages, setPages] = useState([0]);
  const answer = useAnswer(app, "/api/broker/subscriptions", { after: pages.at(-1), limit: FETCHED }, { every_s: EVERY_S });
  const columns = useMemo(() => columnsOf(onExplain), [onExplain]);
  const wanted = text.trim().toLowerCase();
  const fits = (row) => PLACES[place].of(row).some((value) => value.toLowerCase().includes(wanted));
  const search = html`<form class="ops-search" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label class="only-read" for="ops-search-text">Search subscriptions</label>
    <input id="ops-search-text" type="search" class="input" placeholder="Search" value=${text}
      onInput=${(event) => setText(event.currentTarget.value)} />
    <label class="only-read" for="ops-search-place">Where</label>
    <select id="ops-search-place" class="select" value=${place} onChange=${(event) => setPlace(event.currentTarget.value)}>
      ${Object.entries(PLACES).map(([key, { label }]) => html`<option key=${key} value=${key}>${label}</option>`)}
    </select>
  </form>`;
  return html`<${AnswerPanel} title="Subscriptions" class="is-wide" answer=${answer} actions=${search}>
    ${(data) => {
      const found = data.items.filter(fits);
      const is_part = data.next !== null || pages.length > 1;
      return html`<p class="ops-found" role="status">
          ${wanted ? `${count(found.length)} of ${count(data.items.length)} fit` : `${count(data.items.length)} subscriptions`}${is_part ? " on this page" : ""}
        </p>
        <${Table} caption="Subscriptions" columns=${columns} rows=${found} rowKey=${(row) => String(row.number)}
          page_rows=${PAGE_ROWS} empty=${wanted ? "No subscription matches" : "No subscriptions"} />
        <${PageButtons} pages=${pages} setPages=${setPages} next=${data.next} what="subscriptions of the broker" />`;
    }}
  <//>`;
}
