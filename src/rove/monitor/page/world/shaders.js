/**
 * What runs on the graphics card: where things are now, and what shape they have.
 *
 * Legs and rectangles lie in buffers; the present place is computed for each frame from the time,
 * so that ten thousand moving dots cost the page's own thread nothing.
 */

/** As many styles of rectangles as there may be at once. */
export const STYLES_MAX = 16;
export const KINDS_MAX = 5;

export const FLAT_VERTEX = `#version 300 es
layout(location = 0) in vec2 a_at;
layout(location = 1) in vec4 a_colour;
uniform vec4 u_clip;
out vec4 v_colour;
void main() {
  gl_Position = vec4(a_at * u_clip.xy + u_clip.zw, 0.0, 1.0);
  v_colour = vec4(a_colour.rgb * a_colour.a, a_colour.a);
}`;

export const FLAT_FRAGMENT = `#version 300 es
precision mediump float;
in vec4 v_colour;
out vec4 colour;
void main() { colour = v_colour; }`;

export const DOT_VERTEX = `#version 300 es
layout(location = 0) in vec4 a_leg;
layout(location = 1) in float a_since;
layout(location = 2) in vec4 a_old;
layout(location = 3) in float a_old_since;
layout(location = 4) in uvec4 a_look;
uniform vec4 u_clip;
uniform float u_now;
uniform float u_radius;
uniform float u_margin;
uniform vec4 u_colours[${KINDS_MAX}];
flat out int v_kind;
flat out uint v_flags;
flat out float v_radius;
flat out float v_half;
flat out vec4 v_colour;
void main() {
  bool is_old = u_now < a_since;
  vec4 leg = is_old ? a_old : a_leg;
  float since = is_old ? a_old_since : a_since;
  vec2 at = leg.xy + leg.zw * (u_now - since);
  v_kind = int(a_look.x);
  v_flags = a_look.y;
  v_colour = u_colours[min(v_kind, ${KINDS_MAX - 1})];
  v_radius = u_radius * (v_kind == 0 || v_kind == 3 ? 1.0 : 0.85);
  v_half = v_radius + (v_flags == 0u ? 1.5 : u_margin);
  gl_Position = vec4(at * u_clip.xy + u_clip.zw, 0.0, 1.0);
  gl_PointSize = 2.0 * v_half;
}`;

/** Circle, triangle, diamond, square, plus; a ring for those that are heard or selected. */
export const DOT_FRAGMENT = `#version 300 es
precision mediump float;
flat in int v_kind;
flat in uint v_flags;
flat in float v_radius;
flat in float v_half;
flat in vec4 v_colour;
uniform vec4 u_halo;
uniform vec4 u_ring;
uniform vec4 u_heard;
out vec4 colour;
float box(vec2 p, vec2 half_) { vec2 d = abs(p) - half_; return max(d.x, d.y); }
float shape(vec2 p, float r) {
  if (v_kind == 1) return max(dot(p, vec2(0.866, -0.5)), max(dot(p, vec2(-0.866, -0.5)), p.y)) - r * 0.62;
  if (v_kind == 2) return (abs(p.x) + abs(p.y) - r * 1.15) * 0.707;
  if (v_kind == 3) return box(p, vec2(r * 0.88));
  if (v_kind == 4) return min(box(p, vec2(r, r * 0.36)), box(p, vec2(r * 0.36, r)));
  return length(p) - r;
}
void main() {
  vec2 p = (gl_PointCoord * 2.0 - 1.0) * v_half;
  float d = shape(p, v_radius);
  float dot_ = clamp(0.5 - d, 0.0, 1.0);
  float halo = v_radius < 2.5 ? 0.0 : clamp(1.5 - d, 0.0, 1.0) * (1.0 - dot_);
  vec4 found = v_colour * dot_ + u_halo * halo * 0.8;
  if (v_flags != 0u) {
    bool is_selected = (v_flags & 2u) != 0u;
    float ring = clamp((is_selected ? 1.6 : 1.1) - abs(length(p) - (v_half - 2.0)), 0.0, 1.0);
    found = mix(found, is_selected ? u_ring : u_heard, ring);
  }
  if (found.a < 0.01) discard;
  colour = found;
}`;

export const BOX_VERTEX = `#version 300 es
layout(location = 0) in vec4 a_box;
layout(location = 1) in vec4 a_move;
uniform vec4 u_clip;
uniform vec2 u_size;
uniform float u_scale;
uniform float u_now;
out vec2 v_at;
flat out vec2 v_half;
flat out int v_style;
void main() {
  vec2 corner = vec2(float(gl_VertexID & 1), float(gl_VertexID >> 1)) * 2.0 - 1.0;
  vec2 centre = a_box.xy + a_move.xy * (u_now - a_move.z);
  v_half = a_box.zw * u_scale;
  v_at = corner * (v_half + 3.0);
  v_style = int(a_move.w);
  vec2 at = centre * u_clip.xy + u_clip.zw + v_at * 2.0 / u_size;
  gl_Position = a_box.z > 0.0 ? vec4(at, 0.0, 1.0) : vec4(2.0, 2.0, 0.0, 1.0);
}`;

/** A dashed outline of a pixel or two, and a breath of colour inside. */
export const BOX_FRAGMENT = `#version 300 es
precision highp float;
in vec2 v_at;
flat in vec2 v_half;
flat in int v_style;
uniform vec4 u_colours[${STYLES_MAX}];
uniform vec4 u_dashes[${STYLES_MAX}];
uniform vec2 u_widths[${STYLES_MAX}];
out vec4 colour;
void main() {
  vec2 inside = v_half - abs(v_at);
  float edge = min(inside.x, inside.y);
  vec4 dash = u_dashes[v_style];
  float total = dash.x + dash.y + dash.z + dash.w;
  float along = inside.x < inside.y ? v_at.y + v_half.y : v_at.x + v_half.x;
  float part = total > 0.0 ? mod(along, total) : 0.0;
  bool is_on = total == 0.0 || part < dash.x || (part >= dash.x + dash.y && part < dash.x + dash.y + dash.z);
  vec2 width = u_widths[v_style];
  float line = is_on ? clamp(width.x * 0.5 + 0.5 - abs(edge), 0.0, 1.0) : 0.0;
  float fill = edge > 0.0 ? width.y : 0.0;
  float alpha = max(line, fill) * u_colours[v_style].a;
  if (alpha < 0.004) discard;
  colour = vec4(u_colours[v_style].rgb * alpha, alpha);
}`;
