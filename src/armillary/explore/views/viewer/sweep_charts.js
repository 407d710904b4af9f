// The charts: each is drawn anew from `rows` when what is kept has changed.
const BLUE = "#0072B2", RED = "#D55E00", ORANGE = "#E69F00", FAINT = "#d3d3d3", GREY = "#555";
const QUIET = {
  displaylogo: false, responsive: true, doubleClick: false,
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "select2d", "resetScale2d"]],
};
const BARE = { displayModeBar: false, displaylogo: false, responsive: true };
const FONT = { family: 'system-ui, "DejaVu Sans", sans-serif', size: 11, color: "#333" };
const webgl = (() => {
  try { return Boolean(document.createElement("canvas").getContext("webgl")); } catch { return false; }
})();
const POINTS = webgl ? "scattergl" : "scatter";
const measureAt = (id) => measureOf[at(id).value];
const LINES = 1500, STRIP = 1500; // what is drawn at most: lines over all axes, points of each chart by axis
const spread = Float32Array.from({ length: data.count }, (_, i) => ((i * 0.6180339887) % 1) - 0.5);

function ends(measure, chosen) {
  let [low, high] = [Infinity, -Infinity];
  for (const row of chosen) {
    const value = measure.values[row];
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}
function wide(measure, times) {
  const [low, high] = ends(measure, everyOk);
  return low > 0 && high > times * low;
}
function scaleOf(measure) {
  const { scale, title } = scaled(measure);
  const axis = { title: { text: title }, type: wide(measure, 12) ? "log" : "linear", automargin: true, zeroline: false };
  if (axis.type === "log") {
    const [low, high] = ends(measure, everyOk).map((value) => value / scale);
    const steps = high > 300 * low ? [1] : [1, 2, 5];
    axis.tickvals = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
      axis.tickvals.push(...steps.map((step) => step * 10 ** power));
    }
    axis.ticktext = axis.tickvals.map(number);
  }
  return { scale, axis };
}

function drawScatter() {
  const x = measureAt("across"), y = measureAt("up");
  const sx = scaleOf(x), sy = scaleOf(y);
  const inside = new Set(rows);
  const points = (chosen, marker, name) => ({
    type: POINTS, mode: "markers", name, marker, customdata: chosen,
    x: chosen.map((row) => x.values[row] / sx.scale), y: chosen.map((row) => y.values[row] / sy.scale),
    hoverinfo: "none",
  });
  const traces = [
    { ...points(everyOk.filter((row) => !inside.has(row)), { size: 3, color: FAINT }, "filtered out"), hoverinfo: "skip" },
    points(rows, { size: 5, color: BLUE, opacity: 0.45 }, "kept"),
  ];
  const front = frontOf(x, y);
  traces.push({ ...points(front, { size: 7, color: RED }, "Pareto front"), mode: "lines+markers", line: { color: RED, width: 1.5, shape: sign(x) > 0 ? "hv" : "vh" }, type: "scatter" });
  if (state.chosen !== null) traces.push({ ...points([state.chosen], { size: 13, color: "rgba(0,0,0,0)", line: { color: "#000", width: 2 } }, "clicked"), type: "scatter" });
  Plotly.react("scatter", traces, {
    xaxis: sx.axis, yaxis: sy.axis, dragmode: "select", hovermode: "closest", font: FONT, uirevision: x.name + y.name,
    margin: { l: 60, r: 14, t: 8, b: 44 }, legend: { orientation: "h", y: 1.0, yanchor: "bottom", x: 0 },
    selections: [],
  }, QUIET);
}
function frontOf(x, y) {
  const cost = (measure, row) => measure.values[row] * sign(measure);
  const known = rows.filter((row) => Number.isFinite(x.values[row]) && Number.isFinite(y.values[row]));
  known.sort((a, b) => cost(x, a) - cost(x, b) || cost(y, a) - cost(y, b));
  let least = Infinity;
  const found = known.filter((row) => cost(y, row) < least && ((least = cost(y, row)), true));
  return sign(x) > 0 ? found : found.reverse();
}

