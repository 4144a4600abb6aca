/**
 * The past of a chart, asked of the database when the chart appears and when its period changes.
 *
 * Lines of the world go on with live samples, so their past is asked for again only after a
 * disconnection or now and then, to take in what the database has rolled up. All other metrics are
 * known to the database alone and are asked for every few seconds.
 */
import { useEffect, useState } from "../vendor/preact.js";
import { figureOf } from "./metrics.js";
import { pastTracks } from "./tracks.js";

const POINTS = 600;
const NOTHING = new Map();

/**
 * @typedef {{from: number, to: number | null, run: string | null}} Period `to` null: until now
 * @typedef {{status: "none" | "loading" | "ready" | "error", tracks: Map<string, any>,
 *   error: Error | null}} History
 */

/**
 * @param {object} app
 * @param {import("./metrics.js").ChartSpec} spec
 * @param {() => Period} period asked at the moment of asking, since it moves
 * @param {string} periodKey changes when the period becomes another one
 * @param {{length: number, is_moving: boolean, turn: number}} pace `turn` asks again
 * @returns {History & {again: () => void}}
 */
export function useHistory(app, spec, period, periodKey, { length, is_moving, turn }) {
  const [history, setHistory] = useState({ status: "loading", tracks: NOTHING, error: null });
  const [tries, setTries] = useState(0);
  const key = JSON.stringify([spec.metrics, spec.labels, periodKey]);
  useEffect(() => {
    if (!app.parts.metrics) {
      setHistory({ status: "none", tracks: NOTHING, error: null });
      return undefined;
    }
    const abort = new AbortController();
    let timer = 0;
    const ask = async () => {
      try {
        if (!document.hidden) {
          const tracks = await fetchTracks(app, spec, period(), abort.signal);
          setHistory({ status: "ready", tracks, error: null });
        }
      } catch (error) {
        if (error.name === "AbortError") return;
        setHistory((before) => ({ ...before, status: "error", error }));
      }
      if (is_moving && !abort.signal.aborted) timer = setTimeout(ask, waitMs(spec, length));
    };
    setHistory((before) => ({ ...before, status: before.tracks.size ? before.status : "loading" }));
    ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [key, is_moving, turn, tries]);
  return { ...history, again: () => setTries((value) => value + 1) };
}

function waitMs(spec, length) {
  const is_live = spec.metrics.every((metric) => figureOf(metric) !== null);
  return 1000 * (is_live ? Math.max(60, length / 20) : Math.max(2, length / 150));
}

async function fetchTracks(app, spec, { from, to, run }, signal) {
  const labels = Object.entries(run === null ? spec.labels : { ...spec.labels, run });
  const wanted = labels.map(([name, text]) => [`label.${name}`, text]);
  const params = { since: from, until: to, points: POINTS, ...Object.fromEntries(wanted) };
  const asked = spec.metrics.map((metric) =>
    app.api.get("/api/points", { metric, ...params }, { signal }),
  );
  return pastTracks(await Promise.all(asked));
}
