/**
 * Policies of subscribers: what they decide and use, which are suspended and why, and on a click the
 * text of one with the variables of its subscriber.
 *
 * The list comes without texts, which can be long; they are asked for one client at a time. A text, a
 * variable, a topic or what went wrong was written by a stranger: here it is text, line by line.
 */
import { ErrorNote, Loading, Table, count, useAnswer } from "../ui.js";
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { AnswerPanel, EVERY_S } from "./answer_panel.js";
import { Figures, useRates } from "./summary.js";
import { ageText, agoText, bytesText, rateText } from "./units.js";

const FETCHED = 1000;
const PAGE_ROWS = 15;
const VALUE_CHARS = 400;

const sum = (values) => Object.values(values).reduce((a, b) => a + b, 0);
const leftOf = (row) => (row.suspended_until ?? 0) - Date.now() / 1000;
const keyOf = (row) => `${row.subscription} ${row.client_id}`;
const cpuText = (seconds) => (seconds < 1 ? `${Math.round(seconds * 1000)} ms` : ageText(seconds));
const ofText = (row) => (row.subscription === 0 ? "the session" : row.topic_filter);

/** 3 steps, 1 error: by what calls were stopped, the most frequent first. */
function kindsText(stopped) {
  const kinds = Object.entries(stopped).sort((a, b) => b[1] - a[1]);
  return kinds.map(([kind, number]) => `${count(number)} ${kind}`).join(", ");
}

/** What is summed over all policies: a name, and how it is made of the answer and its rates. */
const FIGURES = [
  {
    name: "At work",
    of: (view) => count(view.count),
    more: (view) => `${count(view.suspended)} suspended`,
    is_bad: (view) => view.suspended > 0,
  },
  { name: "Calls", of: (_, rate) => rateText(rate("calls")), more: ({ total }) => `${count(total.calls)} in all` },
  { name: "Sent as they came", of: ({ total }) => count(total.passed) },
  { name: "Changed", of: ({ total }) => count(total.changed), more: ({ total }) => `${count(total.outputs)} sent in all` },
  { name: "Dropped", of: ({ total }) => count(total.dropped) },
  {
    name: "Stopped",
    of: ({ total }) => count(sum(total.stopped)),
    more: ({ total }) => kindsText(total.stopped),
  },
  { name: "While suspended", of: ({ total }) => count(total.suspended), is_there: ({ total }) => total.suspended > 0 },
  {
    name: "Bytes out",
    of: ({ total }) => bytesText(total.bytes_out),
    more: ({ total }) => `of ${bytesText(total.bytes_in)} in`,
  },
  {
    name: "Processor",
    of: (_, rate) => (rate("cpu_s") === null ? "–" : `${(100 * rate("cpu_s")).toFixed(1)} %`),
    more: ({ total }) => `${cpuText(total.cpu_s)}, ${count(total.steps)} steps in all`,
  },
  {
    name: "Jobs in workers",
    of: (view) => count(view.jobs),
    more: (view) => `${count(view.jobs_waiting)} waiting, ${count(view.jobs_done)} done, ${count(view.jobs_lost)} lost`,
    is_there: (view) => view.workers > 0,
  },
];

function columnsOf(onShow) {
  return [
    { key: "client_id", title: "Client", sort: (row) => row.client_id, cell: (row) => html`<span class="ops-name">${row.client_id}</span>` },
    { key: "of", title: "Of", sort: ofText, cell: (row) => html`<${Of} row=${row} />` },
    { key: "state", title: "State", sort: leftOf, cell: (row) => html`<${State} row=${row} />` },
    tally("calls", "Calls"),
    tally("passed", "As they came"),
    tally("changed", "Changed"),
    tally("dropped", "Dropped"),
    { key: "stopped", title: "Stopped", align: "right", sort: (row) => sum(row.tally.stopped), cell: (row) => count(sum(row.tally.stopped)) },
    tally("bytes_in", "In", bytesText),
    tally("bytes_out", "Out", bytesText),
    tally("cpu_s", "Processor", cpuText),
    { key: "set_at", title: "Age", align: "right", sort: (row) => -row.set_at, cell: (row) => agoText(row.set_at) },
    {
      key: "show",
      title: "Text",
      cell: (row) => html`<button type="button" class="button small" aria-label=${`Show the policy of ${row.client_id}, ${ofText(row)}`}
        onClick=${(event) => onShow(row, event.currentTarget)}>Show</button>`,
    },
  ];
}

function tally(key, title, text = count) {
  return { key, title, align: "right", sort: (row) => row.tally[key], cell: (row) => text(row.tally[key]) };
}

function Of({ row }) {
  if (row.subscription === 0) return html`<span class="quiet">the session</span>`;
  return html`<code class="ops-name">${row.topic_filter}</code>${row.identifier > 0 && html` <span class="quiet">identifier ${row.identifier}</span>`}`;
}

function State({ row }) {
  const left_s = leftOf(row);
  const waiting = row.waiting > 0 ? `, ${count(row.waiting)} wait` : "";
  if (left_s <= 0) return `at work${waiting}`;
  return html`<span class="ops-bad" title=${row.last_trouble}>✘ suspended, ${ageText(left_s)} left${waiting}</span>`;
}

