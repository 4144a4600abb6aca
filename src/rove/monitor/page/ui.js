/**
 * Parts that all views are made of, so that they look and behave alike: panels, tables, states,
 * switches, and words for screen readers.
 *
 * Names from elsewhere come in as text and stay text: preact never makes markup of a string, and
 * nothing here does.
 */
import { Component, html, useEffect, useMemo, useRef, useState } from "./vendor/preact.js";

/**
 * Follow a cell of the app.
 * @template T
 * @param {import("./app.js").Cell<T>} cell
 * @returns {T}
 */
export function useCell(cell) {
  const [value, set] = useState(cell.value);
  useEffect(() => {
    set(() => cell.value);
    return cell.on((next) => set(() => next));
  }, [cell]);
  return value;
}

/**
 * A value that is remembered in this browser.
 * @param {import("./app.js").App} app
 * @param {string} key
 * @param {any} fallback
 */
export function useStored(app, key, fallback) {
  const [value, set] = useState(() => app.store.get(key, fallback));
  const keep = (next) => {
    set(next);
    app.store.set(key, next);
  };
  return [value, keep];
}

/**
 * Ask the API, again whenever `deps` change and every `every_s` seconds while the page is visible.
 * @returns {{data: any, error: Error | null, is_loading: boolean, again: () => void}}
 */
