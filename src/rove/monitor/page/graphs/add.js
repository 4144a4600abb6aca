/**
 * A dialogue in which a chart is made of any metric that was ever recorded.
 *
 * The list comes from the database, so it has whatever a broker, a world or somebody's own program
 * has written. A metric with labels can be narrowed to one value of each; what is left open becomes
 * several lines.
 */
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { Empty, ErrorNote, Loading, useAnswer } from "../ui.js";
import { chartOf, meaningOf } from "./metrics.js";

const SHOWN_MAX = 60;

/**
 * @typedef {{metric: string, kind: string, count: number, labels: Map<string, Set<string>>}} Recorded
 */

/**
 * Series by metric.
 * @param {{metric: string, kind: string, labels: Record<string, string>}[]} series
 * @returns {Recorded[]}
 */
function byMetric(series) {
  /** @type {Map<string, Recorded>} */
  const found = new Map();
  for (const { metric, kind, labels } of series) {
    if (!found.has(metric)) found.set(metric, { metric, kind, count: 0, labels: new Map() });
    const one = found.get(metric);
    one.count += 1;
    for (const [name, text] of Object.entries(labels)) {
      if (!one.labels.has(name)) one.labels.set(name, new Set());
      one.labels.get(name).add(text);
    }
  }
  return [...found.values()].sort((a, b) => a.metric.localeCompare(b.metric));
}

function fits({ metric, labels }, words) {
  const texts = [metric, meaningOf(metric).title, ...[...labels].map(([name, all]) => `${name} ${[...all].join(" ")}`)];
  const hay = texts.join(" ").toLowerCase();
  return words.every((word) => hay.includes(word));
}

/**
 * @param {{app: object, onAdd: (chart: import("./metrics.js").ChartSpec) => void,
 *   onClose: () => void}} props
 */
export function AddChart({ app, onAdd, onClose }) {
  const dialog = useRef(null);
  const search = useRef(null);
  useEffect(() => {
    dialog.current.showModal();
    search.current.focus();
  }, []);
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(null);
  const answer = useAnswer(app, "/api/series", {}, { is_on: app.parts.metrics });
  const all = useMemo(() => byMetric(answer.data ?? []), [answer.data]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((one) => fits(one, words));
  return html`<dialog
    ref=${dialog}
    class="graph-dialog"
    aria-labelledby="add-chart-title"
    onClose=${onClose}
    onClick=${(event) => event.target === dialog.current && dialog.current.close()}
  >
    <header class="graph-dialog-head">
      <h2 id="add-chart-title">Add a chart</h2>
      <button type="button" class="button small" onClick=${() => dialog.current.close()}>Close</button>
    </header>
    <label class="field">
      <span>Search the recorded metrics</span>
      <input
        ref=${search}
        type="search"
        class="input"
        placeholder="subscriptions, broker, bytes …"
        value=${text}
        onInput=${(event) => {
          setText(event.currentTarget.value);
          setChosen(null);
        }}
      />
    </label>
    <div class="graph-dialog-list">
      <${Body} app=${app} answer=${answer} all=${all} found=${found} chosen=${chosen} onChoose=${setChosen} onAdd=${onAdd} />
    </div>
  </dialog>`;
}

function Body({ app, answer, all, found, chosen, onChoose, onAdd }) {
  if (!app.parts.metrics) {
    return html`<${Empty} title="There is no metrics database">
      Start the monitor with <code>--database</code> to record and to look back.
    <//>`;
  }
  if (answer.error) {
    return html`<${ErrorNote} error=${answer.error} retry=${answer.again} title="The metrics cannot be listed" />`;
  }
  if (answer.is_loading) return html`<${Loading} what="Looking what was recorded" />`;
  if (all.length === 0) return html`<${Empty} title="Nothing has been recorded yet" />`;
  if (found.length === 0) return html`<${Empty} title="No metric is called so" />`;
  return html`<${Found} found=${found} chosen=${chosen} onChoose=${onChoose} onAdd=${onAdd} />`;
}

function Found({ found, chosen, onChoose, onAdd }) {
  return html`<ul class="graph-found">
      ${found.slice(0, SHOWN_MAX).map((one) => {
        const meaning = meaningOf(one.metric);
        const is_open = chosen === one.metric;
        return html`<li key=${one.metric} class=${is_open ? "is-open" : ""}>
          <button
            type="button"
            class="graph-found-row"
            aria-expanded=${is_open}
            onClick=${() => onChoose(is_open ? null : one.metric)}
          >
            <span class="graph-found-title">${meaning.title}</span>
            <span class="quiet">${meaning.unit}, ${one.count === 1 ? "1 series" : `${one.count} series`}</span>
            <code>${one.metric}</code>
          </button>
          ${is_open && html`<${Narrow} one=${one} onAdd=${onAdd} />`}
        </li>`;
      })}
    </ul>
    ${found.length > SHOWN_MAX && html`<p class="quiet">${found.length - SHOWN_MAX} more; search for them.</p>`}`;
}

function Narrow({ one, onAdd }) {
  const [labels, setLabels] = useState({});
  const names = [...one.labels].filter(([, values]) => values.size > 1);
  const choose = (name, text) => {
    const { [name]: _before, ...others } = labels;
    setLabels(text === "" ? others : { ...others, [name]: text });
  };
  return html`<form
    class="graph-narrow"
    onSubmit=${(event) => {
      event.preventDefault();
      onAdd(chartOf([one.metric], { labels }));
    }}
  >
    ${names.map(
      ([name, values]) => html`<label key=${name} class="field">
        <span>${name}</span>
        <select class="select" onChange=${(event) => choose(name, event.currentTarget.value)}>
          <option value="">all</option>
          ${[...values].sort().map((value) => html`<option key=${value} value=${value}>${value}</option>`)}
        </select>
      </label>`,
    )}
    <button type="submit" class="button primary">Add this chart</button>
  </form>`;
}