function drawHeat() {
  if (data.axes.length < 2) return;
  const measure = measureAt("of"), ix = Number(at("heat-x").value), iy = Number(at("heat-y").value);
  const [x, y] = [data.axes[ix], data.axes[iy]];
  const best = y.values.map(() => Array(x.values.length).fill(-1));
  for (const row of rows) {
    const [i, j] = [y.codes[row], x.codes[row]];
    if (i < 0 || j < 0) continue;
    const old = best[i][j];
    if (old < 0 || measure.values[row] * sign(measure) < measure.values[old] * sign(measure)) best[i][j] = row;
  }
  const { scale, title } = scaled(measure);
  const log = wide(measure, 5);
  const level = (row) => (row < 0 ? null : log ? Math.log10(measure.values[row]) : measure.values[row] / scale);
  const z = best.map((line) => line.map(level));
  const few = x.values.length * y.values.length <= 64;
  const { none, text, empty } = blockedCells(ix, iy, best);
  const flat = z.flat().filter((value) => value !== null);
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => Math.min(...flat) + share * (Math.max(...flat) - Math.min(...flat)));
  const across = x.values.map((_, i) => i), up = y.values.map((_, i) => i);
  const traces = [
    { type: "heatmap", x: across, y: up, z: none, colorscale: [[0, "#ececec"], [1, "#ececec"]], showscale: false, hoverinfo: "none", customdata: empty,
      text, texttemplate: "%{text}", textfont: { color: "#777" }, xgap: 1, ygap: 1 },
    { type: "heatmap", x: across, y: up, z, colorscale: "Viridis", reversescale: measure.better === "more", hoverinfo: "none", customdata: best, xgap: 1, ygap: 1,
      text: best.map((line) => line.map((row) => (row < 0 ? "" : safe(shown(measure, Number(measure.values[row].toPrecision(3))))))),
      texttemplate: few ? "%{text}" : "", textfont: { size: 10 },
      colorbar: { thickness: 12, outlinewidth: 0, title: { text: title, side: "right" }, tickvals: ticks,
        ticktext: ticks.map((value) => number(Number((log ? 10 ** value / scale : value).toPrecision(3)))) } },
  ];
  const marks = (axis) => ({
    title: { text: safe(axis.name) }, tickvals: axis.values.map((_, i) => i).filter((i) => i % Math.ceil(axis.values.length / 12) === 0),
    ticktext: axis.values.filter((_, i) => i % Math.ceil(axis.values.length / 12) === 0).map(safe), automargin: true, showgrid: false, zeroline: false, ticks: "",
    range: [-0.5, axis.values.length - 0.5],
  });
  Plotly.react("heat", traces, { xaxis: marks(x), yaxis: marks(y), font: FONT, margin: { l: 60, r: 8, t: 12, b: 44 }, dragmode: false }, BARE);
}
function blockedCells(ix, iy, best) {
  const [x, y] = [data.axes[ix], data.axes[iy]];
  const counts = new Map();
  for (let row = 0; row < data.count; row++) {
    const [i, j] = [y.codes[row], x.codes[row]];
    if (why[row] < 0 || i < 0 || j < 0 || best[i][j] >= 0 || !keptByAxes(row)) continue;
    const cell = i * x.values.length + j;
    if (!counts.has(cell)) counts.set(cell, new Map());
    const mine = counts.get(cell);
    mine.set(why[row], (mine.get(why[row]) || 0) + 1);
  }
  const grid = (make) => best.map((line, i) => line.map((_, j) => make(counts.get(i * x.values.length + j))));
  const first = (mine) => [...mine.entries()].sort((a, b) => b[1] - a[1]);
  return {
    none: grid((mine) => (mine ? 1 : null)),
    text: grid((mine) => (mine ? letter(first(mine)[0][0]) : "")),
    empty: grid((mine) => (mine ? "no point is ok<br>" + first(mine).slice(0, 4)
      .map(([reason, count]) => `${count.toLocaleString("en-US")} ${safe((data.reasons[reason] || { status: "other", text: "" }).status + ": " + (data.reasons[reason] || { text: "" }).text)}`).join("<br>") : "")),
  };
}
function keptByAxes(row) {
  return data.axes.every((axis, i) => !state.allowed[i] || state.allowed[i].has(axis.codes[row]));
}

