/**
 * How long the page's own code takes for each animation frame: the draw calls, and the work on what
 * has come since the frame before. What the graphics card does meanwhile is not in it.
 */
const KEPT = 600;
const taken_ms = new Float64Array(KEPT);
let frames = 0;
let work_ms = 0;

/** Work that was done between two frames. */
export function noteWork(ms) {
  work_ms += ms;
}

/** A frame was drawn. */
export function noteFrame(ms) {
  taken_ms[frames % KEPT] = ms + work_ms;
  work_ms = 0;
  frames += 1;
}

/** Begin anew. */
export function forgetFrames() {
  frames = 0;
  work_ms = 0;
}

/** @returns {{frames: number, script_ms_mean: number, script_ms_p95: number}} of the last 600 */
export function frameFigures() {
  const kept = [...taken_ms.subarray(0, Math.min(frames, KEPT))].sort((a, b) => a - b);
  const mean = kept.reduce((sum, value) => sum + value, 0) / (kept.length || 1);
  return { frames, script_ms_mean: mean, script_ms_p95: kept[Math.floor(kept.length * 0.95)] ?? 0 };
}
