// The network of a machine, drawn by hand: dimensions within each other, the innermost first.
import { element } from "../shared/element";
import { seriesColour } from "../shared/colours";
import { count } from "../shared/numbers";
import type { Catalogue, Dimension, Graph, MachineName } from "./api";
import { choice, type Change } from "./controls";
import { graphFields, kindChoice } from "./graph";
import type { State } from "./state";

/** Boxes of a level that are drawn; more are said by the number beside them. */
const MOST_BOXES = 4;
const SVG = "http://www.w3.org/2000/svg";

/** Devices, or groups of them, that a dimension joins. */
export const members = (each: Dimension): number => {
  const found = each.shape ? each.shape.reduce((product, side) => product * side, 1) : Number(each.size);
  return Number.isInteger(found) && found > 0 ? found : 1;
};

/** The dimensions of a preset that is counted, to begin a drawing with. */
export function asPreset(machine: MachineName, times: number): Dimension[] {
  const between = machine.between && times > 1 ? [{ ...machine.between, size: times }] : [];
  return [...machine.network, ...between].map((each) => ({ ...each }));
}

/** The section that draws the network: closed, the machine has that of its preset. */
export function drawnNetwork(state: () => State, catalogue: Catalogue, change: Change, preset: MachineName, times: number): HTMLElement {
  const { network: now, topology } = state();
  const set = (network: Dimension[] | null) => change({ network, topology: null }, true);
  const found = element("details", { id: "drawn" }, element("summary", {}, now || topology ? "Network, drawn" : "Draw the network"));
  if (now || topology) found.setAttribute("open", "");
  const dimensions = now ?? asPreset(preset, times);
  const back = button("drawn-back", "As the preset", () => set(null));
  back.disabled = !now && !topology;
  const around = { state, catalogue, preset, dimensions, set: (graph: Graph | null) => change({ topology: graph, network: null }, true) };
  found.append(kindChoice(around));
  if (topology || !dimensions.length) {
    const help = "messages: each moves over the links, exact and slow; levels: approximate, and at once. Chosen: by the size of the graph.";
    const taken = choice("graph", "messages or levels", ["", "messages", "levels"], state().graph, help, (graph) => change({ graph }, true));
    // A picture of a closed section would cost a question.
    const fields = element("div");
    const fill = () => !fields.hasChildNodes() && fields.append(taken, ...graphFields(around));
    if (topology) fill();
    else found.addEventListener("toggle", fill);
    found.append(fields, element("p", { class: "row" }, back));
    return found;
  }
  const changed = (at: number, keys: Partial<Dimension>) =>
    set(dimensions.map((each, place) => (place === at ? without({ ...each, ...keys }) : each)));
  found.append(picture(dimensions), ...dimensions.map((each, at) => level(each, at, catalogue, (keys) => changed(at, keys), dimensions.length > 1 ? () => set(dimensions.filter((_, place) => place !== at)) : null)));
  const more = button("drawn-more", "Join two or more of it", () => {
    const last = dimensions[dimensions.length - 1]!;
    set([...dimensions, { name: nameFor(dimensions), topology: "Switch", size: 2, bandwidth: last.bandwidth, latency: last.latency }]);
  });
  more.disabled = dimensions.length >= catalogue.most_dimensions;
  found.append(element("p", { class: "row" }, more, back));
  return found;
}

/** Without the keys that are undefined: the server knows no such value. */
const without = (given: Dimension): Dimension => Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as unknown as Dimension;

function nameFor(dimensions: Dimension[]): string {
  const taken = new Set(dimensions.map((each) => each.name));
  let number = dimensions.length + 1;
  while (taken.has(`level ${number}`)) number += 1;
  return `level ${number}`;
}

function button(id: string, text: string, pressed: () => void): HTMLButtonElement {
  const made = element("button", { type: "button", id }, text);
  made.addEventListener("click", pressed);
  return made;
}