let parallelMeasures = [], drawnRanges = [];
const measureBrushes = () => at("parallel").data[0].dimensions.slice(data.axes.length).map((each) => JSON.stringify(each.constraintrange || null));
function drawParallel() {
  if (!data.axes.length) return;
  if (!webgl) {
    at("parallel").textContent = "This chart needs WebGL, which this browser has not.";
    return;
  }
  parallelMeasures = data.objectives.map((each) => measureOf[each.name]).filter(Boolean);
  const place = new Map(everyOk.map((row, i) => [row, i]));
  const byGoal = [...everyOk].sort((a, b) => (goal.values[a] - goal.values[b]) * sign(goal));
  byGoal.forEach((row, i) => place.set(row, i / Math.max(everyOk.length - 1, 1)));
  // A line costs more than a point: what is kept comes first.
  const inside = new Set(rows), others = everyOk.filter((row) => !inside.has(row));
  const lines = [...some(rows, LINES - Math.min(others.length, LINES / 5)), ...some(others, LINES / 5)];
  at("lines").textContent = lines.length < everyOk.length ? `; ${lines.length.toLocaleString("en-US")} of ${everyOk.length.toLocaleString("en-US")} lines are drawn` : "";
  const level = lines.map((row) => 1 - place.get(row));
  const dimensions = data.axes.map((axis, i) => {
    const step = Math.ceil(axis.values.length / 14);
    const codes = axis.values.map((_, code) => code).filter((code) => code % step === 0);
    const kept = state.allowed[i];
    const open = lines.some((row) => axis.codes[row] < 0);
    return {
      label: safe(axis.name), range: [open ? -1.3 : -0.4, axis.values.length - 0.6], tickvals: [...(open ? [-1] : []), ...codes],
      ticktext: [...(open ? ["not varied"] : []), ...codes.map((code) => cut(axis.values[code]))],
      values: lines.map((row) => axis.codes[row] + 0.5 * (place.get(row) - 0.5) * (axis.codes[row] < 0 ? 0 : 1)),
      constraintrange: kept ? [...kept].sort((a, b) => a - b).map((code) => [code - 0.3, code + 0.3]) : undefined, multiselect: true,
    };
  });
  for (const measure of parallelMeasures) {
    const log = wide(measure, 5), turn = (value) => (log ? Math.log(value) : value);
    const [low, high] = ends(measure, everyOk).map(turn);
    // A brush snaps to the ticks: many of them, few with a text.
    const ticks = Array.from({ length: 41 }, (_, i) => low + (i / 40) * (high - low));
    const range = state.ranges[measure.name];
    dimensions.push({
      label: safe(measure.title), values: lines.map((row) => turn(measure.values[row])), range: [low, high], multiselect: false, tickvals: ticks,
      ticktext: ticks.map((value, i) => (i % 10 ? "\u200b".repeat(i) : shown(measure, Number((log ? Math.exp(value) : value).toPrecision(3))))),
      constraintrange: range ? range.map((value) => Math.min(Math.max(turn(value), low), high)) : undefined,
    });
  }
  Plotly.react("parallel", [{ type: "parcoords", dimensions, line: { color: level, colorscale: "Viridis", reversescale: true, cmin: 0, cmax: 1 },
    unselected: { line: { color: "#ccc" } }, labelangle: at("parallel").clientWidth < 90 * dimensions.length ? -20 : 0, labelfont: { size: 12 }, tickfont: { size: 10 } }],
  { font: FONT, margin: { l: 70, r: 70, t: 46, b: 16 } }, BARE);
  drawnRanges = measureBrushes();
}
const cut = (text) => (text.length > 14 ? `${text.slice(0, 13)}…` : text);
// Plotly reads markup in every text but at the ticks of parallel axes.
const short = (text) => safe(cut(text));
function brushed() {
  // The chart keeps its own brushes: read them all, so that both say the same.
  const dimensions = at("parallel").data[0].dimensions;
  data.axes.forEach((axis, i) => {
    const given = dimensions[i].constraintrange;
    if (!given || !given.length) return allow(i, null);
    const parts = Array.isArray(given[0]) ? given : [given];
    const codes = new Set(axis.values.map((_, code) => code).filter((code) => parts.some(([a, b]) => a <= code + 0.26 && b >= code - 0.26)));
    if (parts.some(([a]) => a <= -1)) codes.add(-1);
    allow(i, codes);
  });
  const now = measureBrushes();
  parallelMeasures.forEach((measure, i) => {
    if (now[i] === drawnRanges[i]) return;
    const given = dimensions[data.axes.length + i].constraintrange;
    if (given && given.length) state.ranges[measure.name] = wide(measure, 5) ? given.map(Math.exp) : [...given];
    else delete state.ranges[measure.name];
  });
  drawnRanges = now;
  changed("parallel");
}

