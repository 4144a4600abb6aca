/**
 * Console output and what came back, and what happened in the world meanwhile.
 *
 * Kept apart from what draws it: whatever is said anywhere on the page (a click on the map is a
 * command too) and notes of the server end up here, in order. The newest few hundred are kept.
 */
import { cell } from "../app.js";

const LINES_MAX = 400;
const OWN_WITHIN_MS = 5_000;

/**
 * @typedef {object} Line
 * @property {number} key
 * @property {"said" | "ok" | "refused" | "note"} kind
 * @property {string} text
 * @property {string} [about] what a note is about
 * @property {Date} when
 */

/** @param {import("../app.js").App} app */
export function createLog(app) {
  const lines = cell(/** @type {Line[]} */ ([]));
  const own = [];
  let keys = 0;
  const add = (kind, text, about, when = new Date()) => {
    keys += 1;
    const line = { key: keys, kind, text, about, when };
    lines.set([...lines.value, line].slice(-LINES_MAX));
  };
  const isOwn = (text) => {
    const at = own.findIndex((said) => text === said.text || text.startsWith(`${said.text}:`));
    return at >= 0 && performance.now() - own[at].at_ms < OWN_WITHIN_MS;
  };
  const seen = new WeakSet();
  const takeNotes = (notes) => {
    for (const note of notes.filter((one) => !seen.has(one))) {
      seen.add(note);
      const is_answered = (note.kind === "command" || note.kind === "refused") && isOwn(note.text);
      if (!is_answered) add("note", note.text, note.kind, new Date(note.now * 1000));
    }
  };
  const offs = [
    app.cells.said.on(async ({ text, is_quiet, answer }) => {
      own.unshift({ text, at_ms: performance.now() });
      own.length = Math.min(own.length, 20);
      if (!is_quiet) add("said", text);
      try {
        const { ok, text: told } = await answer;
        if (!is_quiet || !ok) add(ok ? "ok" : "refused", told);
      } catch (error) {
        add("refused", error.message);
      }
    }),
    app.cells.notes.on(takeNotes),
  ];
  takeNotes(app.cells.notes.value);
  return { lines, clear: () => lines.set([]), stop: () => offs.forEach((off) => off()) };
}
