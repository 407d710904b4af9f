// The blocks of a page, as report/page/blocks.py makes them, and how each is drawn.
import { chart, axis, tooltip } from "../shared/charts";
import { cssColour, seriesColour } from "../shared/colours";
import { element } from "../shared/element";
import { count, digits, percent, rate, size, ticks, time } from "../shared/numbers";
import { longBody } from "../shared/rows";
import { timeline } from "../shared/timeline";
import type { Packed } from "../shared/tracks";

type Holds = "text" | "time" | "size" | "rate" | "share" | "count" | "number";
type Cell = string | number | null;

export type Block =
  | { kind: "headline"; value: string; lines: string[]; alarm: string; notes: string[] }
  | { kind: "bars"; title: string; parts: { key: string; title: string }[]; rows: { name: string; values: number[] }[] }
  | { kind: "sentences"; title: string; note: string; items: [string, string][] }
  | { kind: "table"; title: string; note: string; columns: { title: string; holds: Holds }[]; rows: Cell[][] }
  | { kind: "changes"; title: string; note: string; before: number; rows: [what: string, after: number | null, remark: string, allowed: boolean][] }
  | { kind: "lines"; title: string; x: string; y: string; series: { name: string; points: [number, number][] }[] }
  | { kind: "text"; title: string; paragraphs: string[] }
  | { kind: "memory"; title: string; note: string; tasks: string[]; parts: { name: string; values: number[] }[]; limit: number | null }
  | { kind: "machine"; title: string; npus: number; over: boolean; dimensions: Dimension[] }
  | ({ kind: "timeline"; title: string } & Packed)
  | { kind: "pair"; title: string; sides: { name: string; blocks: Block[] }[] };

interface Dimension {
  name: string;
  topology: string;
  npus: number | null;
  capacity: number | null;
  sent: number;
  busy: number;
  use: number | null;
  use_busy: number | null;
}

const WRITE: Record<Holds, (value: number) => string> = {
  text: String, time, size, rate, share: percent, count, number: (value) => digits(value),
};

/** A value as a text. */
export const written = (value: Cell, holds: Holds): string =>
  value === null ? "–" : typeof value === "string" ? value : WRITE[holds](value);

/** Draw a block; what it returns goes into the page. */
export function draw(block: Block): HTMLElement {
  if (block.kind === "headline") return headline(block);
  const section = element("section", { class: block.kind }, element("h2", {}, block.title));
  (DRAW[block.kind] as (section: HTMLElement, block: Block) => void)(section, block);
  return section;
}

function headline(block: Extract<Block, { kind: "headline" }>): HTMLElement {
  const notes = block.notes.map((note) => element("li", {}, note));
  return element("section", { class: "headline" },
    block.alarm ? element("p", { class: "alarm", role: "alert" }, block.alarm) : null,
    element("p", { class: "value" }, block.value),
    ...block.lines.map((line) => element("p", {}, line)),
    notes.length ? element("div", { class: "notes" }, element("b", {}, "Assumed"), element("ul", {}, ...notes)) : null);
}

