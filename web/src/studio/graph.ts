// A network that is a graph, drawn by hand: a kind with its numbers, or links one by one, as rows or in the picture.
import { element } from "../shared/element";
import { count } from "../shared/numbers";
import { longBody } from "../shared/rows";
import { seriesColour } from "../shared/colours";
import { ask, type Catalogue, type Dimension, type Graph, type Link, type MachineName } from "./api";
import type { State } from "./state";

const SVG = "http://www.w3.org/2000/svg";
const EDGES = "edges";
/** What a kind has at first, where nothing else is known. */
const FIRST: Record<string, Record<string, unknown>> = {
  "fat-tree": { k: 4 },
  "leaf-spine": { leaves: 2, spines: 2, npus_per_leaf: 4 },
  dragonfly: { npus_per_router: 2, routers: 2, global_links: 1 },
  "rail-optimised": { hosts: 2, npus_per_host: 8, spines: 0 },
  "wafer-mesh": { shape: [4, 4] },
  hypercube: { order: 3 },
  "optical-torus": { shape: [4, 4, 4] },
};

interface Drawn {
  npus: number;
  nodes: number;
  links: number;
  panels: { title: string; notes: string[]; marks: [x: number, y: number, sort: string, label: string, tip: string][]; lines: [number, number, number, number, number, number, string, number, boolean, string][] }[];
  edges: Graph | null;
}

export interface Around {
  state: () => State;
  catalogue: Catalogue;
  set: (topology: Graph | null) => void;
  preset: MachineName;
  dimensions: Dimension[];
}

/** How many devices a graph has, as far as its numbers say so. */
export function graphDevices(graph: Graph): number {
  const of = (key: string) => Math.max(1, Number(graph[key]) || 1);
  if (graph.links) return Math.max(1, graph.npus?.length ?? new Set(graph.links.flatMap((link) => [link.from, link.to]).filter((name) => /^(npu|gpu)[ _-]?\d+$/i.test(name))).size);
  if (Array.isArray(graph.shape)) return graph.shape.reduce((product: number, side) => product * (Number(side) || 1), 1);
  if (graph.kind === "hypercube") return 2 ** of("order");
  if (graph.kind === "fat-tree") return of("k") ** 3 / 4;
  if (graph.kind === "dragonfly") return of("npus_per_router") * of("routers") * (graph.groups ? of("groups") : of("routers") * of("global_links") + 1);
  return of("hosts") * of("npus_per_host") * of("leaves") * of("npus_per_leaf");
}

/** The choice of what kind a network is; "" stands for nested dimensions. */
export function kindChoice({ state, catalogue, set, preset, dimensions }: Around): HTMLElement {
  const now = state().topology?.kind ?? (preset.topology && !state().network ? String(preset.topology.kind) : "");
  const select = element("select", { id: "drawn-kind" }, new Option("nested dimensions", "", false, now === ""));
  for (const kind of [...Object.keys(catalogue.graphs), EDGES]) select.append(new Option(kind === EDGES ? "links, one by one" : kind, kind, false, kind === now));
  (select.options[0] as HTMLOptionElement).disabled = Boolean(preset.topology);
  select.addEventListener("change", () => {
    if (select.value === EDGES) void oneByOne(state, set, preset, dimensions);
    else set(select.value ? begun(select.value, catalogue, preset, dimensions) : null);
  });
  return element("div", { class: "choice" }, element("label", { for: "drawn-kind" }, "network"), select);
}

function begun(kind: string, catalogue: Catalogue, preset: MachineName, dimensions: Dimension[]): Graph {
  if (preset.topology?.kind === kind) return { ...preset.topology, ...preset.begin } as Graph;
  const [inner, outer] = [dimensions[0], dimensions[dimensions.length - 1]];
  const usual: Record<string, unknown> = {
    bandwidth: outer?.bandwidth ?? preset.topology?.bandwidth ?? "50 GB/s", latency: outer?.latency ?? preset.topology?.latency ?? "500 ns",
    host_bandwidth: inner?.bandwidth ?? "450 GB/s", host_latency: inner?.latency ?? "1 us",
  };
  const needed = (catalogue.graphs[kind] ?? []).filter((each) => each.needed).map((each) => [each.key, usual[each.key]]);
  return { kind, ...Object.fromEntries(needed.filter(([, value]) => value !== undefined)), ...FIRST[kind] };
}

/** Go on with the links of what there is now; of what has too many, with two switches. */
async function oneByOne(state: () => State, set: (topology: Graph) => void, preset: MachineName, dimensions: Dimension[]): Promise<void> {
  const now = state().topology ?? (dimensions.length ? { kind: "dimensions", network: dimensions } : { ...preset.topology, ...preset.begin });
  const found = await ask<Drawn>("api/topology", { topology: now }).catch(() => null);
  const rates = { bandwidth: dimensions[0]?.bandwidth ?? "50 GB/s", latency: dimensions[0]?.latency ?? "500 ns" };
  const few = [0, 1, 2, 3].map((npu) => ({ from: `npu ${npu}`, to: `switch ${npu >> 1}`, ...rates }));
  set(found?.edges ?? { kind: EDGES, links: [...few, { from: "switch 0", to: "switch 1", ...rates }] });
}

