// What is known of the thing that is picked, and what it waits for and is needed by.
import { element } from "../shared/element";
import { count } from "../shared/numbers";
import { CONTROL, DATA, type Graph } from "./data";

/** Neighbours that are listed. */
const LISTED = 50;
const HOW: Record<number, string> = { [DATA]: "data", [CONTROL]: "control", [DATA | CONTROL]: "data, control" };

export interface Ways {
  reveal(thing: number): void;
  open(thing: number): void;
  scope(thing: number): void;
}

/** The children of the panel for a thing. */
export function about(graph: Graph, thing: number, shown: ReadonlySet<number>, ways: Ways): HTMLElement[] {
  const made: HTMLElement[] = [element("h2", {}, graph.name(thing))];
  const button = (text: string, act: () => void, name = "") => {
    const one = element("button", { type: "button", class: name }, text);
    one.addEventListener("click", act);
    return one;
  };
  if (graph.isGroup(thing)) {
    made.push(element("p", { class: "tools" }, shown.has(thing) ? button("open", () => ways.open(thing)) : null, button("show this alone", () => ways.scope(thing))));
  }
  const rows = graph.facts(thing).map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, value)));
  made.push(element("table", {}, element("tbody", {}, ...rows)));
  for (const [title, way] of [["waits for", -1], ["needed by", 1]] as const) {
    const found = graph.neighbours(thing, way);
    made.push(element("h3", {}, `${title} (${count(found.length)})`));
    const lines = found.slice(0, LISTED).map(([other, flag, weight]) =>
      element("li", {}, button(graph.label(other), () => ways.reveal(other), "link"), ` ${HOW[flag] ?? ""}${weight > 1 ? ` ×${count(weight)}` : ""}`));
    if (lines.length) made.push(element("ul", {}, ...lines));
    if (found.length > LISTED) made.push(element("p", { class: "dim" }, `and ${count(found.length - LISTED)} more`));
  }
  return made;
}
