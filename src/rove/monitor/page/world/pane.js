/**
 * The map in its place on the page: the canvas, the buttons and the legend on it, and what a click
 * or a key on it means.
 */
import { announce, useCell } from "../ui.js";
import { html, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { scaleBar } from "./camera.js";
import { attachInput } from "./input.js";
import { KindLegend } from "./layers.js";
import { WorldMap } from "./map.js";
import { forgetFrames, frameFigures } from "./measure.js";
import { paletteOf, parsed } from "./palette.js";
import { stressModel } from "./stress.js";

const ZOOM_STEP = 1.6;
const HELP = "Arrow keys move the map, plus and minus zoom, 0 shows all of it. The table has the same in words.";

/**
 * @param {{app: any, model: import("./model.js").WorldModel, layers: any, hidden: Set<string>, live: string | null,
 *   leads: string | null, letGo: () => void, is_following: boolean, setFollowing: (is_on: boolean) => void, onMap: (map: any) => void}} props
 */
export function MapPane({ app, model, layers, hidden, live, leads, letGo, is_following, setFollowing, onMap, children }) {
  const host = useRef(null);
  const [map, setMap] = useState(null);
  const is_known = useCell(model.is_known);
  const theme = useCell(app.cells.theme);
  const state = useCell(app.cells.state);
  const wishes = useWishes(app, model, leads, letGo, setFollowing);

  useEffect(() => {
    const made = new WorldMap(host.current);
    const detach = attachInput(host.current, made, wishes);
    setMap(made);
    onMap(made);
    return () => {
      detach();
      made.destroy();
      onMap(null);
    };
  }, []);
  useEffect(() => map?.setModel(model), [map, model]);
  useEffect(() => {
    map?.setPalette(paletteOf(app, model.engines, live));
    const bytes = (name) => parsed(app.engineStyle(name).colour).slice(0, 3).map((share) => Math.round(share * 255));
    model.hide(hidden, new Map(model.engines.map((name) => [name, bytes(name)])), layers.heardObjects);
  }, [map, model, live, theme, hidden, layers.heardObjects]);
  useEffect(() => map?.setLayers(layers), [map, JSON.stringify(layers)]);
  useEffect(() => {
    if (map) map.is_following = is_following;
  }, [map, is_following]);
  useEffect(() => (map ? exposeFigures(map, model) : undefined), [map, model]);

  return html`<div class="map">
    <div class=${`map-host ${leads ? "is-led" : ""}`} ref=${host} tabindex="0" role="application" aria-label="Map of the world" aria-describedby="map-help"></div>
    <p id="map-help" class="only-read">${HELP}</p>
    ${!is_known && html`<p class="map-note" role="status">Waiting for the world…</p>`}
    ${state?.is_over && html`<p class="map-note" role="status">This world has ended and is as it was left. Restart it below.</p>`}
    ${leads && !state?.is_over && html`<p class="map-note is-led" role="status"><strong>You lead ${leads}.</strong> Click to go there; <kbd>W</kbd> <kbd>A</kbd> <kbd>S</kbd> <kbd>D</kbd> to walk; <kbd>Esc</kbd> to let go.</p>`}
    <div class="map-corner"><${KindLegend} document=${model.document} /><${ScaleBar} map=${map} /></div>
    <${Zoom} map=${map} />
    ${children}
  </div>`;
}

/** What hands on the map want; kept in a ref, because the map is made once and this changes. */
function useWishes(app, model, leads, letGo, setFollowing) {
  const now = useRef(null);
  now.current = { app, model, leads, letGo, setFollowing };
  return useMemo(() => ({
    onClick(number, x, y) {
      const { app: page, model: world, leads: name } = now.current;
      if (name !== null && world.names[number] !== name) go(page, name, x, y);
      else if (number >= 0) page.select(world.names[number]);
      else page.select(null);
    },
    canSteer: () => now.current.leads !== null,
    onSteer(dx, dy) {
      const { app: page, leads: name } = now.current;
      if (name === null) return;
      const text = dx === 0 && dy === 0 ? `stop ${name}` : `steer ${name} ${dx} ${dy}`;
      page.say(text, { is_quiet: true }).catch(() => {});
    },
    onEscape() {
      if (now.current.leads !== null) now.current.letGo();
      else now.current.app.select(null);
    },
    onMoved: () => now.current.setFollowing(false),
  }), []);
}

function go(app, name, x, y) {
  app.say(`go ${name} to ${x.toFixed(1)} ${y.toFixed(1)}`).then(
    ({ ok, text }) => announce(ok ? `${name} is on the way.` : text),
    (error) => announce(error.message),
  );
}

function Zoom({ map }) {
  const zoom = (factor) => () => map?.camera.zoomAt(map.camera.width / 2, map.camera.height / 2, factor, map.reduced.matches);
  return html`<div class="map-zoom" role="group" aria-label="Zoom">
    <button type="button" class="button icon" aria-label="Zoom in" title="Zoom in (+)" onClick=${zoom(ZOOM_STEP)}><svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true"><path d="M8 2v12M2 8h12" stroke="currentColor" stroke-width="2" /></svg></button>
    <button type="button" class="button icon" aria-label="Zoom out" title="Zoom out (−)" onClick=${zoom(1 / ZOOM_STEP)}><svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true"><path d="M2 8h12" stroke="currentColor" stroke-width="2" /></svg></button>
    <button type="button" class="button icon" aria-label="Show all" title="Show all (0)" onClick=${() => map?.camera.fit(map.reduced.matches)}><svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true"><path d="M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4" fill="none" stroke="currentColor" stroke-width="2" /></svg></button>
  </div>`;
}

function ScaleBar({ map }) {
  const [bar, setBar] = useState({ metres: 0, px: 0 });
  useEffect(() => {
    if (!map) return undefined;
    const timer = setInterval(() => {
      const next = scaleBar(map.camera.scale);
      setBar((before) => (before.metres === next.metres && Math.abs(before.px - next.px) < 0.5 ? before : next));
    }, 100);
    return () => clearInterval(timer);
  }, [map]);
  const text = bar.metres >= 1000 ? `${bar.metres / 1000} km` : `${bar.metres} m`;
  return html`<div class="scale-bar" style=${{ width: `${Math.round(bar.px)}px` }} aria-label=${`Scale: this bar is ${text}`} role="img">${text}</div>`;
}

/** For benchmarks and tests: how long frames take, and crowds to fill them. */
function exposeFigures(map, model) {
  let stress = null;
  window.roveFrames = () => ({
    ...frameFigures(),
    renderer: map.renderer.name,
    dots: map.model.dots.count,
    rectangles: map.layers.areas ? map.model.areas.count : 0,
  });
  window.roveStress = (dots, rectangles) => {
    stress?.stop();
    stress = dots > 0 ? stressModel(model.document, dots, rectangles) : null;
    map.setModel(stress?.model ?? model);
    if (rectangles > 0) map.setLayers({ ...map.layers, areas: true });
    forgetFrames();
  };
  return () => stress?.stop();
}
