/**
 * What a comparison comes to, in a sentence, and which of them matters most.
 *
 * The left side is compared with the right one: `ratio` is left by right, `difference` left less right.
 * A ratio with its interval is what people repeat to each other; where there is none (the right side has
 * none of it at all), the difference is told. An interval that holds "no difference" is said to be just
 * that: not told apart.
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
    return `Of ${what} too little is known to compare ${left} with ${right}.`;
  }
  if (!isTold(one)) {
    const span = isKnown(ratio) ? ` (${rangeText(ratio)} times)` : "";
    return `In ${what}, ${left} and ${right} cannot be told apart${span}.`;
  }
  if (isKnown(ratio) && ratio.low > 0) {
    const many = isMany(meaning) ? "as many" : "as much";
    const [most, least, times] = ratio.mean >= 1 ? [left, right, ratio] : [right, left, turned(ratio)];
    return `${most} ${meaning.verb} ${shortValue(times.mean)} times (${rangeText(times)}) ${many} ${what} as ${least}.`;
  }
  const [most, least] = difference.mean > 0 ? [left, right] : [right, left];
  const size = scaled(difference, difference.mean > 0 ? meaning.factor : -meaning.factor);
  const amount = `${shortValue(size.mean)} (${rangeText(size)})`;
  if (!ratio || ratio.mean === 0) return `${most} ${meaning.verb} ${amount} ${countedText(meaning)}, ${least} none.`;
  return `${most} ${meaning.verb} ${amount} ${countedText(meaning, " more")} than ${least}.`;
}

/** "more unsubscribe operations/s", or, where the unit is not what is counted, "B/s more of bytes sent". */
function countedText({ counted, unit }, more = "") {
  const noun = unit.split("/")[0];
  if (counted.endsWith(noun)) return `${more} ${counted}${unit.slice(noun.length)}`.trim();
  return `${unit}${more} of ${counted}`;
}

/** The other way round. */
function turned({ mean, low, high }) {
  return { mean: 1 / mean, low: 1 / high, high: 1 / low };
}

const isMany = ({ counted }) => /s\b/.test(counted);
const rangeText = ({ low, high }) => `${shortValue(Math.min(low, high))} to ${shortValue(Math.max(low, high))}`;

/**
 * @param {Interval} interval
 * @param {number} factor
 * @returns {Interval}
 */
export function scaled(interval, factor) {
  return { ...interval, mean: interval.mean * factor, low: interval.low * factor, high: interval.high * factor };
}
