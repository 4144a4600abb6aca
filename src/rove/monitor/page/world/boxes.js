/**
 * Rectangles that move, in the layout in which the graphics card reads them: what clients listen to.
 */
import { Pages } from "./pages.js";

/** Floats of a line: x, y, half the sides, velocity, since, style. */
export const BOX_FLOATS = 8;

export class Boxes {
  /** @param {number} capacity */
  constructor(capacity) {
    this.capacity = capacity;
    this.count = 0;
    this.data = new Float32Array(capacity * BOX_FLOATS);
    this.pages = new Pages(capacity);
    this.base_s = 0;
  }

  /** @param {number} base_s the time from which `since` counts */
  clear(base_s) {
    this.data.fill(0);
    this.base_s = base_s;
    this.count = 0;
    this.pages.markAll();
  }

  /**
   * @param {number} line
   * @param {ArrayLike<number>} box x, y, half the sides, velocity
   * @param {number} at when it is there
   * @param {number} style number of a style of the palette
   */
  put(line, box, at, style) {
    if (line >= this.capacity) return;
    const start = line * BOX_FLOATS;
    for (let i = 0; i < 6; i += 1) this.data[start + i] = box[i];
    this.data[start + 6] = at - this.base_s;
    this.data[start + 7] = style;
    this.count = Math.max(this.count, line + 1);
    this.pages.mark(line);
  }

  /**
   * @param {import("./frames.js").Frame} frame areas
   * @param {number} style
   */
  take(frame, style) {
    if (frame.is_whole) this.clear(frame.at);
    for (let i = 0; i < frame.count; i += 1) {
      const box = [frame.x[i], frame.y[i], frame.rx[i], frame.ry[i], frame.vx(i), frame.vy(i)];
      this.put(frame.lines[i], box, frame.at, style);
    }
  }
}
