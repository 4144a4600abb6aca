/**
 * Find an entity by name: a box with a list of those whose names begin with, or else contain, what
 * is typed. The pattern is the combobox of the ARIA practices: the focus stays in the box.
 */
import { html, useMemo, useState } from "../vendor/preact.js";
import { KindMark } from "./layers.js";

const SHOWN = 8;

/**
 * The names that fit best.
 * @param {string[]} names
 * @param {string} text
 * @returns {string[]}
 */
export function namesLike(names, text) {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return [];
  const begin = [];
  const contain = [];
  for (const name of names) {
    const at = name.toLowerCase().indexOf(wanted);
    if (at === 0) begin.push(name);
    else if (at > 0 && contain.length < SHOWN) contain.push(name);
    if (begin.length === SHOWN) break;
  }
  return [...begin, ...contain].slice(0, SHOWN);
}

/** @param {{model: import("./model.js").WorldModel, onPick: (name: string) => void}} props */
export function Search({ model, onPick }) {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const [is_open, setOpen] = useState(false);
  const found = useMemo(() => namesLike(model.names, text), [model, text]);
  const is_shown = is_open && found.length > 0;
  const pick = (name) => {
    onPick(name);
    setText("");
    setOpen(false);
  };
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length > 0) {
      event.preventDefault();
      setOpen(true);
      setAt((at + step + found.length) % found.length);
    } else if (event.key === "Enter" && is_shown) {
      event.preventDefault();
      pick(found[Math.min(at, found.length - 1)]);
    } else if (event.key === "Escape") {
      setOpen(false);
    }
  };
  return html`<div class="search">
    <input class="input" type="text" role="combobox" aria-label="Find an entity by name" placeholder="Find by name"
      autocomplete="off" spellcheck=${false} value=${text} aria-expanded=${is_shown ? "true" : "false"} aria-controls="search-list" aria-autocomplete="list"
      aria-activedescendant=${is_shown ? `search-${at}` : undefined}
      onInput=${(event) => { setText(event.currentTarget.value); setAt(0); setOpen(true); }}
      onKeyDown=${keys} onBlur=${() => setOpen(false)} />
    <ul class="search-list" id="search-list" role="listbox" aria-label="Names" hidden=${!is_shown}>
      ${found.map((name, i) => html`<li key=${name} id=${`search-${i}`} role="option" aria-selected=${i === at ? "true" : "false"}
        onMouseDown=${(event) => { event.preventDefault(); pick(name); }}>
        <${KindMark} kind=${model.document.entities.kinds[model.numbers.get(name)]} /> ${name}
      </li>`)}
    </ul>
    ${text.trim() !== "" && found.length === 0 && html`<p class="quiet search-none" role="status">No entity has that name.</p>`}
  </div>`;
}