/** @param {{app: import("../app.js").App}} props */
export function Policies({ app }) {
  const [text, setText] = useState("");
  const [client, setClient] = useState("");
  const [chosen, setChosen] = useState(null);
  const asked = client === "" ? {} : { client };
  const answer = useAnswer(app, "/api/broker/policies", { limit: FETCHED, short: true, ...asked }, { every_s: EVERY_S });
  const rate = useRates(answer.data?.total ?? null);
  const shown_by = useRef(null);
  const show = (row, button) => {
    shown_by.current = button;
    setChosen(row);
  };
  const close = () => {
    setChosen(null);
    shown_by.current.focus();
  };
  const columns = useMemo(() => columnsOf(show), []);
  const wanted = text.trim().toLowerCase();
  const fits = (row) => [row.client_id, row.topic_filter, row.last_trouble].some((value) => value.toLowerCase().includes(wanted));
  const change = (event) => {
    setText(event.currentTarget.value);
    setClient("");
  };
  const search = html`<form class="ops-search" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label class="only-read" for="ops-search-policies">Search policies</label>
    <input id="ops-search-policies" type="search" class="input" placeholder="Client, topic or trouble" value=${text} onInput=${change} />
  </form>`;
  const note = answer.data && (answer.data.isolation === "process" ? "in worker processes only" : null);
  return html`<${AnswerPanel} title="Policies" class="is-wide" answer=${answer} note=${note} actions=${search}>
    ${(view) => {
      const found = view.policies.filter(fits).sort((a, b) => Math.max(0, leftOf(b)) - Math.max(0, leftOf(a)));
      return html`<${Figures} figures=${FIGURES} now=${view} rate=${rate} />
        <p class="ops-found" role="status">
          ${wanted ? `${count(found.length)} of ${count(view.policies.length)} fit` : `${count(view.count)} policies`}
          ${view.count > view.policies.length &&
          html`, looked for among the first ${count(view.policies.length)} ${" "}
            <button type="button" class="link" disabled=${!wanted} onClick=${() => setClient(text.trim())}>Ask for the client of this name</button>`}
        </p>
        <${Table} caption="Policies at work" columns=${columns} rows=${found} rowKey=${keyOf} page_rows=${PAGE_ROWS}
          selectedKey=${chosen === null ? "" : keyOf(chosen)} empty=${wanted ? "No policy matches" : "No policies"} />
        ${chosen !== null && html`<${Chosen} key=${keyOf(chosen)} app=${app} chosen=${chosen} onClose=${close} />`}`;
    }}
  <//>`;
}

/** One policy and the variables of its subscriber. */
function Chosen({ app, chosen, onClose }) {
  const head = useRef(null);
  const client = chosen.client_id;
  const policies = useAnswer(app, "/api/broker/policies", { client, limit: FETCHED }, { every_s: EVERY_S });
  const variables = useAnswer(app, "/api/broker/variables", { client }, { every_s: EVERY_S });
  useEffect(() => {
    head.current.focus();
    head.current.scrollIntoView({ block: "nearest" });
  }, []);
  const row = policies.data?.policies.find((one) => keyOf(one) === keyOf(chosen));
  return html`<section class="ops-chosen" aria-labelledby="ops-chosen-head">
    <header>
      <h3 id="ops-chosen-head" tabindex="-1" ref=${head}>
        Policy of <span class="ops-name">${client}</span>${chosen.subscription === 0 ? "" : html` for <code class="ops-name">${chosen.topic_filter}</code>`}
      </h3>
      <button type="button" class="button small" onClick=${onClose}>Close</button>
    </header>
    <div class="ops-sides">
      <div>
        ${row?.last_trouble &&
        html`<p class="ops-fault ops-name">Stopped: ${kindsText(row.tally.stopped)}. The last time: ${row.last_trouble}</p>`}
        ${row
          ? html`<${Text} text=${row.text} label=${`Text of the policy of ${client}`} />`
          : policies.data
            ? html`<p class="quiet">This policy is there no more.</p>`
            : policies.error
              ? html`<${ErrorNote} error=${policies.error} retry=${policies.again} />`
              : html`<${Loading} what="Asking for its text" />`}
      </div>
      <div>
        ${variables.data
          ? html`<${Variables} client=${client} variables=${variables.data} />`
          : variables.error
            ? html`<${ErrorNote} error=${variables.error} retry=${variables.again} />`
            : html`<${Loading} what="Asking for variables" />`}
      </div>
    </div>
  </section>`;
}

/** Lines with numbers, since what goes wrong is told with a line. */
function Text({ text, label }) {
  return html`<pre class="ops-policy" tabindex="0" role="region" aria-label=${label}><code>
    ${text.trimEnd().split("\n").map((line, i) => html`<span key=${i} class="ops-line">${`${line}\n`}</span>`)}
  </code></pre>`;
}

const VARIABLE_COLUMNS = [
  { key: "name", title: "Variable", sort: (row) => row.name, cell: (row) => html`<code class="ops-name">${row.name}</code>` },
  { key: "value", title: "Value", cell: (row) => html`<code class="ops-name">${row.value}</code>` },
  { key: "by", title: "Set", sort: (row) => row.by },
];

function Variables({ client, variables }) {
  const rows = ["manual", "automatic"].flatMap((by) => Object.entries(variables[by]).map(([name, value]) => ({ name, value: valueText(value), by })));
  return html`<${Table} caption=${`Variables of ${client}`} columns=${VARIABLE_COLUMNS} rows=${rows} rowKey=${(row) => row.name}
    page_rows=${PAGE_ROWS} empty="It has no variables" />`;
}

function valueText(value) {
  const text = JSON.stringify(value);
  return text.length > VALUE_CHARS ? `${text.slice(0, VALUE_CHARS)}…` : text;
}
