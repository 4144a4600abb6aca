/**
 * What time it is in the world, between frames: smooth, and never backwards.
 *
 * Frames say the world's time when they come, unevenly. The page shows the world `LATE_S` late, so
 * that the leg that begins next is known before it is drawn. How fast the world goes (it may be
 * slower than real time, or stand) is taken from the last frames; the shown time is drawn towards
 * what it ought to be, softly. Without frames it runs on for `AHEAD_S_MAX` and waits.
 */
const LATE_S = 0.15;
const AHEAD_S_MAX = 0.5;
const SNAP_S = 2;
const SOFT_S = 0.4;
const FRAMES = 20;

export class WorldClock {
  constructor() {
    this.reset();
  }

  /** Forget everything: another world begins. */
  reset() {
    this.frames = [];
    this.shown_at = null;
    this.asked_s = 0;
  }

  /**
   * A frame has come.
   * @param {number} at the world's time in it
   * @param {number} now_s the page's clock
   */
  take(at, now_s) {
    const last = this.frames.at(-1);
    if (last !== undefined && at < last.at) this.reset();
    this.frames.push({ at, now_s });
    if (this.frames.length > FRAMES) this.frames.shift();
  }

  /** How fast the world goes: 1 is real time. */
  get rate() {
    const [first, last] = [this.frames[0], this.frames.at(-1)];
    if (this.frames.length < 3 || last.now_s - first.now_s < 0.05) return 1;
    return Math.min(4, Math.max(0, (last.at - first.at) / (last.now_s - first.now_s)));
  }

  /**
   * The world's time to draw; null before the first frame.
   * @param {number} now_s the page's clock
   */
  time(now_s) {
    const last = this.frames.at(-1);
    if (last === undefined) return null;
    const { rate } = this;
    const ahead = Math.min(AHEAD_S_MAX, rate * (now_s - last.now_s));
    const wanted = last.at + ahead - LATE_S;
    if (this.shown_at === null || Math.abs(wanted - this.shown_at) > SNAP_S) {
      this.shown_at = Math.max(wanted, this.shown_at ?? wanted);
    } else {
      const passed_s = Math.max(0, now_s - this.asked_s);
      const free = this.shown_at + rate * passed_s;
      const drawn = free + (wanted - free) * (1 - Math.exp(-passed_s / SOFT_S));
      this.shown_at = Math.max(this.shown_at, Math.min(drawn, last.at + AHEAD_S_MAX));
    }
    this.asked_s = now_s;
    return this.shown_at;
  }
}
