/**
 * The map: a renderer, a camera and a loop that draws what has changed.
 *
 * The loop stops while the page is hidden and skips frames in which nothing moved. Whoever prefers
 * reduced motion gets two pictures a second instead of sixty. Without WebGL2, with `?renderer=2d`,
 * or when the graphics card takes the context away, Canvas2D draws.
 */
import { Camera } from "./camera.js";
import { CanvasRenderer } from "./canvas.js";
import { sceneOf } from "./geometry.js";
import { GlRenderer } from "./gl.js";
import { Labels } from "./labels.js";
import { noteFrame } from "./measure.js";

const REDUCED_S = 0.5;
const DOT_PX = [1.6, 7];
const DOT_M = 0.9;

/**
 * @typedef {object} Shown what a renderer draws
 * @property {Camera} camera
 * @property {Record<string, boolean>} layers
 * @property {import("./dots.js").Dots} dots
 * @property {import("./boxes.js").Boxes} areas
 * @property {import("./boxes.js").Boxes} listening
 * @property {number} at the world's time
 * @property {number} dot_px
 */

export class WorldMap {
  /** @param {HTMLElement} host an empty element that is as large as the map */
  constructor(host) {
    this.host = host;
    this.camera = new Camera();
    this.layers = {};
    this.model = null;
    this.heat = null;
    this.is_following = false;
    this.drawn = "";
    this.drawn_s = 0;
    this.stepped_s = 0;
    this.reduced = matchMedia("(prefers-reduced-motion: reduce)");
    const wants2d = new URLSearchParams(location.search).get("renderer") === "2d";
    this.renderer = wants2d ? this.#canvasRenderer() : this.#bestRenderer();
    this.labels = new Labels(this.#addCanvas("map-labels"));
    this.observer = new ResizeObserver(() => this.#resize());
    this.observer.observe(host);
    this.#resize();
    this.request = requestAnimationFrame(() => this.#frame());
  }

  #addCanvas(name) {
    const canvas = document.createElement("canvas");
    canvas.className = name;
    canvas.setAttribute("aria-hidden", "true");
    if (name === "map-canvas") this.host.prepend(canvas);
    else this.host.append(canvas);
    return canvas;
  }

  #bestRenderer() {
    const canvas = this.#addCanvas("map-canvas");
    try {
      return new GlRenderer(canvas, () => this.#fallBack());
    } catch {
      canvas.remove();
      return this.#canvasRenderer();
    }
  }

  #canvasRenderer() {
    return new CanvasRenderer(this.#addCanvas("map-canvas"));
  }

  #fallBack() {
    if (this.renderer.name !== "webgl2" || this.is_gone) return;
    this.renderer.canvas.remove();
    this.renderer = this.#canvasRenderer();
    this.#resize();
    if (this.palette) this.renderer.setPalette(this.palette);
    if (this.scene) this.renderer.setScene(this.scene);
    if (this.heat) this.renderer.setPatches("heat", this.heat.corners, this.heat.colours);
    this.tilesVersion = -1;
    this.host.dataset.renderer = this.renderer.name;
  }

  /** @param {import("./model.js").WorldModel} model */
  setModel(model) {
    const is_same = this.model?.document.map === model.document.map;
    this.model = model;
    this.tilesVersion = -1;
    this.host.dataset.renderer = this.renderer.name;
    this.drawn = "";
    if (is_same) return;
    this.scene = sceneOf(model.document);
    this.renderer.setScene(this.scene);
    this.labels.setWorld(model.document);
    this.camera.setWorld(model.document.map);
  }

  setPalette(palette) {
    this.palette = palette;
    this.renderer.setPalette(palette);
    this.drawn = "";
  }

  setLayers(layers) {
    this.layers = layers;
    this.drawn = "";
  }

  /** @param {{corners: Float32Array, colours: Uint8Array}} heat */
  setHeat(heat) {
    this.heat = heat;
    this.renderer.setPatches("heat", heat.corners, heat.colours);
    this.drawn = "";
  }

  /** Go there, and nearer if one is far. */
  show(x, y) {
    const reach = this.model.document.clients.reach;
    const near = Math.min(this.camera.width / (6 * reach[0]), this.camera.height / (6 * reach[1]));
    this.camera.go({ x, y, scale: Math.max(this.camera.scale, near) }, this.reduced.matches);
  }

  /** Where somebody is now. */
  placeOf(number) {
    const at = this.model?.time() ?? null;
    return at === null || number < 0 || !this.model.dots.is_known ? null : this.model.dots.place(number, at);
  }

  /** Who is under a pixel; -1 for nobody. */
  pick(px, py, reach_px) {
    const at = this.model?.time() ?? null;
    if (at === null || !this.model.dots.is_known) return -1;
    const [x, y] = this.camera.toWorld(px, py);
    return this.model.dots.nearest(x, y, reach_px / this.camera.scale, at);
  }

  #resize() {
    const { width, height } = this.host.getBoundingClientRect();
    for (const canvas of this.host.querySelectorAll("canvas")) {
      canvas.width = Math.max(1, Math.round(width * devicePixelRatio));
      canvas.height = Math.max(1, Math.round(height * devicePixelRatio));
    }
    this.camera.resize(width, height);
    this.drawn = "";
    if (this.labels) this.labels.drawn = "";
  }

  #frame() {
    this.request = requestAnimationFrame(() => this.#frame());
    const began_ms = performance.now();
    if (this.model === null || this.palette === undefined) return;
    const now_s = began_ms / 1000;
    const at = this.model.time() ?? 0;
    const passed_s = Math.min(0.1, now_s - this.stepped_s);
    this.stepped_s = now_s;
    if (this.is_following) this.#follow();
    const is_gliding = this.camera.step(this.reduced.matches ? 10 : passed_s);
    if (!is_gliding && this.reduced.matches && this.drawn !== "" && now_s - this.drawn_s < REDUCED_S) return;
    const state = `${at},${this.camera.version},${this.model.version}`;
    if (state === this.drawn) return;
    this.drawn = state;
    this.drawn_s = now_s;
    this.#draw(at);
    noteFrame(performance.now() - began_ms);
  }

  #follow() {
    const place = this.placeOf(this.model.selected);
    if (place !== null) this.camera.go({ x: place.x, y: place.y }, this.camera.target === null);
  }

  #draw(at) {
    const { model, camera } = this;
    if (model.heardTiles.version !== this.tilesVersion) {
      this.tilesVersion = model.heardTiles.version;
      this.renderer.setPatches("heardTiles", model.heardTiles.corners, model.heardTiles.colours);
    }
    const dot_px = Math.min(DOT_PX[1], Math.max(DOT_PX[0], DOT_M * camera.scale, 3.4 - Math.log10(model.dots.count + 1) * 0.4));
    const shown = { camera, layers: this.layers, dots: model.dots, areas: model.areas, listening: model.listening, at, dot_px };
    this.renderer.draw(shown);
    const place = this.placeOf(model.selected);
    this.labels.draw(shown, this.palette, place && { name: model.names[model.selected], ...place });
  }

  /** Stop, and give everything back. */
  destroy() {
    this.is_gone = true;
    cancelAnimationFrame(this.request);
    this.observer.disconnect();
    this.renderer.dispose();
    this.labels.canvas.remove();
  }
}