function basePoint() {
  const how = at("around").value;
  if (how === "chosen" && state.chosen !== null) return state.chosen;
  if (how !== "median") return rows.length ? rows[0] : -1;
  const sorted = [...rows].sort((a, b) => (goal.values[a] - goal.values[b]) * sign(goal));
  return sorted.length ? sorted[Math.floor((sorted.length - 1) / 2)] : -1;
}
function drawTornado() {
  const base = basePoint();
  at("base").textContent = base < 0 ? "" : `point ${numbers[base]}: ${described(base).join(", ")}: ${shown(goal, goal.values[base])}`;
  const found = base < 0 ? [] : data.axes.map((axis, i) => swing(base, i)).filter(Boolean);
  const span = (one) => Math.abs(goal.values[one.high] - goal.values[one.low]);
  found.sort((a, b) => span(a) - span(b));
  const { scale, title } = scaled(goal);
  const middle = base < 0 ? 0 : goal.values[base] / scale;
  const percent = (row) => `${row === base ? "" : (100 * (goal.values[row] / goal.values[base] - 1)).toLocaleString("en-US", { maximumSignificantDigits: 3, signDisplay: "always" }) + " %"}`;
  const side = (pick, color, name) => ({
    type: "bar", orientation: "h", name, base: middle, marker: { color }, hoverinfo: "none", customdata: found.map((one) => one[pick]),
    y: found.map((one) => `${short(one.axis.name)} = ${short(valueText(one.axis, base))}`), x: found.map((one) => goal.values[one[pick]] / scale - middle),
    text: found.map((one) => (one[pick] === base ? "" : `${short(valueText(one.axis, one[pick]))} ${percent(one[pick])}`)), textposition: "outside", cliponaxis: false, textfont: { size: 10 },
  });
  const all = found.flatMap((one) => [one.low, one.high]).map((row) => goal.values[row] / scale).concat(middle);
  const room = Math.max(...all) - Math.min(...all) || Math.abs(middle) || 1;
  Plotly.react("tornado", [side("low", BLUE, "better"), side("high", ORANGE, "worse")], {
    barmode: "overlay", height: 90 + 38 * Math.max(found.length, 2), font: FONT, margin: { l: 120, r: 20, t: 8, b: 40 },
    xaxis: { title: { text: title }, range: [Math.min(...all) - 0.35 * room, Math.max(...all) + 0.35 * room], zeroline: false, automargin: true }, yaxis: { automargin: true },
    shapes: [{ type: "line", x0: middle, x1: middle, y0: 0, y1: 1, yref: "paper", line: { color: GREY, width: 1 } }],
    legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0 }, bargap: 0.35,
  }, BARE);
}
function swing(base, moved) {
  const axis = data.axes[moved];
  if (axis.codes[base] < 0) return null;
  let [low, high] = [base, base];
  for (const row of everyOk) {
    if (axis.codes[row] < 0) continue;
    if (axis.codes[row] === axis.codes[base] && row !== base) continue;
    const alone = data.axes.every((other, i) => i === moved || other.codes[row] === other.codes[base] || other.codes[row] < 0 || other.codes[base] < 0);
    if (!alone) continue;
    if (goal.values[row] * sign(goal) < goal.values[low] * sign(goal)) low = row;
    if (goal.values[row] * sign(goal) > goal.values[high] * sign(goal)) high = row;
  }
  return { axis, low, high };
}

