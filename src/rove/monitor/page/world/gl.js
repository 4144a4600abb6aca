/**
 * The renderer: WebGL2, everything in buffers, a handful of draw calls for each frame.
 *
 * Measured goal: at most a millisecond of the page's own time for 10,000 dots and 1,000 rectangles.
 * A scene graph library was not considered: it would be larger than all of the page.
 */
import { BOX_FLOATS } from "./boxes.js";
import { DOT_FLOATS } from "./dots.js";
import {
  BOX_FRAGMENT,
  BOX_VERTEX,
  DOT_FRAGMENT,
  DOT_VERTEX,
  FLAT_FRAGMENT,
  FLAT_VERTEX,
  KINDS_MAX,
  STYLES_MAX,
} from "./shaders.js";

const FLOAT_BYTES = 4;
const STATIC = ["ground", "roads", "walls", "wallEdges", "tileEdges", "regionEdges"];

export class GlRenderer {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {() => void} onLost called when the graphics card has taken the context away
   */
  constructor(canvas, onLost) {
    const gl = canvas.getContext("webgl2", { alpha: false, antialias: true, powerPreference: "high-performance" });
    if (gl === null) throw new Error("this browser has no WebGL2");
    canvas.addEventListener("webglcontextlost", (event) => {
      event.preventDefault();
      onLost();
    });
    this.name = "webgl2";
    this.canvas = canvas;
    this.gl = gl;
    this.flat = program(gl, FLAT_VERTEX, FLAT_FRAGMENT);
    this.dot = program(gl, DOT_VERTEX, DOT_FRAGMENT);
    this.box = program(gl, BOX_VERTEX, BOX_FRAGMENT);
    this.meshes = new Map();
    this.stores = new Map();
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  /** @param {import("./geometry.js").Scene} scene */
  setScene(scene) {
    for (const name of STATIC) this.#setMesh(name, scene[name], null);
  }

  /**
   * Triangles with a colour for each corner: heat, and tiles that are listened to.
   * @param {string} name
   * @param {Float32Array} corners
   * @param {Uint8Array} colours four bytes for each corner
   */
  setPatches(name, corners, colours) {
    this.#setMesh(name, corners, colours);
  }

  #setMesh(name, corners, colours) {
    const { gl } = this;
    let mesh = this.meshes.get(name);
    if (mesh === undefined) {
      mesh = { array: gl.createVertexArray(), corners: gl.createBuffer(), colours: colours && gl.createBuffer(), count: 0 };
      this.meshes.set(name, mesh);
      gl.bindVertexArray(mesh.array);
      attribute(gl, mesh.corners, 0, 2, 0, 0);
      if (colours) {
        gl.bindBuffer(gl.ARRAY_BUFFER, mesh.colours);
        gl.enableVertexAttribArray(1);
        gl.vertexAttribPointer(1, 4, gl.UNSIGNED_BYTE, true, 0, 0);
      }
    }
    mesh.count = corners.length / 2;
    gl.bindBuffer(gl.ARRAY_BUFFER, mesh.corners);
    gl.bufferData(gl.ARRAY_BUFFER, corners, gl.DYNAMIC_DRAW);
    if (colours) {
      gl.bindBuffer(gl.ARRAY_BUFFER, mesh.colours);
      gl.bufferData(gl.ARRAY_BUFFER, colours, gl.DYNAMIC_DRAW);
    }
  }

  /** @param {import("./palette.js").Palette} palette */
  setPalette(palette) {
    const { gl } = this;
    this.palette = palette;
    gl.useProgram(this.dot.program);
    gl.uniform4fv(this.dot.at("u_colours[0]"), flattened(palette.kinds.map(premultiplied), KINDS_MAX));
    gl.uniform4fv(this.dot.at("u_halo"), premultiplied(palette.ground));
    gl.uniform4fv(this.dot.at("u_ring"), premultiplied(palette.ring));
    gl.uniform4fv(this.dot.at("u_heard"), premultiplied(palette.heard));
    gl.useProgram(this.box.program);
    const dashes = palette.styles.map(({ dash }) => [0, 1, 2, 3].map((i) => (dash[i] ?? 0) * devicePixelRatio));
    gl.uniform4fv(this.box.at("u_colours[0]"), flattened(palette.styles.map(({ colour }) => colour), STYLES_MAX));
    gl.uniform4fv(this.box.at("u_dashes[0]"), flattened(dashes, STYLES_MAX));
    const widths = palette.styles.map(({ width_px, fill }) => [width_px * devicePixelRatio, fill]);
    gl.uniform2fv(this.box.at("u_widths[0]"), flattened(widths, STYLES_MAX, 2));
  }

  /** @param {import("./map.js").Shown} shown */
  draw(shown) {
    const { gl, palette } = this;
    const { camera, layers } = shown;
    const clip = camera.clip();
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(...palette.outside);
    gl.clear(gl.COLOR_BUFFER_BIT);
    gl.useProgram(this.flat.program);
    gl.uniform4fv(this.flat.at("u_clip"), clip);
    this.#mesh("ground", palette.ground, gl.TRIANGLES);
    this.#mesh("roads", palette.road, gl.TRIANGLES);
    if (layers.heat) this.#mesh("heat", null, gl.TRIANGLES);
    if (layers.tiles) this.#mesh("tileEdges", palette.tile, gl.LINES);
    if (layers.heardTiles) this.#mesh("heardTiles", null, gl.TRIANGLES);
    this.#mesh("walls", palette.wall, gl.TRIANGLES);
    this.#mesh("wallEdges", palette.wallEdge, gl.LINES);
    if (layers.regions) this.#mesh("regionEdges", palette.region, gl.LINES);
    if (layers.areas) this.#boxes("areas", shown.areas, shown, clip);
    this.#dots(shown, clip);
    if (layers.heardAreas) this.#boxes("listening", shown.listening, shown, clip);
    gl.bindVertexArray(null);
  }

