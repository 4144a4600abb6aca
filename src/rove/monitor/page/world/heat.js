/**
 * Readings of sensors as a heat map: a perceptually uniform scale that the colour-blind can read
 * (cividis), the same in both themes, with a legend. Old readings fade.
 */
import { useAnswer } from "../ui.js";
import { html, useEffect } from "../vendor/preact.js";
import { box } from "./geometry.js";
import { parsed, written } from "./palette.js";

/** Cividis at ten points; between them the eye sees no corners. */
const SCALE = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"].map(parsed);
const GRADIENT = `linear-gradient(to right, ${SCALE.map((colour) => written(colour)).join(", ")})`;
const EVERY_S = 2;
const FADED_AFTER_S = 60;
const ALPHA = [90, 200];

/**
 * The colour of a share from 0 to 1, as bytes.
 * @param {number} share
 * @returns {number[]}
 */
export function heatColour(share) {
  const at = Math.min(1, Math.max(0, share)) * (SCALE.length - 1);
  const [low, high] = [SCALE[Math.floor(at)], SCALE[Math.ceil(at)]];
  const part = at - Math.floor(at);
  return [0, 1, 2].map((i) => Math.round(255 * (low[i] + (high[i] - low[i]) * part)));
}

/**
 * Cells as triangles with colours.
 * @param {any} heat what /api/sensors answers
 */
export function heatPatches({ cells, min, max }) {
  const corners = new Float32Array(cells.length * 12);
  const colours = new Uint8Array(cells.length * 24);
  cells.forEach(([x0, y0, x1, y1, , mean, age_s], i) => {
    corners.set(box(x0, y0, x1, y1), i * 12);
    const fresh = 1 - Math.min(1, age_s / FADED_AFTER_S);
    const colour = [...heatColour(max > min ? (mean - min) / (max - min) : 0.5), Math.round(ALPHA[0] + (ALPHA[1] - ALPHA[0]) * fresh)];
    for (let corner = 0; corner < 6; corner += 1) colours.set(colour, (i * 6 + corner) * 4);
  });
  return { corners, colours };
}

/**
 * The readings of an attribute, kept fresh while the layer is shown; given to the map.
 * @returns {{data: any, error: Error | null}}
 */
export function useHeat(app, map, attribute, is_on) {
  const answer = useAnswer(app, "/api/sensors", { attribute }, { every_s: EVERY_S, is_on });
  useEffect(() => {
    if (map && is_on && answer.data) map.setHeat(heatPatches(answer.data));
  }, [map, is_on, answer.data]);
  return answer;
}

/** Which attribute is shown, and what the colours mean. */
export function HeatLegend({ answer, attribute, setAttribute }) {
  const { data, error } = answer;
  if (error) return html`<p class="refusal">${error.message}</p>`;
  if (!data) return html`<p class="quiet">Reading the sensors…</p>`;
  if (data.attributes.length === 0) return html`<p class="quiet">No sensor of this world has published a reading yet.</p>`;
  return html`<div class="heat">
    <label class="heat-choice"><span>Reading</span>
      <select class="select" value=${data.attribute ?? attribute} onChange=${(event) => setAttribute(event.currentTarget.value)}>
        ${data.attributes.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select>
    </label>
    <div class="heat-scale" role="img" style=${{ background: GRADIENT }} aria-label=${`From ${figure(data.min)} to ${figure(data.max)} ${data.unit}`}></div>
    <div class="heat-ends"><span>${figure(data.min)}</span><span>${data.unit}</span><span>${figure(data.max)}</span></div>
    <p class="quiet">Mean of squares of ${data.cell_m} m; older readings are paler.</p>
  </div>`;
}

const figure = (value) => (value === null ? "–" : Number(value).toPrecision(3).replace(/\.?0+$/, ""));
