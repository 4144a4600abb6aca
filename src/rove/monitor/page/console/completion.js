/**
 * Completion and history of the console's line, without any drawing: what the keys do to the text.
 */

const HISTORY_MAX = 200;

/**
 * The text with its last, unfinished word replaced.
 * @param {string} text
 * @param {string} word
 * @returns {string}
 */
export function completed(text, word) {
  return text.replace(/[^\s,]*$/, "") + word;
}

/**
 * What all words begin with.
 * @param {string[]} words
 * @returns {string}
 */
export function commonStart(words) {
  let start = words[0] ?? "";
  for (const word of words) {
    while (!word.startsWith(start)) start = start.slice(0, -1);
  }
  return start;
}

/**
 * The history with a line more: no line twice in a row, and not without end.
 * @param {string[]} history
 * @param {string} line
 * @returns {string[]}
 */
export function remembered(history, line) {
  return history.at(-1) === line ? history : [...history, line].slice(-HISTORY_MAX);
}

/**
 * Back and forth in the history. `at` counts from the end: 0 is the line that is being written.
 * @param {string[]} history
 * @param {{at: number, draft: string}} place
 * @param {string} text what stands in the line now
 * @param {1 | -1} step 1 is further back
 * @returns {{at: number, draft: string, text: string}}
 */
export function recalled(history, place, text, step) {
  const draft = place.at === 0 ? text : place.draft;
  const at = Math.min(history.length, Math.max(0, place.at + step));
  return { at, draft, text: at === 0 ? draft : history[history.length - at] };
}
