/**
 * Which two are compared: a run and one of its engines, twice; kept in the address, to be sent on.
 *
 * Two engines of one run meet the same history, so that what differs is the engine. Two runs of one
 * engine meet what somebody has changed between them.
 */
import { html, useMemo, useState } from "../vendor/preact.js";

const NOTHING = { left: "", right: "", since: "", until: "" };

/** What the address says: `#compare?left=RUN/ENGINE&right=RUN/ENGINE`. */
export function readChoice() {
  const params = new URLSearchParams(location.hash.split("?")[1] ?? "");
  return Object.fromEntries(Object.keys(NOTHING).map((name) => [name, params.get(name) ?? ""]));
}

/** @param {typeof NOTHING} choice */
export function writeChoice(choice) {
  const params = new URLSearchParams(Object.entries(choice).filter(([, value]) => value !== ""));
  history.replaceState(null, "", `#compare?${params}`);
}

/**
 * The two that are looked at first: the first two engines of the newest run that has two.
 * @param {any[]} runs
 */
export function firstChoice(runs) {
  const run = runs.find((one) => enginesOf(one).length > 1);
  if (!run) return NOTHING;
  const [left, right] = enginesOf(run);
  return { ...NOTHING, left: `${run.id}/${left}`, right: `${run.id}/${right}` };
}

/**
 * @param {any} run
 * @returns {string[]}
 */
function enginesOf(run) {
  const { engines } = run.facts ?? {};
  if (!Array.isArray(engines)) return [];
  return engines.map((one) => (typeof one === "string" ? one : String(one?.name ?? ""))).filter(Boolean);
}

/** Run and engine of `RUN/ENGINE`; a run's id may hold slashes, an engine's name does not. */
export function partsOf(side) {
  const cut = side.lastIndexOf("/");
  return cut < 0 ? { run: side, engine: "" } : { run: side.slice(0, cut), engine: side.slice(cut + 1) };
}

/** @param {any} run */
export function runText(run) {
  const began = new Date(run.began * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
  const players = run.facts?.players ? `, ${run.facts.players} players` : "";
  return `${run.title || run.scenario}, ${began}, seed ${run.seed}${players}`;
}

/**
 * @param {{runs: any[], choice: typeof NOTHING, onChange: (choice: typeof NOTHING) => void}} props
 */
export function ChoiceForm({ runs, choice, onChange }) {
  const swap = () => onChange({ ...choice, left: choice.right, right: choice.left });
  return html`<form class="compare-choice" onSubmit=${(event) => event.preventDefault()}>
    <${Side} title="Left" runs=${runs} side=${choice.left} onChange=${(left) => onChange({ ...choice, left })} />
    <button type="button" class="button small" onClick=${swap} aria-label="Swap left and right" title="Swap left and right">⇄</button>
    <${Side} title="Right" runs=${runs} side=${choice.right} onChange=${(right) => onChange({ ...choice, right })} />
    <${Period} choice=${choice} onChange=${onChange} />
  </form>`;
}

function Side({ title, runs, side, onChange }) {
  const chosen = partsOf(side);
  const run = useMemo(() => runs.find((one) => one.id === chosen.run), [runs, chosen.run]);
  const engines = run ? enginesOf(run) : [];
  const changeRun = (id) => {
    const known = enginesOf(runs.find((one) => one.id === id));
    onChange(`${id}/${known.includes(chosen.engine) ? chosen.engine : (known[0] ?? "")}`);
  };
  return html`<fieldset class="compare-side">
    <legend>${title}</legend>
    <label class="field"><span>Run</span>
      <select class="select" value=${chosen.run} onChange=${(event) => changeRun(event.currentTarget.value)}>
        ${!run && html`<option value=${chosen.run}>${chosen.run || "choose a run"}</option>`}
        ${runs.map((one) => html`<option key=${one.id} value=${one.id}>${runText(one)}</option>`)}
      </select></label>
    <label class="field"><span>Engine</span>
      <select class="select" value=${chosen.engine} onChange=${(event) => onChange(`${chosen.run}/${event.currentTarget.value}`)}>
        ${!engines.includes(chosen.engine) && html`<option value=${chosen.engine}>${chosen.engine || "choose an engine"}</option>`}
        ${engines.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select></label>
  </fieldset>`;
}

/** Seconds of the run; of empty fields, all of it. */
function Period({ choice, onChange }) {
  const [since, setSince] = useState(choice.since);
  const [until, setUntil] = useState(choice.until);
  const is_right = since === "" || until === "" || Number(since) < Number(until);
  const take = () => is_right && onChange({ ...choice, since, until });
  return html`<fieldset class="compare-side">
    <legend>Seconds of the run</legend>
    <label class="field"><span>from</span>
      <input class="input" type="number" min="0" placeholder="start" value=${since}
        onInput=${(event) => setSince(event.currentTarget.value)} onChange=${take} /></label>
    <label class="field"><span>to</span>
      <input class="input" type="number" min="0" placeholder="end" value=${until}
        onInput=${(event) => setUntil(event.currentTarget.value)} onChange=${take} /></label>
    ${!is_right && html`<p class="refusal" role="alert">It has to end after it begins.</p>`}
  </fieldset>`;
}