  #mesh(name, colour, mode) {
    const mesh = this.meshes.get(name);
    if (mesh === undefined || mesh.count === 0) return;
    const { gl } = this;
    gl.bindVertexArray(mesh.array);
    if (colour !== null) gl.vertexAttrib4fv(1, colour);
    gl.drawArrays(mode, 0, mesh.count);
  }

  #dots(shown, clip) {
    const { gl } = this;
    const { dots } = shown;
    if (!dots.is_known || dots.count === 0) return;
    const store = this.#store("dots", dots, DOT_FLOATS, (buffer, stride) => {
      attribute(gl, buffer, 0, 4, stride, 0);
      attribute(gl, buffer, 1, 1, stride, 4 * FLOAT_BYTES);
      attribute(gl, buffer, 2, 4, stride, 5 * FLOAT_BYTES);
      attribute(gl, buffer, 3, 1, stride, 9 * FLOAT_BYTES);
      gl.enableVertexAttribArray(4);
      gl.vertexAttribIPointer(4, 4, gl.UNSIGNED_BYTE, stride, 10 * FLOAT_BYTES);
    });
    gl.useProgram(this.dot.program);
    gl.uniform4fv(this.dot.at("u_clip"), clip);
    gl.uniform1f(this.dot.at("u_now"), shown.at - dots.base_s);
    gl.uniform1f(this.dot.at("u_radius"), shown.dot_px * devicePixelRatio);
    gl.uniform1f(this.dot.at("u_margin"), 5 * devicePixelRatio);
    gl.bindVertexArray(store.array);
    gl.drawArrays(gl.POINTS, 0, dots.count);
  }

  #boxes(name, boxes, shown, clip) {
    if (boxes.count === 0) return;
    const { gl, canvas } = this;
    const store = this.#store(name, boxes, BOX_FLOATS, (buffer, stride) => {
      attribute(gl, buffer, 0, 4, stride, 0);
      attribute(gl, buffer, 1, 4, stride, 4 * FLOAT_BYTES);
      gl.vertexAttribDivisor(0, 1);
      gl.vertexAttribDivisor(1, 1);
    });
    gl.useProgram(this.box.program);
    gl.uniform4fv(this.box.at("u_clip"), clip);
    gl.uniform2f(this.box.at("u_size"), canvas.width, canvas.height);
    gl.uniform1f(this.box.at("u_scale"), shown.camera.scale * devicePixelRatio);
    gl.uniform1f(this.box.at("u_now"), shown.at - boxes.base_s);
    gl.bindVertexArray(store.array);
    gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, boxes.count);
  }

  /** The buffer of something that moves, with what has changed since the last frame. */
  #store(name, things, floats, describe) {
    const { gl } = this;
    let store = this.stores.get(name);
    if (store?.data !== things.data) {
      if (store !== undefined) this.#forget(store);
      store = { array: gl.createVertexArray(), buffer: gl.createBuffer(), data: things.data };
      this.stores.set(name, store);
      gl.bindVertexArray(store.array);
      gl.bindBuffer(gl.ARRAY_BUFFER, store.buffer);
      gl.bufferData(gl.ARRAY_BUFFER, things.data, gl.DYNAMIC_DRAW);
      describe(store.buffer, floats * FLOAT_BYTES);
      things.pages.flush(() => {});
      return store;
    }
    gl.bindBuffer(gl.ARRAY_BUFFER, store.buffer);
    things.pages.flush((first, end) => {
      gl.bufferSubData(gl.ARRAY_BUFFER, first * floats * FLOAT_BYTES, things.data, first * floats, (end - first) * floats);
    });
    return store;
  }

  #forget(store) {
    this.gl.deleteBuffer(store.buffer);
    this.gl.deleteVertexArray(store.array);
  }

  /** Give everything back. */
  dispose() {
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
    this.canvas.remove();
  }
}

function attribute(gl, buffer, location, size, stride, offset) {
  gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
  gl.enableVertexAttribArray(location);
  gl.vertexAttribPointer(location, size, gl.FLOAT, false, stride, offset);
}

function program(gl, vertex, fragment) {
  const made = gl.createProgram();
  for (const [type, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(made, shader);
  }
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS)) throw new Error(`a shader does not link: ${gl.getProgramInfoLog(made)}`);
  const places = new Map();
  const at = (name) => {
    if (!places.has(name)) places.set(name, gl.getUniformLocation(made, name));
    return places.get(name);
  };
  return { program: made, at };
}

function premultiplied([r, g, b, a]) {
  return [r * a, g * a, b * a, a];
}

function flattened(rows, count, width = 4) {
  const flat = new Float32Array(count * width);
  rows.slice(0, count).forEach((row, i) => flat.set(row, i * width));
  return flat;
}
