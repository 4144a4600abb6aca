/**
 * One world as the page knows it: who is where, what clients listen to, and what time it is.
 *
 * Made for each run, fed by the live connection while somebody looks, and read by the map, the
 * card and the table. Nothing in here draws.
 */
import { cell } from "../app.js";
import { Boxes } from "./boxes.js";
import { WorldClock } from "./clock.js";
import { Dots, FLAG_HEARD, FLAG_SELECTED } from "./dots.js";
import { AREAS, WHOLE, decode } from "./frames.js";
import { noteWork } from "./measure.js";
import { AREA, ENGINES, TRUTH } from "./palette.js";

const LISTENING_MAX = 512;
const HEARD_TILE_ALPHA = 46;

export class WorldModel {
  /** @param {any} document what /api/world answered */
  constructor(document) {
    this.document = document;
    this.names = document.entities.names;
    this.numbers = new Map(this.names.map((name, number) => [name, number]));
    this.engines = document.engines.map((engine) => engine.name);
    this.dots = new Dots(document.entities.kinds);
    this.areas = new Boxes(Math.max(1, document.clients.avatars.length));
    this.listening = new Boxes(LISTENING_MAX);
    this.clock = new WorldClock();
    /** Triangles that the selected client listens to; the version tells when they change. */
    this.heardTiles = { corners: new Float32Array(0), colours: new Uint8Array(0), version: 0 };
    this.listened = cell(null);
    this.selected = -1;
    this.hidden = new Set();
    this.marks_objects = true;
    this.tileColours = new Map();
    this.is_known = cell(false);
    this.version = 0;
  }

  /**
   * Follow the live connection.
   * @param {import("../live.js").Live} live
   * @returns {() => void} stops that
   */
  follow(live) {
    const offs = [
      live.on("frame", (buffer) => this.takeFrame(decode(buffer))),
      live.on("listening", (message) => this.#takeListening(message)),
    ];
    return () => offs.forEach((off) => off());
  }

  /** @param {import("./frames.js").Frame} frame */
  takeFrame(frame) {
    const began_ms = performance.now();
    if (frame.kind === AREAS) {
      this.areas.take(frame, AREA);
    } else if (frame.kind !== WHOLE || frame.count === this.dots.count) {
      // A whole frame of another size is the next run's, whose map is on its way.
      if (frame.kind === WHOLE || this.dots.is_known) this.dots.take(frame);
      this.clock.take(frame.at, began_ms / 1000);
      this.is_known.set(this.dots.is_known);
    }
    this.version += 1;
    noteWork(performance.now() - began_ms);
  }

  /** The world's time to draw now; null before anything is known. */
  time() {
    return this.clock.time(performance.now() / 1000);
  }

  /** @param {string | null} name */
  select(name) {
    this.selected = this.numbers.get(name) ?? -1;
    this.dots.flag(FLAG_SELECTED, this.selected < 0 ? [] : [this.selected]);
    this.listened.set(null);
    this.#showListening();
  }

  /**
   * Which engines' beliefs are not shown, and how the others are.
   * @param {Set<string>} hidden
   * @param {Map<string, number[]>} colours bytes of each engine's colour, for tiles
   * @param {boolean} marks_objects whether those who are subscribed to get a ring
   */
  hide(hidden, colours, marks_objects) {
    this.hidden = hidden;
    this.marks_objects = marks_objects;
    this.tileColours = colours;
    this.#showListening();
  }

  #takeListening(message) {
    if (this.numbers.get(message.select) !== this.selected) return;
    this.listened.set(message);
    this.#showListening();
  }

  #showListening() {
    const message = this.listened.value;
    const { listening } = this;
    listening.clear(message?.at ?? 0);
    const shown = Object.entries(message?.engines ?? {}).filter(([name]) => !this.hidden.has(name));
    let line = 0;
    const put = (box, style) => listening.put(line++, box, message.at, style);
    for (const [name, { rectangles }] of shown) {
      for (const box of different(rectangles)) put(box, ENGINES + this.engines.indexOf(name));
    }
    if (message?.truth && shown.length > 0) put(message.truth, TRUTH);
    this.dots.flag(FLAG_HEARD, this.marks_objects ? shown.flatMap(([, { objects }]) => objects ?? []) : []);
    this.#setHeardTiles(shown);
    this.version += 1;
  }

  #setHeardTiles(shown) {
    const corners = [];
    const colours = [];
    for (const [name, { tiles }] of shown) {
      const colour = this.tileColours.get(name) ?? [128, 128, 128];
      for (const number of tiles ?? []) {
        const tile = this.document.map.tiles[number];
        if (tile === undefined) continue;
        corners.push(...tile);
        for (let i = 0; i < 3; i += 1) colours.push(...colour, HEARD_TILE_ALPHA);
      }
    }
    this.heardTiles = {
      corners: new Float32Array(corners),
      colours: new Uint8Array(colours),
      version: this.heardTiles.version + 1,
    };
  }
}

/** A client listens to one rectangle on two topics; drawn twice it would only be darker. */
function different(rectangles) {
  const seen = new Map(rectangles.map((box) => [box.join(), box]));
  return [...seen.values()];
}
