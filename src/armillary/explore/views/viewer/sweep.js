"use strict";
// The points, what is kept of them, and everything that is not a chart.
const data = JSON.parse(document.getElementById("page-data").textContent);
const at = (id) => document.getElementById(id);

function unpacked(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Kind(bytes.buffer);
}
for (const axis of data.axes) axis.codes = unpacked(axis.codes, Int16Array);
for (const measure of data.measures) measure.values = unpacked(measure.values, Float32Array);
const why = unpacked(data.why, Int16Array);
const pareto = unpacked(data.pareto, Int32Array);
const numbers = unpacked(data.numbers, Int32Array);
const measureOf = Object.fromEntries(data.measures.map((measure) => [measure.name, measure]));
for (const each of data.objectives) if (measureOf[each.name]) measureOf[each.name].better = each.better;
const goal = measureOf[data.objectives[0].name];
const sign = (measure) => (measure.better === "less" ? 1 : -1);

const state = {
  allowed: data.axes.map(() => null), // per axis the codes that are kept; null: all
  ranges: {}, // measure -> [low, high] of what is kept
  reason: null,
  chosen: null, // the point that was clicked
};
let rows = []; // ok rows that are kept, best first
let counted = []; // rows that the chips count: those kept, or those of the reason

// Numbers with units.
function rung(measure, value) {
  const size = Math.abs(value);
  let found = measure.ladder[0];
  for (const step of measure.ladder) {
    if (step[1] === "days" ? size >= 3600 : size >= step[0] * 0.99995) found = step;
  }
  return found;
}
const digits = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
function number(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toPrecision(3);
  return digits.format(value);
}
function shown(measure, value) {
  if (!Number.isFinite(value)) return "-";
  const [scale, unit] = rung(measure, value);
  return `${measure.before}${number(value / scale)}${unit ? " " + unit : ""}`;
}
function scaled(measure) {
  let most = 0;
  for (const value of measure.values) if (Math.abs(value) > most) most = Math.abs(value);
  const [scale, unit] = rung(measure, most);
  return { scale, title: safe(`${measure.title}${unit || measure.before ? ` (${measure.before}${unit})` : ""}`) };
}
const valueText = (axis, row) => (axis.codes[row] < 0 ? "-" : axis.values[axis.codes[row]]);
function described(row) {
  return data.axes.filter((axis) => axis.codes[row] >= 0).map((axis) => `${axis.name} ${valueText(axis, row)}`);
}
function told(row) {
  const lines = data.measures.filter((measure) => Number.isFinite(measure.values[row])).slice(0, 12)
    .map((measure) => safe(`${measure.title} ${shown(measure, measure.values[row])}`));
  return `<b>point ${numbers[row]}</b><br>${described(row).map(safe).join("<br>")}<br><br>${lines.join("<br>")}`;
}

// What is kept.
function keptBy(row, but = -1) {
  for (let i = 0; i < data.axes.length; i++) {
    if (i !== but && state.allowed[i] && !state.allowed[i].has(data.axes[i].codes[row])) return false;
  }
  if (why[row] >= 0) return true; // of what is not ok there are no measures
  for (const [name, [low, high]] of Object.entries(state.ranges)) {
    const value = measureOf[name].values[row];
    if (!(value >= low && value <= high)) return false;
  }
  return true;
}
function better(one, two) {
  if (pareto[one] !== pareto[two]) return pareto[one] - pareto[two];
  const [a, b] = [goal.values[one] * sign(goal), goal.values[two] * sign(goal)];
  return a === b ? numbers[one] - numbers[two] : a - b;
}
const everyOk = [];
for (let row = 0; row < data.count; row++) if (why[row] < 0) everyOk.push(row);
everyOk.sort(better);
function keep() {
  rows = everyOk.filter((row) => keptBy(row));
  counted = everyOk;
  if (state.reason !== null) {
    counted = [];
    for (let row = 0; row < data.count; row++) if (why[row] === state.reason) counted.push(row);
  }
}
function filtered() {
  return state.allowed.some((each) => each) || Object.keys(state.ranges).length || state.reason !== null;
}
function clearFilters() {
  state.allowed.fill(null);
  state.ranges = {};
  state.reason = null;
  changed();
}
function allow(axis, codes) {
  state.allowed[axis] = codes && codes.size && codes.size < data.axes[axis].values.length ? codes : null;
}

