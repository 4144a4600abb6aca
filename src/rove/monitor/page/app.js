/**
 * What all views share: the API, the live connection, what is remembered, the theme, the engines'
 * looks, the world that is shown and who is selected in it.
 *
 * Shared values are *cells*: a value, a way to set it, and those who want to know. A store library
 * would do the same; this is the part of it that the page needs.
 */
import { createApi } from "./api.js";
import { Live } from "./live.js";

const NOTES_MAX = 300;
const STORE_VERSION = 1;
const RETRY_MS = 2000;
const MAKING_MS = 1000;
const STORE_PREFIX = `rove.monitor.${STORE_VERSION}.`;

/**
 * @template T
 * @typedef {{value: T, set: (value: T) => void, on: (f: (value: T) => void) => () => void}} Cell
 */

/**
 * A value that others can follow.
 * @template T
 * @param {T} value
 * @returns {Cell<T>}
 */
export function cell(value) {
  const followers = new Set();
  return {
    value,
    set(next) {
      if (Object.is(next, this.value)) return;
      this.value = next;
      for (const f of [...followers]) f(next);
    },
    on(f) {
      followers.add(f);
      return () => followers.delete(f);
    },
  };
}

/** What is remembered in this browser; a browser that forbids it has a page without a memory. */
export function createStore() {
  return {
    get(key, fallback) {
      try {
        const text = localStorage.getItem(STORE_PREFIX + key);
        return text === null ? fallback : JSON.parse(text);
      } catch {
        return fallback;
      }
    },
    set(key, value) {
      try {
        localStorage.setItem(STORE_PREFIX + key, JSON.stringify(value));
      } catch {
        // Nothing is lost but the memory.
      }
    },
  };
}

/** Dashes by the name of an engine's colour in style.css; colour alone does not tell lines apart. */
const DASHES = {
  object: [],
  tile: [6, 3],
  area: [2, 2],
  evolving: [10, 3],
  pes: [8, 3, 2, 3],
  lees: [12, 4],
  clees: [4, 2, 1, 2],
  static: [1, 3],
};
const OTHERS = ["other1", "other2", "other3"];
const OTHER_DASHES = [[], [6, 3], [2, 2], [5, 2, 1, 2]];

/**
 * Which of style.css's engine colours is an engine's: `evolving-pes` has that of `pes`.
 * @param {string} name
 * @returns {string}
 */
export function engineKey(name) {
  const last = name.split("-").at(-1);
  if (last in DASHES) return last;
  let hash = 0;
  for (const letter of name) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
  return OTHERS[hash % OTHERS.length];
}

/** The value of a custom property of style.css in the present theme. */
export function token(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/**
 * @typedef {object} WorldState
 * @property {"none" | "loading" | "ready" | "error"} status
 * @property {any} [document] what /api/world answered
 * @property {Error} [error]
 */

/** @typedef {ReturnType<typeof createApp>} App */

/** Make what the views share; nothing is asked or connected before `app.start()`. */
export function createApp() {
  const hello = cell(null);
  const fault = cell(null);
  const live = new Live();
  const api = createApi(() => refresh());
  const store = createStore();
  const connection = cell(live.connection);
  const world = cell(/** @type {WorldState} */ ({ status: "none" }));
  const state = cell(null);
  const selected = cell(null);
  const notes = cell(/** @type {{now: number, kind: string, text: string}[]} */ ([]));
  const said = cell(null);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const themeChoice = cell(store.get("theme", "auto"));
  const effective = () => (themeChoice.value === "auto" ? (dark.matches ? "dark" : "light") : themeChoice.value);
  const theme = cell(effective());
  let retryTimer = 0;
  let fetching = 0;

  function applyTheme() {
    document.documentElement.dataset.theme = effective();
    theme.set(effective());
  }

  async function refresh() {
    clearTimeout(retryTimer);
    try {
      const answer = await api.get("/api/hello");
      fault.set(null);
      hello.set(answer);
      if (answer.login) live.stop();
      else live.start();
    } catch (error) {
      fault.set(error);
      if (hello.value === null) retryTimer = setTimeout(refresh, RETRY_MS);
    }
  }

  async function fetchWorld() {
    const turn = ++fetching;
    if (world.value.status !== "ready") world.set({ status: "loading" });
    try {
      const answer = await api.get("/api/world");
      if (turn !== fetching) return;
      const { at, is_paused, is_over, speed } = answer;
      state.set({ at, is_paused, is_over, live: liveEngineOf(answer), speed });
      world.set({ status: "ready", document: answer });
    } catch (error) {
      if (turn !== fetching) return;
      if (error.status === 503) setTimeout(() => turn === fetching && fetchWorld(), MAKING_MS); // it is being made
      else world.set({ status: "error", error });
    }
  }

  live.on("connection", (value) => {
    connection.set(value);
    if (value.state === "waiting" && value.tries === 2) refresh(); // perhaps one has to log in again
  });
  live.on("hello", ({ run }) => {
    if (hello.value?.parts.world && world.value.document?.run !== run) fetchWorld();
  });
  live.on("world", fetchWorld);
  live.on("state", ({ at, is_paused, is_over, live: engine, speed }) =>
    state.set({ at, is_paused, is_over, live: engine, speed }),
  );
  let opened = 0;
  live.on("note", (note) => {
    const is_known = notes.value.some(({ now, kind, text }) => now === note.now && kind === note.kind && text === note.text);
    if (!is_known) notes.set([...notes.value, note].slice(-NOTES_MAX));
  });
  live.on("open", () => {
    opened += 1;
    if (opened > 1) refresh(); // another monitor may have come back in its place
  });
  dark.addEventListener("change", applyTheme);
  themeChoice.on((choice) => {
    store.set("theme", choice);
    applyTheme();
  });
  applyTheme();

  return {
    api,
    live,
    store,
    cells: { hello, fault, connection, world, state, selected, said, notes, theme, themeChoice },
    get parts() {
      return hello.value?.parts ?? {};
    },
    /** Whether this visitor may change the world, or only look. */
    get may_change() {
      return hello.value?.admin !== false;
    },
    start: refresh,
    refresh,
    fetchWorld,
    /** @returns {"light" | "dark"} what is shown now */
    theme: () => theme.value,
    /**
     * How lines of an engine look; ask again when `cells.theme` changes.
     * @param {string} name
     * @param {number} [place] of a series that is no engine's, among its like, so that no two look alike
     * @returns {{colour: string, dash: number[], label: string}}
     */
    engineStyle(name, place = 0) {
      const own = engineKey(name);
      const key = own in DASHES ? own : OTHERS[(OTHERS.indexOf(own) + place) % OTHERS.length];
      const dash = DASHES[key] ?? OTHER_DASHES[place % OTHER_DASHES.length];
      return { colour: token(`engine-${key}`), dash, label: name };
    },
    /** @param {string | null} name whose areas and subscriptions are shown */
    select: (name) => selected.set(name),
    /**
     * Say something to the world. What is said anywhere on the page stands in the console, but for
     * what comes by the dozen, as steering does.
     * @param {string} text
     * @param {{is_quiet?: boolean}} [how]
     * @returns {Promise<{ok: boolean, text: string}>}
     */
    say(text, { is_quiet = false } = {}) {
      const answer = live.ask({ type: "say", text });
      said.set({ text, is_quiet, answer });
      return answer;
    },
  };
}

function liveEngineOf(answer) {
  return answer.engines.find((engine) => engine.live)?.name ?? null;
}