const DRAW: { [K in Exclude<Block["kind"], "headline">]: (section: HTMLElement, block: Extract<Block, { kind: K }>) => void } = {
  bars(section, block) {
    const most = Math.max(...block.rows.map((row) => sum(row.values)), 1e-300);
    const keys = block.parts.map((part, index) => (KNOWN.has(part.key) ? part.key : `series-${index % 7}`));
    const legend = element("ul", { class: "legend" }, ...block.parts.map((part, index) => element("li", {}, swatch(keys[index]!), part.title)));
    const rows = block.rows.map((row) => {
      const total = sum(row.values);
      const bar = element("div", { class: "bar", style: `width: ${(100 * total) / most}%` });
      row.values.forEach((value, index) => {
        const part = block.parts[index]!;
        if (!value) return;
        const share = percent(value / total);
        const piece = element("span", { class: `part ${keys[index]}`, style: `flex-grow: ${value / total}`, title: `${part.title}: ${time(value)}, ${share}` });
        if (value / most > 0.08) piece.append(share);
        bar.append(piece);
      });
      return element("div", { class: "row" }, element("div", { class: "name" }, row.name), element("div", { class: "track" }, bar), element("div", { class: "total" }, time(total)));
    });
    section.append(legend, ...rows);
    const first = block.rows[0];
    if (first && block.rows.length > 1) section.append(element("p", { class: "note caption" }, `Of ${first.name}:`));
    if (first) {
      section.append(element("table", {}, element("tbody", {}, ...block.parts.map((part, index) =>
        element("tr", {}, element("th", { scope: "row" }, swatch(keys[index]!), part.title),
          element("td", {}, time(first.values[index]!)), element("td", {}, percent(first.values[index]! / sum(first.values))))))));
    }
  },
  sentences(section, block) {
    section.append(
      ...note(block.note),
      element("ol", {}, ...block.items.map(([text, help]) => element("li", {}, text, help ? element("p", { class: "help" }, help) : null))));
  },
  text(section, block) {
    section.append(...block.paragraphs.map((each) => element("p", {}, each)));
  },
  table(section, block) {
    const head = block.columns.map((column) => element("th", { scope: "col", class: column.holds === "text" ? "" : "number" }, column.title));
    const most = block.columns.map((column, index) =>
      column.holds === "share" ? 1 : column.holds === "time" ? block.rows.reduce((largest, row) => Math.max(largest, Number(row[index] ?? 0)), 0) : 0);
    const line = (row: Cell[]) => element("tr", {}, ...row.map((value, index) => {
      const holds = block.columns[index]!.holds;
      const cell = element("td", { class: holds === "text" ? "" : "number" }, written(value, holds));
      const part = typeof value === "number" && most[index] ? Math.min(1, value / most[index]!) : 0;
      if (part > 0.004 && holds === "share") cell.style.backgroundImage = `linear-gradient(to right, var(--tint) ${100 * part}%, transparent 0)`;
      return cell;
    }));
    const made = element("table", {}, element("thead", {}, element("tr", {}, ...head)));
    const place = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": block.title }, made);
    section.append(...note(block.note), place);
    longBody(place, made, block.rows.length, (at) => line(block.rows[at]!));
  },
  changes(section, block) {
    const most = Math.max(block.before, ...block.rows.map(([, after]) => after ?? 0), 1e-300);
    const row = (what: string, after: number | null, remark: string, allowed: boolean, base = false) => {
      const change = after === null ? 0 : after / block.before - 1;
      const word = base ? "" : after === null ? "not possible" : Math.abs(change) < 5e-5 ? "no effect" : `${change > 0 ? "+" : "−"}${percent(Math.abs(change))}`;
      const bar = element("div", { class: "bar" });
      if (after !== null) {
        bar.append(element("span", { class: `part ${base || !allowed || Math.abs(change) < 5e-5 ? "idle" : change < 0 ? "better" : "worse"}`, style: `width: ${(100 * after) / most}%` }));
      }
      return element("div", { class: "row" }, element("div", { class: "name" }, what, remark ? element("p", { class: allowed ? "dim" : "bad" }, remark) : null),
        element("div", { class: "track" }, bar), element("div", { class: "total" }, after === null ? "" : time(after), element("b", {}, word)));
    };
    section.append(...note(block.note), row("as it is", block.before, "", true, true), ...block.rows.map((each) => row(...each)));
  },
  lines(section, block) {
    const [xTitle = "", xHolds = "number"] = block.x.split("|");
    const [yTitle = "", yHolds = "number"] = block.y.split("|");
    const xText = WRITE[xHolds as Holds];
    const yText = WRITE[yHolds as Holds];
    const holder = section.appendChild(element("div", { class: "chart" }));
    chart(holder, () => ({
      grid: { left: 72, right: 20, top: 36, bottom: 48 },
      legend: { top: 0, textStyle: { color: cssColour("--ink") } },
      tooltip: tooltip((params) => `${params.seriesName}\n${xTitle}: ${xText(params.value[0])}\n${yTitle}: ${yText(params.value[1])}`),
      xAxis: axis({ type: "value", name: xTitle, nameLocation: "middle", nameGap: 30, axisLabel: { formatter: xText, hideOverlap: true, color: cssColour("--dim") } }),
      yAxis: axis({ type: "value", name: yTitle, axisLabel: { formatter: yText, color: cssColour("--dim") } }),
      series: block.series.map((each, index) => ({
        type: "line", name: each.name, data: each.points, showSymbol: each.points.length < 40, color: seriesColour(index), lineStyle: { width: 2 },
      })),
    }));
  },
  memory(section, block) {
    const holder = section.appendChild(element("div", { class: "chart tall" }));
    const last = block.tasks.length;
    const most = Math.max(block.limit ?? 0, ...block.tasks.map((_, at) => sum(block.parts.map((part) => part.values[at]!))));
    const { step, top } = ticks(most);
    section.append(...note(block.note));
    chart(holder, () => ({
      grid: { left: 76, right: 20, top: 64, bottom: 40 },
      legend: { top: 0, type: "scroll", textStyle: { color: cssColour("--ink") } },
      tooltip: { ...tooltip((params) => {
        const all = params as { dataIndex: number; seriesName: string; value: number }[];
        const at = all[0]!.dataIndex;
        return [block.tasks[at], `${size(sum(all.map((each) => each.value)))} in all`, ...all.filter((each) => each.value).map((each) => `${each.seriesName} ${size(each.value)}`)].join("\n");
      }), trigger: "axis" },
      xAxis: axis({ type: "category", data: block.tasks, boundaryGap: false, axisLabel: { color: cssColour("--dim"), interval: Math.max(0, Math.floor(last / 8)), hideOverlap: true, formatter: (text: string) => text.split(",")[0] } }),
      yAxis: axis({ type: "value", max: top, interval: step, axisLabel: { color: cssColour("--dim"), formatter: size } }),
      dataZoom: [{ type: "inside", zoomOnMouseWheel: "ctrl" }],
      series: block.parts.map((part, index) => ({
        type: "line", step: "end", stack: "memory", name: part.name, data: part.values, symbol: "none", lineStyle: { width: 0 }, areaStyle: { opacity: 0.9 }, color: seriesColour(index),
        markLine: index || block.limit === null ? undefined : {
          symbol: "none", silent: true, data: [{ yAxis: block.limit }], lineStyle: { color: cssColour("--ink"), type: "dashed" },
          label: { formatter: `capacity ${size(block.limit)}`, position: "insideEndTop", color: cssColour("--ink") },
        },
      })),
    }));
  },
  machine(section, block) {
    let inside = 1;
    const levels = block.dimensions.map((dimension) => {
      inside *= dimension.npus ?? 1;
      const known = [dimension.topology, dimension.npus ? `joins ${count(dimension.npus)}` : "", dimension.capacity ? `${rate(dimension.capacity)} per NPU` : ""];
      const used = dimension.sent ? `${size(dimension.sent)} sent by each NPU, busy ${time(dimension.busy)}` : "not used";
      const meter = (label: string, share: number | null) => share === null ? null : element("div", { class: "meter" },
        element("span", { class: "label" }, label), element("span", { class: "gauge", role: "img", "aria-label": `${label}: ${percent(share)}` }, element("span", { style: `width: ${Math.min(100, 100 * share)}%` })), element("b", {}, percent(share)));
      return element("div", { class: "level" }, sketch(dimension),
        element("div", {}, element("b", {}, dimension.name), element("p", { class: "dim" }, known.filter(Boolean).join(", ")), element("p", {}, used),
          meter("of the run", dimension.sent ? dimension.use : null), meter("when busy", dimension.sent ? dimension.use_busy : null)));
    });
    section.append(element("p", { class: "note" }, `${count(block.npus)} NPUs; the innermost dimension first. Use is that of the slowest rank.`), element("div", { class: "levels" }, ...levels));
    if (block.over) section.append(element("p", { class: "note" }, "Over 100 %: in this profile messages that are in flight together each get a whole link."));
  },
  timeline(section, block) {
    void timeline(section, block).catch((error: unknown) => {
      section.append(element("p", { class: "alarm" }, `The timeline cannot be drawn: ${String(error)}. It needs a browser of 2023 or later.`));
    });
  },
  pair(section, block) {
    section.append(element("div", { class: "sides" }, ...block.sides.map((side) =>
      element("div", { class: "side" }, element("h3", {}, side.name), ...side.blocks.map(draw)))));
  },
};

