/**
 * One metric of a comparison: both lines over the same time, the difference below them.
 *
 * The band in the lower drawing is the 95 % interval of the mean difference. It is what may be said;
 * the line through it is what happened. Where the band leaves zero alone, the two were told apart.
 */
import { useCell } from "../ui.js";
import { html, useMemo } from "../vendor/preact.js";
import { meaningOf, shortValue } from "../graphs/metrics.js";
import { LineMark } from "../graphs/legend.js";
import { PlotBox } from "../graphs/plot_box.js";
import { aligned } from "../graphs/tracks.js";
import { isKnown, isTold, scaled, sentenceOf } from "./sentences.js";

const HEIGHT = 170;
const DIFFERENCE_HEIGHT = 120;
const DIFFERENCE = "difference";

/**
 * @typedef {{side: string, name: string, engine: string}} Named
 * @param {{app: import("../app.js").App, one: any, left: Named, right: Named, sync: string}} props
 */
export function Multiple({ app, one, left, right, sync }) {
  const theme = useCell(app.cells.theme);
  const meaning = meaningOf(one.metric);
  const { above, below } = useMemo(() => drawingsOf(app, one, left, right, meaning), [one, theme]);
  const id = `compare-${one.metric}`;
  return html`<section class=${`panel compare-multiple ${isTold(one) ? "is-told" : ""}`} aria-labelledby=${id}>
    <header class="compare-head">
      <h2 id=${id}>${meaning.title}</h2>
      <ul class="compare-keys">
        ${above.lines.map((line) => html`<li key=${line.name}><${LineMark} line=${line} />${line.name}</li>`)}
      </ul>
    </header>
    <p class="compare-sentence">${sentenceOf(one, left.name, right.name)}</p>
    <${PlotBox} drawing=${above} label=${`${meaning.title} of ${left.name} and ${right.name}`} sync=${sync} height=${HEIGHT} theme=${theme} />
    <${PlotBox} drawing=${below} label=${`Difference in ${meaning.title.toLowerCase()}`} sync=${sync} height=${DIFFERENCE_HEIGHT} theme=${theme} />
    <p class="compare-note">
      ${isKnown(one.difference)
        ? `Mean difference ${intervalText(scaled(one.difference, meaning.factor))} ${meaning.unit}, 95 % interval of ${one.difference.batches ?? "–"} batches.`
        : "There is too little of it for an interval."}
    </p>
  </section>`;
}

/**
 * 12.3 (11.9 to 12.7)
 * @param {import("./sentences.js").Interval | null} interval
 */
export function intervalText(interval) {
  if (!isKnown(interval)) return "–";
  return `${shortValue(interval.mean)} (${shortValue(interval.low)} to ${shortValue(interval.high)})`;
}

function drawingsOf(app, one, left, right, meaning) {
  const tracks = [one.left, one.right];
  const ends = tracks.flatMap(({ at }) => (at.length ? [at[0], at.at(-1)] : []));
  const window = ends.length ? [Math.min(...ends), Math.max(...ends)] : [0, 1];
  if (window[0] === window[1]) window[1] += 1;
  const data = aligned(tracks, window, meaning.factor);
  const lines = [left, right].map((side, i) => lineOf(app, side, i === 1 && left.engine === right.engine));
  const labels = [...lines.map((line) => line.label), DIFFERENCE];
  const common = { window, is_clock: false, log: false, zero: true, labels };
  const apart = differenceOf(tracks, window, meaning.factor);
  const band = isKnown(one.difference) ? scaled(one.difference, meaning.factor) : null;
  const ink = { ...lines[0], name: `${left.name} − ${right.name}`, label: DIFFERENCE, dash: [], width: 1.5 };
  return {
    above: { ...common, ...data, lines, unit: meaning.unit, band: null },
    below: {
      ...common,
      x: apart.x,
      values: [apart.values],
      lines: [ink],
      unit: `Δ ${meaning.unit}`,
      band: band && [band.low, band.high],
      range: rangeOf(apart.values, band),
    },
  };
}

/** Two runs of one engine have one colour; the dash tells them apart. */
function lineOf(app, { name, engine }, is_second) {
  const { colour, dash } = app.engineStyle(engine);
  return { name, label: name, word: "", colour, dash: is_second ? [3, 3] : dash, width: 2, is_bold: false, is_shown: true };
}

/** Left less right, where both are known within half a second or half a step. */
function differenceOf([left, right], window, factor) {
  const step = Math.max(1, median(left.at), median(right.at));
  const binned = (track) => {
    const bins = new Map();
    track.at.forEach((at, i) => {
      if (at < window[0] || at > window[1] || track.value[i] === null) return;
      const key = Math.round(at / step);
      const bin = bins.get(key) ?? { sum: 0, count: 0 };
      bins.set(key, { sum: bin.sum + track.value[i], count: bin.count + 1 });
    });
    return bins;
  };
  const [a, b] = [binned(left), binned(right)];
  const keys = [...a.keys()].filter((key) => b.has(key)).sort((one, other) => one - other);
  const mean = ({ sum, count }) => sum / count;
  return {
    x: keys.map((key) => key * step),
    values: keys.map((key) => (mean(a.get(key)) - mean(b.get(key))) * factor),
  };
}

function median(at) {
  const steps = at.slice(1).map((moment, i) => moment - at[i]).sort((a, b) => a - b);
  return steps[Math.floor(steps.length / 2)] ?? 0;
}

/** Zero is always in it, so that one sees whether the band leaves it alone. */
function rangeOf(values, band) {
  const all = [0, ...values, ...(band ? [band.low, band.high] : [])];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const room = (high - low || 1) * 0.1;
  return [low - room, high + room];
}