export function useAnswer(app, path, params = {}, { every_s = 0, is_on = true } = {}) {
  const [answer, setAnswer] = useState({ data: null, error: null, is_loading: true });
  const [turn, setTurn] = useState(0);
  const key = JSON.stringify(params);
  useEffect(() => {
    if (!is_on) return undefined;
    const abort = new AbortController();
    let timer = 0;
    const ask = async () => {
      try {
        if (!document.hidden || every_s === 0) {
          const data = await app.api.get(path, params, { signal: abort.signal });
          setAnswer({ data, error: null, is_loading: false });
        }
      } catch (error) {
        if (error.name === "AbortError") return;
        setAnswer((before) => ({ data: before.data, error, is_loading: false }));
      }
      if (every_s > 0 && !abort.signal.aborted) timer = setTimeout(ask, every_s * 1000);
    };
    ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [path, key, every_s, is_on, turn]);
  return { ...answer, again: () => setTurn((value) => value + 1) };
}

/**
 * A titled part of a view.
 * @param {{title: string, id?: string, actions?: any, note?: any, children: any, class?: string}} props
 */
export function Panel({ title, id, actions, note, children, class: extra = "" }) {
  const headingId = useMemo(() => id ?? `panel-${Math.random().toString(36).slice(2)}`, [id]);
  return html`<section class=${`panel ${extra}`} aria-labelledby=${headingId}>
    <header class="panel-head">
      <h2 id=${headingId}>${title}</h2>
      ${note && html`<span class="panel-note">${note}</span>`}
      ${actions && html`<div class="panel-actions">${actions}</div>`}
    </header>
    <div class="panel-body">${children}</div>
  </section>`;
}

/**
 * A table: columns are `{key, title, align?: "right", sort?: (row) => value, cell?: (row) => any}`.
 * Sorted by its heads where a column can be; long ones are shown by pages.
 * @param {{caption: string, columns: any[], rows: any[], rowKey: (row: any) => string,
 *   page_rows?: number, empty?: any, sortBy?: string, selectedKey?: string}} props
 */
export function Table({ caption, columns, rows, rowKey, page_rows = 50, empty, sortBy, selectedKey }) {
  const [sort, setSort] = useState({ key: sortBy ?? null, is_down: false });
  const [page, setPage] = useState(0);
  const sorted = useMemo(() => sortRows(rows, columns, sort), [rows, columns, sort]);
  if (rows.length === 0) return html`<${Empty} title=${empty ?? "Nothing here"} />`;
  const pages = Math.ceil(sorted.length / page_rows);
  const at = Math.min(page, pages - 1);
  const shown = sorted.slice(at * page_rows, (at + 1) * page_rows);
  const turn = (key) => setSort((before) => ({ key, is_down: before.key === key && !before.is_down }));
  return html`<div class="table-box" tabindex="0" role="region" aria-label=${caption}>
      <table>
        <caption class="only-read">${caption}</caption>
        <thead><tr>${columns.map((column) => html`<${Head} key=${column.key} column=${column} sort=${sort} turn=${turn} />`)}</tr></thead>
        <tbody>
          ${shown.map((row) => {
            const key = rowKey(row);
            return html`<tr key=${key} class=${key === selectedKey ? "is-selected" : ""}>
              ${columns.map((column) => html`<td key=${column.key} class=${column.align === "right" ? "number" : ""}>
                ${column.cell ? column.cell(row) : row[column.key]}
              </td>`)}
            </tr>`;
          })}
        </tbody>
      </table>
    </div>
    ${pages > 1 && html`<${Pager} at=${at} pages=${pages} total=${sorted.length} setPage=${setPage} what=${caption} />`}`;
}

function Head({ column, sort, turn }) {
  const direction = sort.key === column.key ? (sort.is_down ? "descending" : "ascending") : "none";
  const side = column.align === "right" ? "number" : "";
  if (!column.sort) return html`<th scope="col" class=${side}>${column.title}</th>`;
  return html`<th scope="col" class=${side} aria-sort=${direction}>
    <button type="button" class="head-button" onClick=${() => turn(column.key)}>
      ${column.title}<span class="head-arrow" aria-hidden="true">${{ ascending: "▲", descending: "▼", none: "" }[direction]}</span>
    </button>
  </th>`;
}

function sortRows(rows, columns, { key, is_down }) {
  const value = columns.find((column) => column.key === key)?.sort;
  if (!value) return rows;
  const sign = is_down ? -1 : 1;
  const compare = (a, b) => {
    const [left, right] = [value(a), value(b)];
    if (typeof left === "string") return left.localeCompare(right, "en-GB", { numeric: true });
    return left < right ? -1 : left > right ? 1 : 0;
  };
  return [...rows].sort((a, b) => sign * compare(a, b));
}

/** Buttons through the pages of something long. */
export function Pager({ at, pages, total, setPage, what }) {
  return html`<nav class="pager" aria-label=${`Pages of ${what}`}>
    <button type="button" class="button small" disabled=${at === 0} onClick=${() => setPage(at - 1)}>Previous</button>
    <span>Page ${at + 1} of ${pages} <span class="quiet">(${count(total)} rows)</span></span>
    <button type="button" class="button small" disabled=${at >= pages - 1} onClick=${() => setPage(at + 1)}>Next</button>
  </nav>`;
}

/** Nothing there: says so, and what one could do. */
export function Empty({ title, children }) {
  return html`<div class="state state-empty"><${Glyph} kind="empty" /><p class="state-title">${title}</p>${children && html`<div class="state-text">${children}</div>`}</div>`;
}

/** Something is on its way. */
export function Loading({ what = "Loading" }) {
  return html`<div class="state state-loading" role="status"><span class="spinner" aria-hidden="true"></span><p class="state-title">${what}…</p></div>`;
}

/**
 * Something went wrong: what, and what would be right.
 * @param {{error: Error & {hint?: string}, retry?: () => void, title?: string}} props
 */
export function ErrorNote({ error, retry, title }) {
  return html`<div class="state state-error" role="alert">
    <${Glyph} kind="error" />
    <p class="state-title">${title ?? error.message}</p>
    ${title && html`<p class="state-text">${error.message}</p>`}
    ${error.hint && html`<p class="state-text">${error.hint}</p>`}
    ${retry && html`<button type="button" class="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

function Glyph({ kind }) {
  const dash = kind === "empty" ? "4 3" : "none";
  return html`<svg class="glyph" viewBox="0 0 48 36" width="48" height="36" aria-hidden="true">
    <rect x="2" y="2" width="44" height="32" rx="6" fill="none" stroke="currentColor" stroke-width="1.5" stroke-dasharray=${dash} />
    ${kind === "error"
      ? html`<path d="M24 10v10M24 25v1.5" stroke="currentColor" stroke-width="2.5" stroke-linecap="round" />`
      : html`<circle cx="24" cy="18" r="2.5" fill="currentColor" />`}
  </svg>`;
}

/** A switch: a real checkbox with a label. */
export function Toggle({ label, checked, onChange, swatch, disabled = false, hint }) {
  return html`<label class=${`toggle ${disabled ? "is-off" : ""}`} title=${hint ?? ""}>
    <input type="checkbox" checked=${checked} disabled=${disabled} onChange=${(event) => onChange(event.currentTarget.checked)} />
    <span class="toggle-track" aria-hidden="true"></span>
    <span class="toggle-label">${label}</span>
    ${swatch}
  </label>`;
}

/** The piece of line by which an engine is known. */
export function EngineMark({ app, name }) {
  useCell(app.cells.theme);
  const { colour, dash } = app.engineStyle(name);
  return html`<svg class="engine-mark" width="28" height="8" viewBox="0 0 28 8" aria-hidden="true">
    <line x1="0" x2="28" y1="4" y2="4" stroke=${colour} stroke-width="3" stroke-dasharray=${dash.length ? dash.join(" ") : "none"} />
  </svg>`;
}

/** Keeps a fault of one view from taking the page with it. */
export class Boundary extends Component {
  state = { error: null };

  static getDerivedStateFromError(error) {
    return { error };
  }

  componentDidCatch(error) {
    console.error(error);
  }

  render({ children, title }, { error }) {
    if (error === null) return children;
    return html`<${ErrorNote} title=${title} error=${error} retry=${() => this.setState({ error: null })} />`;
  }
}

let announceTimer = 0;

/**
 * Say something to those who use a screen reader.
 * @param {string} text
 */
export function announce(text) {
  const place = document.getElementById("announcer");
  clearTimeout(announceTimer);
  place.textContent = "";
  announceTimer = setTimeout(() => {
    place.textContent = text;
  }, 50);
}

/** Whether a media query holds, followed. */
export function useMedia(query) {
  const list = useRef(null);
  list.current ??= matchMedia(query);
  const [matches, set] = useState(list.current.matches);
  useEffect(() => {
    const changed = () => set(list.current.matches);
    list.current.addEventListener("change", changed);
    return () => list.current.removeEventListener("change", changed);
  }, []);
  return matches;
}

const WHOLE = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const SHORT = new Intl.NumberFormat("en-GB", { notation: "compact", maximumSignificantDigits: 3 });

/** 12,345 */
export const count = (value) => WHOLE.format(value);

/** 12.3k: where there is no room. */
export const short = (value) => SHORT.format(value).toLowerCase();

/** 12.3 m, as few digits as tell it. */
export const metres = (value) => `${value >= 100 ? WHOLE.format(value) : value.toFixed(1)} m`;

/** 3:04 or 1:02:03, of seconds. */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (value) => String(value).padStart(2, "0");
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}
