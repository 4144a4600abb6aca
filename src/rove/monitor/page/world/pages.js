/**
 * Which parts of an array have changed since they were last sent to the graphics card.
 *
 * Kept by pages of 256 lines: a bit for each line would cost more to look through than it saves, a
 * single range from the first to the last change would nearly always be everything.
 */
const LINES = 256;

export class Pages {
  /** @param {number} lines */
  constructor(lines) {
    this.lines = lines;
    this.dirty = new Uint8Array(Math.ceil(lines / LINES));
    this.is_dirty = false;
  }

  /** @param {number} line */
  mark(line) {
    this.dirty[Math.floor(line / LINES)] = 1;
    this.is_dirty = true;
  }

  markAll() {
    this.dirty.fill(1);
    this.is_dirty = true;
  }

  /**
   * Call `f` with each run of changed lines, and forget that they were.
   * @param {(first: number, end: number) => void} f
   */
  flush(f) {
    if (!this.is_dirty) return;
    this.is_dirty = false;
    let first = -1;
    for (let page = 0; page <= this.dirty.length; page += 1) {
      const is_changed = page < this.dirty.length && this.dirty[page] === 1;
      if (is_changed && first < 0) first = page;
      if (!is_changed && first >= 0) {
        f(first * LINES, Math.min(page * LINES, this.lines));
        first = -1;
      }
    }
    this.dirty.fill(0);
  }
}
