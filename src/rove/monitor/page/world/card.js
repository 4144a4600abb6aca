/**
 * Who is selected: where, how fast, on which tile and server, and what it listens to with each
 * engine. Figures are read four times a second; the map itself follows at every frame.
 */
import { EngineMark, Panel, count, metres, useCell } from "../ui.js";
import { html, useEffect, useState } from "../vendor/preact.js";
import { regionAt, tileAt } from "./geometry.js";
import { KindMark } from "./layers.js";
import { KINDS } from "./palette.js";

const EVERY_MS = 250;
const PLAYER = 0;
/** What an engine may subscribe to; only what some engine does has a column. */
const COLUMNS = [["rectangles", "Areas"], ["tiles", "Tiles"], ["objects", "Objects"], ["announcements", "Announced"]];

/**
 * @param {{app: any, model: import("./model.js").WorldModel, name: string | null, hidden: Set<string>,
 *   setHidden: Function, is_following: boolean, setFollowing: Function, is_led: boolean, setLed: Function,
 *   onShow: Function}} props
 */
export function Card({ app, model, name, hidden, setHidden, is_following, setFollowing, is_led, setLed, onShow }) {
  const number = model.numbers.get(name) ?? -1;
  if (number < 0) return html`<${About} document=${model.document} />`;
  const kind = model.document.entities.kinds[number];
  return html`<${Panel} title=${name} class="side-panel card"
    note=${html`<span class="card-kind"><${KindMark} kind=${kind} /> ${KINDS[kind]}</span>`}
    actions=${html`<button type="button" class="button small ghost icon" aria-label="Deselect" title="Deselect" onClick=${() => app.select(null)}>✕</button>`}>
    <${Figures} model=${model} number=${number} />
    <div class="card-buttons">
      <button type="button" class="button small" onClick=${onShow}>Show</button>
      <button type="button" class="button small" aria-pressed=${is_following} onClick=${() => setFollowing(!is_following)}>Follow</button>
      ${kind === PLAYER && app.may_change && html`<button type="button" class="button small" aria-pressed=${is_led} onClick=${() => setLed(!is_led)}
        title="Click on the map to go there, W A S D to walk">Lead</button>`}
    </div>
    <${Listening} app=${app} model=${model} hidden=${hidden} setHidden=${setHidden} />
  <//>`;
}

/** Nobody is selected: what this world is, and what one can do. */
function About({ document }) {
  const { about, map, entities, seed } = document;
  return html`<${Panel} title="Nothing selected" class="side-panel">
    <p>${about}</p>
    <dl class="figures about-facts">
      <div><dt>Map</dt><dd>${map.name}</dd></div>
      <div><dt>Size</dt><dd>${count(map.width)} × ${count(map.height)} m</dd></div>
      <div><dt>Inhabitants</dt><dd>${count(entities.names.length)}</dd></div>
      <div><dt>Seed</dt><dd>${seed}</dd></div>
    </dl>
    <p class="quiet">Click an entity on the map, or search for its name, to see its interest with each engine.</p>
  <//>`;
}

function Figures({ model, number }) {
  const [place, setPlace] = useState(null);
  useEffect(() => {
    const read = () => {
      const at = model.time();
      if (at !== null && model.dots.is_known) setPlace(model.dots.place(number, at));
    };
    read();
    const timer = setInterval(read, EVERY_MS);
    return () => clearInterval(timer);
  }, [model, number]);
  if (place === null) return html`<p class="quiet">Waiting for the world…</p>`;
  const { map, regions } = model.document;
  const tile = tileAt(map.tiles, place.x, place.y);
  const region = regionAt(regions, place.x, place.y);
  const speed = Math.hypot(place.vx, place.vy);
  return html`<dl class="figures">
    <div><dt>Position</dt><dd>${place.x.toFixed(1)}, ${place.y.toFixed(1)} m</dd></div>
    <div><dt>Speed</dt><dd>${speed.toFixed(1)} m/s</dd></div>
    <div><dt>Tile</dt><dd>${tile >= 0 ? tile : "–"}</dd></div>
    <div><dt>Server</dt><dd>${region?.server ?? "–"}</dd></div>
  </dl>`;
}

/** For each engine what the client is subscribed to, and whether that is drawn. */
function Listening({ app, model, hidden, setHidden }) {
  const message = useCell(model.listened);
  const state = useCell(app.cells.state);
  if (message === null) return null;
  const engines = Object.entries(message.engines);
  if (engines.length === 0) return html`<p class="quiet">It has no client, so it has no subscriptions.</p>`;
  const flip = (name) => {
    const next = new Set(hidden);
    if (!next.delete(name)) next.add(name);
    setHidden(next);
  };
  const columns = COLUMNS.filter(([key]) => engines.some(([, heard]) => heard[key]?.length));
  return html`<table class="listening">
    <caption>Listens to</caption>
    <thead><tr><th scope="col">Engine</th>${columns.map(([key, title]) => html`<th key=${key} scope="col" class="number">${title}</th>`)}<th scope="col" class="number" title="Distance from the centre of its subscription to its real place">Off by</th></tr></thead>
    <tbody>
      ${engines.map(([name, heard]) => html`<tr key=${name}>
        <th scope="row"><label class="engine-choice" title="Draw on the map">
          <input type="checkbox" checked=${!hidden.has(name)} onChange=${() => flip(name)} aria-label=${`Draw ${name}`} />
          <${EngineMark} app=${app} name=${name} /><span>${name}</span>${name === state?.live && html`<span class="live-dot" title="live"><span class="only-read">live</span></span>`}
        </label></th>
        ${columns.map(([key]) => html`<td key=${key} class="number">${heard[key]?.length ? count(heard[key].length) : "–"}</td>`)}
        <td class="number">${lag(heard.rectangles, message.truth)}</td>
      </tr>`)}
    </tbody>
  </table>
  <p class="quiet truth-note"><span class="truth-mark" aria-hidden="true"></span>What it really sees: ${metres(2 * message.truth[2])} × ${metres(2 * message.truth[3])}</p>`;
}

/** How far the area that is believed lies from the true one. */
function lag(rectangles, truth) {
  if (!rectangles?.length || !truth) return "–";
  const off = Math.max(...rectangles.map(([x, y]) => Math.hypot(x - truth[0], y - truth[1])));
  return `${off.toFixed(1)} m`;
}
