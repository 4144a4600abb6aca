/**
 * How operators read sizes, ages and rates.
 */
import { count } from "../ui.js";

const BYTES = [
  [1e9, "GB"],
  [1e6, "MB"],
  [1e3, "kB"],
];
const AGES = [
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
];

/**
 * 12.3 kB
 * @param {number} value
 */
export function bytesText(value) {
  for (const [size, unit] of BYTES) if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
  return `${count(value)} B`;
}

/**
 * 5 s, 3.2 min, 2.0 d: how long something took or is ago.
 * @param {number | null | undefined} seconds
 */
export function ageText(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  for (const [size, unit] of AGES) if (seconds >= size) return `${(seconds / size).toFixed(1)} ${unit}`;
  return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
}

/**
 * How long ago a moment was.
 * @param {number | null | undefined} at seconds since 1970
 */
export function agoText(at) {
  return at === null || at === undefined ? "–" : ageText(Math.max(0, Date.now() / 1000 - at));
}

/**
 * 1,240/s or 0.4/s
 * @param {number | null} value
 */
export function rateText(value) {
  if (value === null) return "–";
  return `${value >= 10 || value === 0 ? count(value) : value.toFixed(1)}/s`;
}
