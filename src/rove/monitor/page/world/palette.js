/**
 * The colours of the map, from style.css, as the renderers take them: they cannot read CSS.
 */
import { token } from "../app.js";

/**
 * @typedef {[number, number, number, number]} Colour red, green, blue, alpha from 0 to 1
 * @typedef {{colour: Colour, dash: number[], width_px: number, fill: number}} Style
 * @typedef {object} Palette
 * @property {Colour} outside @property {Colour} ground @property {Colour} road
 * @property {Colour} wall @property {Colour} wallEdge @property {Colour} tile @property {Colour} region
 * @property {Colour} ring @property {Colour} heard @property {string} text @property {string} halo
 * @property {Colour[]} kinds
 * @property {Style[]} styles the first are `AREA` and `TRUTH`, then one for each engine
 */

/** Styles of rectangles: those of all clients, the truth, and from `ENGINES` on the engines. */
export const AREA = 0;
export const TRUTH = 1;
export const ENGINES = 2;
export const KINDS = ["player", "npc", "item", "vehicle", "sensor"];

/**
 * @param {import("../app.js").App} app
 * @param {string[]} engines names
 * @param {string | null} live the engine whose areas are shown
 * @returns {Palette}
 */
export function paletteOf(app, engines, live) {
  const colour = (name) => parsed(token(name));
  const engineStyle = (name, width_px, fill, alpha) => {
    const { colour: text, dash } = app.engineStyle(name);
    const [r, g, b] = parsed(text);
    return { colour: [r, g, b, alpha], dash, width_px, fill };
  };
  return {
    outside: colour("map-outside"),
    ground: colour("map-ground"),
    road: colour("map-road"),
    wall: colour("map-wall"),
    wallEdge: colour("map-wall-edge"),
    tile: colour("map-tile"),
    region: colour("map-region"),
    ring: colour("accent"),
    heard: colour("engine-object"),
    text: token("map-place"),
    halo: token("map-ground"),
    kinds: KINDS.map((kind) => colour(`kind-${kind}`)),
    styles: [
      { ...engineStyle(live ?? "static", 1, 0.04, 0.55), dash: [] },
      { colour: colour("map-truth"), dash: [], width_px: 1, fill: 0 },
      ...engines.map((name) => engineStyle(name, 2.5, 0.02, 1)),
    ],
  };
}

/**
 * #rrggbb or #rgb as four numbers.
 * @param {string} text
 * @returns {Colour}
 */
export function parsed(text) {
  const digits = text.slice(1);
  const pairs = digits.length === 3 ? [...digits].map((digit) => digit + digit) : digits.match(/../g);
  const [r, g, b] = (pairs ?? ["80", "80", "80"]).map((pair) => Number.parseInt(pair, 16) / 255);
  return [r, g, b, 1];
}

/** As CSS writes it. */
export function written([r, g, b, a], alpha = a) {
  return `rgb(${Math.round(r * 255)} ${Math.round(g * 255)} ${Math.round(b * 255)} / ${alpha})`;
}
