/**
 * Live samples of the world and of the broker, remembered for the charts.
 *
 * The page hears a sample a second whether or not anybody looks at the graphs. They are kept from
 * the first look at the graphs on, two hours of them at most (about 7 MB with seven engines), so
 * that charts without a database have a past too, and coming back to the tab shows no hole.
 *
 * The broker sends nothing by itself: while a chart needs it, its metrics are asked for every two
 * seconds. The monitor asks the broker once for all pages.
 */
import { lineName } from "./tracks.js";

const BROKER_EVERY_MS = 2000;
const SERIES = /^([^{]+)(?:\{(.*)\})?$/s;
const LABEL = /([^=,"]+)="((?:[^"\\]|\\.)*)"/gs;
const SAMPLES_MAX = 7200;

/** @type {WeakMap<object, LiveSamples>} */
const ofApps = new WeakMap();

/**
 * The samples of a page; made with the first call.
 * @param {object} app
 * @returns {LiveSamples}
 */
export function samplesOf(app) {
  if (!ofApps.has(app)) ofApps.set(app, new LiveSamples(app.live));
  return ofApps.get(app);
}

/** What came, the oldest first, and who wants to know of more. */
export class LiveSamples {
  constructor(live) {
    /** @type {import("./tracks.js").Sample[]} */
    this.samples = [];
    this.is_open = true;
    /** Seconds that the monitor's clock is ahead of this one. */
    this.ahead = 0;
    this.run = 0;
    this.listeners = new Set();
    live.on("hello", ({ now }) => this.setClock(now));
    live.on("alive", ({ now }) => this.setClock(now));
    live.on("world", () => this.changeRun());
    live.on("sample", (message) => this.take(message));
    live.on("open", () => this.setOpen(true));
    live.on("closed", () => this.setOpen(false));
  }

  /** The monitor's time, in seconds since 1970. */
  now() {
    return Date.now() / 1000 + this.ahead;
  }

  setClock(now) {
    this.ahead = now - Date.now() / 1000;
  }

  changeRun() {
    this.run += 1;
    this.tell("world");
  }

  setOpen(is_open) {
    this.is_open = is_open;
    this.tell(is_open ? "open" : "closed");
  }

  take({ now, engines, audiences }) {
    this.setClock(now);
    const last = this.samples.at(-1);
    if (last && now <= last.now) return;
    this.samples.push({ now, run: this.run, sources: { ...audiences, ...engines } });
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    this.tell("sample");
  }

  tell(what) {
    for (const listener of this.listeners) listener(what);
  }

  /**
   * @param {(what: string) => void} listener
   * @returns {() => void} ends it
   */
  on(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** @type {WeakMap<object, BrokerSamples>} */
const brokersOfApps = new WeakMap();

/**
 * What the broker said while somebody drew it; made with the first call.
 * @param {object} app
 * @returns {BrokerSamples}
 */
export function brokerSamplesOf(app) {
  if (!brokersOfApps.has(app)) brokersOfApps.set(app, new BrokerSamples(app));
  return brokersOfApps.get(app);
}

/** Metrics of the broker over time, asked for as long as there is somebody who uses them. */
class BrokerSamples {
  constructor(app) {
    this.app = app;
    /** @type {import("./tracks.js").Sample[]} */
    this.samples = [];
    this.users = 0;
    this.timer = 0;
  }

  /** @returns {() => void} ends it */
  use() {
    this.users += 1;
    if (this.users === 1) this.ask();
    return () => {
      this.users -= 1;
      if (this.users === 0) clearTimeout(this.timer);
    };
  }

  async ask() {
    if (!document.hidden) {
      const found = await this.app.api.get("/api/broker/metrics").catch(() => null);
      if (found) this.samples.push({ now: samplesOf(this.app).now(), run: 0, sources: sourcesOf(found) });
      if (this.samples.length > SAMPLES_MAX) this.samples.shift();
    }
    if (this.users > 0) this.timer = setTimeout(() => this.ask(), BROKER_EVERY_MS);
  }
}

/** By line and metric: what `rove_delay_mean_seconds{until="sent"}` says is of the line "until sent". */
function sourcesOf(metrics) {
  const sources = {};
  for (const [series, value] of Object.entries(metrics)) {
    const [, metric, text] = SERIES.exec(series);
    const labels = Object.fromEntries([...(text ?? "").matchAll(LABEL)].map(([, name, said]) => [name, said]));
    const name = lineName(labels);
    sources[name] ??= {};
    sources[name][metric] = value;
  }
  return sources;
}
