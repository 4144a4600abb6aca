/**
 * The time that all charts share: which period is shown, and the present, which goes on.
 *
 * The present is that of the monitor's clock, since this machine's may be wrong. It goes on with every
 * sample, at most twice a second, and stands still while nobody looks or nothing comes.
 */
import { useCell } from "../ui.js";
import { useCallback, useEffect, useRef, useState } from "../vendor/preact.js";

const REDRAW_MS = 500;
/** The present is the last sample, unless it is older: then nobody sends any. */
const FRESH_S = 3;
const RUN_LENGTH_S = 600;
/** A period of which only the end is known is drawn from where it is known, but as long as this. */
const LENGTH_MIN_S = 60;

/**
 * @param {import("../app.js").App} app
 * @param {import("./live.js").LiveSamples} samples
 * @param {string} range one of `RANGES`
 */
export function useTime(app, samples, range) {
  const [now, setNow] = useState(samples.now());
  const [turn, setTurn] = useState(0);
  const [zoom, setZoom] = useState(null);
  const [free, setFree] = useState(null);
  const [pausedAt, setPausedAt] = useState(null);
  const run = useRun(app, range === "run", turn);
  useEffect(() => follow(samples, setNow, () => setTurn((value) => value + 1)), [samples]);
  const at = pausedAt ?? now;
  const length = range === "run" || range === "free" ? RUN_LENGTH_S : Number(range);
  const begun = useRef({ range, at: Infinity }).current;
  if (begun.range !== range) Object.assign(begun, { range, at: Infinity });
  let asked = [at - length, at];
  if (range === "run" && run) asked = [run.began, Math.max(run.began + 10, at)];
  if (range === "free" && free) asked = free;
  const is_moving = pausedAt === null && zoom === null && !(range === "free" && free);
  const is_length = asked[0] === at - length;
  const known = is_length ? [Math.max(asked[0], Math.min(begun.at, at - LENGTH_MIN_S)), asked[1]] : asked;
  const shown = zoom ?? known;
  const latest = useRef(null);
  latest.current = { from: zoom ? zoom[0] : asked[0], to: is_moving ? null : shown[1], run: range === "run" ? (run?.id ?? null) : null };
  const key = [range, run?.id, zoom, range === "free" && free, pausedAt !== null && !zoom && at];
  return {
    now: at,
    window: shown,
    length: shown[1] - shown[0],
    is_moving,
    turn,
    seen: useCallback((moment) => (begun.at = Math.min(begun.at, moment)), []),
    zoom,
    setZoom,
    free,
    setFree,
    pausedAt,
    setPausedAt,
    period: useCallback(() => latest.current, []),
    periodKey: JSON.stringify(key),
  };
}

/** Go on with every sample, or every second where there are none; not more often than charts are drawn. */
function follow(samples, setNow, again) {
  let drawn = 0;
  let timer = 0;
  const present = () => {
    const last = samples.samples.at(-1)?.now;
    const is_fresh = last !== undefined && samples.now() - last < FRESH_S;
    return is_fresh || (last !== undefined && !samples.is_open) ? last : samples.now();
  };
  const draw = () => {
    timer = 0;
    if (document.hidden) return;
    drawn = performance.now();
    setNow(present());
  };
  const soon = () => {
    if (timer === 0) timer = setTimeout(draw, Math.max(0, REDRAW_MS - (performance.now() - drawn)));
  };
  const off = samples.on((what) => {
    if (what === "open" || what === "world") again();
    soon();
  });
  const beat = setInterval(soon, 2000);
  document.addEventListener("visibilitychange", soon);
  return () => {
    off();
    clearTimeout(timer);
    clearInterval(beat);
    document.removeEventListener("visibilitychange", soon);
  };
}

/** The run that is being recorded, when its whole length is asked for. */
function useRun(app, is_wanted, turn) {
  const [run, setRun] = useState(null);
  const world = useCell(app.cells.world);
  const id = world.document?.run;
  useEffect(() => {
    if (!is_wanted || !app.parts.metrics) return;
    app.api.get("/api/runs").then(
      (runs) => setRun(runs.find((one) => one.id === id) ?? runs[0] ?? null),
      () => setRun(null),
    );
  }, [is_wanted, id, turn]);
  return is_wanted ? run : null;
}
