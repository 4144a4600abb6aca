/**
 * A chart as a file: PNG for a letter, CSV for a spreadsheet.
 *
 * The picture is the canvas of the chart with what stands around it on the page: the title, what the
 * lines are, the background (a transparent picture is unreadable in somebody else's dark window).
 * CSV begins cells that a spreadsheet would take for a formula with an apostrophe: names of lines may
 * come from clients.
 */
const MARGIN = 16;
const TITLE_FONT = "600 16px system-ui, sans-serif";
const LEGEND_FONT = "12px system-ui, sans-serif";
const LEGEND_HEIGHT = 22;
const KEY_WIDTH = 34;
const KEY_GAP = 18;

/**
 * Save bytes under a name.
 * @param {Blob} blob
 * @param {string} name
 */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/**
 * A file name of what people call the chart.
 * @param {string} title
 * @param {string} ending
 */
export function fileName(title, ending) {
  const plain = title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-").replaceAll(/^-|-$/g, "");
  return `rove-${plain || "chart"}.${ending}`;
}

/**
 * @param {{x: number[], values: (number | null | undefined)[][]}} data
 * @param {{name: string}[]} lines
 * @param {string} unit
 * @returns {string}
 */
export function csvOf({ x, values }, lines, unit) {
  const head = ["time", "seconds since 1970", ...lines.map((line) => `${line.name} (${unit})`)];
  const rows = x.map((at, i) => [
    new Date(at * 1000).toISOString(),
    at.toFixed(3),
    ...values.map((column) => column[i] ?? ""),
  ]);
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function cell(value) {
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * A picture of a chart with title, legend and background.
 * @param {HTMLCanvasElement} canvas of the chart
 * @param {{title: string, lines: import("./plot.js").Line[], ink: string, paper: string}} about
 * @returns {Promise<Blob>}
 */
export function pngOf(canvas, { title, lines, ink, paper }) {
  const ratio = canvas.width / canvas.clientWidth;
  const picture = document.createElement("canvas");
  const rows = legendRows(lines.filter((one) => one.is_shown), canvas.clientWidth);
  const head = MARGIN + 24 + LEGEND_HEIGHT * rows.length;
  picture.width = canvas.width + 2 * MARGIN * ratio;
  picture.height = canvas.height + (head + MARGIN) * ratio;
  const context = picture.getContext("2d");
  context.fillStyle = paper;
  context.fillRect(0, 0, picture.width, picture.height);
  context.drawImage(canvas, MARGIN * ratio, head * ratio);
  context.scale(ratio, ratio);
  context.textBaseline = "middle";
  context.fillStyle = ink;
  context.font = TITLE_FONT;
  context.fillText(title, MARGIN, MARGIN + 8);
  rows.forEach((row, i) => drawLegend(context, row, MARGIN + 24 + LEGEND_HEIGHT * (i + 0.5), ink));
  return new Promise((resolve) => picture.toBlob(resolve, "image/png"));
}

/** As many lines in a row as there is room for. */
function legendRows(lines, width) {
  const context = document.createElement("canvas").getContext("2d");
  context.font = LEGEND_FONT;
  const rows = [[]];
  let used = 0;
  for (const line of lines) {
    const needed = KEY_WIDTH + context.measureText(line.label).width + KEY_GAP;
    if (used + needed > width && rows.at(-1).length > 0) {
      rows.push([]);
      used = 0;
    }
    rows.at(-1).push(line);
    used += needed;
  }
  return rows;
}

function drawLegend(context, lines, y, ink) {
  let x = MARGIN;
  context.font = LEGEND_FONT;
  for (const line of lines) {
    context.strokeStyle = line.colour;
    context.lineWidth = line.width;
    context.setLineDash(line.dash);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + 28, y);
    context.stroke();
    context.fillStyle = ink;
    context.fillText(line.label, x + KEY_WIDTH, y);
    x += KEY_WIDTH + context.measureText(line.label).width + KEY_GAP;
  }
  context.setLineDash([]);
}
