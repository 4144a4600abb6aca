/**
 * Who matches, how busy each is, and what was rearranged and why; to be rearranged by hand, too.
 *
 * The broker decides by itself when to split and to merge. Whoever may change things can ask for it
 * here; the broker says at once if it cannot be, and the table below what became of it.
 */
import { Table, announce, count } from "../ui.js";
import { html, useState } from "../vendor/preact.js";
import { AnswerPanel, timeOfDay } from "./answer_panel.js";
import { ageText, rateText } from "./units.js";

const LAYOUTS = ["partitioned", "replicated", "hierarchical"];
const ROWS = 10;
/** With less idle time a bar has another colour; from when on the broker splits is one of its settings. */
const BUSY = 0.2;

const MATCHER_COLUMNS = [
  { key: "number", title: "Matcher", sort: (row) => row.number, cell: (row) => (row.number === 0 ? "0, the broker" : row.number) },
  { key: "role", title: "Role", sort: (row) => row.role },
  { key: "idle_share", title: "Idle", sort: (row) => row.idle_share, cell: (row) => html`<${Idle} row=${row} />` },
  { key: "subscriptions", title: "Subscriptions", align: "right", sort: (row) => row.subscriptions, cell: (row) => count(row.subscriptions) },
  { key: "messages_per_s", title: "Messages", align: "right", sort: (row) => row.messages_per_s, cell: (row) => rateText(row.messages_per_s) },
  { key: "messages", title: "In all", align: "right", sort: (row) => row.messages, cell: (row) => count(row.messages) },
  { key: "cells", title: "Cells", align: "right", sort: (row) => row.cells },
  { key: "pid", title: "Process", align: "right", sort: (row) => row.pid, cell: (row) => row.pid || "–" },
];

const PAST_COLUMNS = [
  { key: "at", title: "When", cell: (row) => timeOfDay(row.at * 1000) },
  { key: "kind", title: "What", cell: (row) => html`<span class=${row.failure ? "ops-bad" : ""}>${row.failure ? `✘ ${row.kind}` : row.kind}</span>` },
  { key: "reason", title: "Why", cell: (row) => html`<span class="ops-name">${reasonOf(row)}</span>` },
  { key: "duration_s", title: "Took", align: "right", cell: (row) => tookText(row.duration_s) },
  { key: "moved", title: "Moved", align: "right", cell: (row) => count(row.moved) },
  { key: "matchers", title: "Processes then", align: "right" },
];

const reasonOf = (row) => (row.failure ? `given up: ${row.failure} (${row.reason})` : row.reason);
const tookText = (seconds) => (seconds < 1 ? `${Math.round(seconds * 1000)} ms` : ageText(seconds));

/**
 * Rearrangements as notes of the timeline.
 * @param {{reconfigurations: any[]} | null} view
 */
export function notesOf(view) {
  return (view?.reconfigurations ?? []).map((row) => ({
    now: row.at,
    kind: "matchers",
    text: `${row.kind}: ${reasonOf(row)}; took ${tookText(row.duration_s)}, processes then: ${row.matchers}`,
  }));
}

function Idle({ row }) {
  const percent = `${Math.round(100 * row.idle_share)} %`;
  return html`<span class=${`ops-progress ${row.idle_share < BUSY ? "is-busy" : ""}`}>
    <progress max="1" value=${row.idle_share} aria-label=${`Matcher ${row.number}: share of time in which it is idle`}></progress>${percent}
  </span>`;
}

/** @param {{app: import("../app.js").App, answer: any}} props */
export function Matchers({ app, answer }) {
  const view = answer.data;
  const note = view && `${view.layout}${view.is_reconfiguring ? ", being rearranged" : ""}`;
  const actions = view && app.may_change && html`<${Rearrange} app=${app} view=${view} again=${answer.again} />`;
  return html`<${AnswerPanel} title="Matchers" class="is-wide" answer=${answer} note=${note} actions=${actions}>
    ${(data) => html`<${Table} caption="Matchers" columns=${MATCHER_COLUMNS} rows=${data.matchers} rowKey=${(row) => String(row.number)}
        empty="Nobody matches" />
      <h3 class="ops-past">Rearranged</h3>
      <${Table} caption="What was rearranged, the newest first" columns=${PAST_COLUMNS} rows=${[...data.reconfigurations].reverse()}
        rowKey=${(row) => `${row.at} ${row.kind}`} page_rows=${ROWS} empty="No rearrangements yet" />`}
  <//>`;
}

function Rearrange({ app, view, again }) {
  const [layout, setLayout] = useState(null);
  const [state, setState] = useState({ is_asking: false, error: null });
  const wanted = layout ?? view.layout;
  const is_off = state.is_asking || view.is_reconfiguring;
  const ask = async (what, body = {}) => {
    setState({ is_asking: true, error: null });
    try {
      await app.api.post(`/api/broker/matchers/${what}`, body);
      setState({ is_asking: false, error: null });
      setLayout(null);
      announce(`Asked for: ${what}`);
    } catch (error) {
      setState({ is_asking: false, error });
    }
    again();
  };
  const switchLayout = (event) => {
    event.preventDefault();
    ask("layout", { layout: wanted });
  };
  return html`<form class="ops-rearrange" aria-label="Rearrange" onSubmit=${switchLayout}>
    ${state.error && html`<span class="ops-fault" role="alert">${state.error.message}</span>`}
    <label class="only-read" for="ops-layout">Layout</label>
    <select id="ops-layout" class="select" value=${wanted} onChange=${(event) => setLayout(event.currentTarget.value)}>
      ${LAYOUTS.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
    </select>
    <button type="submit" class="button" disabled=${is_off || wanted === view.layout}>Switch</button>
    <button type="button" class="button" disabled=${is_off} onClick=${() => ask("split")}>Split</button>
    <button type="button" class="button" disabled=${is_off} onClick=${() => ask("merge")}>Merge</button>
  </form>`;
}
