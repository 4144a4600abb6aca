/**
 * One drawing of lines over time, on uPlot.
 *
 * uPlot draws ten thousand points in a few milliseconds and knows about cursors and zooming; what it
 * does not know is added here: names at the ends of the lines, so that nobody has to match colours
 * with a legend, a 24-hour clock, and colours from the page's own style, since a canvas cannot see
 * style sheets. The drawing is made anew only when its lines or its scale change; new points are
 * handed over.
 */
import uPlot from "../vendor/uplot.js";
import { token } from "../app.js";
import { clock } from "../ui.js";
import { shortValue } from "./metrics.js";

const FONT = "12px system-ui, sans-serif";
const FONT_LIVE = "bold 12px system-ui, sans-serif";
const LABEL_HEIGHT = 14;
const LABEL_GAP = 6;
const AXIS_WIDTH = 62;
/** A line that ends this far from the right has its label there, not at the edge. */
const ENDED_PX = 40;
const BAND_ALPHA = 0.25;
const DAY_S = 86_400;
/** Between two marks of the axis of time. */
const STEPS_S = [
  ...[1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800],
  ...[3600, 7200, 10_800, 21_600, 43_200, DAY_S, 2 * DAY_S, 7 * DAY_S, 30 * DAY_S, 365 * DAY_S],
];

/**
 * @typedef {object} Line
 * @property {string} name
 * @property {string} label at its end
 * @property {string} colour
 * @property {number[]} dash
 * @property {number} width
 * @property {boolean} is_bold
 * @property {boolean} is_shown
 *
 * @typedef {object} Drawing
 * @property {number[]} x
 * @property {(number | null | undefined)[][]} values one column for each line
 * @property {Line[]} lines
 * @property {[number, number]} window what of x is shown
 * @property {string} unit
 * @property {boolean} log
 * @property {boolean} zero
 * @property {boolean} is_clock whether x is seconds since 1970; otherwise seconds of a run
 * @property {[number, number] | null} band filled between two values, all the way
 * @property {number[] | null} [range] of y, instead of what is found
 * @property {string[]} [labels] for which there has to be room at the right, besides those of its lines
 */

/** A drawing in an element of the page. */
export class Plot {
  /**
   * @param {HTMLElement} element
   * @param {{sync?: string, height?: number, onZoom?: (window: [number, number]) => void,
   *   onReset?: () => void, onCursor?: (index: number | null) => void}} options
   */
  constructor(element, options) {
    this.element = element;
    this.options = options;
    this.made = "";
    /** @type {uPlot | null} */
    this.plot = null;
    /** @type {Drawing | null} */
    this.drawing = null;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(element);
  }

  /** @param {Drawing} drawing */
  draw(drawing) {
    this.drawing = drawing;
    const width = this.element.clientWidth;
    if (width === 0) return;
    const shape = JSON.stringify([
      drawing.lines,
      drawing.unit,
      drawing.log,
      drawing.is_clock,
      drawing.band !== null,
      this.colours(),
    ]);
    const data = [drawing.x, ...drawing.values];
    if (shape === this.made) {
      this.plot.batch(() => {
        this.plot.setData(data, false);
        this.plot.setScale("x", { min: drawing.window[0], max: drawing.window[1] });
      });
      return;
    }
    this.plot?.destroy();
    this.made = shape;
    this.plot = new uPlot(this.settings(width), data, this.element);
    this.plot.over.addEventListener("dblclick", () => this.options.onReset?.());
  }

  resize() {
    const width = this.element.clientWidth;
    if (width === 0 || !this.drawing) return;
    if (!this.plot) this.draw(this.drawing);
    else if (width !== this.plot.width) this.plot.setSize({ width, height: this.height() });
  }

