/**
 * A drawing as a component: it is made once, drawn with every change, and can be used without a mouse.
 *
 * With the focus on it, arrows move the cursor (and say what is there), plus and minus zoom, with
 * shift the arrows move the period, 0 or Escape goes back.
 */
import { announce } from "../ui.js";
import { html, useEffect, useRef } from "../vendor/preact.js";
import { shortValue } from "./metrics.js";
import { Plot, timeText } from "./plot.js";

const ZOOM = 0.5;
const PAN = 0.25;

/**
 * @param {{drawing: import("./plot.js").Drawing, label: string, sync?: string, height?: number,
 *   onZoom?: (window: [number, number]) => void, onReset?: () => void,
 *   onCursor?: (index: number | null) => void, onPlot?: (plot: Plot | null) => void, theme: string}} props
 */
export function PlotBox(props) {
  const element = useRef(null);
  const plot = useRef(null);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    plot.current = new Plot(element.current, {
      sync: props.sync,
      height: props.height,
      onZoom: props.onZoom && ((window) => latest.current.onZoom(window)),
      onReset: () => latest.current.onReset?.(),
      onCursor: (index) => latest.current.onCursor?.(index),
    });
    latest.current.onPlot?.(plot.current);
    return () => {
      latest.current.onPlot?.(null);
      plot.current.destroy();
    };
  }, [props.height]);
  useEffect(() => plot.current.draw(props.drawing), [props.drawing, props.theme, props.height]);
  const keys = useRef(null);
  keys.current ??= keyboard(() => latest.current, () => plot.current);
  return html`<div
    ref=${element}
    class="graph-plot"
    tabindex="0"
    role="group"
    aria-label=${`${props.label}. Arrow keys move the cursor, plus and minus zoom, 0 shows everything again.`}
    onKeyDown=${keys.current}
  ></div>`;
}

/** What keys do: the cursor is remembered between two of them. */
function keyboard(props, plot) {
  let index = null;
  const move = (step) => {
    const { drawing } = props();
    const shown = shownIndexes(drawing);
    if (shown.length === 0) return;
    const before = index === null ? (step > 0 ? -1 : shown.length) : shown.indexOf(index);
    index = shown[Math.min(shown.length - 1, Math.max(0, before + step))];
    plot().pointAt(index);
    announce(spoken(drawing, index));
  };
  const shift = (by) => {
    const { drawing, onZoom } = props();
    const [from, to] = drawing.window;
    onZoom?.([from + by * (to - from), to + by * (to - from)]);
  };
  const zoom = (by) => {
    const { drawing, onZoom } = props();
    const [from, to] = drawing.window;
    const centre = index === null ? to : (drawing.x[index] ?? to);
    const share = (centre - from) / (to - from);
    const length = Math.max(1, (to - from) * by);
    onZoom?.([centre - share * length, centre + (1 - share) * length]);
  };
  const actions = {
    ArrowLeft: (event) => (event.shiftKey ? shift(-PAN) : move(-1)),
    ArrowRight: (event) => (event.shiftKey ? shift(PAN) : move(1)),
    "+": () => zoom(ZOOM),
    "=": () => zoom(ZOOM),
    "-": () => zoom(1 / ZOOM),
    0: () => props().onReset?.(),
    Escape: () => props().onReset?.(),
  };
  return (event) => {
    const action = event.ctrlKey || event.metaKey || event.altKey ? null : actions[event.key];
    if (!action) return;
    event.preventDefault();
    action(event);
  };
}

function shownIndexes({ x, window: [from, to] }) {
  return x.map((_, i) => i).filter((i) => x[i] >= from && x[i] <= to);
}

function spoken({ x, lines, values, unit, is_clock }, index) {
  const said = lines.map((line, i) => `${line.name} ${shortValue(values[i][index])}`);
  const when = is_clock ? timeText(x[index], 1) : `${x[index].toFixed(0)} seconds`;
  return `${when}: ${said.join(", ")} ${unit}`;
}
