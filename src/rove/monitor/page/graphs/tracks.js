/**
 * Points of lines: the past out of the database and the present out of live samples, joined.
 *
 * A line is a *track*: moments and values, with null where nothing is known. The database gives
 * rates of totals already; live samples carry the totals, so rates are made here. Where the two
 * meet nothing is missing and nothing is there twice: the past counts up to its last point, and live
 * points from there on. A past that was rolled up to, say, ten seconds goes on with live points
 * rolled up to ten seconds, and a last interval that the database has only the beginning of gives
 * way to the live one. Everything here is plain functions over arrays.
 */
/** After as many seconds without a sample a line is broken. */
export const GAP_S = 5;
/** Two moments this close are one sample that was recorded and also sent. */
const SAME_S = 0.25;

/**
 * @typedef {{at: number[], value: (number | null)[], resolution: number}} Track
 * @typedef {{now: number, run: number, sources: Record<string, Record<string, number>>}} Sample
 */

/**
 * Live samples as tracks, by engine, audience, or whatever lines are called.
 * @param {Sample[]} samples
 * @param {{figure: string, is_rate: boolean}[]} figures of several the sum
 * @param {number} [since]
 * @returns {Map<string, Track>}
 */
export function liveTracks(samples, figures, since = -Infinity) {
  /** @type {Map<string, Track>} */
  const tracks = new Map();
  const is_rate = figures[0].is_rate;
  for (let i = firstAfter(samples, since); i < samples.length; i++) {
    const sample = samples[i];
    const before = samples[i - 1];
    const is_broken = before && (before.run !== sample.run || sample.now - before.now > GAP_S);
    for (const [name, row] of Object.entries(sample.sources)) {
      const total = sum(row, figures);
      if (total === null) continue;
      const track = trackOf(tracks, name);
      if (is_broken) push(track, before.now + SAME_S, null);
      if (!is_rate) push(track, sample.now, total);
      else if (before && !is_broken && before.sources[name]) {
        const grown = total - sum(before.sources[name], figures);
        if (grown >= 0) push(track, sample.now, grown / (sample.now - before.now));
      }
    }
  }
  return tracks;
}

function sum(row, figures) {
  let total = 0;
  for (const { figure } of figures) {
    if (row[figure] === undefined) return null;
    total += row[figure];
  }
  return total;
}

function firstAfter(samples, since) {
  let first = samples.length;
  while (first > 0 && samples[first - 1].now >= since) first--;
  return first;
}

function trackOf(tracks, name) {
  if (!tracks.has(name)) tracks.set(name, { at: [], value: [], resolution: 0 });
  return tracks.get(name);
}

function push(track, at, value) {
  track.at.push(at);
  track.value.push(value);
}

/**
 * What `/api/points` answered for each metric, as tracks by engine.
 *
 * A series that began later takes over from one of the same name: two runs are never drawn over
 * each other.
 * @param {{labels: Record<string, string>, resolution_s: number, at: number[], value: number[]}[][]} answers
 * @returns {Map<string, Track>}
 */
export function pastTracks(answers) {
  const perMetric = answers.map((series) => {
    const byName = new Map();
    for (const one of series) {
      const name = lineName(one.labels);
      byName.set(name, [...(byName.get(name) ?? []), one]);
    }
    return new Map([...byName].map(([name, found]) => [name, oneAfterAnother(found)]));
  });
  return perMetric.reduce(added);
}

/**
 * What a line is called: its engine, its audience, or what else tells it apart.
 * @param {Record<string, string>} labels
 * @returns {string}
 */
export function lineName(labels) {
  if (labels.engine ?? labels.audience) return labels.engine ?? labels.audience;
  const others = Object.entries(labels).filter(([name]) => name !== "run" && name !== "scenario");
  return others.map(([name, text]) => `${name} ${text}`).join(", ") || "all";
}

function oneAfterAnother(series) {
  const inOrder = series.filter((one) => one.at.length).sort((a, b) => a.at[0] - b.at[0]);
  const track = { at: [], value: [], resolution: 0 };
  for (const one of inOrder) {
    track.resolution = Math.max(track.resolution, one.resolution_s);
    while (track.at.length && track.at.at(-1) >= one.at[0]) {
      track.at.pop();
      track.value.pop();
    }
    const gap = Math.max(GAP_S, 2.5 * one.resolution_s);
    if (track.at.length) push(track, (track.at.at(-1) + one.at[0]) / 2, null);
    one.at.forEach((at, i) => {
      if (i > 0 && at - one.at[i - 1] > gap) push(track, (at + one.at[i - 1]) / 2, null);
      push(track, at, one.value[i]);
    });
  }
  return track;
}

