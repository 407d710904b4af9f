// The drawing: an SVG whose boxes and frames are buttons, moved and zoomed by mouse, fingers and keys.
import { dark } from "../shared/colours";
import type { Graph } from "./data";
import { CONTROL, type Edge } from "./data";
import { HEIGHT, WIDTH, type Place, type Placed } from "./layout";

const SVG = "http://www.w3.org/2000/svg";
/** Colours of kinds of nodes, light and dark, from the palette of Okabe and Ito. */
const COLOURS: readonly (readonly [string, string])[] = [
  ["#0072b2", "#56a8e0"], ["#3a8fc4", "#8cc4ea"], ["#d55e00", "#ee8a45"], ["#a87900", "#e5b73b"],
  ["#cc79a7", "#dd97bd"], ["#7b858e", "#a9b4be"], ["#5b6670", "#8a949e"],
];
const LETTERS = 25;

/** The colour of a kind of nodes. */
export const colour = (kind: number): string => COLOURS[kind % COLOURS.length]![dark() ? 1 : 0];

function svg<K extends keyof SVGElementTagNameMap>(tag: K, attributes: Record<string, string | number> = {}, ...children: (Node | string)[]): SVGElementTagNameMap[K] {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}
const cut = (text: string, length: number): string => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

export interface Acts {
  pick(thing: number): void;
  open(thing: number): void;
  close(thing: number): void;
}

export class Picture {
  readonly root: SVGSVGElement;
  private readonly all = svg("g");
  private readonly marks = new Map<number, SVGGElement>();
  private lines: { edge: Edge; line: SVGPathElement }[] = [];
  private placed: Placed | null = null;
  private x = 0;
  private y = 0;
  private scale = 1;

  constructor(private readonly graph: Graph, private readonly acts: Acts) {
    const tip = (id: string) => svg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z" }));
    this.root = svg("svg", { tabindex: 0, role: "group", "aria-label": "Graph of dependencies" }, svg("defs", {}, tip("tip"), tip("tip-before"), tip("tip-after")), this.all);
    this.listen();
  }

  /** Draw a layout; the top of `fixed` stays where it is in the window, or else all of it is shown from its top. */
  draw(placed: Placed, fixed: number): void {
    const was = this.find(fixed);
    this.placed = placed;
    this.marks.clear();
    const most = Math.max(1, ...placed.boxes.map((each) => this.graph.ns[each.thing]!));
    this.lines = placed.lines.map(({ edge, points }) => ({ edge, line: svg("path", {
      d: path(points), class: `edge${edge.flag === CONTROL ? " control" : ""}`, "stroke-width": Math.min(4, 1 + Math.log10(edge.weight)), "marker-end": "url(#tip)",
    }) }));
    this.all.replaceChildren(...placed.frames.map((each) => this.frame(each)), ...this.lines.map(({ line }) => line), ...placed.boxes.map((each) => this.box(each, most)));
    const now = this.find(fixed);
    if (was && now) {
      this.x += (was.x - now.x) * this.scale;
      this.y += (was.y - was.height / 2 - now.y + now.height / 2) * this.scale;
      this.move();
    } else this.top();
  }

  private find = (thing: number): Place | undefined => [...(this.placed?.boxes ?? []), ...(this.placed?.frames ?? [])].find((each) => each.thing === thing);

  private frame(place: Place): SVGGElement {
    const { thing, x, y, width, height } = place;
    const title = svg("text", { x: x - width / 2 + 22, y: y - height / 2 + 14, class: "title" }, cut(this.graph.label(thing), Math.floor((width - 26) / 6.2)));
    const sign = svg("text", { x: x - width / 2 + 8, y: y - height / 2 + 14, class: "title" }, "−");
    const head = svg("g", { role: "button", tabindex: 0, "aria-label": `close ${this.graph.label(thing)}`, "data-thing": thing },
      svg("rect", { x: x - width / 2, y: y - height / 2, width, height: 20, class: "head" }), sign, title);
    this.act(head, () => this.acts.close(thing));
    return svg("g", { class: "frame" }, svg("rect", { x: x - width / 2, y: y - height / 2, width, height, rx: 6 }), head);
  }

