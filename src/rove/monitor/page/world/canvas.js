/**
 * The renderer for browsers without WebGL2, and after the graphics card has taken it away: the same
 * picture with Canvas2D, some ten times slower. Asked for with `?renderer=2d`.
 */
import { BOX_FLOATS } from "./boxes.js";
import { DOT_FLOATS, FLAG_SELECTED } from "./dots.js";
import { TRUTH, written } from "./palette.js";

export class CanvasRenderer {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.name = "canvas2d";
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.paths = {};
    this.patches = new Map();
  }

  /** @param {import("./geometry.js").Scene} scene */
  setScene(scene) {
    this.paths = {
      ground: trianglesPath(scene.ground),
      roads: trianglesPath(scene.roads),
      walls: trianglesPath(scene.walls),
      wallEdges: linesPath(scene.wallEdges),
      tileEdges: linesPath(scene.tileEdges),
      regionEdges: linesPath(scene.regionEdges),
    };
  }

  /** Triangles with colours; those of one colour together. */
  setPatches(name, corners, colours) {
    const byColour = new Map();
    for (let i = 0; i < corners.length / 6; i += 1) {
      const [r, g, b, a] = colours.subarray(i * 12, i * 12 + 4);
      const key = `rgb(${r} ${g} ${b} / ${a / 255})`;
      if (!byColour.has(key)) byColour.set(key, []);
      byColour.get(key).push(...corners.subarray(i * 6, i * 6 + 6));
    }
    this.patches.set(name, [...byColour].map(([colour, flat]) => ({ colour, path: trianglesPath(flat) })));
  }

  /** @param {import("./palette.js").Palette} palette */
  setPalette(palette) {
    this.palette = palette;
  }

  /** @param {import("./map.js").Shown} shown */
  draw(shown) {
    const { context, palette, paths } = this;
    const { camera, layers } = shown;
    const ratio = devicePixelRatio;
    const hair = 1 / camera.scale;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = written(palette.outside);
    context.fillRect(0, 0, camera.width, camera.height);
    const [x0, y0] = camera.toScreen(0, 0);
    context.setTransform(ratio * camera.scale, 0, 0, -ratio * camera.scale, ratio * x0, ratio * y0);
    this.#fill(paths.ground, palette.ground);
    this.#fill(paths.roads, palette.road);
    if (layers.heat) this.#patches("heat");
    if (layers.tiles) this.#stroke(paths.tileEdges, palette.tile, hair);
    if (layers.heardTiles) this.#patches("heardTiles");
    this.#fill(paths.walls, palette.wall);
    this.#stroke(paths.wallEdges, palette.wallEdge, hair);
    if (layers.regions) this.#stroke(paths.regionEdges, palette.region, hair);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (layers.areas) this.#boxes(shown.areas, shown);
    this.#dots(shown);
    if (layers.heardAreas) this.#boxes(shown.listening, shown);
  }

  #fill(path, colour) {
    this.context.fillStyle = written(colour);
    this.context.fill(path);
  }

  #stroke(path, colour, width) {
    this.context.strokeStyle = written(colour);
    this.context.lineWidth = width;
    this.context.stroke(path);
  }

  #patches(name) {
    for (const { colour, path } of this.patches.get(name) ?? []) {
      this.context.fillStyle = colour;
      this.context.fill(path);
    }
  }

  #boxes(boxes, { camera, at }) {
    const { context, palette } = this;
    const now = at - boxes.base_s;
    const order = [...palette.styles.keys()].sort((a, b) => (a === TRUTH) - (b === TRUTH)); // the truth on top
    for (const number of order) {
      const style = palette.styles[number];
      context.beginPath();
      for (let i = 0; i < boxes.count; i += 1) {
        const [x, y, rx, ry, vx, vy, since, of] = boxes.data.subarray(i * BOX_FLOATS, (i + 1) * BOX_FLOATS);
        if (of !== number || rx <= 0) continue;
        const [left, top] = camera.toScreen(x + vx * (now - since) - rx, y + vy * (now - since) + ry);
        context.rect(left, top, 2 * rx * camera.scale, 2 * ry * camera.scale);
      }
      context.setLineDash(style.dash);
      context.lineWidth = style.width_px;
      context.strokeStyle = written(style.colour);
      context.stroke();
    }
    context.setLineDash([]);
  }

  #dots({ dots, camera, at, dot_px }) {
    if (!dots.is_known) return;
    const { context, palette } = this;
    const { data, kinds } = dots;
    const now = at - dots.base_s;
    const [x0, y0] = camera.toScreen(0, 0);
    palette.kinds.forEach((colour, kind) => {
      const draw = SHAPES[dot_px < 2.5 ? 3 : kind];
      context.fillStyle = written(colour);
      context.beginPath();
      for (let line = 0; line < dots.count; line += 1) {
        if (kinds[line] !== kind) continue;
        const start = line * DOT_FLOATS;
        const leg = now < data[start + 4] ? start + 5 : start;
        const passed = now - data[leg + 4];
        const x = x0 + (data[leg] + data[leg + 2] * passed) * camera.scale;
        const y = y0 - (data[leg + 1] + data[leg + 3] * passed) * camera.scale;
        if (x > -9 && y > -9 && x < camera.width + 9 && y < camera.height + 9) draw(context, x, y, dot_px);
      }
      context.fill();
    });
    this.#rings(dots, camera, at, dot_px);
  }

  #rings(dots, camera, at, dot_px) {
    const { context, palette } = this;
    for (let line = 0; line < dots.count; line += 1) {
      const flags = dots.flags(line);
      if (flags === 0) continue;
      const is_selected = (flags & FLAG_SELECTED) !== 0;
      const { x, y } = dots.place(line, at);
      const [px, py] = camera.toScreen(x, y);
      context.beginPath();
      context.arc(px, py, dot_px + 3, 0, 7);
      context.strokeStyle = written(is_selected ? palette.ring : palette.heard);
      context.lineWidth = is_selected ? 2.5 : 1.5;
      context.stroke();
    }
  }

  /** Give everything back. */
  dispose() {
    this.canvas.remove();
  }
}

/** By kind: circle, triangle, diamond, square, plus. */
const SHAPES = [
  (context, x, y, r) => {
    context.moveTo(x + r, y);
    context.arc(x, y, r, 0, 6.2832);
  },
  (context, x, y, r) => polygon(context, [x, y - r, x + r * 0.95, y + r * 0.7, x - r * 0.95, y + r * 0.7]),
  (context, x, y, r) => polygon(context, [x, y - r, x + r, y, x, y + r, x - r, y]),
  (context, x, y, r) => context.rect(x - r * 0.85, y - r * 0.85, r * 1.7, r * 1.7),
  (context, x, y, r) => {
    context.rect(x - r, y - r * 0.35, r * 2, r * 0.7);
    context.rect(x - r * 0.35, y - r, r * 0.7, r * 2);
  },
];

function polygon(context, flat) {
  context.moveTo(flat[0], flat[1]);
  for (let i = 2; i < flat.length; i += 2) context.lineTo(flat[i], flat[i + 1]);
  context.closePath();
}

function trianglesPath(flat) {
  const path = new Path2D();
  for (let i = 0; i < flat.length; i += 6) polygon(path, flat.slice(i, i + 6));
  return path;
}

function linesPath(flat) {
  const path = new Path2D();
  for (let i = 0; i < flat.length; i += 4) {
    path.moveTo(flat[i], flat[i + 1]);
    path.lineTo(flat[i + 2], flat[i + 3]);
  }
  return path;
}
