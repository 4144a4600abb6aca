/**
 * Words on the map: places, servers, and the name of whoever is selected. Drawn on a canvas above
 * the renderer's, because text is what WebGL is bad at; only when something of it has moved.
 */
const FONT = "12px system-ui, sans-serif";
const FONT_STRONG = "600 12px system-ui, sans-serif";
const HEIGHT = 16;
const REGION_PX_MIN = 72;

export class Labels {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.drawn = "";
  }

  /** @param {any} document */
  setWorld(document) {
    this.places = Object.entries(document.map.places);
    this.regions = document.regions.length > 1 ? document.regions : [];
    this.drawn = "";
  }

  /**
   * @param {import("./map.js").Shown} shown
   * @param {import("./palette.js").Palette} palette
   * @param {{name: string, x: number, y: number} | null} selected
   */
  draw({ camera, layers, dot_px }, palette, selected) {
    const where = selected && camera.toScreen(selected.x, selected.y).map(Math.round);
    const state = [camera.version, layers.places, layers.regions, palette.text, selected?.name, where].join();
    if (state === this.drawn) return;
    this.drawn = state;
    const { context } = this;
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, camera.width, camera.height);
    context.lineJoin = "round";
    this.taken = [];
    if (selected) this.#write(palette, selected.name, where[0], where[1] - dot_px - 12, FONT_STRONG, true);
    if (layers.regions) this.#drawRegions(camera, palette);
    if (layers.places) this.#drawPlaces(camera, palette);
  }

  #drawPlaces(camera, palette) {
    const { context } = this;
    for (const [name, [x, y]] of this.places) {
      const [px, py] = camera.toScreen(x, y);
      if (!isSeen(camera, px, py)) continue;
      if (!this.#write(palette, name, px, py - 10, FONT)) continue;
      context.beginPath();
      context.arc(px, py, 2, 0, 7);
      context.fillStyle = palette.text;
      context.fill();
    }
  }

  #drawRegions(camera, palette) {
    for (const { server, x0, y0, x1, y1 } of this.regions) {
      if ((x1 - x0) * camera.scale < REGION_PX_MIN) continue;
      const [left, top] = camera.toScreen(x0, y1);
      const [right, bottom] = camera.toScreen(x1, y0);
      if (right < 0 || bottom < 0 || left > camera.width || top > camera.height) continue;
      const name = `server ${server}`;
      this.#write(palette, name, Math.max(left, 0) + 34, Math.max(top, 0) + 12, FONT);
    }
  }

  /** Text with a halo of the ground's colour, unless it would lie on another. */
  #write(palette, text, x, y, font, is_forced = false) {
    const { context } = this;
    context.font = font;
    const half = context.measureText(text).width / 2 + 2;
    const box = [x - half, y - HEIGHT / 2, x + half, y + HEIGHT / 2];
    if (!is_forced && this.taken.some((other) => isOverlapping(box, other))) return false;
    this.taken.push(box);
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 3;
    context.strokeStyle = palette.halo;
    context.strokeText(text, x, y);
    context.fillStyle = palette.text;
    context.fillText(text, x, y);
    return true;
  }
}

function isSeen(camera, px, py) {
  return px > -40 && py > -20 && px < camera.width + 40 && py < camera.height + 20;
}

function isOverlapping([ax0, ay0, ax1, ay1], [bx0, by0, bx1, by1]) {
  return ax0 < bx1 && bx0 < ax1 && ay0 < by1 && by0 < ay1;
}