// Lists of values and reasons, the table.
function element(kind, text, parent, name) {
  const made = document.createElement(kind);
  if (text !== null) made.textContent = text;
  if (name) made.className = name;
  parent.append(made);
  return made;
}
function drawChips() {
  const root = at("chips");
  root.replaceChildren();
  data.axes.forEach((axis, i) => {
    const count = new Int32Array(axis.values.length);
    for (const row of counted) if (axis.codes[row] >= 0 && keptBy(row, i)) count[axis.codes[row]]++;
    const line = element("div", null, root, "axis");
    element("b", axis.name, line).title = axis.name;
    const all = element("div", null, line);
    axis.values.forEach((value, code) => {
      const on = state.allowed[i] && state.allowed[i].has(code);
      const chip = element("button", value, all, `${on ? "on" : ""} ${count[code] ? "" : "none"}`);
      chip.type = "button";
      element("i", count[code].toLocaleString("en-US"), chip);
      chip.onclick = () => {
        const codes = new Set(state.allowed[i] || []);
        if (!codes.delete(code)) codes.add(code);
        allow(i, codes);
        changed();
      };
    });
  });
  if (data.fixed.length) element("small", `All points: ${data.fixed.join(", ")}`, root);
}
function drawReasons() {
  const root = at("reasons");
  root.replaceChildren();
  if (!data.reasons.length) element("small", "all points are ok", root);
  const most = Math.max(...data.reasons.map((one) => one.count), 1);
  data.reasons.forEach((one, i) => {
    const line = element("div", null, root, state.reason === i ? "on" : "");
    element("div", null, line, "bar").style.width = `${(100 * one.count) / most}%`;
    const text = element("span", null, line);
    element("b", one.count.toLocaleString("en-US"), text);
    text.append(`${letter(i)}  ${one.status}: ${one.text}`);
    line.onclick = () => {
      state.reason = state.reason === i ? null : i;
      changed();
    };
  });
}
const letter = (i) => (i < 26 ? String.fromCharCode(65 + i) : "…");
function columnsShown() {
  const first = data.objectives.map((each) => measureOf[each.name]).filter(Boolean);
  return [...first, ...data.measures.filter((measure) => !first.includes(measure))];
}
function drawTable() {
  const root = at("table");
  root.replaceChildren();
  const table = element("table", null, root);
  const head = element("tr", null, element("thead", null, table));
  const measures = columnsShown();
  const several = data.objectives.length > 1;
  for (const text of ["#", "point", ...(several ? ["front"] : []), ...data.axes.map((axis) => axis.name),
    ...measures.map((measure) => measure.title)]) element("th", text, head);
  const body = element("tbody", null, table);
  rows.slice(0, 20).forEach((row, i) => {
    const line = element("tr", null, body, row === state.chosen ? "on" : "");
    for (const text of [i + 1, numbers[row], ...(several ? [pareto[row] + 1] : []),
      ...data.axes.map((axis) => valueText(axis, row)),
      ...measures.map((measure) => shown(measure, measure.values[row]))]) element("td", text, line);
    line.onclick = () => choose(row);
  });
  if (!rows.length) element("small", "no point that is ok is left", root);
}
function choose(row) {
  state.chosen = row;
  at("around").value = "chosen";
  changed();
}
function saveCsv() {
  const lines = [["point", ...data.axes.map((axis) => axis.name), ...data.measures.map((measure) => measure.name)]];
  for (const row of rows) {
    lines.push([numbers[row], ...data.axes.map((axis) => valueText(axis, row)),
      ...data.measures.map((measure) => (Number.isFinite(measure.values[row]) ? measure.values[row] : ""))]);
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csvText(lines)]));
  link.download = "points.csv";
  link.click();
  URL.revokeObjectURL(link.href);
}
