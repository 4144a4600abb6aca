/**
 * Why does a publication reach a subscription, or why not?
 *
 * The broker goes through everything that stands between the two and says of each whether it let the
 * publication pass; the text of the subscription is explained predicate by predicate. All of it is
 * the broker's answer; here it is only laid out.
 */
import { ErrorNote, Loading, Panel } from "../ui.js";
import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { agoText } from "./units.js";

const MARKS = new Map([
  [true, { sign: "✔", word: "yes", class: "is-yes" }],
  [false, { sign: "✘", word: "no", class: "is-no" }],
  [null, { sign: "?", word: "not known", class: "is-unknown" }],
]);
const VERDICTS = new Map([
  [true, "It reaches the subscription."],
  [false, "It does not reach the subscription."],
  [null, "Whether it reached the subscription cannot be known for certain."],
]);

/** @param {{app: import("../app.js").App, asked: {number: number, client: string, topic: string} | null}} props */
export function Explain({ app, asked }) {
  const [who, setWho] = useState("");
  const [publication, setPublication] = useState("");
  const [topic, setTopic] = useState("");
  const [state, setState] = useState({ status: "idle" });
  const first = useRef(null);
  useEffect(() => {
    if (!asked) return;
    setWho(String(asked.number));
    if (!/[+#]/.test(asked.topic)) setTopic(asked.topic);
    setState({ status: "idle" });
    first.current.focus();
    first.current.scrollIntoView({ block: "center" });
  }, [asked]);
  const is_described = publication.trim().startsWith("{");
  const ask = async (event) => {
    event.preventDefault();
    setState({ status: "loading" });
    try {
      const question = questionOf(who, publication, topic);
      setState({ status: "ready", answer: await app.api.post("/api/broker/explain", question) });
    } catch (error) {
      setState({ status: "error", error });
    }
  };
  return html`<${Panel} title="Why, or why not?" class="ops-panel">
    <form class="ops-explain" onSubmit=${ask}>
      <label class="field"><span>Publication: its id, or what it would say, as JSON</span>
        <textarea ref=${first} class="input ops-json" rows="3" required placeholder='offer-7, or {"NO2": 41}' value=${publication}
          onInput=${(event) => setPublication(event.currentTarget.value)}></textarea></label>
      ${is_described &&
      html`<label class="field"><span>Its topic</span>
        <input class="input" required value=${topic} placeholder="air/1" onInput=${(event) => setTopic(event.currentTarget.value)} /></label>`}
      <label class="field"><span>Subscription: its number, or the name of a client</span>
        <input class="input" required value=${who} onInput=${(event) => setWho(event.currentTarget.value)} /></label>
      <button type="submit" class="button primary" disabled=${state.status === "loading"}>Explain</button>
    </form>
    <div aria-live="polite">
      ${state.status === "loading" && html`<${Loading} what="Asking the broker" />`}
      ${state.status === "error" && html`<${ErrorNote} error=${state.error} />`}
      ${state.status === "ready" && html`<${Answer} answer=${state.answer} />`}
    </div>
  <//>`;
}

/** A number is a subscription, anything else a client; braces are JSON, anything else an id. */
function questionOf(who, publication, topic) {
  const question = /^\d+$/.test(who.trim()) ? { subscription: Number(who) } : { client: who };
  const text = publication.trim();
  if (!text.startsWith("{")) return { ...question, publication: text };
  try {
    return { ...question, publication: JSON.parse(text), topic };
  } catch (error) {
    throw new Error(`This is no JSON: ${error.message}`);
  }
}

function Answer({ answer: { publication, subscriptions } }) {
  return html`<div class="ops-answer">
    <p>
      ${publication.id ? html`<b>${publication.id}</b> on ` : "A publication on "}<code>${publication.topic}</code>${publication.id
        ? `, published ${agoText(publication.at)} ago by ${publication.publisher}; sessions notified: ${publication.notified}`
        : ""}
    </p>
    ${subscriptions.map(
      (one) => html`<section key=${one.subscription.number} class="ops-verdict">
        <h3>
          Subscription ${one.subscription.number} of <span class="ops-name">${one.subscription.client}</span>:
          <code> ${one.subscription.topic}</code>${one.subscription.filter && html` where <code>${one.subscription.filter}</code>`}
        </h3>
        <p class=${`ops-reaches ${MARKS.get(one.reaches).class}`}>
          <${Mark} truth=${one.reaches} />${VERDICTS.get(one.reaches)}
        </p>
        <ul class="ops-checks">${one.checks.map((check, i) => html`<${Check} key=${i} check=${check} />`)}</ul>
      </section>`,
    )}
  </div>`;
}

function Check({ check }) {
  return html`<li>
    <${Mark} truth=${check.passed ?? null} /><b>${check.check}</b> ${check.why}
    ${check.parts?.length > 0 &&
    html`<ul class="ops-checks">${check.parts.map((part, i) => html`<${Part} key=${i} part=${part} />`)}</ul>`}
  </li>`;
}

function Part({ part }) {
  const is_joint = part.parts?.length > 0;
  return html`<li>
    <${Mark} truth=${part.truth ?? null} />${is_joint ? part.why : html`<code>${part.text}</code> <span class="quiet">${part.why}</span>`}
    ${is_joint && html`<ul class="ops-checks">${part.parts.map((one, i) => html`<${Part} key=${i} part=${one} />`)}</ul>`}
  </li>`;
}

function Mark({ truth }) {
  const { sign, word, class: kind } = MARKS.get(truth);
  return html`<span class=${`ops-mark ${kind}`}><span aria-hidden="true">${sign}</span><span class="only-read">${word}: </span></span>`;
}
