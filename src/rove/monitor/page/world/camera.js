/**
 * Which part of the world is seen: a centre in metres and a scale in pixels a metre. Up is up.
 */
const MARGIN_PX = 24;
const SCALE_MAX = 60;
const GLIDE_S = 0.12;

export class Camera {
  constructor() {
    this.x = 0;
    this.y = 0;
    this.scale = 1;
    this.width = 1;
    this.height = 1;
    this.world = { width: 1, height: 1 };
    this.target = null;
    /** Whether all of the world is shown, and is to be when the canvas gets another size. */
    this.is_fit = true;
    /** Grows with every change, so that others know when to draw again. */
    this.version = 0;
  }

  /** @param {{width: number, height: number}} world its size in metres */
  setWorld(world) {
    this.world = world;
    this.fit(true);
  }

  /** The canvas has another size. */
  resize(width, height) {
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
    if (this.is_fit) this.fit(true);
    this.version += 1;
  }

  #fitScale() {
    const { width, height } = this.world;
    return Math.min((this.width - 2 * MARGIN_PX) / width, (this.height - 2 * MARGIN_PX) / height);
  }

  scaleMin() {
    return Math.max(1e-4, this.#fitScale() / 2);
  }

  /** Show all of the world. */
  fit(is_at_once = false) {
    const scale = Math.max(1e-4, this.#fitScale());
    this.go({ x: this.world.width / 2, y: this.world.height / 2, scale }, is_at_once);
    this.is_fit = true;
  }

  /** Go somewhere, gliding unless it is to be at once. */
  go(target, is_at_once = false) {
    const next = this.#held({ x: this.x, y: this.y, scale: this.scale, ...this.target, ...target });
    this.is_fit = false;
    if (is_at_once) {
      Object.assign(this, next);
      this.target = null;
    } else {
      this.target = next;
    }
    this.version += 1;
  }

  #held({ x, y, scale }) {
    return {
      x: Math.min(this.world.width, Math.max(0, x)),
      y: Math.min(this.world.height, Math.max(0, y)),
      scale: Math.min(SCALE_MAX, Math.max(this.scaleMin(), scale)),
    };
  }

  /** Zoom so that the point under a pixel stays there. */
  zoomAt(px, py, factor, is_at_once = false) {
    const from = this.target ?? this;
    const scale = this.#held({ ...from, x: 0, y: 0, scale: from.scale * factor }).scale;
    const dx = px - this.width / 2;
    const dy = this.height / 2 - py;
    const x = from.x + dx / from.scale - dx / scale;
    const y = from.y + dy / from.scale - dy / scale;
    this.go({ x, y, scale }, is_at_once);
  }

  /** Move by pixels. */
  pan(dx, dy, is_at_once = true) {
    const from = this.target ?? this;
    this.go({ x: from.x - dx / from.scale, y: from.y + dy / from.scale }, is_at_once);
  }

  /**
   * Glide on towards the target.
   * @returns {boolean} whether anything moved
   */
  step(passed_s) {
    if (this.target === null) return false;
    const part = 1 - Math.exp(-passed_s / GLIDE_S);
    const { target } = this;
    this.x += (target.x - this.x) * part;
    this.y += (target.y - this.y) * part;
    this.scale *= (target.scale / this.scale) ** part;
    const off_px = Math.hypot(target.x - this.x, target.y - this.y) * this.scale;
    if (off_px < 0.2 && Math.abs(target.scale / this.scale - 1) < 1e-3) {
      Object.assign(this, target);
      this.target = null;
    }
    this.version += 1;
    return true;
  }

  toScreen(x, y) {
    return [(x - this.x) * this.scale + this.width / 2, this.height / 2 - (y - this.y) * this.scale];
  }

  toWorld(px, py) {
    return [(px - this.width / 2) / this.scale + this.x, (this.height / 2 - py) / this.scale + this.y];
  }

  /** Metres to the clip space of WebGL: factors and offsets for x and y. */
  clip() {
    const [fx, fy] = [(2 * this.scale) / this.width, (2 * this.scale) / this.height];
    return [fx, fy, -this.x * fx, -this.y * fy];
  }
}

/**
 * A round number of metres for a scale bar of at most `px_max` pixels.
 * @returns {{metres: number, px: number}}
 */
export function scaleBar(scale, px_max = 120) {
  const metres_max = px_max / scale;
  const power = 10 ** Math.floor(Math.log10(metres_max));
  const metres = [5, 2, 1].map((step) => step * power).find((value) => value <= metres_max) ?? power;
  return { metres, px: metres * scale };
}
