"use strict";
const G = JSON.parse(document.getElementById("page-data").textContent);
const el = (id) => document.getElementById(id);
const canvas = el("canvas"), pen = canvas.getContext("2d"), panel = el("panel"), tip = el("tip");
const [BW, BH] = G.box;
let view, at, zoom, picked = -1, over = -1, hits = new Set(), width = 0, height = 0, planned = false, fitted = false;
const outer = { camera: null };

// A level is one drawing: a range of boxes and edges of the columns that it shares with other levels.
function level(columns, boxes, edges, size, inside) {
  const into = new Map(), out = new Map();
  for (let e = edges[0]; e < edges[1]; e++) {
    const [a, b] = [columns.src[e], columns.dst[e]];
    if (!out.has(a)) out.set(a, []);
    if (!into.has(b)) into.set(b, []);
    out.get(a).push(e);
    into.get(b).push(e);
  }
  return { columns, boxes, edges, size, inside, into, out };
}
const whole = level(G.boxes, [0, G.boxes.x.length], [0, G.boxes.src.length], G.boxes.size[0], -1);

const text = (i) => G.strings[i];
const cut = (s, n) => (s.length > n ? s.slice(0, n - 1) + "…" : s);
function quantity(value, steps) {
  let [scale, unit] = steps[0];
  for (const step of steps) if (value >= step[0]) [scale, unit] = step;
  return `${Number((value / scale).toPrecision(4)).toLocaleString("en")} ${unit}`;
}
const time = (ns) => quantity(ns, [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]]);
const bytes = (n) => quantity(n, [[1, "B"], [2 ** 10, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"], [2 ** 40, "TiB"]]);

const count = (b) => (view.inside < 0 && G.boxes.count ? G.boxes.count[b] : 1);
const isNode = () => view.inside >= 0 || !G.boxes.count;
function summary(b) {
  const c = view.columns, parts = [];
  if (count(b) > 1) parts.push(`×${count(b).toLocaleString("en")}`);
  if (c.ns[b]) parts.push(time(c.ns[b]));
  if (c.bytes[b]) parts.push(bytes(c.bytes[b]));
  return parts.join(" · ");
}
function facts(b) {
  const c = view.columns, rows = [["kind", G.kinds[c.kind[b]]]];
  const n = isNode() ? b : G.boxes.only[b];
  if (count(b) > 1) rows.push(["nodes", count(b).toLocaleString("en")]);
  if (c.ns[b]) rows.push([count(b) > 1 ? "total time" : "duration", time(c.ns[b])]);
  if (c.bytes[b]) rows.push(["bytes", bytes(c.bytes[b])]);
  const known = isNode() ? c : G.members;
  if (!known || n < 0) return rows;
  rows.splice(1, 0, ["id", known.id[n]]);
  if (known.start && known.start[n] !== null) rows.push(["start", time(known.start[n])]);
  const attrs = known.attrs[n];
  for (let i = 0; i < attrs.length; i += 2) {
    const value = attrs[i + 1];
    rows.push([text(attrs[i]), Array.isArray(value) ? text(value[0]) : String(value)]);
  }
  return rows;
}
const name = (b) => text(isNode() ? view.columns.name[b] : view.columns.label[b]);

function resize() {
  const ratio = window.devicePixelRatio || 1;
  width = canvas.clientWidth;
  height = canvas.clientHeight;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  if (fitted) fit();
  plan();
}
function fit() {
  const [w, h] = view.size, room = width - (panel.hidden ? 0 : 340);
  zoom = Math.min(room / (w + 40), height / (h + 40), 1.6);
  at = [(room / zoom - w) / 2, (height / zoom - h) / 2];
  fitted = true;
  plan();
}
function show(next, camera) {
  view = next;
  picked = over = -1;
  hits = new Set();
  panel.hidden = true;
  el("back").hidden = view.inside < 0;
  const n = view.boxes[1] - view.boxes[0];
  el("about").textContent = view.inside < 0 ? G.about
    : `${text(G.boxes.label[view.inside])}: ${n.toLocaleString("en")} nodes`;
  fitted = false;
  if (camera) [at, zoom] = camera;
  else fit();
  search();
  plan();
}
function open(b) {
  if (view.inside >= 0 || !G.members || count(b) < 2) return;
  outer.camera = [at, zoom];
  const m = G.members;
  show(level(m, [m.ptr[b], m.ptr[b + 1]], [m.edge_ptr[b], m.edge_ptr[b + 1]], m.size[b], b));
}
const leave = () => (view.inside >= 0 ? show(whole, outer.camera) : pick(-1));

function plan() {
  if (!planned) requestAnimationFrame(draw);
  planned = true;
}
function path(e) {
  const c = view.columns, [a, b] = [c.src[e], c.dst[e]], end = c.y[b] - BH / 2;
  let x = c.x[a], y = c.y[a] + BH / 2;
  pen.moveTo(x, y);
  if (c.left[a] !== c.left[b]) {
    const gap = c.left[b] + 6 + (e % 8) * 3, turn = 16;
    pen.bezierCurveTo(x, y + turn, gap, y + turn / 2, gap, y + (end > y ? turn : -turn));
    pen.lineTo(gap, end - (end > y ? 2 * turn : -turn));
    pen.bezierCurveTo(gap, end - turn, c.x[b], end - turn, c.x[b], end);
    return [c.x[b], end];
  }
  const step = (x2, y2) => {
    const lift = y2 > y ? (y2 - y) / 2 : Math.min(60, 20 + (y - y2) / 6);
    pen.bezierCurveTo(x, y + lift, x2, y2 - lift, x2, y2);
    [x, y] = [x2, y2];
  };
  for (let i = c.bend_ptr[e]; i < c.bend_ptr[e + 1]; i++) step(c.bends[2 * i], c.bends[2 * i + 1]);
  step(c.x[b], end);
  return [x, y];
}
// An edge over many rows that has no bends runs through boxes.
function straight(e) {
  const c = view.columns;
  return c.left[c.src[e]] !== c.left[c.dst[e]] ||
    (c.bend_ptr[e] === c.bend_ptr[e + 1] && c.y[c.dst[e]] - c.y[c.src[e]] > 4 * BH);
}
function drawEdges(edges, colour, alpha, line) {
  const c = view.columns;
  pen.globalAlpha = alpha;
  pen.strokeStyle = colour;
  for (const dashed of [false, true]) {
    pen.setLineDash(dashed ? [5, 4] : []);
    pen.lineWidth = line;
    pen.beginPath();
    const heads = [];
    for (const e of edges) if ((c.flag[e] & 3) === 2 === dashed) heads.push(path(e));
    pen.stroke();
    if (zoom > 0.3) {
      pen.fillStyle = colour;
      pen.beginPath();
      for (const [x, y] of heads) {
        pen.moveTo(x, y);
        pen.lineTo(x - 3.5, y - 7);
        pen.lineTo(x + 3.5, y - 7);
      }
      pen.fill();
    }
  }
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}
function draw() {
  planned = false;
  const c = view.columns, [ox, oy] = at;
  pen.clearRect(0, 0, width, height);
  pen.save();
  pen.scale(zoom, zoom);
  pen.translate(ox, oy);
  const [x0, y0, x1, y1] = [-ox - BW, -oy - BH, -ox + width / zoom + BW, -oy + height / zoom + BH];
  const wanted = (el("data").checked ? 1 : 0) | (el("ctrl").checked ? 2 : 0);
  const near = [], far = [], fans = [], back = [];
  for (let e = view.edges[0]; e < view.edges[1]; e++) {
    if (!(c.flag[e] & wanted)) continue;
    const [a, b] = [c.src[e], c.dst[e]];
    if (Math.max(c.x[a], c.x[b]) < x0 || Math.min(c.x[a], c.x[b]) > x1) continue;
    if (Math.max(c.y[a], c.y[b]) < y0 || Math.min(c.y[a], c.y[b]) > y1) continue;
    if (c.flag[e] & 4) back.push(e);
    else if (Math.max(view.out.get(a).length, view.into.get(b).length) > 12) fans.push(e);
    else if (straight(e)) far.push(e);
    else near.push(e);
  }
  const focus = picked >= 0, hair = Math.max(0.9, 0.6 / zoom), many = Math.min(1, 900 / (far.length + back.length + 1));
  drawEdges(fans, "#7a8aa0", (focus ? 0.05 : 0.15) * Math.min(1, 1500 / (fans.length + 1)), hair);
  drawEdges(far, "#7a8aa0", (focus ? 0.1 : 0.4) * many, hair);
  drawEdges(back, "#e69f00", (focus ? 0.12 : 0.4) * many, hair);
  drawEdges(near, "#5b6b80", focus ? 0.18 : 0.65, hair);
  const friends = new Set();
  if (focus) {
    const into = view.into.get(picked) || [], out = view.out.get(picked) || [];
    drawEdges(into, "#0072b2", 0.9, 1.6 * hair);
    drawEdges(out, "#d55e00", 0.9, 1.6 * hair);
    into.forEach((e) => friends.add(c.src[e]));
    out.forEach((e) => friends.add(c.dst[e]));
  }
  const legible = zoom > 0.42;
  const large = Math.min(24, 8 / zoom);
  pen.font = `${legible ? 11 : large}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  for (let b = view.boxes[0]; b < view.boxes[1]; b++) {
    const [x, y] = [c.x[b] - BW / 2, c.y[b] - BH / 2];
    if (x > x1 || x + BW < x0 || y > y1 || y + BH < y0) continue;
    const colour = G.colours[c.kind[b]];
    pen.globalAlpha = focus && b !== picked && !friends.has(b) ? 0.35 : 1;
    pen.fillStyle = legible ? "#fff" : colour;
    pen.fillRect(x, y, BW, BH);
    if (legible) {
      pen.fillStyle = colour + "22";
      pen.fillRect(x, y, BW, BH);
      pen.fillStyle = colour;
      pen.fillRect(x, y, 5, BH);
      if (view.most) pen.fillRect(x + 5, y + BH - 2.5, (BW - 5) * (c.ns[b] / view.most), 2.5);
      const below = summary(b);
      pen.fillStyle = "#111";
      pen.fillText(cut(text(c.label[b]), 28), x + 11, y + (below ? 11 : BH / 2), BW - 15);
      pen.fillStyle = "#555";
      if (below) pen.fillText(below, x + 11, y + 23.5, BW - 15);
    }
    if (!legible && zoom > 0.2) {
      pen.fillStyle = "#fff";
      pen.fillText(cut(text(c.label[b]), Math.floor(300 / large)), x + 4, y + BH / 2, BW - 8);
    }
    if (b === picked || b === over || hits.has(b)) {
      pen.strokeStyle = b === picked ? "#111" : hits.has(b) ? "#d55e00" : "#666";
      pen.lineWidth = Math.max(1.5, (hits.has(b) ? 3 : 1.5) / zoom);
      pen.strokeRect(x, y, BW, BH);
    } else if (legible) {
      pen.strokeStyle = colour;
      pen.lineWidth = count(b) > 1 ? 1.6 : 0.7;
      pen.strokeRect(x, y, BW, BH);
    }
  }
  pen.restore();
}

function under(event) {
  const box = canvas.getBoundingClientRect(), c = view.columns;
  const [x, y] = [(event.clientX - box.left) / zoom - at[0], (event.clientY - box.top) / zoom - at[1]];
  for (let b = view.boxes[0]; b < view.boxes[1]; b++)
    if (Math.abs(c.x[b] - x) <= BW / 2 && Math.abs(c.y[b] - y) <= BH / 2) return b;
  return -1;
}
function add(parent, tag, content) {
  const made = parent.appendChild(document.createElement(tag));
  if (content !== undefined) made.textContent = content;
  return made;
}
function pick(b, centre) {
  picked = b;
  panel.hidden = b < 0;
  panel.replaceChildren();
  plan();
  if (b < 0) return;
  const c = view.columns;
  add(panel, "h2", name(b));
  if (view.inside < 0 && G.members && count(b) > 1) add(panel, "button", `look inside ${count(b).toLocaleString("en")} nodes`).onclick = () => open(b);
  const table = add(panel, "table");
  for (const [key, value] of facts(b)) {
    const row = add(table, "tr");
    add(row, "td", key);
    add(row, "td", value);
  }
  for (const [title, edges, end] of [["waits for", view.into.get(b) || [], c.src], ["needed by", view.out.get(b) || [], c.dst]]) {
    add(panel, "h3", `${title} (${edges.length})`);
    for (const e of edges.slice(0, 60)) {
      const how = ["", "data", "control", "data, control"][c.flag[e] & 3], many = c.weight && c.weight[e] > 1 ? ` ×${c.weight[e]}` : "";
      add(panel, "a", `${text(c.label[end[e]])} (${how}${many})`).onclick = () => pick(end[e], true);
    }
    if (edges.length > 60) add(panel, "div", `and ${edges.length - 60} more`);
  }
  if (centre) {
    fitted = false;
    zoom = Math.max(zoom, 0.8);
    at = [(width - 340) / 2 / zoom - c.x[b], height / 2 / zoom - c.y[b]];
  }
}
let turn = 0;
function search(next) {
  const wanted = el("search").value.trim().toLowerCase();
  hits = new Set();
  if (wanted) {
    for (let b = view.boxes[0]; b < view.boxes[1]; b++) {
      const id = isNode() ? String(view.columns.id[b]) : "";
      if (name(b).toLowerCase().includes(wanted) || id === wanted) hits.add(b);
    }
  }
  el("found").textContent = wanted ? `${hits.size} found` : "";
  if (next && hits.size) pick([...hits][turn++ % hits.size], true);
  plan();
}

let grip = null;
canvas.onpointerdown = (event) => {
  grip = [event.clientX, event.clientY, ...at, false];
  canvas.setPointerCapture(event.pointerId);
};
canvas.onpointermove = (event) => {
  if (grip) {
    const [x, y, ax, ay] = grip;
    if (Math.hypot(event.clientX - x, event.clientY - y) > 3) grip[4] = true;
    if (grip[4]) fitted = false;
    if (grip[4]) at = [ax + (event.clientX - x) / zoom, ay + (event.clientY - y) / zoom];
    canvas.classList.toggle("moving", grip[4]);
    tip.hidden = true;
    plan();
    return;
  }
  const b = under(event);
  if (b !== over) {
    over = b;
    plan();
  }
  tip.hidden = b < 0;
  if (b < 0) return;
  tip.textContent = [cut(name(b), 240), ...facts(b).slice(0, 14).map(([key, value]) => `${key}: ${cut(String(value), 90)}`)].join("\n");
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  tip.style.left = `${Math.max(0, Math.min(x + 14, width - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(0, Math.min(y + 14, height - tip.offsetHeight - 8))}px`;
};
canvas.onpointerup = (event) => {
  if (grip && !grip[4]) pick(under(event));
  grip = null;
  canvas.classList.remove("moving");
};
canvas.onpointerleave = () => (tip.hidden = true);
canvas.ondblclick = (event) => {
  const b = under(event);
  if (b >= 0) open(b);
};
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const box = canvas.getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const next = Math.min(6, Math.max(0.005, zoom * Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015))));
  at = [at[0] + x / next - x / zoom, at[1] + y / next - y / zoom];
  zoom = next;
  fitted = false;
  plan();
}, { passive: false });
el("data").onchange = el("ctrl").onchange = plan;
el("search").oninput = () => {
  turn = 0;
  search();
};
el("search").onkeydown = (event) => event.key === "Enter" && search(true);
el("fit").onclick = fit;
el("back").onclick = leave;
onkeydown = (event) => event.key === "Escape" && leave();
onresize = resize;

el("title").textContent = el("title").title = G.title;
for (const [kind, n] of G.legend) {
  const item = add(el("legend"), "span");
  add(item, "i").style.background = G.colours[kind];
  item.append(`${G.kinds[kind]} ${n.toLocaleString("en")}`);
}
resize();
whole.most = G.boxes.ns.reduce((a, b) => Math.max(a, b), 0);
show(whole);
// A link such as graph.html#inside=3 or #node=7 opens that box; so do tests.
const [, verb, which] = /^#(inside|node)=(\d+)$/.exec(location.hash) || [];
if (verb === "inside") open(Number(which));
if (verb === "node") pick(Number(which), true);
