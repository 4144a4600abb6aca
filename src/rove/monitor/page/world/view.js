/**
 * The world view: the map (or the same as a table) with search, the card of whoever is selected, and
 * the layers beside.
 */
import { Empty, ErrorNote, Loading, announce, useCell, useStored } from "../ui.js";
import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { Card } from "./card.js";
import { useHeat } from "./heat.js";
import { LAYERS, LayersPanel } from "./layers.js";
import { MapPane } from "./pane.js";
import { WorldModel } from "./model.js";
import { Search } from "./search.js";
import { WorldTable } from "./table.js";

/** @param {{app: import("../app.js").App}} props */
export function WorldView({ app }) {
  const world = useCell(app.cells.world);
  if (world.status === "error") return html`<${ErrorNote} title="The world cannot be shown" error=${world.error} retry=${app.fetchWorld} />`;
  if (world.status !== "ready") return html`<${Loading} what="Waiting for the world" />`;
  if (world.document.entities.names.length === 0) return html`<${Empty} title="This world has no entities" />`;
  return html`<${World} key=${world.document.run} app=${app} document=${world.document} />`;
}

function World({ app, document }) {
  const model = useModel(app, document);
  const [map, setMap] = useState(null);
  const [is_table, setTable] = useStored(app, "world.table", false);
  const [layers, setLayers] = useStored(app, "world.layers", LAYERS);
  const shownLayers = useMemo(() => ({ ...LAYERS, ...layers }), [layers]);
  const [hiddenList, setHiddenList] = useStored(app, "world.hidden", []);
  const hidden = useMemo(() => new Set(hiddenList), [hiddenList]);
  const [attribute, setAttribute] = useStored(app, "world.attribute", "NO2");
  const [has_side, setSide] = useStored(app, "world.side", true);
  const [is_following, setFollowing] = useState(false);
  const [is_led, setLed] = useState(false);
  const selected = useCell(app.cells.selected);
  const state = useCell(app.cells.state);
  const is_hot = shownLayers.heat && Boolean(app.parts.sensors);
  const answer = useHeat(app, map, attribute, is_hot);
  const name = model.numbers.has(selected) ? selected : null;

  useEffect(() => {
    model.select(name);
    app.live.watch({ select: name });
    setFollowing(false);
    setLed(false);
    if (name !== null) announce(`${name} is selected.`);
  }, [model, name]);
  useEffect(() => app.live.watch({ areas: shownLayers.areas }), [shownLayers.areas, model]);

  const show = () => {
    const place = map?.placeOf(model.selected);
    if (place) map.show(place.x, place.y);
  };
  const pick = (found) => {
    app.select(found);
    setTimeout(() => {
      const place = map?.placeOf(model.numbers.get(found) ?? -1);
      if (place) map.show(place.x, place.y);
    });
  };
  return html`<div class=${`world ${has_side ? "" : "is-alone"}`}>
    <div class="world-main">
      ${is_table
        ? html`<${WorldTable} app=${app} model=${model} selected=${name} />`
        : html`<${MapPane} app=${app} model=${model} layers=${{ ...shownLayers, heat: is_hot }} hidden=${hidden} live=${state?.live ?? null}
            leads=${is_led ? name : null} letGo=${() => setLed(false)} is_following=${is_following} setFollowing=${setFollowing} onMap=${setMap}>
              <${SideButton} has_side=${has_side} setSide=${setSide} /><//>`}
    </div>
    <aside class="world-side" id="world-side" aria-label="About the world" hidden=${!has_side && !is_table}>
      <div class="world-tools">
        <${Search} model=${model} onPick=${pick} />
        <div class="choice" role="group" aria-label="Show as">
          <button type="button" class="button small" aria-pressed=${!is_table} onClick=${() => setTable(false)}>Map</button>
          <button type="button" class="button small" aria-pressed=${is_table} onClick=${() => { setMap(null); setTable(true); }}>Table</button>
        </div>
      </div>
      <${Card} app=${app} model=${model} name=${name} hidden=${hidden} setHidden=${(next) => setHiddenList([...next])}
        is_following=${is_following} setFollowing=${setFollowing} is_led=${is_led} setLed=${setLed} onShow=${show} />
      ${!is_table && html`<${LayersPanel} app=${app} document=${document} parts=${app.parts} layers=${shownLayers} setLayers=${setLayers} live=${state?.live ?? null}
        heat=${{ answer, attribute, setAttribute }} />`}
    </aside>
  </div>`;
}

/** Shows or hides what stands beside the map. */
function SideButton({ has_side, setSide }) {
  return html`<button type="button" class="button small map-side-button" aria-expanded=${has_side ? "true" : "false"} aria-controls="world-side" onClick=${() => setSide(!has_side)}>
    ${has_side ? "Hide details" : "Details"}</button>`;
}

/** The model of a run, fed while it is shown. */
function useModel(app, document) {
  const model = useMemo(() => new WorldModel(document), [document]);
  useEffect(() => {
    const off = model.follow(app.live);
    app.live.watch({ world: true }); // also asks for everybody's place
    return () => {
      off();
      app.live.watch({ world: false, select: null, areas: false });
    };
  }, [model]);
  return model;
}
