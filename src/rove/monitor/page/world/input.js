/**
 * Hands on the map: drag, wheel, pinch, click, keys.
 *
 * Keys act only while the map has the focus, so that typing in the console never walks anybody about.
 * A click is a press that did not move; whoever drags does not mean to select.
 */
const STILL_PX = 5;
const PICK_PX = { mouse: 10, touch: 22, pen: 14 };
const STEP_PX = 80;
const ZOOM_STEP = 1.5;
const STEER = { KeyW: [0, 1], KeyA: [-1, 0], KeyS: [0, -1], KeyD: [1, 0] };

/**
 * @typedef {object} Wishes
 * @property {(number: number, x: number, y: number) => void} onClick who was clicked (or -1), and where
 * @property {(dx: number, dy: number) => void} onSteer a direction; 0, 0 to stand
 * @property {() => boolean} canSteer
 * @property {() => void} onEscape
 * @property {() => void} onMoved the map was moved by hand
 */

/**
 * @param {HTMLElement} host
 * @param {import("./map.js").WorldMap} map
 * @param {Wishes} wishes
 * @returns {() => void} takes the hands off
 */
export function attachInput(host, map, wishes) {
  const listeners = { ...pointers(host, map, wishes), ...keys(host, map, wishes) };
  for (const [type, f] of Object.entries(listeners)) host.addEventListener(type, f, { passive: false });
  return () => {
    for (const [type, f] of Object.entries(listeners)) host.removeEventListener(type, f);
  };
}

function pointers(host, map, wishes) {
  const down = new Map();
  let moved_px = 0;
  const at = (event) => {
    const { left, top } = host.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  };
  const middle = () => {
    const points = [...down.values()];
    const [a, b] = [points[0], points.at(-1)];
    return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, apart: Math.hypot(a.x - b.x, a.y - b.y) };
  };
  const lift = (event) => {
    const was_down = down.delete(event.pointerId);
    if (event.type !== "pointerup" || !was_down || down.size > 0 || moved_px > STILL_PX) return;
    const { x, y } = at(event);
    const number = map.pick(x, y, PICK_PX[event.pointerType] ?? PICK_PX.mouse);
    wishes.onClick(number, ...map.camera.toWorld(x, y));
  };
  return {
    pointerdown(event) {
      if (event.button !== 0) return;
      if (down.size === 0) moved_px = 0;
      down.set(event.pointerId, at(event));
      host.setPointerCapture(event.pointerId);
      host.focus({ preventScroll: true });
    },
    pointermove(event) {
      if (!down.has(event.pointerId)) return;
      const before = middle();
      down.set(event.pointerId, at(event));
      const now = middle();
      moved_px += Math.hypot(now.x - before.x, now.y - before.y) + Math.abs(now.apart - before.apart);
      if (moved_px <= STILL_PX) return;
      map.camera.pan(now.x - before.x, now.y - before.y);
      if (before.apart > 0 && now.apart > 0) map.camera.zoomAt(now.x, now.y, now.apart / before.apart, true);
      wishes.onMoved();
    },
    pointerup: lift,
    pointercancel: lift,
    wheel(event) {
      event.preventDefault();
      const { x, y } = at(event);
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? event.deltaY * 16 : event.deltaY;
      map.camera.zoomAt(x, y, Math.exp(-Math.max(-120, Math.min(120, lines)) / 300), map.reduced.matches);
    },
  };
}

function keys(host, map, wishes) {
  const held = new Set();
  const { camera } = map;
  const zoom = (factor) => camera.zoomAt(camera.width / 2, camera.height / 2, factor, map.reduced.matches);
  const pan = (dx, dy) => {
    camera.pan(dx, dy, map.reduced.matches);
    wishes.onMoved();
  };
  const actions = {
    ArrowLeft: () => pan(STEP_PX, 0),
    ArrowRight: () => pan(-STEP_PX, 0),
    ArrowUp: () => pan(0, STEP_PX),
    ArrowDown: () => pan(0, -STEP_PX),
    "+": () => zoom(ZOOM_STEP),
    "=": () => zoom(ZOOM_STEP),
    "-": () => zoom(1 / ZOOM_STEP),
    0: () => camera.fit(map.reduced.matches),
    Escape: () => wishes.onEscape(),
  };
  const steer = () => {
    const directions = [...held].map((code) => STEER[code]);
    wishes.onSteer(directions.reduce((sum, [x]) => sum + x, 0), directions.reduce((sum, [, y]) => sum + y, 0));
  };
  const letGo = () => {
    if (held.size === 0) return;
    held.clear();
    steer();
  };
  return {
    keydown(event) {
      if (event.target !== host || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.code in STEER && wishes.canSteer()) {
        event.preventDefault();
        if (held.has(event.code)) return;
        held.add(event.code);
        steer();
      } else if (event.key in actions) {
        event.preventDefault();
        actions[event.key]();
      }
    },
    keyup(event) {
      if (held.delete(event.code)) steer();
    },
    blur: letGo,
  };
}
