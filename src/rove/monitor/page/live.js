/**
 * The page's one WebSocket: messages by type, questions by number, and a connection that comes back.
 *
 * Everything that is live shares it, because browsers allow few connections and because order
 * matters: a frame after "another run began" belongs to that run. What the page watches is kept
 * here and said again after every reconnect. Waiting doubles from half a second to five, with
 * some chance in it so that twenty pages do not all knock at once; a page that comes back from the
 * background, or a machine that is online again, tries at once.
 */
import { addressOf } from "./api.js";

const WAIT_FIRST_MS = 500;
const WAIT_MAX_MS = 5_000;
const SILENCE_MAX_MS = 10_000;
const ANSWER_WITHIN_MS = 10_000;
const WATCH_NOTHING = { world: false, select: null, areas: false, rate_hz: 10 };

/**
 * @typedef {object} Connection
 * @property {"connecting" | "open" | "waiting" | "off"} state
 * @property {number} [again_at] when it is tried again, in milliseconds since 1970
 * @property {number} [tries]
 */

export class Live {
  constructor() {
    /** @type {Map<string, Set<Function>>} */
    this.listeners = new Map();
    this.asked = new Map();
    this.number = 0;
    this.tries = 0;
    this.socket = null;
    this.timer = 0;
    this.watched = WATCH_NOTHING;
    this.heard_at = 0;
    /** @type {Connection} */
    this.connection = { state: "off" };
    document.addEventListener("visibilitychange", () => this.#visibilityChanged());
    window.addEventListener("online", () => this.retry());
  }

  /** Connect, and stay connected until `stop`. */
  start() {
    if (this.connection.state === "off") this.#connect();
  }

  /** Hang up and stay so. */
  stop() {
    clearTimeout(this.timer);
    this.#tell({ state: "off" });
    this.socket?.close();
    this.socket = null;
  }

  /** Do not wait any longer. */
  retry() {
    if (this.connection.state === "waiting") this.#connect();
  }

  /**
   * Call `f` with every message of a type; "frame" gets ArrayBuffers, "open" and "closed" nothing,
   * "connection" the new state.
   * @param {string} type
   * @param {(message: any) => void} f
   * @returns {() => void} stops that
   */
  on(type, f) {
    if (!this.listeners.has(type)) this.listeners.set(type, new Set());
    this.listeners.get(type).add(f);
    return () => this.listeners.get(type).delete(f);
  }

  /**
   * @param {object} message
   * @returns {boolean} whether there was a connection to send it on
   */
  send(message) {
    if (this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(JSON.stringify(message));
    return true;
  }

  /**
   * Send with a number, and get what is answered to it.
   * @param {object} message
   * @returns {Promise<any>}
   */
  ask(message) {
    return new Promise((resolve, reject) => {
      const id = ++this.number;
      if (!this.send({ ...message, id })) {
        reject(new Error("There is no connection to the monitor."));
        return;
      }
      const timer = setTimeout(() => {
        this.asked.delete(id);
        reject(new Error("The monitor did not answer within ten seconds."));
      }, ANSWER_WITHIN_MS);
      this.asked.set(id, { resolve, reject, timer });
    });
  }

  /**
   * Change what is sent to this page; told again after every reconnect. The server answers with
   * everything that is watched, so this is also the way to ask for all of it again.
   * @param {{world?: boolean, select?: string | null, areas?: boolean, rate_hz?: number}} change
   */
  watch(change) {
    this.watched = { ...this.watched, ...change };
    this.#sendWatch();
  }

  #sendWatch() {
    const seen = document.hidden ? { ...this.watched, world: false, select: null, areas: false } : this.watched;
    this.send({ type: "watch", ...seen });
  }

  #connect() {
    clearTimeout(this.timer);
    this.#tell({ state: "connecting", tries: this.tries });
    const address = addressOf("/api/live");
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.#opened();
    socket.onmessage = (event) => this.#received(event.data);
    socket.onclose = () => this.#closed(socket);
    this.socket = socket;
  }

  #opened() {
    this.tries = 0;
    this.heard_at = performance.now();
    this.#tell({ state: "open" });
    this.#sendWatch();
    this.#emit("open");
    this.timer = setTimeout(() => this.#listen(), SILENCE_MAX_MS);
  }

  /** A connection on which nothing comes is a dead one: samples come every second. */
  #listen() {
    if (document.hidden || performance.now() - this.heard_at < SILENCE_MAX_MS) {
      this.timer = setTimeout(() => this.#listen(), SILENCE_MAX_MS);
    } else {
      this.#closed(this.socket);
    }
  }

  #closed(socket) {
    if (socket !== this.socket || this.connection.state === "off") return;
    socket.onclose = null;
    socket.close();
    this.socket = null;
    clearTimeout(this.timer);
    for (const { reject, timer } of this.asked.values()) {
      clearTimeout(timer);
      reject(new Error("The connection to the monitor was lost."));
    }
    this.asked.clear();
    const wait_ms = Math.min(WAIT_MAX_MS, WAIT_FIRST_MS * 2 ** this.tries) * (0.75 + Math.random() / 2);
    this.tries += 1;
    this.timer = setTimeout(() => this.#connect(), wait_ms);
    const wasOpen = this.connection.state === "open";
    this.#tell({ state: "waiting", again_at: Date.now() + wait_ms, tries: this.tries });
    if (wasOpen) this.#emit("closed");
  }

  #received(data) {
    this.heard_at = performance.now();
    if (data instanceof ArrayBuffer) {
      this.#emit("frame", data);
      return;
    }
    const message = JSON.parse(data);
    const asked = this.asked.get(message.id);
    if (asked !== undefined) {
      this.asked.delete(message.id);
      clearTimeout(asked.timer);
      asked.resolve(message);
    }
    this.#emit(message.type, message);
  }

  #visibilityChanged() {
    if (!document.hidden) this.retry();
    this.#sendWatch();
  }

  #tell(connection) {
    this.connection = connection;
    this.#emit("connection", connection);
  }

  #emit(type, message) {
    for (const f of [...(this.listeners.get(type) ?? [])]) f(message);
  }
}