  destroy() {
    this.observer.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  /** The canvas, for a picture. */
  get canvas() {
    return this.plot?.ctx.canvas ?? null;
  }

  /** Put the cursor on a point, as a mouse would. @param {number} index */
  pointAt(index) {
    const at = this.plot?.data[0][index];
    if (at === undefined) return;
    const left = this.plot.valToPos(at, "x");
    this.plot.setCursor({ left, top: this.plot.over.clientHeight / 2 });
  }

  height() {
    return this.options.height ?? 200;
  }

  colours() {
    return { text: token("chart-axis"), grid: token("chart-grid"), band: token("accent") };
  }

  settings(width) {
    const { lines, unit, log, is_clock, window, labels = [] } = this.drawing;
    const colours = this.colours();
    const axis = {
      stroke: colours.text,
      font: FONT,
      labelFont: FONT,
      grid: { stroke: colours.grid, width: 1 },
      ticks: { stroke: colours.grid, width: 1, size: 4 },
    };
    return {
      width,
      height: this.height(),
      padding: [10, labelRoom(lines, labels), 0, 0],
      legend: { show: false },
      cursor: {
        sync: this.options.sync ? { key: this.options.sync, setSeries: false } : undefined,
        drag: { x: Boolean(this.options.onZoom), y: false, setScale: false },
        points: { size: 7 },
        bind: { dblclick: () => null },
      },
      scales: {
        x: { time: is_clock, auto: false, min: window[0], max: window[1] },
        y: {
          distr: log ? 4 : 1,
          range: (_plot, min, max) => this.drawing.range ?? yRange(min, max, this.drawing),
        },
      },
      axes: [
        {
          ...axis,
          size: 26,
          space: 70,
          incrs: STEPS_S,
          values: (_plot, splits, _axis, _space, step) =>
            splits.map((at) => (is_clock ? timeText(at, step) : clock(at))),
        },
        {
          ...axis,
          size: AXIS_WIDTH,
          space: 28,
          splits: log ? (_plot, _axis, _min, max) => logSplits(max) : undefined,
          label: unit,
          labelSize: 18,
          values: (_plot, splits) => splits.map((value) => (value === null ? "" : shortValue(value))),
        },
      ],
      series: [
        {},
        ...lines.map((line) => ({
          label: line.name,
          show: line.is_shown,
          stroke: line.colour,
          dash: line.dash,
          width: line.width,
          points: { show: isAlone },
        })),
      ],
      hooks: {
        drawAxes: [(plot) => this.drawBand(plot, colours.band)],
        draw: [(plot) => drawLabels(plot, lines)],
        setSelect: [(plot) => this.zoomed(plot)],
        setCursor: [(plot) => this.options.onCursor?.(plot.cursor.idx ?? null)],
      },
    };
  }

  drawBand(plot, colour) {
    if (!this.drawing.band) return;
    const [low, high] = this.drawing.band.map((value) => plot.valToPos(value, "y", true));
    const { left, width } = plot.bbox;
    plot.ctx.save();
    plot.ctx.globalAlpha = BAND_ALPHA;
    plot.ctx.fillStyle = colour;
    plot.ctx.fillRect(left, Math.min(low, high), width, Math.max(2, Math.abs(low - high)));
    plot.ctx.restore();
  }

  zoomed(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const from = plot.posToVal(left, "x");
    const to = plot.posToVal(left + width, "x");
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.options.onZoom?.([from, to]);
  }
}

/** A point without neighbours has no line: it is drawn as a dot. */
function isAlone(plot, seriesIndex) {
  const column = plot.data[seriesIndex];
  let known = 0;
  for (const value of column) if (value !== null && value !== undefined && ++known > 1) return false;
  return known === 1;
}

function yRange(min, max, { zero, log }) {
  if (min === null || max === null) return [0, 1];
  const low = zero || log ? Math.min(0, min) : min;
  const high = zero || log ? Math.max(0, max) : max;
  if (low === high) return [low === 0 ? 0 : low - Math.abs(low) * 0.1, high === 0 ? 1 : high * 1.1];
  if (log) return [low, high];
  const room = (high - low) * 0.08;
  return [low === 0 ? 0 : low - room, high + room];
}

/** Zero, and powers of ten; finer where there are few of them. */
function logSplits(max) {
  const splits = [0];
  const steps = max > 1000 ? [1] : [1, 2, 5];
  for (let power = max < 10 ? 0.1 : 1; power <= max; power *= 10) {
    splits.push(...steps.map((step) => step * power).filter((split) => split <= max));
  }
  return splits;
}

function labelRoom(lines, others) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = FONT_LIVE;
  const names = [...others, ...lines.filter((line) => line.is_shown).map((line) => line.label)];
  const widths = names.map((name) => context.measureText(name).width);
  return Math.ceil(Math.max(0, ...widths)) + LABEL_GAP + 4;
}

function drawLabels(plot, lines) {
  const ratio = uPlot.pxRatio;
  const places = [];
  lines.forEach((line, i) => {
    const column = plot.data[i + 1];
    let last = plot.data[0].length - 1;
    const [from, to] = [plot.scales.x.min, plot.scales.x.max];
    const isDrawn = (k) => column[k] !== null && column[k] !== undefined && plot.data[0][k] <= to;
    while (last >= 0 && !isDrawn(last)) last--;
    if (!line.is_shown || last < 0 || plot.data[0][last] < from) return;
    places.push({ line, x: plot.valToPos(plot.data[0][last], "x", true), y: plot.valToPos(column[last], "y", true) });
  });
  const right = plot.bbox.left + plot.bbox.width;
  const hasEnded = ({ x }) => x < right - ENDED_PX * ratio;
  spread(places.filter((place) => !hasEnded(place)), LABEL_HEIGHT * ratio, plot.bbox.top, plot.bbox.top + plot.bbox.height);
  const { ctx } = plot;
  ctx.save();
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  for (const place of places) {
    const { line, y } = place;
    ctx.fillStyle = line.colour;
    ctx.font = (line.is_bold ? FONT_LIVE : FONT).replace("12px", `${12 * ratio}px`);
    ctx.fillText(line.label, (hasEnded(place) ? place.x : right) + LABEL_GAP * ratio, y);
  }
  ctx.restore();
}

/** Move labels apart, from the top down and then back up, so that none hides another. */
function spread(places, height, top, bottom) {
  places.sort((a, b) => a.y - b.y);
  let free = top + height / 2;
  for (const place of places) {
    place.y = Math.max(place.y, free);
    free = place.y + height;
  }
  free = bottom - height / 2;
  for (const place of places.toReversed()) {
    place.y = Math.min(place.y, free);
    free = place.y - height;
  }
}

const pad = (number) => String(number).padStart(2, "0");

/**
 * The time of day, with the date when marks are days apart.
 * @param {number} at seconds since 1970
 * @param {number} step seconds between two marks
 */
export function timeText(at, step) {
  const moment = new Date(at * 1000);
  if (step >= DAY_S) {
    return moment.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  }
  const minutes = `${pad(moment.getHours())}:${pad(moment.getMinutes())}`;
  return step >= 60 ? minutes : `${minutes}:${pad(moment.getSeconds())}`;
}
