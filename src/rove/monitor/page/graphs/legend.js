/**
 * What the lines of a chart are, and what they say under the cursor.
 *
 * A component of its own because the cursor moves often and over all charts at once: only these few
 * words are made anew then, never the chart.
 */
import { html, useEffect, useState } from "../vendor/preact.js";
import { timeText } from "./plot.js";
import { shortValue } from "./metrics.js";
import { GAP_S } from "./tracks.js";

/**
 * @param {{lines: import("./plot.js").Line[], data: {x: number[], values: any[][]}, unit: string, about: string,
 *   cursor: {listener: ((index: number | null) => void) | null}, onToggle: (name: string) => void}} props
 */
export function Legend({ lines, data, unit, about, cursor, onToggle }) {
  const [index, setIndex] = useState(null);
  useEffect(() => {
    cursor.listener = setIndex;
    return () => {
      cursor.listener = null;
    };
  }, [cursor]);
  const at = index === null ? undefined : data.x[index];
  return html`<div class="graph-legend">
    <p class="graph-about">
      <span>${about}</span><span class="graph-moment">${at === undefined ? unit : `${unit} at ${timeText(at, 1)}`}</span>
    </p>
    <ul>
      ${lines.map(
        (line, i) => html`<li key=${line.name}>
          <button
            type="button"
            class="graph-key"
            aria-pressed=${line.is_shown}
            title=${line.is_shown ? `Hide ${line.name}` : `Show ${line.name}`}
            onClick=${() => onToggle(line.name)}
          >
            <${LineMark} line=${line} />
            <span class=${line.is_bold ? "graph-name is-live" : "graph-name"}>${line.name}</span>
            ${line.word && html`<span class=${`graph-word ${line.is_bold ? "is-live" : ""}`}>${line.word}</span>`}
            <span class="graph-value">${shortValue(valueAt(data, i, index))}</span>
          </button>
        </li>`,
      )}
    </ul>
  </div>`;
}

/** @param {{line: import("./plot.js").Line}} props */
export function LineMark({ line }) {
  return html`<svg class="graph-mark" width="22" height="10" viewBox="0 0 22 10" aria-hidden="true">
    <line
      x1="1"
      x2="21"
      y1="5"
      y2="5"
      stroke=${line.colour}
      stroke-width=${line.width}
      stroke-dasharray=${line.dash.length ? line.dash.join(" ") : "none"}
    />
  </svg>`;
}

/** Under the cursor, or the newest; of a line that has ended before, nothing. */
function valueAt({ x, values }, line, index) {
  const column = values[line] ?? [];
  const last = index ?? x.length - 1;
  const gap = Math.max(GAP_S, 2.5 * (x[last] - x[last - 1] || 0));
  for (let i = last; i >= 0 && x[last] - x[i] <= gap; i--) {
    if (column[i] !== undefined) return column[i];
  }
  return null;
}