/** Sums of two metrics, where both are known. */
function added(left, right) {
  const sums = new Map();
  for (const [name, one] of left) {
    const other = right.get(name);
    if (!other) continue;
    const values = new Map(other.at.map((at, i) => [moment(at), other.value[i]]));
    const track = { at: [], value: [], resolution: Math.max(one.resolution, other.resolution) };
    one.at.forEach((at, i) => {
      const more = values.get(moment(at));
      if (more !== undefined) push(track, at, isKnown(one.value[i], more) ? one.value[i] + more : null);
    });
    sums.set(name, track);
  }
  return sums;
}

const moment = (at) => Math.round(at * 1000);
const isKnown = (...values) => values.every((value) => value !== null && value !== undefined);

/**
 * The past, and what has come since.
 * @param {Map<string, Track>} past
 * @param {Map<string, Track>} live
 * @returns {Map<string, Track>}
 */
export function joined(past, live) {
  const names = new Set([...past.keys(), ...live.keys()]);
  return new Map([...names].map((name) => [name, joinedTrack(past.get(name), live.get(name))]));
}

function joinedTrack(past, live) {
  if (!live || live.at.length === 0) return past ?? live;
  if (!past || past.at.length === 0) return live;
  const step = past.resolution;
  const present = step > 0 ? rolledUp(live, step) : live;
  let kept = past.at.length;
  if (step > 0) {
    const isWhole = (at) => present.at.includes(at) && live.at[0] <= at;
    while (kept > 0 && isWhole(past.at[kept - 1])) kept--;
  }
  const end = kept > 0 ? past.at[kept - 1] : -Infinity;
  const first = present.at.findIndex((at) => at > end + (step > 0 ? step / 2 : SAME_S));
  const at = past.at.slice(0, kept);
  const value = past.value.slice(0, kept);
  if (first < 0) return { at, value, resolution: step };
  if (kept > 0 && present.at[first] - end > Math.max(GAP_S, 2.5 * step)) {
    at.push((end + present.at[first]) / 2);
    value.push(null);
  }
  return {
    at: at.concat(present.at.slice(first)),
    value: value.concat(present.value.slice(first)),
    resolution: step,
  };
}

/** Means over whole intervals. */
function rolledUp(track, step) {
  const found = { at: [], value: [], resolution: step };
  let count = 0;
  track.at.forEach((at, i) => {
    if (track.value[i] === null) return;
    const start = Math.floor(at / step) * step;
    if (found.at.at(-1) !== start) {
      push(found, start, track.value[i]);
      count = 1;
    } else {
      const last = found.value.length - 1;
      count += 1;
      found.value[last] += (track.value[i] - found.value[last]) / count;
    }
  });
  return found;
}

/**
 * All tracks over one axis of time; `undefined` where a track has no point of its own.
 * @param {Track[]} tracks
 * @param {[number, number]} window seconds since 1970
 * @param {number} factor
 * @returns {{x: number[], values: (number | null | undefined)[][]}}
 */
export function aligned(tracks, [from, to], factor) {
  const moments = new Map();
  for (const track of tracks) {
    for (const at of track.at) if (at >= from && at <= to) moments.set(moment(at), at);
  }
  const keys = [...moments.keys()].sort((a, b) => a - b);
  const place = new Map(keys.map((key, i) => [key, i]));
  const values = tracks.map((track) => {
    const column = new Array(keys.length).fill(undefined);
    track.at.forEach((at, i) => {
      const found = place.get(moment(at));
      const value = track.value[i];
      if (found !== undefined) column[found] = value === null ? null : value * factor;
    });
    return withHoles(column);
  });
  return { x: keys.map((key) => moments.get(key)), values };
}

/** uPlot takes a hole to reach from one moment to the next; with other lines' moments in it, it is wider. */
function withHoles(column) {
  let last = -1;
  let is_hole = false;
  column.forEach((value, i) => {
    if (value === null) is_hole = true;
    else if (value !== undefined) {
      if (is_hole) column.fill(null, last + 1, i);
      last = i;
      is_hole = false;
    }
  });
  return column;
}