/** The fields of a graph, and its picture. */
export function graphFields(around: Around): HTMLElement[] {
  const given = around.state().topology ?? (around.preset.topology as Graph);
  const links = given.links;
  const drawing = element("div", { class: "drawn", id: "graph" });
  const picked = { node: "" };
  const join = (from: string, to: string) => {
    const like = links![links!.length - 1];
    set({ ...given, links: [...links!, { from, to, bandwidth: like?.bandwidth ?? "50 GB/s", latency: like?.latency ?? "500 ns" }] });
  };
  const set = (topology: Graph) => around.set(topology);
  void picture(drawing, given, around, links && links.length < around.catalogue.most_links ? { picked, join } : null);
  if (!links) return [drawing, ...(around.catalogue.graphs[given.kind] ?? []).map((each) => value(each, given, set))];
  return [drawing, ...tools(given, links, around, join), rows(given, links, set)];
}

function value(known: { key: string; help: string; needed: boolean }, given: Graph, set: (graph: Graph) => void): HTMLElement {
  const { key, help, needed } = known;
  const input = element("input", { type: "text", id: `graph-${key}`, title: help, placeholder: needed ? "" : "chosen" });
  const now = given[key];
  input.value = now === undefined || now === null ? "" : Array.isArray(now) ? now.join("x") : String(now);
  input.addEventListener("change", () => {
    const { [key]: _, ...rest } = given;
    const text = input.value.trim();
    set((text ? { ...rest, [key]: read(text) } : rest) as Graph);
  });
  return element("div", { class: "choice" }, element("label", { for: input.id, title: help }, key.replace(/_/g, " ")), input);
}

/** A number, sides, a truth, or a text; what it should have been the server says. */
function read(text: string): unknown {
  if (/^\d+( *[x×,] *\d+)+$/.test(text)) return text.split(/[x×,]/).map(Number);
  if (text === "true" || text === "false") return text === "true";
  return /^\d+(\.\d+)?$/.test(text) ? Number(text) : text;
}

/** A name that no node has yet. */
function free(sort: string, links: Link[]): string {
  const taken = new Set(links.flatMap((link) => [link.from, link.to]));
  let number = 0;
  while (taken.has(`${sort} ${number}`)) number += 1;
  return `${sort} ${number}`;
}

function tools(given: Graph, links: Link[], { catalogue, set }: Around, join: (from: string, to: string) => void): HTMLElement[] {
  const at = links.find((link) => !/^(npu|gpu)/i.test(link.to))?.to ?? links[0]?.to ?? "switch 0";
  const full = links.length >= catalogue.most_links;
  const made = (id: string, text: string, act: () => void) => {
    const one = element("button", { type: "button", id }, text);
    one.disabled = full;
    one.addEventListener("click", act);
    return one;
  };
  const forward = element("input", { type: "checkbox", id: "graph-forward" });
  forward.checked = given.forward === true;
  forward.addEventListener("change", () => set({ ...given, forward: forward.checked }));
  return [
    element("p", { class: "row" },
      made("graph-device", "Device", () => join(free("npu", links), at)), made("graph-switch", "Switch", () => join(at, free("switch", links))),
      made("graph-link", "Link", () => join(links[0]?.from ?? "npu 0", at))),
    element("p", { class: "row dim" }, element("label", { for: "graph-forward" }, forward, " messages may pass through devices")),
  ];
}

/** A row per link: its ends, its bandwidth one way, and its latency. */
function rows(given: Graph, links: Link[], set: (graph: Graph) => void): HTMLElement {
  const names = ["from", "to", "bandwidth", "latency"] as const;
  const made = element("table", { id: "links" }, element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)), element("th", { scope: "col" }, element("span", { class: "hidden-input" }, "remove")))));
  const place = element("div", { class: "wide links", tabindex: "0", role: "region", "aria-label": `${count(links.length)} links` }, made);
  const line = (at: number) => {
    const link = links[at]!;
    const fields = names.map((name) => {
      const input = element("input", { type: "text", id: `link-${at}-${name}`, "aria-label": `link ${at + 1}: ${name}` });
      input.value = input.title = String(link[name] ?? "");
      input.addEventListener("change", () => set({ ...given, links: links.map((each, place) => (place === at ? { ...each, [name]: input.value.trim() } : each)) }));
      return input;
    });
    const gone = element("button", { type: "button", id: `link-${at}-remove`, "aria-label": `link ${at + 1}: remove` }, "×");
    gone.disabled = links.length < 2;
    gone.addEventListener("click", () => set({ ...given, links: links.filter((_, place) => place !== at) }));
    return element("tr", {}, ...[...fields, gone].map((each) => element("td", {}, each)));
  };
  longBody(place, made, links.length, line);
  return place;
}

interface Joining {
  picked: { node: string };
  join: (from: string, to: string) => void;
}

