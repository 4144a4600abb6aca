/**
 * A panel that shows an answer of the monitor: on its way, refused, there, or no longer fresh.
 *
 * Operators look at these tables when something is wrong, so old figures must never pass for new
 * ones: when an answer fails to come, what was known stays, dimmed, with the time it is from.
 */
import { ErrorNote, Loading, Panel } from "../ui.js";
import { html, useRef } from "../vendor/preact.js";

export const EVERY_S = 2;

/**
 * @param {{title: string, answer: {data: any, error: Error | null, is_loading: boolean, again: () => void},
 *   loading?: string, note?: any, actions?: any, class?: string, children: (data: any) => any}} props
 */
export function AnswerPanel({ title, answer, loading, note, actions, class: extra = "", children }) {
  const { data, error, again } = answer;
  const known = useRef({ data: null, at: 0 }).current;
  if (data !== known.data) {
    known.data = data;
    known.at = Date.now();
  }
  const is_stale = error !== null && data !== null;
  const stale = is_stale && html`<span class="badge" title=${error.message}>from ${timeOfDay(known.at)}</span>`;
  return html`<${Panel} title=${title} class=${`ops-panel ${extra}`} note=${stale || note} actions=${actions}>
    ${is_stale && html`<p class="ops-fault" role="status">${error.message}</p>`}
    ${data !== null
      ? html`<div class=${is_stale ? "ops-stale" : ""}>${children(data)}</div>`
      : error
        ? html`<${ErrorNote} error=${error} retry=${again} />`
        : html`<${Loading} what=${loading ?? "Asking the broker"} />`}
  <//>`;
}

/**
 * 21:03:09 here.
 * @param {number} at_ms milliseconds since 1970
 */
export function timeOfDay(at_ms) {
  return new Date(at_ms).toLocaleTimeString("en-GB");
}
