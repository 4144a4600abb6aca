/**
 * The console, docked below the views: a line to say something to the world, what came back, and
 * buttons for what is said most.
 *
 * The grammar is the server's and closed; nothing that is typed is ever run. Tab completes as in a
 * shell: one fitting word is taken, of several the common beginning, and a list offers the rest.
 */
import { Toggle, useCell, useStored } from "../ui.js";
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { commonStart, completed, recalled, remembered } from "./completion.js";
import { createLog } from "./log.js";
import { WorldControls } from "./world_controls.js";

const FRESH = { at: 0, draft: "" };

/** @param {{app: import("../app.js").App}} props */
export function Console({ app }) {
  const log = useMemo(() => createLog(app), [app]);
  useEffect(() => log.stop, [log]);
  const [is_open, setOpen] = useStored(app, "console.open", !matchMedia("(max-width: 800px)").matches);
  const [has_notes, setNotes] = useStored(app, "console.notes", true);
  return html`<section class=${`console ${is_open ? "is-open" : ""}`} aria-labelledby="console-title">
    <header class="console-head">
      <h2 id="console-title"><button type="button" class="console-title" aria-expanded=${is_open ? "true" : "false"} aria-controls="console-body" onClick=${() => setOpen(!is_open)}>
        <svg viewBox="0 0 12 12" width="10" height="10" aria-hidden="true"><path d=${is_open ? "M1 4l5 5 5-5" : "M4 1l5 5-5 5"} fill="none" stroke="currentColor" stroke-width="2" /></svg>Console</button></h2>
      <${WorldControls} app=${app} />
      ${is_open && html`<div class="console-options"><${Toggle} label="Notes" checked=${has_notes} onChange=${setNotes} />
        <button type="button" class="button small ghost" onClick=${log.clear}>Clear</button></div>`}
    </header>
    <div id="console-body" class="console-body" hidden=${!is_open}>
      <${Lines} log=${log} has_notes=${has_notes} />
      <${Prompt} app=${app} />
    </div>
  </section>`;
}

/** Console output; stays at the end unless somebody has scrolled back. */
function Lines({ log, has_notes }) {
  const lines = useCell(log.lines);
  const box = useRef(null);
  const is_atEnd = useRef(true);
  useEffect(() => {
    if (is_atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, has_notes]);
  const scrolled = ({ currentTarget: at }) => {
    is_atEnd.current = at.scrollHeight - at.scrollTop - at.clientHeight < 24;
  };
  const shown = has_notes ? lines : lines.filter(({ kind }) => kind !== "note");
  return html`<div class="console-log" role="log" aria-live="polite" aria-label="Console output" tabindex="0" ref=${box} onScroll=${scrolled}>
    ${shown.length === 0 && html`<p class="quiet">Say something to the world: <code>gather 50 at 120 80</code>, <code>engine area</code>, <code>help</code>.</p>`}
    ${shown.map((line) => html`<div key=${line.key} class=${`console-line is-${line.kind}`}>
      <time class="console-time" datetime=${line.when.toISOString()}>${line.when.toLocaleTimeString("en-GB")}</time>
      ${line.kind === "note" && html`<span class="console-about">${line.about}</span>`}
      ${line.kind === "refused" && html`<span class="console-about is-refused">refused</span>`}
      <span class="console-text">${line.text}</span>
    </div>`)}
  </div>`;
}

function Prompt({ app }) {
  const [text, setText] = useState("");
  const [history, setHistory] = useStored(app, "console.history", []);
  const [place, setPlace] = useState(FRESH);
  const [words, setWords] = useState([]);
  const [at, setAt] = useState(-1);
  const connection = useCell(app.cells.connection);
  const input = useRef(null);
  const asked = useRef(0);
  const is_listed = words.length > 0;
  const write = (next) => {
    setText(next);
    setWords([]);
    setAt(-1);
  };
  const say = (event) => {
    event.preventDefault();
    const line = text.trim();
    if (line === "") return;
    app.say(line).catch(() => {}); // the log tells
    setHistory(remembered(history, line));
    setPlace(FRESH);
    write("");
  };
  const complete = async () => {
    const turn = ++asked.current;
    const answer = await app.live.ask({ type: "complete", text }).catch(() => ({ words: [] }));
    if (turn !== asked.current) return;
    const start = commonStart(answer.words);
    const next = completed(text, start);
    if (answer.words.length === 1) write(`${next} `);
    else {
      if (next.length > text.length) setText(next);
      setWords(answer.words);
      setAt(-1);
    }
  };
  const choose = (word) => {
    write(`${completed(text, word)} `);
    input.current.focus();
  };
  const move = (step) => setAt((at + step + words.length) % words.length);
  const recall = (step) => {
    const { text: next, ...found } = recalled(history, place, text, step);
    setPlace(found);
    write(next);
  };
  const keys = (event) => {
    const action = actionOf(event, { is_listed, is_chosen: at >= 0, text });
    if (action === null) return;
    event.preventDefault();
    if (action === "complete") complete();
    else if (action === "next") move(1);
    else if (action === "previous") move(at < 0 ? 0 : -1);
    else if (action === "choose") choose(words[at]);
    else if (action === "close") setWords([]);
    else recall(action === "back" ? 1 : -1);
  };
  return html`<form class="console-prompt" onSubmit=${say}>
    <ul class="console-words" id="console-words" role="listbox" aria-label="Completions" hidden=${!is_listed}>
      ${words.map((word, i) => html`<li key=${word} id=${`word-${i}`} role="option" aria-selected=${i === at ? "true" : "false"} ref=${i === at ? scrollTo : null}
        onMouseDown=${(event) => { event.preventDefault(); choose(word); }}>${word}</li>`)}
    </ul>
    <span class="console-sign" aria-hidden="true">›</span>
    <input class="console-input" ref=${input} type="text" role="combobox" aria-label="Command" autocomplete="off" autocapitalize="off" spellcheck=${false}
      aria-expanded=${is_listed ? "true" : "false"} aria-controls="console-words" aria-autocomplete="list" aria-activedescendant=${at >= 0 ? `word-${at}` : undefined}
      placeholder=${app.may_change ? "A command, such as gather 50 at 120 80" : "You may look, and not change anything"} maxlength="1000" value=${text}
      onInput=${(event) => { write(event.currentTarget.value); setPlace(FRESH); }} onKeyDown=${keys} onBlur=${() => setWords([])} />
    <button class="button small primary" disabled=${connection.state !== "open" || !app.may_change}>Say</button>
  </form>`;
}

const scrollTo = (element) => element?.scrollIntoView({ block: "nearest" });

/** What a key means in the line; an empty line leaves Tab to the browser, so that nobody is caught in it. */
function actionOf(event, { is_listed, is_chosen, text }) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  if (event.key === "Tab" && !event.shiftKey) return is_listed ? "next" : text === "" ? null : "complete";
  if (event.key === "ArrowDown") return is_listed ? "next" : "forward";
  if (event.key === "ArrowUp") return is_listed ? "previous" : "back";
  if (event.key === "Enter" && is_listed && is_chosen) return "choose";
  if (event.key === "Escape" && is_listed) return "close";
  return null;
}
