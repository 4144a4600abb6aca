/**
 * What works on the stored stream: jobs of the pipeline, and channels of the lake.
 */
import { Table, count, useAnswer } from "../ui.js";
import { html } from "../vendor/preact.js";
import { AnswerPanel, EVERY_S } from "./answer_panel.js";
import { ageText, agoText, rateText } from "./units.js";

const STATES = { failed: "✘ failed", killed: "✘ killed", running: "✔ running", done: "✔ done" };

const JOB_COLUMNS = [
  { key: "job", title: "Job", sort: (row) => row.job },
  { key: "state", title: "State", sort: (row) => row.state, cell: (row) => html`<span class=${isIll(row) ? "ops-bad" : ""}>${STATES[row.state] ?? row.state}</span>` },
  { key: "progress", title: "Progress", sort: shareOf, cell: (row) => html`<${Progress} row=${row} />` },
  { key: "lag_rows", title: "Lag", align: "right", sort: (row) => row.lag_rows, cell: (row) => `${count(row.lag_rows)} rows` },
  { key: "lag_s", title: "Behind", align: "right", sort: (row) => row.lag_s, cell: (row) => ageText(row.lag_s) },
  { key: "in", title: "In", align: "right", sort: (row) => row.rows_in_per_s, cell: (row) => rateText(row.rows_in_per_s) },
  { key: "out", title: "Out", align: "right", sort: (row) => row.rows_out_per_s, cell: (row) => rateText(row.rows_out_per_s) },
  { key: "batch_s", title: "Batch", align: "right", sort: (row) => row.trigger_s ?? row.batch_s, cell: (row) => ageText(row.trigger_s ?? row.batch_s) },
  { key: "updated_at", title: "Updated", align: "right", sort: (row) => -row.updated_at, cell: (row) => `${agoText(row.updated_at)} ago` },
  { key: "last_error", title: "Look at", cell: (row) => html`<span class="ops-name">${[row.last_error, ...(row.notes ?? [])].filter(Boolean).join("; ")}</span>` },
];

const isIll = (row) => row.state === "failed" || row.state === "killed";

/** How much of the log is done; positions begin at 0, and −1 is nothing. */
function shareOf(row) {
  return row.lake_position < 0 ? 0 : (row.position + 1) / (row.lake_position + 1);
}

function Progress({ row }) {
  const percent = `${(100 * shareOf(row)).toFixed(1)} %`;
  return html`<span class="ops-progress">
    <progress max="1" value=${shareOf(row)} aria-label=${`${row.job}: part of the log that is done`}></progress>${percent}
  </span>`;
}

/** @param {{app: import("../app.js").App}} props */
export function Jobs({ app }) {
  const answer = useAnswer(app, "/api/jobs", {}, { every_s: EVERY_S });
  return html`<${AnswerPanel} title="Pipeline jobs" class="is-wide" answer=${answer} loading="Reading the jobs">
    ${(data) => html`<${Table} caption="Jobs of the pipeline" columns=${JOB_COLUMNS} rows=${data} rowKey=${(row) => row.job}
      empty="No job has run yet" />`}
  <//>`;
}

const CHANNEL_COLUMNS = [
  { key: "name", title: "Channel", sort: (row) => row.name, cell: (row) => html`<span class="ops-name">${row.name}</span>` },
  { key: "topics", title: "Topics", cell: (row) => html`<code class="ops-name">${(row.topics ?? []).join(", ")}</code>` },
  { key: "keep", title: "Keeps", cell: (row) => (row.keeps ?? []).join(", ") },
];

/** @param {{app: import("../app.js").App}} props */
export function Channels({ app }) {
  const answer = useAnswer(app, "/api/broker/channels", {}, { every_s: 10 });
  return html`<${AnswerPanel} title="Channels" answer=${answer}>
    ${(data) => html`<${Table} caption="Channels" columns=${CHANNEL_COLUMNS} rows=${data.items} rowKey=${(row) => row.name}
      empty="No channel keeps anything" />`}
  <//>`;
}
