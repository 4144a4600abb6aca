/**
 * Two engines, or two runs, side by side: small multiples with differences, the largest effect first.
 *
 * One drawing for each metric, all over the same axis of time, is easier to compare than one drawing of
 * everything. The statistics are the monitor's (batch means, 95 %); nothing is computed here but the
 * line of the difference. The choice is in the address, so it can be sent to somebody else.
 */
import { Empty, ErrorNote, Loading, Table, Toggle, useAnswer } from "../ui.js";
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { meaningOf } from "../graphs/metrics.js";
import { ChoiceForm, firstChoice, partsOf, readChoice, runText, writeChoice } from "./choice.js";
import { Multiple, intervalText } from "./multiple.js";
import { effectOf, isKnown, isTold, scaled, sentenceOf } from "./sentences.js";

/** How often a run that goes on is compared again. */
const EVERY_S = 5;

/** @param {{app: import("../app.js").App}} props */
export function CompareView({ app }) {
  const { data: runs, error, again } = useAnswer(app, "/api/runs");
  if (runs === null && error) return html`<${ErrorNote} error=${error} retry=${again} title="The runs cannot be listed" />`;
  if (runs === null) return html`<${Loading} what="Looking for recorded runs" />`;
  if (runs.length === 0) {
    return html`<${Empty} title="No run has been recorded yet">
      <p>Play a scenario here, or record one: <code>rove world run dense --database FILE</code>.</p>
    <//>`;
  }
  return html`<${Comparison} app=${app} runs=${runs} />`;
}

function Comparison({ app, runs }) {
  const [choice, setChoice] = useState(() => {
    const read = readChoice();
    return read.left && read.right ? read : { ...firstChoice(runs), since: read.since, until: read.until };
  });
  const [is_table, setTable] = useState(false);
  useEffect(() => writeChoice(choice), [choice]);
  useEffect(() => followAddress(setChoice), []);
  const sides = [partsOf(choice.left), partsOf(choice.right)];
  const is_ready = sides.every(({ engine }) => engine !== "") && choice.left !== choice.right;
  const params = Object.fromEntries(Object.entries(choice).filter(([, value]) => value !== ""));
  const is_going_on = runs.some((run) => run.ended === null && sides.some(({ run: id }) => id === run.id));
  const answer = useAnswer(app, "/api/compare", params, { is_on: is_ready, every_s: is_going_on ? EVERY_S : 0 });
  const [left, right] = namesOf(choice, runs);
  return html`<div class="compare">
    <div class="compare-bar">
      <${ChoiceForm} runs=${runs} choice=${choice} onChange=${setChoice} />
      <${Toggle} label="Table" checked=${is_table} onChange=${setTable} />
    </div>
    ${is_ready
      ? html`<${Result} app=${app} answer=${answer} left=${left} right=${right} is_table=${is_table} asked=${JSON.stringify(params)} />`
      : html`<${Empty} title="Choose two different engines or runs" />`}
  </div>`;
}

function Result({ app, answer, left, right, is_table, asked }) {
  const { data, error, is_loading, again } = answer;
  const sorted = useMemo(
    () => [...(data?.metrics ?? [])].sort((a, b) => effectOf(b) - effectOf(a) || a.metric.localeCompare(b.metric)),
    [data],
  );
  if (error) return html`<${ErrorNote} error=${error} retry=${again} title="These cannot be compared" />`;
  const sideOf = ({ id, engine }) => `${id}/${engine}`;
  const is_other = data !== null && (sideOf(data.left) !== left.side || sideOf(data.right) !== right.side);
  if (is_loading || data === null || is_other) return html`<${Loading} what="Comparing" />`;
  if (sorted.length === 0) return html`<${Empty} title="No metric was recorded for both" />`;
  const told = sorted.filter(isTold);
  return html`<p class="compare-lead" role="status">
      ${told.length > 0 ? sentenceOf(told[0], left.name, right.name) : nothingTold(sorted, left.name, right.name)}
      ${told.length > 1 ? html`<span class="quiet"> ${told.length} of ${sorted.length} metrics differ; the largest effect comes first.</span>` : ""}
    </p>
    ${is_table
      ? html`<${CompareTable} metrics=${sorted} left=${left} right=${right} />`
      : html`<div class="compare-grid">
          ${sorted.map((one) => html`<${Multiple} key=${`${asked} ${one.metric}`} app=${app} one=${one} left=${left} right=${right} sync="rove-compare" />`)}
        </div>`}`;
}

function nothingTold(metrics, left, right) {
  if (metrics.some((one) => isKnown(one.difference))) return `${left} and ${right} cannot be told apart in anything.`;
  return `Too little is recorded yet to compare ${left} with ${right}; it takes some ten samples of both.`;
}

function CompareTable({ metrics, left, right }) {
  const columns = useMemo(() => columnsOf(left, right), [left.name, right.name]);
  return html`<section class="panel compare-table"><${Table} caption=${`${left.name} and ${right.name}`} columns=${columns} rows=${metrics}
    rowKey=${(row) => row.metric} page_rows=${100} /></section>`;
}

function columnsOf(left, right) {
  const difference = (row) => (isKnown(row.difference) ? scaled(row.difference, meaningOf(row.metric).factor) : null);
  return [
    { key: "metric", title: "Metric", sort: (row) => meaningOf(row.metric).title, cell: (row) => meaningOf(row.metric).title },
    { key: "unit", title: "Unit", cell: (row) => meaningOf(row.metric).unit },
    { key: "ratio", title: `${left.name} / ${right.name}`, align: "right", sort: (row) => row.ratio?.mean ?? -1, cell: (row) => intervalText(row.ratio) },
    { key: "difference", title: `${left.name} − ${right.name}`, align: "right", cell: (row) => intervalText(difference(row)) },
    { key: "sentence", title: "In words", cell: (row) => sentenceOf(row, left.name, right.name) },
  ];
}

/** What both are called: by engine where the run is the same, by run where the engine is. */
function namesOf(choice, runs) {
  const sides = [choice.left, choice.right].map((side) => ({ side, ...partsOf(side) }));
  const is_one_run = sides[0].run === sides[1].run;
  const is_one_engine = sides[0].engine === sides[1].engine;
  return sides.map((one) => {
    const run = runs.find((other) => other.id === one.run);
    const about = run ? runText(run) : one.run;
    const name = is_one_run ? one.engine : is_one_engine ? about : `${one.engine} (${about})`;
    return { ...one, name };
  });
}

/** Somebody has followed a link to another comparison. */
function followAddress(setChoice) {
  const follow = () => {
    const read = readChoice();
    if (location.hash.startsWith("#compare?") && read.left && read.right) setChoice(read);
  };
  addEventListener("hashchange", follow);
  return () => removeEventListener("hashchange", follow);
}
