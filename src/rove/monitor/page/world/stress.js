/**
 * Synthetic crowds for the benchmark: as many dots and rectangles as are asked for, on legs that end
 * and begin as those of walkers do, ten times a second, through the same code as real frames.
 */
import { AREAS, LEGS, WHOLE } from "./frames.js";
import { WorldModel } from "./model.js";

const TICK_S = 0.1;
const TURN_SHARE = 0.05;
const SPEED = 4;
const REACH = [30, 20];

/**
 * @param {any} document the world that lends its map
 * @param {number} dots
 * @param {number} rectangles
 * @returns {{model: WorldModel, stop: () => void}}
 */
export function stressModel(document, dots, rectangles) {
  const names = Array.from({ length: dots }, (_, i) => `stress${i}`);
  const model = new WorldModel({
    ...document,
    entities: { ...document.entities, names, kinds: names.map((_, i) => i % 5) },
    clients: { ...document.clients, avatars: names.map((_, i) => i).slice(0, rectangles) },
  });
  const crowd = makeCrowd(document.map, dots);
  const everybody = Uint32Array.from(names.keys());
  let tick = 0;
  model.takeFrame(crowd.frame(WHOLE, tick, everybody));
  model.takeFrame(crowd.frame(AREAS, tick, everybody.subarray(0, rectangles)));
  const timer = setInterval(() => {
    tick += 1;
    const turned = crowd.step();
    model.takeFrame(crowd.frame(LEGS, tick, turned));
    model.takeFrame(crowd.frame(AREAS, tick, turned.filter((line) => line < rectangles)));
  }, TICK_S * 1000);
  return { model, stop: () => clearInterval(timer) };
}

function makeCrowd({ width, height }, count) {
  const column = (value) => Float32Array.from({ length: count }, value);
  const speed = () => (Math.random() - 0.5) * 2 * SPEED;
  const x = column(() => Math.random() * width);
  const y = column(() => Math.random() * height);
  const vx = column(speed);
  const vy = column(speed);
  return {
    /** A tick passes; who has turned, or must. */
    step() {
      const turned = [];
      for (let i = 0; i < count; i += 1) {
        x[i] += vx[i] * TICK_S;
        y[i] += vy[i] * TICK_S;
        const is_out = x[i] < 0 || y[i] < 0 || x[i] > width || y[i] > height;
        if (is_out) [vx[i], vy[i]] = [Math.sign(width / 2 - x[i]) * SPEED, Math.sign(height / 2 - y[i]) * SPEED];
        else if (Math.random() < TURN_SHARE) [vx[i], vy[i]] = [speed(), speed()];
        else continue;
        turned.push(i);
      }
      return Uint32Array.from(turned);
    },
    frame(kind, tick, lines) {
      const pick = (values) => Float32Array.from(lines, (line) => values[line]);
      const [px, py, pvx, pvy] = [pick(x), pick(y), pick(vx), pick(vy)];
      return {
        kind,
        tick,
        at: tick * TICK_S,
        count: lines.length,
        is_whole: tick === 0,
        lines,
        x: px,
        y: py,
        rx: new Float32Array(lines.length).fill(REACH[0]),
        ry: new Float32Array(lines.length).fill(REACH[1]),
        vx: (i) => pvx[i],
        vy: (i) => pvy[i],
      };
    },
  };
}
