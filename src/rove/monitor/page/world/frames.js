/**
 * The binary messages of the live connection, as views into their own memory: nothing is copied.
 * What stands where is described in the server's `rove.monitor.motion_frames`.
 */

export const WHOLE = 1;
export const LEGS = 2;
export const AREAS = 3;
const HEADER_BYTES = 24;
const MM = 1000;

/**
 * @typedef {object} Frame
 * @property {number} kind WHOLE, LEGS or AREAS
 * @property {number} tick
 * @property {number} at seconds since the world began
 * @property {number} count
 * @property {boolean} is_whole whether everything that is not in it is gone
 * @property {Uint32Array} [lines] numbers of entities, or of clients
 * @property {Float32Array} x
 * @property {Float32Array} y
 * @property {(i: number) => number} vx metres a second
 * @property {(i: number) => number} vy
 * @property {Float32Array} [rx]
 * @property {Float32Array} [ry]
 */

/**
 * @param {ArrayBuffer} buffer
 * @returns {Frame}
 */
export function decode(buffer) {
  const head = new DataView(buffer, 0, HEADER_BYTES);
  const count = head.getUint32(16, true);
  const frame = {
    kind: head.getUint32(0, true),
    tick: head.getUint32(4, true),
    at: head.getFloat64(8, true),
    count,
    is_whole: head.getUint32(20, true) !== 0,
  };
  let offset = HEADER_BYTES;
  const column = (Type) => {
    const values = new Type(buffer, offset, count);
    offset += Math.ceil((count * Type.BYTES_PER_ELEMENT) / 4) * 4;
    return values;
  };
  if (frame.kind === WHOLE) {
    const [x, y, vx, vy] = [column(Float32Array), column(Float32Array), column(Float32Array), column(Float32Array)];
    return { ...frame, x, y, vx: (i) => vx[i], vy: (i) => vy[i] };
  }
  const lines = column(Uint32Array);
  if (frame.kind === LEGS) {
    const [x, y, vx, vy] = [column(Float32Array), column(Float32Array), column(Int16Array), column(Int16Array)];
    return { ...frame, lines, x, y, vx: (i) => vx[i] / MM, vy: (i) => vy[i] / MM };
  }
  if (frame.kind !== AREAS) throw new Error(`there is no frame of kind ${frame.kind}`);
  const [x, y, rx, ry, vx, vy] = Array.from({ length: 6 }, () => column(Float32Array));
  return { ...frame, lines, x, y, rx, ry, vx: (i) => vx[i], vy: (i) => vy[i] };
}