  private box(place: Place, most: number): SVGGElement {
    const { thing, x, y } = place;
    const [left, top] = [x - WIDTH / 2, y - HEIGHT / 2];
    const group = this.graph.isGroup(thing);
    const summary = this.graph.summary(thing);
    const tint = colour(this.graph.kind[thing]!);
    const made = svg("g", { role: "button", tabindex: 0, class: group ? "box group" : "box", "data-thing": thing, "aria-pressed": "false",
      "aria-label": `${group ? "group " : ""}${this.graph.name(thing)}, ${summary || this.graph.data.kinds[this.graph.kind[thing]!]}` });
    // A group looks like a pile.
    if (group) made.append(svg("rect", { x: left + 4, y: top + 4, width: WIDTH, height: HEIGHT, rx: 4, class: "under" }));
    made.append(svg("rect", { x: left, y: top, width: WIDTH, height: HEIGHT, rx: 4, class: "face" }), svg("rect", { x: left, y: top, width: 5, height: HEIGHT, fill: tint }));
    if (this.graph.ns[thing]) made.append(svg("rect", { x: left + 5, y: top + HEIGHT - 3, width: ((WIDTH - 5) * this.graph.ns[thing]!) / most, height: 3, fill: tint }));
    made.append(svg("text", { x: left + 11, y: top + (summary ? 15 : 22) }, cut(this.graph.label(thing), group ? LETTERS - 4 : LETTERS)));
    if (summary) made.append(svg("text", { x: left + 11, y: top + 28, class: "small" }, cut(summary, 30)));
    if (group) made.append(svg("text", { x: left + WIDTH - 14, y: top + 15, "aria-hidden": "true" }, "+"));
    made.append(svg("title", {}, `${this.graph.name(thing)}\n${this.graph.facts(thing).slice(0, 12).map(([key, value]) => `${key}: ${value}`).join("\n")}`));
    this.act(made, () => (group ? this.acts.open(thing) : this.acts.pick(thing)));
    made.addEventListener("focus", () => this.acts.pick(thing));
    this.marks.set(thing, made);
    return made;
  }