function some(list, count) {
  const step = Math.max(1, list.length / count);
  return Array.from({ length: Math.min(list.length, Math.floor(count)) }, (_, i) => list[Math.floor(i * step)]);
}

function drawStrips() {
  const across = Math.min(data.axes.length, at("strips").clientWidth > 800 ? 4 : 2);
  const lines = Math.ceil(data.axes.length / across);
  const { scale, axis: vertical } = scaleOf(goal);
  const drawn = some(rows, STRIP);
  const traces = [], layout = {
    grid: { rows: lines, columns: across, pattern: "independent", xgap: 0.1, ygap: 0.42 }, height: 60 + 220 * lines, showlegend: false, font: FONT,
    margin: { l: 64, r: 10, t: 28, b: 40 }, hovermode: "closest",
  };
  data.axes.forEach((axis, i) => {
    const ending = i ? String(i + 1) : "";
    const mine = drawn.filter((row) => axis.codes[row] >= 0);
    traces.push({ type: POINTS, mode: "markers", xaxis: `x${ending}`, yaxis: `y${ending}`, marker: { size: 3, color: BLUE, opacity: 0.35 }, hoverinfo: "none",
      x: mine.map((row) => axis.codes[row] + 0.6 * spread[row]), y: mine.map((row) => goal.values[row] / scale), customdata: mine });
    const best = { x: [], y: [] }, middle = { x: [], y: [] };
    axis.values.forEach((_, code) => {
      const values = rows.filter((row) => axis.codes[row] === code).map((row) => goal.values[row] / scale).sort((a, b) => (a - b) * sign(goal));
      if (!values.length) return;
      best.x.push(code - 0.4, code + 0.4, null);
      best.y.push(values[0], values[0], null);
      const half = values[Math.floor((values.length - 1) / 2)];
      middle.x.push(code - 0.4, code + 0.4, null);
      middle.y.push(half, half, null);
    });
    for (const [line, color] of [[best, RED], [middle, "#000"]]) {
      traces.push({ type: "scatter", mode: "lines", ...line, xaxis: `x${ending}`, yaxis: `y${ending}`, line: { color, width: 2 }, hoverinfo: "skip" });
    }
    const thin = Math.ceil(axis.values.length / 8);
    const codes = axis.values.map((_, code) => code).filter((code) => code % thin === 0);
    const long = codes.reduce((sum, code) => sum + Math.min(axis.values[code].length, 14) + 2, 0) > 28;
    layout[`xaxis${ending}`] = { title: { text: safe(axis.name), standoff: 4 }, tickangle: long ? -25 : 0, tickfont: { size: 10 }, tickvals: codes, ticktext: codes.map((code) => short(axis.values[code])), range: [-0.6, axis.values.length - 0.4], zeroline: false, showgrid: false };
    layout[`yaxis${ending}`] = { ...vertical, title: { text: i % across ? "" : vertical.title.text }, matches: i ? "y" : undefined, automargin: false };
  });
  at("strips-title").innerHTML = `${safe(goal.title)} by axis <small>red: best of a value, black: median${drawn.length < rows.length ? `; ${drawn.length.toLocaleString("en-US")} of ${rows.length.toLocaleString("en-US")} points are drawn` : ""}</small>`;
  Plotly.react("strips", traces, layout, BARE);
}