/** Draw a graph; where its links are drawn one by one, two nodes that are picked one after the other are joined. */
async function picture(place: HTMLElement, graph: Graph, { preset }: Around, joining: Joining | null): Promise<void> {
  const said = element("p", { class: "dim", id: "drawn-said" });
  place.append(said);
  let found: Drawn;
  try {
    found = await ask<Drawn>("api/topology", { topology: graph });
  } catch (error) {
    // The line of the page says the same of the step.
    said.textContent = error instanceof Error ? error.message : String(error);
    return;
  }
  const all = preset.topology?.kind === graph.kind ? preset.devices : 0;
  const part = all > found.npus ? `, a part of the ${count(all)} of ${preset.name}` : "";
  said.textContent = `${plural(found.npus, "device", "devices")}${part}, ${plural(found.nodes - found.npus, "switch", "switches")}, ${count(found.links)} links, one way each`;
  const kinds = [...new Set(found.panels.flatMap((panel) => panel.lines.map((line) => line[6])))];
  for (const panel of found.panels) place.append(drawn(panel, kinds, joining, said));
  if (joining) said.append(". Pick two nodes of the picture to join them");
}

const plural = (number: number, one: string, more: string): string => `${count(number)} ${number === 1 ? one : more}`;

function drawn(panel: Drawn["panels"][number], kinds: string[], joining: Joining | null, said: HTMLElement): HTMLElement {
  const svg = (name: string, attributes: Record<string, string | number>, tip = "") => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, typeof value === "number" ? value.toFixed(1) : value);
    if (tip) made.appendChild(document.createElementNS(SVG, "title")).textContent = tip;
    return made;
  };
  const x = (at: number) => 150 + 142 * at;
  const nodes = panel.marks.filter((mark) => mark[2] !== "row");
  const [low, high] = [Math.min(...nodes.map((mark) => mark[1])), Math.max(...nodes.map((mark) => mark[1]))];
  // Rows of nodes need less height than a circle.
  const tall = new Set(nodes.map((mark) => mark[1].toFixed(2))).size > 6 ? 280 : 150;
  const y = (at: number) => (high > low ? 16 + ((tall - 32) * (high - at)) / (high - low) : tall / 2);
  const all = svg("svg", { viewBox: `0 0 300 ${tall}`, role: joining ? "group" : "img", "aria-label": `${panel.title}: ${panel.notes.join("; ")}` });
  for (const [x0, y0, cx, cy, x1, y1, kind, width, dashed, tip] of panel.lines) {
    const path = svg("path", { d: `M${x(x0).toFixed(1)} ${y(y0).toFixed(1)}Q${x(cx).toFixed(1)} ${y(cy).toFixed(1)} ${x(x1).toFixed(1)} ${y(y1).toFixed(1)}`, fill: "none" }, tip) as SVGPathElement;
    path.style.stroke = seriesColour(kinds.indexOf(kind));
    path.style.strokeWidth = `${(width * (panel.lines.length > 80 ? 0.4 : 0.8)).toFixed(2)}`;
    if (dashed) path.style.strokeDasharray = "3 3";
    all.append(path);
  }
  const apart = nodes.length > 1 ? Math.min(...nodes.map((one, at) => Math.min(...nodes.slice(at + 1, at + 12).map((other) => Math.hypot(x(one[0]) - x(other[0]), y(one[1]) - y(other[1]))), 99))) : 99;
  const half = Math.max(1.5, Math.min(7, apart / 2.6));
  for (const [left, top, sort, label, tip] of panel.marks) {
    if (sort === "row") continue;
    if (sort === "gap") {
      all.append(Object.assign(svg("text", { x: x(left), y: y(top) + 3, class: "gap" }), { textContent: "…" }));
      continue;
    }
    const mark = sort === "npu"
      ? svg("circle", { cx: x(left), cy: y(top), r: half }, tip || label)
      : svg("rect", { x: x(left) - half, y: y(top) - half, width: 2 * half, height: 2 * half, rx: 1 }, tip || label);
    mark.setAttribute("class", `node ${sort}`);
    if (joining && tip) {
      for (const [key, value] of Object.entries({ tabindex: "0", role: "button", "aria-label": tip, "aria-pressed": "false", "data-node": tip })) mark.setAttribute(key, value);
      const pick = () => {
        const { picked, join } = joining;
        if (picked.node && picked.node !== tip) return join(picked.node, tip);
        picked.node = picked.node ? "" : tip;
        mark.setAttribute("aria-pressed", String(picked.node === tip));
        said.textContent = picked.node ? `${tip} to …: pick the other end` : "Pick two nodes of the picture to join them";
      };
      mark.addEventListener("click", pick);
      mark.addEventListener("keydown", (event) => {
        const { key } = event as KeyboardEvent;
        if (key === "Enter" || key === " ") {
          event.preventDefault();
          pick();
        }
      });
    }
    all.append(mark);
  }
  const notes = element("figcaption", {}, ...panel.notes.flatMap((note) => [note, element("br")]));
  return element("figure", { class: "drawn" }, element("b", {}, panel.title), all as unknown as HTMLElement, notes);
}
