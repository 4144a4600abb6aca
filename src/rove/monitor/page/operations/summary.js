/**
 * Is the broker well, and how much is it doing?
 *
 * Rates are made here, of two answers to `/metrics`, as Prometheus would make them; a counter that
 * has become smaller is a broker that was started again, and has no rate until the next answer.
 */
import { count, useAnswer } from "../ui.js";
import { html, useRef } from "../vendor/preact.js";
import { shortValue } from "../graphs/metrics.js";
import { AnswerPanel, EVERY_S } from "./answer_panel.js";
import { ageText, bytesText, rateText } from "./units.js";

const DROPPED = ["slow", "overflow", "expired", "size", "away", "session"].map(
  (why) => `rove_notifications_dropped_${why}_total`,
);

/** What is shown: a name, and how it is made of the metrics and their rates. */
const FIGURES = [
  { name: "Connections", of: (now) => count(now.rove_connections_open ?? 0) },
  {
    name: "Sessions",
    of: (now) => count(now.rove_sessions ?? 0),
    more: (now) => `${count(now.rove_sessions_away ?? 0)} away`,
  },
  { name: "Subscriptions", of: (now) => count(now.rove_subscriptions ?? 0) },
  { name: "Publications in", of: (_, rate) => rateText(rate("rove_publications_received_total")) },
  { name: "Notifications out", of: (_, rate) => rateText(rate("rove_notifications_sent_total")) },
  { name: "Bytes in", of: (_, rate) => perSecond(rate("rove_bytes_received_total")) },
  { name: "Bytes out", of: (_, rate) => perSecond(rate("rove_bytes_sent_total")) },
  {
    name: "Waiting",
    of: (now) => count(now.rove_queued_messages ?? 0),
    more: (now) => bytesText(now.rove_queued_bytes ?? 0),
  },
  { name: "Unacknowledged", of: (now) => count(now.rove_inflight_messages ?? 0) },
  {
    name: "Dropped",
    of: (_, rate) => rateText(sum(DROPPED.map(rate))),
    more: (now) => `${count(sum(DROPPED.map((name) => now[name] ?? 0)))} in all`,
  },
  { name: "Retained", of: (now) => count(now.rove_retained_messages ?? 0) },
  {
    name: "Publishers",
    of: (now) => (now.rove_publishers_are_paused ? "pushed back" : "flowing"),
    is_bad: (now) => Boolean(now.rove_publishers_are_paused),
  },
  {
    name: "Metrics recorded",
    of: (now) => count(now.rove_metrics_written_total),
    more: (now) => `${count(now.rove_metrics_waiting)} waiting, ${count(now.rove_metrics_dropped_total)} dropped`,
    is_there: (now) => now.rove_metrics_written_total !== undefined,
    is_bad: (now) => now.rove_metrics_dropped_total > 0,
  },
  {
    name: "Delay",
    of: (now) => milliseconds(now['rove_delay_mean_seconds{until="sent"}']),
    more: (now) => `at most ${milliseconds(now['rove_delay_max_seconds{until="sent"}'])}`,
    is_there: (now) => now['rove_delay_mean_seconds{until="sent"}'] !== undefined,
  },
  { name: "Running for", of: (now) => ageText(now.rove_uptime_seconds) },
];

const milliseconds = (seconds) => `${shortValue((seconds ?? 0) * 1000)} ms`;
const sum = (values) => (values.includes(null) ? null : values.reduce((a, b) => a + b, 0));
const perSecond = (value) => (value === null ? "–" : `${bytesText(value)}/s`);

/** @param {{app: import("../app.js").App}} props */
export function Summary({ app }) {
  const health = useAnswer(app, "/api/broker/health", {}, { every_s: EVERY_S });
  const metrics = useAnswer(app, "/api/broker/metrics", {}, { every_s: EVERY_S });
  const rate = useRates(metrics.data);
  return html`<${AnswerPanel} title="Broker" class="is-wide" answer=${metrics} note=${html`<${Health} health=${health} />`}>
    ${(now) => html`<${Figures} figures=${FIGURES} now=${now} rate=${rate} />`}
  <//>`;
}

/**
 * Numbers with their names.
 * @param {{figures: {name: string, of: (now: any, rate: (name: string) => number | null) => any, more?: (now: any) => any,
 *   is_there?: (now: any) => boolean, is_bad?: (now: any) => boolean}[], now: any, rate: (name: string) => number | null}} props
 */
export function Figures({ figures, now, rate }) {
  return html`<dl class="ops-figures">
    ${figures.filter(({ is_there }) => is_there?.(now) ?? true).map(
      ({ name, of, more, is_bad }) => html`<div key=${name} class=${is_bad?.(now) ? "is-bad" : ""}>
        <dt>${name}</dt>
        <dd>${of(now, rate)}</dd>
        ${more && html`<dd class="ops-more">${more(now)}</dd>`}
      </div>`,
    )}
  </dl>`;
}

function Health({ health: { data, error } }) {
  if (error) return html`<span class="ops-health is-bad">✘ not well: ${error.message}</span>`;
  if (data === null) return null;
  if (data.status === "ok") return html`<span class="ops-health">✔ well</span>`;
  return html`<span class="ops-health is-bad">✘ ${(data.reasons ?? [data.status]).join("; ")}</span>`;
}

/** Increases per second between the last two answers. */
export function useRates(now) {
  const pair = useRef({ data: null, at: 0, rates: {} }).current;
  if (now !== null && now !== pair.data) {
    const at = performance.now() / 1000;
    const passed_s = at - pair.at;
    pair.rates = {};
    for (const [name, value] of Object.entries(pair.data === null ? {} : now)) {
      const grown = value - (pair.data[name] ?? 0);
      if (grown >= 0) pair.rates[name] = grown / passed_s;
    }
    pair.data = now;
    pair.at = at;
  }
  return (name) => pair.rates[name] ?? null;
}
