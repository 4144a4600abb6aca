/**
 * What a comparison comes to, in a sentence, and which of them matters most.
 *
 * A ratio with its interval is what people repeat to each other; where there is none (the left side
 * has none of it at all), the difference is told. An interval that holds "no difference" is said to be
 * just that: not told apart.
 */
import { meaningOf, shortValue } from "../graphs/metrics.js";

/**
 * @typedef {{mean: number, low: number, high: number, batches?: number}} Interval
 * @typedef {{metric: string, unit?: string, difference: Interval | null, ratio: Interval | null}} Compared
 */

/** @param {Interval | null | undefined} interval */
export function isKnown(interval) {
  return Boolean(interval) && [interval.mean, interval.low, interval.high].every(Number.isFinite);
}

/**
 * Whether two sides were told apart.
 * @param {Compared} one
 */
export function isTold({ ratio, difference }) {
  if (isKnown(difference)) return difference.low > 0 || difference.high < 0;
  return isKnown(ratio) && (ratio.low > 1 || ratio.high < 1);
}

/**
 * How far apart: the logarithm of the ratio, so that a third is as far as three times.
 * @param {Compared} one
 * @returns {number}
 */
export function effectOf(one) {
  if (!isTold(one)) return -1;
  if (isKnown(one.ratio) && one.ratio.mean > 0) return Math.abs(Math.log(one.ratio.mean));
  return Infinity;
}

/**
 * "area needs 3.1 times (2.9 to 3.3) as many subscribe operations as tile."
 * @param {Compared} one
 * @param {string} left
 * @param {string} right
 * @returns {string}
 */
export function sentenceOf(one, left, right) {
  const meaning = meaningOf(one.metric);
  const { ratio, difference } = one;
  const what = meaning.counted ?? meaning.title.toLowerCase();
  if (!isKnown(ratio) && !isKnown(difference)) {
    return `Of ${what} too little is known to compare ${right} with ${left}.`;
  }
  if (!isTold(one)) {
    const span = isKnown(ratio) ? ` (${rangeText(ratio)} times)` : "";
    return `In ${what}, ${right} and ${left} cannot be told apart${span}.`;
  }
  if (isKnown(ratio) && ratio.low > 0) {
    const many = isMany(meaning) ? "as many" : "as much";
    return `${right} ${meaning.verb} ${shortValue(ratio.mean)} times (${rangeText(ratio)}) ${many} ${what} as ${left}.`;
  }
  const more = difference.mean > 0 ? "more" : "less";
  const size = shortValue(Math.abs(difference.mean) * meaning.factor);
  return `${right} ${meaning.verb} ${size} ${meaning.unit} (${rangeText(scaled(difference, meaning.factor))}) ${more} ${what} than ${left}.`;
}

const isMany = ({ counted }) => /s$/.test(counted);
const rangeText = ({ low, high }) => `${shortValue(low)} to ${shortValue(high)}`;

/**
 * @param {Interval} interval
 * @param {number} factor
 * @returns {Interval}
 */
export function scaled(interval, factor) {
  return { ...interval, mean: interval.mean * factor, low: interval.low * factor, high: interval.high * factor };
}
