/**
 * The bar at the top: where one is, what is running, whether it is connected, and how it looks.
 */
import { EngineMark, clock, useCell } from "./ui.js";
import { html, useEffect, useRef, useState } from "./vendor/preact.js";

const THEMES = { auto: "Automatic", light: "Light", dark: "Dark" };
const STATES = {
  open: "Live",
  connecting: "Connecting",
  waiting: "Offline",
  off: "Not connected",
};

/** @param {{app: import("./app.js").App, views: any[], shown: any, split: any}} props */
export function Header({ app, views, shown, split }) {
  const hello = useCell(app.cells.hello);
  return html`<header class="bar">
    <h1 class="brand"><span class="brand-mark" aria-hidden="true"></span>Rove<span class="only-read"> monitor</span></h1>
    ${views.length > 0 && html`<${Tabs} views=${views} shown=${shown} />`}
    ${split && html`<button type="button" class="button small ghost" aria-pressed=${split.is_on} onClick=${() => split.set(!split.is_on)}
      title="Show graphs beside the world"><${SplitIcon} /><span>Graphs beside</span></button>`}
    <div class="bar-space"></div>
    ${hello.parts.world && html`<${RunChip} app=${app} />`}
    <${ConnectionChip} app=${app} />
    <${ThemeButton} app=${app} />
    ${hello.user && html`<${User} app=${app} name=${hello.user} />`}
  </header>`;
}

function Tabs({ views, shown }) {
  const list = useRef(null);
  useEffect(() => {
    list.current.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [shown]);
  const keys = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = views.indexOf(shown);
    let next = null;
    if (step) next = views[(at + step + views.length) % views.length];
    if (event.key === "Home") next = views[0];
    if (event.key === "End") next = views.at(-1);
    if (!next) return;
    event.preventDefault();
    list.current.querySelector(`#tab-${next.id}`).focus();
    location.hash = next.id;
  };
  return html`<div class="tabs" role="tablist" aria-label="Views" ref=${list} onKeyDown=${keys}>
    ${views.map((view) => html`<a key=${view.id} id=${`tab-${view.id}`} class="tab" role="tab" href=${`#${view.id}`}
      aria-selected=${view === shown ? "true" : "false"} aria-controls="view" tabindex=${view === shown ? 0 : -1}>${view.title}</a>`)}
  </div>`;
}

/** Which world runs, how old it is and which engine is live. */
function RunChip({ app }) {
  const world = useCell(app.cells.world);
  const state = useCell(app.cells.state);
  const at = useWorldTime(app);
  if (world.status !== "ready" || state === null) return null;
  const { title, run } = world.document;
  const is_slow = state.speed < 1 && !state.is_paused && !state.is_over;
  const what = state.is_over ? "over" : state.is_paused ? "paused" : is_slow ? `${state.speed}× speed` : null;
  return html`<dl class="run">
    <div><dt class="only-read">Scenario</dt><dd class="run-title" title=${`Run ${run}`}>${title}</dd></div>
    <div><dt class="only-read">World time</dt><dd class="run-time">${clock(at)}${what && html` <span class="badge" title=${is_slow ? "This machine cannot keep up with the world" : ""}>${what}</span>`}</dd></div>
    ${state.live && html`<div class="run-live"><dt>Live engine</dt><dd><${EngineMark} app=${app} name=${state.live} />${state.live}</dd></div>`}
  </dl>`;
}

/** The world's time by the second: samples carry it. */
function useWorldTime(app) {
  const state = useCell(app.cells.state);
  const [at, set] = useState(state?.at ?? 0);
  useEffect(() => state && set(state.at), [state]);
  useEffect(() => app.live.on("sample", (sample) => set(sample.at)), []);
  return at;
}

function ConnectionChip({ app }) {
  const { state } = useCell(app.cells.connection);
  return html`<span class=${`connection is-${state}`} role="status" data-state=${state}><span class="connection-dot" aria-hidden="true"></span>${STATES[state]}</span>`;
}

function ThemeButton({ app }) {
  const choice = useCell(app.cells.themeChoice);
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(choice) + 1) % names.length];
  return html`<button type="button" class="button small ghost icon" data-theme-choice=${choice}
    aria-label=${`Theme: ${THEMES[choice]}. Change to ${THEMES[next].toLowerCase()}`} title=${`Theme: ${THEMES[choice]}`}
    onClick=${() => app.cells.themeChoice.set(next)}>
    <svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true">${ICONS[choice]}</svg>
  </button>`;
}

const RAYS = "M10 1.5v2.2M10 16.3v2.2M1.5 10h2.2M16.3 10h2.2M4 4l1.5 1.5M14.5 14.5L16 16M4 16l1.5-1.5M14.5 5.5L16 4";
const ICONS = {
  auto: html`<g><circle cx="10" cy="10" r="7" fill="none" stroke="currentColor" stroke-width="1.6" /><path d="M10 3a7 7 0 0 1 0 14z" fill="currentColor" /></g>`,
  light: html`<g><circle cx="10" cy="10" r="3.6" fill="currentColor" /><path d=${RAYS} stroke="currentColor" stroke-width="1.6" stroke-linecap="round" /></g>`,
  dark: html`<path d="M16.5 12.2A7 7 0 0 1 7.8 3.5a7 7 0 1 0 8.7 8.7z" fill="currentColor" />`,
};

function SplitIcon() {
  return html`<svg viewBox="0 0 20 20" width="16" height="16" aria-hidden="true">
    <rect x="2" y="3.5" width="16" height="13" rx="2" fill="none" stroke="currentColor" stroke-width="1.6" />
    <path d="M11.5 3.5v13" stroke="currentColor" stroke-width="1.6" />
  </svg>`;
}

function User({ app, name }) {
  const out = async () => {
    await app.api.post("/api/logout");
    await app.refresh();
  };
  return html`<span class="user"><span class="user-name" title=${name}>${name}</span>
    <button type="button" class="button small ghost" onClick=${out}>Log out</button></span>`;
}
