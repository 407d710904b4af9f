// The page of a trace graph: a few boxes, each of which opens; whatever its size, only what is open is drawn.
import "../shared/shared.css";
import "./graph.css";
import { onTheme } from "../shared/colours";
import { element, pageData } from "../shared/element";
import { count } from "../shared/numbers";
import { save } from "../shared/save";
import { themeButton } from "../shared/theme";
import { CONTROL, DATA, Graph, type Data } from "./data";
import { layout } from "./layout";
import { about } from "./panel";
import { colour, Picture } from "./picture";

/** Boxes that are opened at first: as many as can be taken in. */
const AT_FIRST = 24;
/** Most boxes at once; dagre places them in about a second. */
const MOST = 160;

const field = <K extends keyof HTMLElementTagNameMap>(tag: K, id: string, ...rest: (string | Node)[]) => element(tag, { id }, ...rest);
const button = (id: string, text: string, act: () => void): HTMLButtonElement => {
  const made = element("button", { type: "button", id }, text);
  made.addEventListener("click", act);
  return made;
};
const check = (id: string, text: string, act: () => void): [HTMLInputElement, HTMLLabelElement] => {
  const box = element("input", { type: "checkbox", id, checked: "" });
  box.addEventListener("change", act);
  return [box, element("label", {}, box, text)];
};

function start(page: HTMLElement, data: Data): void {
  const graph = new Graph(data);
  let scope = graph.root;
  let open = new Set<number>();
  let picked = -1;
  let shown = new Set<number>();
  const picture = new Picture(graph, { pick, open: (thing) => unfold(thing, true), close: fold });
  const panel = element("aside", { id: "panel", "aria-label": "What is picked", tabindex: "0" });
  const path = element("nav", { id: "path", "aria-label": "What is shown" });
  const said = element("span", { id: "found", role: "status" });
  const [byData, dataLabel] = check("data", "data", redraw);
  const [byControl, controlLabel] = check("ctrl", "control", redraw);
  const search = element("input", { type: "search", id: "search", placeholder: "find by name or id", "aria-label": "Find by name or id", autocomplete: "off" });
  const legend = element("ul", { id: "legend" }, ...data.legend.map(([kind, nodes]) => element("li", {}, element("i", { "data-kind": String(kind) }), `${data.kinds[kind]} ${count(nodes)}`)));
  const paint = () => legend.querySelectorAll<HTMLElement>("i").forEach((each) => (each.style.background = colour(Number(each.dataset.kind))));

  page.append(
    element("header", {}, element("h1", { title: data.title }, data.title), field("span", "about", data.about), legend, element("span", { class: "space" }), themeButton()),
    element("div", { id: "tools" }, dataLabel, controlLabel, search, said,
      button("top", "from the top", () => picture.top()), button("whole", "all of it", () => picture.whole()),
      button("fold", "close all", () => { open.clear(); redraw(-1); }), button("save", "save as SVG", () => save(picture.saved(), "graph.svg"))),
    path,
    element("div", { id: "drawing" }, picture.root, panel),
    element("footer", {}, "Click a pile to open it, its frame's title to close it. Drag to move, wheel or + − 0 to zoom, Tab and Enter from box to box, Esc to go back. Solid: data; dashed: control."));

  /** Draw anew; `fixed` stays where it was in the window. */
  function redraw(fixed: number | Event = picked): void {
    const things = graph.shown(scope, open);
    shown = new Set(things);
    const edges = graph.edges(things, (byData.checked ? DATA : 0) | (byControl.checked ? CONTROL : 0));
    picture.draw(layout(graph, scope, things, edges), typeof fixed === "number" ? fixed : picked);
    document.body.dataset.boxes = String(things.length);
    const ways = [scope, ...graph.around(scope)].reverse().map((thing) => {
      const one = button("", thing === graph.root ? "whole graph" : graph.label(thing), () => enter(thing));
      one.className = "link";
      if (thing === scope) one.setAttribute("aria-current", "true");
      return one;
    });
    path.replaceChildren(...ways);
    path.hidden = scope === graph.root;
    picture.light(picked);
  }

  function unfold(thing: number, focus = false): void {
    open.add(thing);
    for (const outer of graph.around(thing)) if (outer !== scope) open.add(outer);
    // Too many: what is open elsewhere is closed, and then what is around is left.
    if (graph.shown(scope, open).length > MOST) open = new Set([thing, ...graph.around(thing)]);
    while (graph.shown(scope, open).length > MOST && scope !== thing) {
      scope = [thing, ...graph.around(thing)].find((each) => graph.parent[each] === scope)!;
    }
    redraw(thing);
    pick(thing);
    if (focus) picture.focus(graph.children[thing]![0]!);
  }

  function fold(thing: number): void {
    for (const each of [...open]) if (each === thing || graph.around(each).includes(thing)) open.delete(each);
    redraw(thing);
    picture.focus(thing);
    pick(thing);
  }

  function enter(thing: number): void {
    scope = thing;
    open = new Set();
    redraw(-1);
    pick(thing === graph.root ? -1 : thing);
  }

  function pick(thing: number): void {
    picked = thing;
    picture.light(thing);
    panel.replaceChildren(...(thing < 0 ? [] : about(graph, thing, shown, { reveal, open: unfold, scope: enter })));
  }

  function reveal(thing: number): void {
    const around = graph.around(thing);
    if (thing !== scope && !around.includes(scope)) scope = graph.root;
    const closed = around.filter((each) => each !== scope && !open.has(each) && graph.around(each).includes(scope));
    if (closed.length) unfold(closed[0]!);
    pick(thing);
    picture.centre(thing);
    picture.focus(thing);
  }

  let hits: number[] = [];
  let turn = 0;
  search.addEventListener("input", () => {
    const wanted = search.value.trim().toLowerCase();
    hits = [];
    turn = 0;
    for (let box = 0; wanted && box < graph.boxes; box++) {
      if (graph.name(box).toLowerCase().includes(wanted) || String(data.boxes.id?.[box]) === wanted) hits.push(box);
    }
    said.textContent = wanted ? `${count(hits.length)} found${hits.length ? ": Enter shows the next" : ""}` : "";
  });
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !hits.length) return;
    said.textContent = `${count((turn % hits.length) + 1)} of ${count(hits.length)}`;
    reveal(hits[turn++ % hits.length]!);
    search.focus();
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (picked >= 0) pick(-1);
    else if (scope !== graph.root) enter(graph.parent[scope]!);
  });
  onTheme(() => {
    paint();
    redraw();
  });

  paint();
  // The largest groups are open as far as that leaves a picture that can be taken in.
  for (let tried = new Set<number>(); ; ) {
    const groups = graph.shown(scope, open).filter((thing) => graph.isGroup(thing) && !tried.has(thing));
    if (!groups.length) break;
    const largest = groups.reduce((one, two) => (graph.nodes[two]! > graph.nodes[one]! ? two : one));
    tried.add(largest);
    open.add(largest);
    if (graph.shown(scope, open).length > AT_FIRST) open.delete(largest);
  }
  redraw(-1);
  // A link such as graph.html#node=7 shows that box, #inside=3 the inside of that group.
  const [, verb, which] = /^#(inside|node)=(\d{1,9})$/.exec(location.hash) ?? [];
  if (verb === "node" && Number(which) < graph.boxes) reveal(Number(which));
  if (verb === "inside" && Number(which) < data.groups.parent.length) enter(graph.boxes + Number(which));
}

const data = pageData<Data>();
const page = document.getElementById("page");
if (data && page) start(page, data);
