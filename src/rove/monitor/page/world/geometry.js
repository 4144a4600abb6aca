/**
 * The map as triangles and lines, made once for each world.
 *
 * Walls are polygons that need not be convex. They are cut by taking off ears: quadratic in the
 * corners of one wall, of which there are few, and forty lines where a library would be a thousand.
 */

/**
 * @typedef {object} Scene
 * @property {Float32Array} ground triangles
 * @property {Float32Array} roads triangles
 * @property {Float32Array} walls triangles
 * @property {Float32Array} wallEdges lines
 * @property {Float32Array} tileEdges lines
 * @property {Float32Array} regionEdges lines
 */

/**
 * @param {any} world what /api/world answers
 * @returns {Scene}
 */
export function sceneOf(world) {
  const { width, height, walls, roads, tiles } = world.map;
  return {
    ground: new Float32Array(box(0, 0, width, height)),
    roads: new Float32Array(roads.flatMap(roadTriangles)),
    walls: new Float32Array(walls.flatMap(polygonTriangles)),
    wallEdges: new Float32Array([[[0, 0], [width, 0], [width, height], [0, height]], ...walls].flatMap(outline)),
    tileEdges: tileLines(tiles),
    regionEdges: new Float32Array(world.regions.length > 1 ? world.regions.flatMap(regionOutline) : []),
  };
}

/** Two triangles. */
export function box(x0, y0, x1, y1) {
  return [x0, y0, x1, y0, x1, y1, x0, y0, x1, y1, x0, y1];
}

/**
 * The triangles of a polygon, as a flat list of coordinates.
 * @param {number[][]} corners in either direction
 * @returns {number[]}
 */
export function polygonTriangles(corners) {
  const left = isCounterClockwise(corners) ? [...corners] : [...corners].reverse();
  const triangles = [];
  while (left.length > 3) {
    const ear = left.findIndex((_, i) => isEar(left, i));
    const at = Math.max(0, ear); // a polygon that touches itself has none: any corner does
    triangles.push(...before(left, at), ...left[at], ...after(left, at));
    left.splice(at, 1);
  }
  return left.length === 3 ? [...triangles, ...left.flat()] : triangles;
}

const before = (corners, i) => corners[(i + corners.length - 1) % corners.length];
const after = (corners, i) => corners[(i + 1) % corners.length];
const turn = ([ax, ay], [bx, by], [cx, cy]) => (bx - ax) * (cy - ay) - (by - ay) * (cx - ax);

function isCounterClockwise(corners) {
  return corners.reduce((sum, [x, y], i) => sum + x * after(corners, i)[1] - after(corners, i)[0] * y, 0) > 0;
}

function isEar(corners, i) {
  const [a, b, c] = [before(corners, i), corners[i], after(corners, i)];
  if (turn(a, b, c) <= 0) return false;
  return !corners.some((point) => point !== a && point !== b && point !== c && isInside(point, a, b, c));
}

function isInside(point, a, b, c) {
  return turn(a, b, point) >= 0 && turn(b, c, point) >= 0 && turn(c, a, point) >= 0;
}

/** A broad line, with a square cap so that bends have no gaps. */
function roadTriangles({ points, width }) {
  const half = width / 2;
  return points.slice(1).flatMap(([x1, y1], i) => {
    const [x0, y0] = points[i];
    const length = Math.hypot(x1 - x0, y1 - y0) || 1;
    const [ux, uy] = [((x1 - x0) / length) * half, ((y1 - y0) / length) * half];
    const corners = [
      [x0 - ux + uy, y0 - uy - ux],
      [x1 + ux + uy, y1 + uy - ux],
      [x1 + ux - uy, y1 + uy + ux],
      [x0 - ux - uy, y0 - uy + ux],
    ];
    return [...corners[0], ...corners[1], ...corners[2], ...corners[0], ...corners[2], ...corners[3]];
  });
}

function outline(corners) {
  return corners.flatMap((corner, i) => [...corner, ...after(corners, i)]);
}

const regionOutline = ({ x0, y0, x1, y1 }) => outline([[x0, y0], [x1, y0], [x1, y1], [x0, y1]]);

/** Each edge once, although two tiles have it. */
function tileLines(tiles) {
  const seen = new Set();
  const lines = [];
  for (const [x1, y1, x2, y2, x3, y3] of tiles) {
    for (const [ax, ay, bx, by] of [[x1, y1, x2, y2], [x2, y2, x3, y3], [x3, y3, x1, y1]]) {
      const is_forward = ax < bx || (ax === bx && ay < by);
      const key = is_forward ? `${ax},${ay},${bx},${by}` : `${bx},${by},${ax},${ay}`;
      if (seen.has(key)) continue;
      seen.add(key);
      lines.push(ax, ay, bx, by);
    }
  }
  return new Float32Array(lines);
}

/**
 * The tile in which a point is; -1 for none. Some 0.1 ms for 30,000 tiles, which is asked a few
 * times a second.
 * @param {number[][]} tiles
 */
export function tileAt(tiles, x, y) {
  const point = [x, y];
  return tiles.findIndex(([x1, y1, x2, y2, x3, y3]) => {
    if (Math.min(x1, x2, x3) > x || Math.max(x1, x2, x3) < x) return false;
    const [a, b, c] = [[x1, y1], [x2, y2], [x3, y3]];
    return isInside(point, a, b, c) || isInside(point, c, b, a);
  });
}

/** The region in which a point is. */
export function regionAt(regions, x, y) {
  return regions.find(({ x0, y0, x1, y1 }) => x >= x0 && x <= x1 && y >= y0 && y <= y1) ?? null;
}
