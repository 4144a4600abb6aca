/**
 * What is drawn over the map, to be switched on and off; what each thing looks like stands beside.
 */
import { EngineMark, Panel, Toggle, count } from "../ui.js";
import { html, useMemo } from "../vendor/preact.js";
import { HeatLegend } from "./heat.js";
import { KINDS } from "./palette.js";

/** What is shown until somebody says otherwise. */
export const LAYERS = { places: true, tiles: false, regions: true, areas: false, heardAreas: true, heardTiles: true, heardObjects: true, heat: false };
const KIND_TITLES = { player: "Players", npc: "NPCs", item: "Items", vehicle: "Vehicles", sensor: "Sensors" };

/** @param {{app: any, document: any, parts: any, layers: any, setLayers: Function, heat: any, live: string | null}} props */
export function LayersPanel({ app, document, parts, layers, setLayers, heat, live }) {
  const set = (name) => (is_on) => setLayers({ ...layers, [name]: is_on });
  const { map, regions, engines } = document;
  const can_tiles = map.tiles.length > 0;
  return html`<${Panel} title="Layers" class="side-panel">
    <${Toggle} label="Places" checked=${layers.places} onChange=${set("places")} />
    <${Toggle} label="Tiles" checked=${layers.tiles && can_tiles} disabled=${!can_tiles} onChange=${set("tiles")}
      hint=${can_tiles ? "" : "More tiles than a picture can show"}
      swatch=${html`<span class="quiet">${count(map.tiles.length)}</span>`} />
    ${regions.length > 1 && html`<${Toggle} label="Regions of servers" checked=${layers.regions} onChange=${set("regions")}
      swatch=${html`<span class="quiet">${regions.length}</span>`} />`}
    ${engines.length > 0 && html`<${Toggle} label="Areas of all clients" checked=${layers.areas} onChange=${set("areas")}
      swatch=${live && html`<span class="swatch-area"><${EngineMark} app=${app} name=${live} /></span>`}
      hint="Rectangles of the live engine, as the publish/subscribe system has them" />`}
    ${parts.sensors && html`<${Toggle} label="Sensors as heat map" checked=${layers.heat} onChange=${set("heat")} />`}
    ${parts.sensors && layers.heat && html`<${HeatLegend} ...${heat} />`}
    ${engines.length > 0 && html`<fieldset class="layers-group">
      <legend>What the selected listens to</legend>
      <${Toggle} label="Areas" checked=${layers.heardAreas} onChange=${set("heardAreas")} />
      <${Toggle} label="Tiles" checked=${layers.heardTiles} onChange=${set("heardTiles")} />
      <${Toggle} label="Objects" checked=${layers.heardObjects} onChange=${set("heardObjects")} swatch=${html`<span class="heard-mark" aria-hidden="true"></span>`} />
    </fieldset>`}
  <//>`;
}

/** Shapes and colours of what moves, with how many there are. */
export function KindLegend({ document }) {
  const { kinds } = document.entities;
  const numbers = useMemo(() => KINDS.map((_, kind) => kinds.reduce((sum, of) => sum + (of === kind), 0)), [kinds]);
  return html`<ul class="kinds" aria-label="Legend">
    ${KINDS.map((kind, number) => numbers[number] > 0 && html`<li key=${kind}>
      <${KindMark} kind=${number} /><span>${KIND_TITLES[kind]}</span><span class="quiet">${count(numbers[number])}</span>
    </li>`)}
  </ul>`;
}

/** The shape of a kind. */
export function KindMark({ kind }) {
  return html`<svg class=${`kind-mark kind-${KINDS[kind]}`} viewBox="-8 -8 16 16" width="12" height="12" aria-hidden="true">${SHAPES[kind]}</svg>`;
}

const SHAPES = [
  html`<circle r="6.5" />`,
  html`<path d="M0 -7L7 5.5H-7z" />`,
  html`<path d="M0 -7.5L7.5 0L0 7.5L-7.5 0z" />`,
  html`<path d="M-6 -6H6V6H-6z" />`,
  html`<path d="M-2.5 -7.5h5v5h5v5h-5v5h-5v-5h-5v-5h5z" />`,
];
