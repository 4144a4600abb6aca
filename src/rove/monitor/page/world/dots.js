/**
 * Where everybody is: for each entity the leg that it is on and the one before, in the layout in
 * which the graphics card reads it.
 *
 * The page shows the world a moment late (see clock.js), so that it is drawn on the old leg until
 * the new one really begins; with the new leg alone everybody would jump at every bend. Times are
 * kept relative to the last whole frame: 32-bit floats are exact to a millisecond for hours.
 */
import { WHOLE } from "./frames.js";
import { Pages } from "./pages.js";

/** Floats of a line: x, y, vx, vy, since; the same of the old leg; and how it looks. */
export const DOT_FLOATS = 11;
const OLD = 5;
const LOOK = 10;
export const FLAG_HEARD = 1;
export const FLAG_SELECTED = 2;

export class Dots {
  /** @param {number[]} kinds of each entity */
  constructor(kinds) {
    this.count = kinds.length;
    this.data = new Float32Array(this.count * DOT_FLOATS);
    this.looks = new Uint8Array(this.data.buffer);
    this.kinds = Uint8Array.from(kinds);
    this.pages = new Pages(this.count);
    this.base_s = 0;
    this.is_known = false;
    for (let i = 0; i < this.count; i += 1) this.looks[(i * DOT_FLOATS + LOOK) * 4] = kinds[i];
  }

  /** @param {import("./frames.js").Frame} frame whole or legs */
  take(frame) {
    if (frame.kind === WHOLE) {
      this.base_s = frame.at;
      this.is_known = true;
      this.pages.markAll();
    }
    const since = frame.at - this.base_s;
    for (let i = 0; i < frame.count; i += 1) {
      const line = frame.lines === undefined ? i : frame.lines[i];
      if (line < this.count) this.#put(line, frame.x[i], frame.y[i], frame.vx(i), frame.vy(i), since, frame.kind === WHOLE);
    }
  }

  #put(line, x, y, vx, vy, since, is_whole) {
    const { data } = this;
    const at = line * DOT_FLOATS;
    if (!is_whole) data.copyWithin(at + OLD, at, at + OLD);
    data[at] = x;
    data[at + 1] = y;
    data[at + 2] = vx;
    data[at + 3] = vy;
    data[at + 4] = since;
    if (is_whole) data.copyWithin(at + OLD, at, at + OLD);
    this.pages.mark(line);
  }

  /**
   * Where an entity is, and how it moves.
   * @param {number} line
   * @param {number} at seconds since the world began
   */
  place(line, at) {
    const { data } = this;
    const now = at - this.base_s;
    const start = line * DOT_FLOATS;
    const leg = now < data[start + 4] ? start + OLD : start;
    const passed = now - data[leg + 4];
    return {
      x: data[leg] + data[leg + 2] * passed,
      y: data[leg + 1] + data[leg + 3] * passed,
      vx: data[leg + 2],
      vy: data[leg + 3],
    };
  }

  /**
   * The entity next to a point; -1 if none is within `reach` metres.
   * @param {number} x
   * @param {number} y
   * @param {number} reach
   * @param {number} at
   */
  nearest(x, y, reach, at) {
    let best = -1;
    let best2 = reach * reach;
    for (let line = 0; line < this.count; line += 1) {
      const place = this.place(line, at);
      const distance2 = (place.x - x) ** 2 + (place.y - y) ** 2;
      if (distance2 <= best2) {
        best = line;
        best2 = distance2;
      }
    }
    return best;
  }

  /**
   * Mark some entities with a flag, and nobody else.
   * @param {number} flag
   * @param {Iterable<number>} lines
   */
  flag(flag, lines) {
    const wanted = new Set(lines);
    for (let line = 0; line < this.count; line += 1) {
      const at = (line * DOT_FLOATS + LOOK) * 4 + 1;
      const next = wanted.has(line) ? this.looks[at] | flag : this.looks[at] & ~flag;
      if (next !== this.looks[at]) {
        this.looks[at] = next;
        this.pages.mark(line);
      }
    }
  }

  /** @param {number} line */
  flags(line) {
    return this.looks[(line * DOT_FLOATS + LOOK) * 4 + 1];
  }
}
