"use strict";
const data = JSON.parse(document.getElementById("page-data").textContent);
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9"];
const POINTS = 2000, ROWS = 200; // what is drawn and listed at most
const FONT = { family: 'system-ui, "DejaVu Sans", sans-serif', size: 11, color: "#333" };

const number = (value, unit = "") =>
  value === null ? "–" : `${Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 })} ${unit}`.trim();
const percent = (value, sign = false) =>
  value === null ? "–" : `${sign && value > 0 ? "+" : ""}${(100 * value).toFixed(1)} %`;
const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

function make(tag, text = "", kind = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
function tableOf(header, lines, left = 1) {
  const table = make("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  header.forEach((name, i) => head.append(make("th", name, i < left ? "left" : "")));
  for (const { cells, kind } of lines) {
    const row = body.insertRow();
    row.className = kind || "";
    cells.forEach((cell, i) => {
      const place = row.insertCell();
      place.append(cell);
      if (i < left) place.className = "left";
    });
  }
  return table;
}

function summaryLine(table, part) {
  const errors = table.errors;
  const name = part ? make("span", table.name) : make("a", table.name);
  if (!part) name.href = `#${table.name}`;
  name.title = table.title;
  const rows = errors.refused ? `${errors.rows.toLocaleString("en")} of ${table.n.toLocaleString("en")}` : errors.rows.toLocaleString("en");
  const cells = [
    name, table.relation, rows, percent(errors.mean), percent(errors.worst), percent(errors.median),
    errors.rank === null ? "–" : errors.rank.toFixed(3), percent(errors.bias, true), percent(errors.within), percent(errors.held),
    table.bars.join(", ") || "–", make("span", table.verdict, table.verdict),
  ];
  return { cells, kind: part ? "part" : "" };
}

function drawSummary() {
  const header = ["table", "relation", "rows", "mean", "worst", "median", "rank", "bias", `within ${100 * data.near} %`, "in interval", "bar", "verdict"];
  const lines = data.tables.flatMap((table) => [summaryLine(table, false), ...table.parts.map((part) => summaryLine(part, true))]);
  document.getElementById("summary").append(tableOf(header, lines, 2));
  const count = (word) => data.tables.flatMap((table) => [table, ...table.parts]).filter((one) => one.verdict === word).length;
  document.getElementById("status").textContent =
    `${plural(data.tables.length, "table")}: ${["met", "missed", "shown"].map((word) => `${count(word)} ${word}`).join(", ")} with their parts`;
  for (const text of data.skipped) document.getElementById("skipped").append(make("div", `skipped ${text}`));
}

class View {
  constructor(table) {
    this.table = table;
    this.rows = table.rows;
    this.group = null;
    this.by = "error";
    this.down = true;
    this.listed = ROWS;
    this.seen = false;
    this.ratio = false;
    this.names = Object.keys(table.groups);
    const section = make("section");
    section.id = table.name;
    const title = make("h2", `${table.name} `);
    this.turned = make("button", "show errors");
    this.turned.addEventListener("click", () => this.turn());
    title.append(make("small", `${table.title} `), this.turned);
    this.chips = make("div", "", "chips");
    this.chart = make("div", "", "chart");
    this.drawn = make("div", "", "source");
    this.list = make("div", "", "scroll");
    // What scrolls can be reached by keys.
    for (const [name, value] of [["tabindex", "0"], ["role", "region"], ["aria-label", `Rows of ${table.name}`]]) this.list.setAttribute(name, value);
    this.left = make("div", "", "source");
    const two = make("div", "", "two"), one = make("div"), other = make("div");
    one.append(this.chart, this.drawn);
    other.append(this.list, this.left);
    two.append(one, other);
    section.append(title, make("div", `${table.relation}; from ${table.source}`, "source"));
    if (this.names.length > 1) section.append(this.chips);
    section.append(two, this.texts());
    document.getElementById("tables").append(section);
    this.show();
  }

  texts() {
    const list = make("ul");
    for (const [reason, count] of Object.entries(this.table.refused)) {
      list.append(make("li", `${plural(count, "row")} refused: ${reason}`, "refused"));
    }
    for (const note of this.table.notes) list.append(make("li", note));
    return list;
  }

  chosen() {
    return this.rows.label.map((_, i) => i).filter((i) => this.group === null || this.rows.group[i] === this.group);
  }

  show() {
    const chip = (text, group, error) => {
      const button = make("button", text, this.group === group ? "on" : "");
      button.append(make("i", error));
      button.addEventListener("click", () => { this.group = group; this.listed = ROWS; this.show(); });
      return button;
    };
    this.chips.replaceChildren(
      chip("all", null, percent(this.table.errors.mean)),
      ...this.names.map((name) => chip(name || "no group", name, percent(this.table.groups[name].mean))),
    );
    this.drawChart();
    this.drawRows(this.chosen());
  }

  turn() {
    this.ratio = !this.ratio;
    this.turned.textContent = this.ratio ? "show predicted" : "show errors";
    this.drawChart();
  }

  drawChart() {
    if (!this.seen) return;
    const known = this.chosen().filter((i) => this.rows.predicted[i] !== null);
    // Rows come worst first: those, and an even choice of the others.
    const worst = POINTS / 4, step = Math.max(1, Math.ceil((known.length - worst) / (POINTS - worst)));
    const points = known.length <= POINTS ? known : known.filter((_, at) => at < worst || at % step === 0);
    this.drawn.textContent = points.length < known.length
      ? `${points.length.toLocaleString("en")} of ${plural(known.length, "point")} drawn: the ${worst} worst, and 1 of ${step} others` : "";
    if (!known.length) { Plotly.purge(this.chart); this.chart.textContent = "all rows are refused"; return; }
    if (!this.chart.data) this.chart.replaceChildren();
    const { measured, predicted, low, high, label, error, group } = this.rows;
    let [least, most] = [Infinity, 0];
    for (const i of known) {
      least = Math.min(least, measured[i], predicted[i]);
      most = Math.max(most, measured[i], predicted[i]);
    }
    const at = (i, value) => (this.ratio ? value / measured[i] - 1 : value);
    const ends = [least / 1.15, most * 1.15], near = data.near, unit = this.table.unit;
    const line = (factor, more) => ({
      x: ends, y: ends.map((end) => (this.ratio ? factor - 1 : end * factor)), mode: "lines", hoverinfo: "skip", showlegend: false,
      line: { color: "#999", width: factor === 1 ? 1 : 0 }, ...more,
    });
    const many = this.names.length > COLOURS.length;
    const names = many || this.group !== null ? [null] : this.names;
    const clouds = names.map((name) => {
      const mine = name === null ? points : points.filter((i) => group[i] === name);
      const stated = mine.some((i) => low[i] !== null);
      return {
        x: mine.map((i) => measured[i]), y: mine.map((i) => at(i, predicted[i])), mode: "markers", name: safe(name || "rows"),
        marker: { size: known.length > 300 ? 4 : 7, opacity: 0.7, color: COLOURS[many ? 0 : Math.max(0, this.names.indexOf(name ?? this.group))] },
        text: mine.map((i) => `${safe(label[i])}<br>measured ${safe(number(measured[i], unit))}<br>predicted ${safe(number(predicted[i], unit))} (${percent(error[i], true)})`),
        hoverinfo: "text",
        error_y: stated ? {
          type: "data", symmetric: false, width: 0, thickness: 1,
          array: mine.map((i) => (high[i] === null ? 0 : at(i, high[i]) - at(i, predicted[i]))),
          arrayminus: mine.map((i) => (low[i] === null ? 0 : at(i, predicted[i]) - at(i, low[i]))),
        } : undefined,
      };
    });
    const axis = (title) => ({
      type: "log", title: { text: safe(`${title}, ${unit}`) }, range: ends.map(Math.log10), automargin: true, zeroline: false,
      dtick: most > 50 * least ? 1 : most > 3 * least ? "D1" : undefined, exponentformat: "none", separatethousands: true, gridcolor: "#eee",
    });
    const far = (i) => Math.max(...[predicted[i], low[i], high[i]].map((value) => Math.abs((value ?? measured[i]) / measured[i] - 1)));
    const off = 1.1 * Math.max(near, ...points.map(far));
    const errors = { title: { text: "error" }, range: [-off, off], tickformat: "+.0%", automargin: true, gridcolor: "#eee" };
    Plotly.react(
      this.chart,
      [line(1 - near), line(1 + near, { fill: "tonexty", fillcolor: "#0000001a" }), line(1), ...clouds],
      {
        font: FONT, margin: { l: 60, r: 10, t: 10, b: 45 }, xaxis: axis("measured"), yaxis: this.ratio ? errors : axis("predicted"), hovermode: "closest",
        showlegend: clouds.length > 1, legend: { itemsizing: "constant", x: 0.01, y: 0.99, bgcolor: "#ffffffb0" },
      },
      { displaylogo: false, responsive: true, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] },
    );
  }

  drawRows(rows) {
    const { label, group, measured, predicted, low, high, error, reason } = this.rows, unit = this.table.unit;
    const size = (i) => (error[i] === null ? -1 : Math.abs(error[i]));
    const key = {
      row: (i) => label[i], group: (i) => group[i], measured: (i) => measured[i], predicted: (i) => predicted[i] ?? -1, error: size,
    }[this.by];
    const order = (a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0);
    const sorted = [...rows].sort((a, b) => (this.down ? order(b, a) : order(a, b)) || a - b);
    const intervals = low.some((value) => value !== null), grouped = this.names.length > 1;
    const lines = sorted.slice(0, this.listed).map((i) => ({
      cells: [
        label[i], ...(grouped ? [group[i]] : []), number(measured[i], unit), predicted[i] === null ? "refused" : number(predicted[i], unit),
        ...(intervals ? [low[i] === null ? "" : `${number(low[i])} … ${number(high[i])}`] : []),
        predicted[i] === null ? reason[i] : percent(error[i], true),
      ],
      kind: predicted[i] === null ? "refused" : "",
    }));
    const names = ["row", ...(grouped ? ["group"] : []), "measured", "predicted", ...(intervals ? ["interval"] : []), "error"];
    const table = tableOf(names, lines, grouped ? 2 : 1);
    for (const head of table.tHead.rows[0].cells) {
      const name = head.textContent;
      if (name === "interval") continue;
      head.classList.add("sort");
      if (name === this.by) head.textContent = `${name} ${this.down ? "▾" : "▴"}`;
      head.addEventListener("click", () => {
        this.down = name === this.by ? !this.down : name !== "row" && name !== "group";
        this.by = name;
        this.drawRows(rows);
      });
    }
    this.list.replaceChildren(table);
    this.left.replaceChildren();
    if (rows.length > this.listed) {
      const more = make("button", "more");
      more.addEventListener("click", () => { this.listed *= 4; this.drawRows(rows); });
      this.left.append(`${this.listed} of ${plural(rows.length, "row")} `, more);
    }
  }
}

drawSummary();
// Charts are made as they come near the window: a page of many opens at once.
const views = new Map(data.tables.map((table) => new View(table)).map((view) => [view.chart, view]));
const seen = new IntersectionObserver((entries) => {
  for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
    seen.unobserve(target);
    views.get(target).seen = true;
    views.get(target).drawChart();
  }
}, { rootMargin: "800px" });
for (const chart of views.keys()) seen.observe(chart);
