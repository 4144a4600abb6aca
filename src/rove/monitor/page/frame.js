/**
 * The frame of the page: header, tabs, the view that is shown, the console below.
 *
 * Tabs are addresses (`#graphs`), so that a view can be linked to and the browser's back button
 * works. Only tabs whose parts exist are drawn; the server says which (`/api/hello`). Whoever
 * changes the tab with the tab itself keeps the focus there, as with any tabs; whoever follows a
 * link gets it on the view.
 */
import { Header } from "./header.js";
import { Login } from "./login.js";
import { Boundary, Empty, ErrorNote, Loading, announce, useCell, useMedia, useStored } from "./ui.js";
import { html, useEffect, useRef, useState } from "./vendor/preact.js";

/** The views: what is loaded, and whether its parts are there. */
const VIEWS = [
  { id: "world", title: "World", name: "WorldView", load: () => import("./world/view.js"), is_there: (parts) => parts.world },
  { id: "graphs", title: "Graphs", name: "GraphsView", load: () => import("./graphs/view.js"), is_there: (parts) => parts.world || parts.metrics || parts.broker },
  { id: "operations", title: "Operations", name: "OperationsView", load: () => import("./operations/view.js"), is_there: (parts) => parts.broker || parts.pipeline },
  { id: "compare", title: "Compare", name: "CompareView", load: () => import("./compare/view.js"), is_there: (parts) => parts.metrics },
];
const BESIDE = "(min-width: 1100px)";
const ROOMY_PX = 1500;

/** @param {{app: import("./app.js").App}} props */
export function Frame({ app }) {
  const hello = useCell(app.cells.hello);
  const fault = useCell(app.cells.fault);
  useTitle(app);
  if (hello === null) {
    return html`<main class="alone">
      ${fault === null ? html`<${Loading} what="Loading from the monitor" />` : html`<${ErrorNote} title="The monitor does not answer" error=${fault} retry=${app.refresh} />`}
    </main>`;
  }
  if (hello.login) return html`<${Login} app=${app} />`;
  return html`<${Shell} app=${app} parts=${hello.parts} />`;
}

function Shell({ app, parts }) {
  const views = VIEWS.filter((view) => view.is_there(parts));
  const [shown, follow] = useTab(views);
  const is_wide = useMedia(BESIDE);
  const [is_split, setSplit] = useStored(app, "split", innerWidth >= ROOMY_PX);
  const panel = useRef(null);
  const can_split = is_wide && views.some((view) => view.id === "graphs") && parts.world;
  const skip = (event) => {
    event.preventDefault();
    panel.current.focus();
  };
  useEffect(() => follow(() => panel.current?.focus({ preventScroll: true })), []);
  const beside = can_split && is_split && shown?.id === "world" ? VIEWS.find((view) => view.id === "graphs") : null;
  return html`<div class="shell">
    <a class="skip" href="#view" onClick=${skip}>Skip to the view</a>
    <${Header} app=${app} views=${views} shown=${shown}
      split=${can_split && shown?.id === "world" ? { is_on: is_split, set: setSplit } : null} />
    <${Disconnected} app=${app} />
    <main class="main"><div class=${`view ${beside ? "is-split" : ""}`} id="view" role=${shown ? "tabpanel" : undefined} tabindex="-1" ref=${panel}
      aria-labelledby=${shown ? `tab-${shown.id}` : undefined}>
      ${shown
        ? html`<${View} key=${shown.id} app=${app} view=${shown} />`
        : html`<${Empty} title="Nothing is connected to this monitor">
            <p>Start it with a scenario (<code>rove monitor crowd</code>), a broker (<code>--broker URL</code>) or a metrics database (<code>--database URL</code>).</p>
          <//>`}
      ${beside && html`<${View} key="beside" app=${app} view=${beside} is_beside=${true} />`}
    </div></main>
    ${parts.world && html`<${ConsoleDock} app=${app} />`}
  </div>`;
}

/** A view, loaded when it is first shown. */
function View({ app, view, is_beside = false }) {
  const { Part, error, again } = useModule(view.load, view.name);
  if (error) return html`<${ErrorNote} title=${`${view.title} cannot be loaded`} error=${error} retry=${again} />`;
  if (!Part) return html`<${Loading} what=${`Loading ${view.title.toLowerCase()}`} />`;
  return html`<div class=${`view-part view-${view.id}`}>
    <${Boundary} title=${`${view.title} has failed`}><${Part} app=${app} is_beside=${is_beside} /><//>
  </div>`;
}

function ConsoleDock({ app }) {
  const { Part, error, again } = useModule(loadConsole, "Console");
  if (error) return html`<${ErrorNote} title="The console cannot be loaded" error=${error} retry=${again} />`;
  return Part ? html`<${Boundary} title="The console has failed"><${Part} app=${app} /><//>` : null;
}

const loadConsole = () => import("./console/console.js");

function useModule(load, name) {
  const [loaded, set] = useState({ Part: null, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let is_wanted = true;
    load().then(
      (module) => is_wanted && set({ Part: module[name], error: null }),
      (error) => is_wanted && set({ Part: null, error }),
    );
    return () => {
      is_wanted = false;
    };
  }, [load, name, turn]);
  return { ...loaded, again: () => setTurn(turn + 1) };
}

/** Says that what is shown is old, and when it is tried again. */
function Disconnected({ app }) {
  const connection = useCell(app.cells.connection);
  const [was_open, setWasOpen] = useState(false);
  const [now, setNow] = useState(Date.now());
  const is_lost = connection.state === "waiting" || (connection.state === "connecting" && connection.tries > 0);
  useEffect(() => {
    if (connection.state === "open") {
      if (was_open) announce("Connected again.");
      setWasOpen(true);
    }
  }, [connection.state]);
  useEffect(() => {
    if (!is_lost) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, [is_lost]);
  useEffect(() => {
    if (is_lost) announce("The connection to the monitor is lost. The page tries again by itself.");
  }, [is_lost]);
  if (!is_lost) return null;
  const wait_s = Math.max(0, Math.ceil((connection.again_at - now) / 1000));
  return html`<div class="lost">
    <span class="lost-dot" aria-hidden="true"></span>
    <span>${was_open ? "The connection is lost; what you see is what was last known." : "The monitor does not answer."}</span>
    <span class="quiet">${connection.state === "waiting" && wait_s > 0 ? `Trying again in ${wait_s} s` : "Trying again…"}</span>
    <button type="button" class="button small" onClick=${() => app.live.retry()}>Try now</button>
  </div>`;
}

/** The tab of the address, and a way to hear of changes that were not made on the tabs. */
function useTab(views) {
  const read = () => location.hash.slice(1).split("?")[0]; // after it a view keeps its own
  const [id, set] = useState(read);
  const followers = useRef(new Set());
  useEffect(() => {
    const changed = () => {
      set(read());
      if (document.activeElement?.getAttribute("role") !== "tab") for (const f of followers.current) f();
    };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const follow = (f) => {
    followers.current.add(f);
    return () => followers.current.delete(f);
  };
  return [views.find((view) => view.id === id) ?? views[0] ?? null, follow];
}

function useTitle(app) {
  const world = useCell(app.cells.world);
  const connection = useCell(app.cells.connection);
  const title = world.document?.title;
  const is_lost = connection.state === "waiting";
  useEffect(() => {
    document.title = `${is_lost ? "(offline) " : ""}${title ? `${title} · ` : ""}Rove monitor`;
  }, [title, is_lost]);
}