/** Parts whose colour report.css says; others take those of series. */
const KNOWN = new Set(["compute", "cpu", "communication", "waiting", "memory", "idle", "gemm", "attention", "other", "issuing", "outside", "checkpoint"]);

const SVG = "http://www.w3.org/2000/svg";
const NODE_LIMIT = 12;

/** A small drawing of how a dimension joins its NPUs; links are as thick as they were used. */
function sketch(dimension: Dimension): SVGSVGElement {
  const make = (tag: string, attributes: Record<string, string | number>) => {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
    return made;
  };
  const svg = make("svg", { viewBox: "0 0 96 96", width: 96, height: 96, "aria-hidden": "true" }) as SVGSVGElement;
  const nodes = Math.min(dimension.npus ?? 4, NODE_LIMIT);
  const places = Array.from({ length: nodes }, (_, index) => {
    const turn = (2 * Math.PI * index) / nodes - Math.PI / 2;
    return [48 + 38 * Math.cos(turn), 48 + 38 * Math.sin(turn)] as const;
  });
  const width = 1 + 5 * Math.min(1, dimension.use_busy ?? 0);
  const line = (one: readonly [number, number], other: readonly [number, number]) =>
    svg.append(make("line", { x1: one[0], y1: one[1], x2: other[0], y2: other[1], class: dimension.sent ? "used" : "free", "stroke-width": width }));
  const topology = dimension.topology.toLowerCase();
  if (/ring|torus|mesh/.test(topology)) places.forEach((place, index) => { if (index || !topology.includes("mesh")) line(place, places[(index + nodes - 1) % nodes]!); });
  else if (/fullyconnected|fully/.test(topology)) places.forEach((place, index) => places.slice(index + 1).forEach((other) => line(place, other)));
  else {
    places.forEach((place) => line(place, [48, 48]));
    svg.append(make("rect", { x: 40, y: 40, width: 16, height: 16, rx: 3, class: "switch" }));
  }
  places.forEach((place) => svg.append(make("circle", { cx: place[0], cy: place[1], r: 6, class: "npu" })));
  return svg;
}

const sum = (values: number[]): number => values.reduce((total, value) => total + value, 0);
const note = (text: string): HTMLElement[] => (text ? [element("p", { class: "note" }, text)] : []);
const swatch = (key: string): HTMLElement => element("span", { class: `swatch part ${key}`, "aria-hidden": "true" });