  private act(made: SVGGElement, what: () => void): void {
    made.addEventListener("click", () => this.dragged || what());
    made.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      what();
    });
  }

  /** Light what a thing waits for and what needs it, and pale the rest; -1: nothing. */
  light(thing: number): void {
    const friends = new Set([thing]);
    for (const { edge, line } of this.lines) {
      const way = edge.to === thing ? "before" : edge.from === thing ? "after" : "";
      if (way) friends.add(edge.from).add(edge.to);
      line.classList.toggle("before", way === "before");
      line.classList.toggle("after", way === "after");
      line.setAttribute("marker-end", `url(#tip${way ? `-${way}` : ""})`);
    }
    this.root.classList.toggle("lit", this.marks.has(thing));
    for (const [each, mark] of this.marks) {
      mark.classList.toggle("friend", friends.has(each));
      mark.setAttribute("aria-pressed", String(each === thing));
    }
  }

  focus = (thing: number): void => (this.marks.get(thing) ?? this.all.querySelector<SVGGElement>(`[data-thing="${thing}"]`))?.focus({ preventScroll: true });

  /** Show the top of the drawing, in letters that can be read. */
  top(): void {
    const [width, height] = this.room();
    const { width: across = 1, height: down = 1, boxes = [] } = this.placed ?? {};
    this.scale = Math.max(0.75, Math.min(1, width / across, height / down));
    this.x = (width - across * this.scale) / 2;
    const first = boxes.reduce<Place | null>((one, two) => (one && one.y <= two.y ? one : two), null);
    if (this.x < 0 && first) this.x = Math.min(0, Math.max(width - across * this.scale, width / 2 - first.x * this.scale));
    this.y = 0;
    this.move();
  }
  /** Show all of it. */
  whole(): void {
    const [width, height] = this.room();
    const { width: across = 1, height: down = 1 } = this.placed ?? {};
    this.scale = Math.min(1.5, width / across, height / down);
    [this.x, this.y] = [(width - across * this.scale) / 2, Math.max(0, (height - down * this.scale) / 2)];
    this.move();
  }
  /** Put a thing into the middle. */
  centre(thing: number): void {
    const place = this.find(thing);
    const [width, height] = this.room();
    if (!place) return;
    this.scale = Math.max(this.scale, 0.75);
    [this.x, this.y] = [width / 2 - place.x * this.scale, height / 2 - place.y * this.scale];
    this.move();
  }
  zoom(factor: number, x = this.room()[0] / 2, y = this.room()[1] / 2): void {
    const next = Math.min(4, Math.max(0.03, this.scale * factor));
    this.x = x - ((x - this.x) * next) / this.scale;
    this.y = y - ((y - this.y) * next) / this.scale;
    this.scale = next;
    this.move();
  }

  /** The drawing as a picture of its own. */
  saved(): Blob {
    const copy = this.root.cloneNode(true) as SVGSVGElement;
    const { width = 1, height = 1 } = this.placed ?? {};
    for (const [name, value] of Object.entries({ xmlns: SVG, viewBox: `0 0 ${width} ${height}`, width, height })) copy.setAttribute(name, String(value));
    copy.querySelector("g")!.removeAttribute("transform");
    const style = getComputedStyle(document.documentElement);
    const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).map((rule) => rule.cssText).filter((text) => text.startsWith("svg"));
    copy.prepend(svg("style", {}, rules.join("\n").replace(/var\((--[\w-]+)\)/g, (_, name: string) => style.getPropertyValue(name).trim())));
    return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
  }

  private room = (): [number, number] => [this.root.clientWidth, this.root.clientHeight];
  private move = (): void => this.all.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);

  private dragged = false;
  private listen(): void {
    let grip: [number, number] | null = null;
    this.root.addEventListener("pointerdown", (event) => {
      grip = [event.clientX, event.clientY];
      this.dragged = false;
    });
    addEventListener("pointermove", (event) => {
      if (!grip) return;
      const [dx, dy] = [event.clientX - grip[0], event.clientY - grip[1]];
      if (!this.dragged && Math.hypot(dx, dy) < 4) return;
      this.dragged = true;
      grip = [event.clientX, event.clientY];
      this.x += dx;
      this.y += dy;
      this.move();
    });
    addEventListener("pointerup", () => (grip = null));
    addEventListener("pointercancel", () => (grip = null));
    this.root.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = this.root.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    const steps: Record<string, [number, number]> = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    this.root.addEventListener("keydown", (event) => {
      const step = steps[event.key];
      if (step) [this.x, this.y] = [this.x + step[0], this.y + step[1]];
      else if (event.key === "+") return this.zoom(1.25);
      else if (event.key === "-") return this.zoom(0.8);
      else if (event.key === "0") return this.whole();
      else return;
      event.preventDefault();
      this.move();
    });
  }
}

/** A smooth line through the points. */
function path(points: readonly { x: number; y: number }[]): string {
  const at = (point: { x: number; y: number }) => `${point.x.toFixed(1)} ${point.y.toFixed(1)}`;
  const middle = (one: { x: number; y: number }, two: { x: number; y: number }) => ({ x: (one.x + two.x) / 2, y: (one.y + two.y) / 2 });
  let text = `M${at(points[0]!)}`;
  for (let i = 1; i < points.length - 1; i++) text += `Q${at(points[i]!)} ${at(i === points.length - 2 ? points[i + 1]! : middle(points[i]!, points[i + 1]!))}`;
  return points.length === 2 ? `${text}L${at(points[1]!)}` : text;
}
