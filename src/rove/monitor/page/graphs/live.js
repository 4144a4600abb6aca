/**
 * Live samples of the world, remembered for the charts.
 *
 * The page hears a sample a second whether or not anybody looks at the graphs. They are kept from
 * the first look at the graphs on, two hours of them at most (about 7 MB with seven engines), so
 * that charts without a database have a past too, and coming back to the tab shows no hole.
 */
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
    live.on("hello", (message) => this.setClock(message.now));
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
    this.tell("hello");
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