// What happens when.
let waiting = 0, later = 0;
function changed(by = "") {
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(() => draw(by));
}

function draw(by) {
  keep();
  at("kept").textContent = filtered() ? `${rows.length.toLocaleString("en-US")} of ${everyOk.length.toLocaleString("en-US")} ok points are kept` : "";
  at("clear").disabled = !filtered();
  drawChips();
  drawReasons();
  drawTable();
  if (!everyOk.length) return;
  drawScatter();
  drawHeat();
  clearTimeout(later);
  if (by === "first") drawParallel();
  else if (by !== "parallel") later = setTimeout(drawParallel, 0); // the slowest, after all others
  drawTornado();
  if (data.axes.length) drawStrips();
}

function options(id, entries, chosen) {
  for (const [value, text] of entries) element("option", text, at(id)).value = value;
  at(id).value = chosen;
}

function start() {
  at("title").textContent = data.title;
  at("status").textContent = data.status;
  at("clear").onclick = clearFilters;
  at("csv").onclick = saveCsv;
  const known = columnsShown().map((measure) => [measure.name, measure.title]);
  const second = data.objectives[1] || { name: ["memory", "communication", "mfu"].find((name) => measureOf[name]) || (known[1] || known[0] || [""])[0] };
  if (known.length) {
    options("across", known, goal.name);
    options("up", known, second.name);
    options("of", known, goal.name);
  }
  const axes = data.axes.map((axis, i) => [i, axis.name]);
  options("heat-x", axes, data.heat[0]);
  options("heat-y", axes, data.heat[1]);
  if (data.axes.length < 2) at("heat").closest("section").hidden = true;
  for (const id of ["across", "up", "of", "heat-x", "heat-y", "around"]) at(id).onchange = () => changed();
  draw("first");
  if (everyOk.length) listen();
}

function tip(event) {
  const given = event.points[0].customdata, box = at("tip");
  const row = Array.isArray(given) ? given[0] : given;
  if (row === undefined || row === null || row < 0) return;
  box.innerHTML = typeof row === "string" ? row : told(row);
  box.hidden = false;
  const { clientX, clientY } = event.event;
  box.style.left = `${Math.max(4, Math.min(clientX + 14, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${Math.max(4, Math.min(clientY + 14, innerHeight - box.offsetHeight - 8))}px`;
}

function listen() {
  for (const id of ["scatter", "heat", "tornado", "strips"]) {
    if (!at(id).on) continue;
    at(id).on("plotly_hover", tip);
    at(id).on("plotly_unhover", () => (at("tip").hidden = true));
  }
  at("scatter").on("plotly_selected", (event) => {
    if (!event || !event.range) return;
    for (const [id, key] of [["across", "x"], ["up", "y"]]) {
      const { scale } = scaled(measureAt(id));
      state.ranges[measureAt(id).name] = event.range[key].map((value) => value * scale).sort((a, b) => a - b);
    }
    changed();
  });
  for (const id of ["scatter", "strips", "tornado"]) {
    at(id).on("plotly_click", (event) => choose(Array.isArray(event.points[0].customdata) ? event.points[0].customdata[0] : event.points[0].customdata));
  }
  at("scatter").on("plotly_doubleclick", clearFilters);
  if (data.axes.length > 1) {
    at("heat").on("plotly_click", (event) => {
      const [i, j] = [Number(at("heat-x").value), Number(at("heat-y").value)];
      const { x, y } = event.points[0];
      const again = i !== j && state.allowed[i]?.size === 1 && state.allowed[i].has(x) && state.allowed[j]?.size === 1 && state.allowed[j].has(y);
      allow(i, again ? null : new Set([x]));
      allow(j, again ? null : new Set([y]));
      changed();
    });
  }
  if (webgl && data.axes.length) at("parallel").on("plotly_restyle", brushed);
}
if (goal || !everyOk.length) start();