function level(each: Dimension, at: number, catalogue: Catalogue, changed: (keys: Partial<Dimension>) => void, remove: (() => void) | null): HTMLElement {
  const name = each.name ?? `level ${at + 1}`;
  const topology = element("select", { id: `drawn-${at}-topology`, "aria-label": `${name}: topology` });
  for (const known of Object.keys(catalogue.topologies)) topology.append(new Option(known, known, false, known === each.topology));
  topology.addEventListener("change", () => {
    // A ring has no shape: its size is that of the torus.
    const shaped = catalogue.topologies[topology.value];
    changed({ topology: topology.value, ...(each.shape && !shaped ? { shape: undefined, size: members(each) } : {}) });
  });
  const field = (key: "size" | "bandwidth" | "latency", label: string, now: string, take: (text: string) => Partial<Dimension>) => {
    const input = element("input", { type: "text", id: `drawn-${at}-${key}`, "aria-label": `${name}: ${label}`, title: label });
    input.value = now;
    input.addEventListener("change", () => changed(take(input.value.trim())));
    return input;
  };
  const size = field("size", catalogue.topologies[each.topology] ? "devices or groups that it joins, or its sides, such as 16x16" : "devices or groups that it joins",
    each.shape ? each.shape.join("x") : String(each.size ?? ""), (text) => {
      const sides = /^\d+( *[x×,] *\d+)+$/.test(text) ? text.split(/[x×,]/).map(Number) : null;
      // What is no number the server refuses, in its words.
      return sides ? { shape: sides, size: undefined } : { size: /^\d+$/.test(text) ? Number(text) : (text as unknown as number), shape: undefined };
    });
  const bandwidth = field("bandwidth", `bandwidth, one way, of a ${each.per ?? "device"}`, each.bandwidth, (text) => ({ bandwidth: text }));
  const latency = field("latency", "latency of a hop", each.latency, (text) => ({ latency: text }));
  const swatch = element("i");
  swatch.style.background = seriesColour(at);
  const gone = remove ? button(`drawn-${at}-remove`, "×", remove) : null;
  gone?.setAttribute("aria-label", `${name}: remove`);
  return element("fieldset", { class: "level" }, element("legend", {}, swatch, name), topology, size, bandwidth, latency, gone);
}

/** Boxes within boxes: a level has the colour of its fields; of many boxes the first few. */
function picture(dimensions: Dimension[]): HTMLElement {
  const wide = 300;
  const drawing = document.createElementNS(SVG, "svg");
  const all = dimensions.reduce((product, each) => product * members(each), 1);
  const words = dimensions.map((each) => `${each.topology} of ${each.shape ? each.shape.join(" × ") : members(each)}`).reverse();
  const title = `${count(all)} devices: ${words.join(", each joining a ")}`;
  drawing.setAttribute("role", "img");
  drawing.setAttribute("aria-label", title);
  const box = (x: number, y: number, width: number, height: number, colour: string, filled: boolean) => {
    const made = document.createElementNS(SVG, "rect");
    const places = { x, y, width: Math.max(width, 0.5), height: Math.max(height, 0.5), rx: Math.min(3, width / 6) };
    for (const [key, value] of Object.entries(places)) made.setAttribute(key, value.toFixed(2));
    // Set one by one: the page forbids the attribute `style`.
    made.style.fill = filled ? colour : "none";
    if (!filled) made.style.stroke = colour;
    drawing.append(made);
  };
  const gap = 3;
  /** Draw a level and what is in it; return how high it is. */
  const nest = (at: number, x: number, y: number, width: number): number => {
    if (at < 0) {
      const side = Math.min(width, 14);
      box(x, y, width, side, "var(--dim)", true);
      return side;
    }
    // As square as it can be: a row of boxes in boxes would be a line.
    const shown = Math.min(members(dimensions[at]!), at ? MOST_BOXES : 8);
    const columns = Math.ceil(shown / Math.max(1, Math.floor(Math.sqrt(shown))));
    const each = (width - gap * (columns + 1)) / columns;
    let row = 0;
    let below = y + gap;
    for (let number = 0; number < shown; number += 1) {
      if (number && number % columns === 0) below += row + gap;
      row = nest(at - 1, x + gap + (number % columns) * (each + gap), below, each);
    }
    const high = below + row + gap - y;
    box(x, y, width, high, seriesColour(at), false);
    return high;
  };
  const height = nest(dimensions.length - 1, 1, 1, wide - 2);
  drawing.setAttribute("viewBox", `0 0 ${wide} ${(height + 2).toFixed(2)}`);
  return element("figure", { class: "drawn" }, drawing as unknown as HTMLElement, element("figcaption", { id: "drawn-said" }, title));
}
