// The page of a sweep: linked charts, which all show what one filter keeps.
import "../shared/shared.css";
import "./sweep.css";
import { savePicture } from "../shared/charts";
import { element, pageData, type Child } from "../shared/element";
import { themeButton } from "../shared/theme";
import { unpack, type Content, type Measure, type Sweep } from "./data";
import { Filter, type Around } from "./filter";
import { heat } from "./heat";
import { chips, ranges, reasons, saveCsv, table } from "./lists";
import { parallel } from "./parallel";
import { scatter } from "./scatter";
import { strips } from "./strips";
import { tornado } from "./tornado";

/** The measure beside the first objective where there is no second one: the first of these that is known. */
const BESIDE = ["memory", "communication", "mfu"];

function start(page: HTMLElement, sweep: Sweep): void {
  const filter = new Filter(sweep);
  const kept = element("span", { id: "kept", role: "status" });
  const around: Around = { sweep, filter, changed, choose };
  const clear = action("clear", "clear filters", () => {
    filter.clear();
    changed();
  });
  const ranged = element("span", { id: "ranges" });
  page.before(element("header", {}, element("h1", {}, sweep.title), element("span", { class: "dim" }, sweep.status), kept, ranged, element("span", { class: "space" }), clear,
    action("csv", "save as CSV", () => saveCsv(around)), themeButton()));

  const values = section("wide", "Values", "click to keep only these; the number is of points left");
  const chipList = values.appendChild(element("div", { id: "chips" }));
  const middle = choices("around", [["best", "the best point"], ["median", "the median point"], ["chosen", "the point clicked"]], "best");
  const drawings: ((by: string) => void)[] = [];
  /** What makes the charts, which are drawn then, one after the other: the page is there before them. */
  const charts: (() => void)[] = [];
  const drawable = sweep.ok.length > 0 && sweep.objectives.length > 0;
  if (drawable) addCharts();
  const why = section("", "Why points are not ok", "click to count these above");
  const reasonList = why.appendChild(scrolling("reasons", "Why points are not ok"));
  if (drawable && sweep.axes.length) byAxis();
  const best = section("wide", "Best points that are left", "click one to look at it");
  const tableList = best.appendChild(scrolling("table", "Best points that are left"));
  draw("");
  requestAnimationFrame(() => setTimeout(nextChart));

  function nextChart(): void {
    const make = charts.shift();
    if (!make) return void (document.body.dataset.drawn = "all");
    make();
    setTimeout(nextChart);
  }
  function addCharts(): void {
    const known = sweep.measures.map((measure, at): [string, string] => [String(at), measure.title]);
    const axes = sweep.axes.map((axis, at): [string, string] => [String(at), axis.name]);
    const across = choices("across", known, "0");
    const up = choices("up", known, String(second(sweep)));
    const two = section("", "Two measures", "drag to filter, click a point to look at it; ctrl and wheel zoom, shift and drag move, a double click shows all again");
    const picture = element("button", { type: "button" }, "save picture");
    two.append(element("div", { class: "choices" }, label("across", across), label("up", up), picture));
    const cloud = two.appendChild(drawing("scatter", "Two measures of all points"));
    charts.push(() => {
      const points = scatter(cloud, around, across, up);
      picture.addEventListener("click", () => savePicture(points.drawn, "points.png"));
      drawings.push(points.draw);
    });
    if (sweep.axes.length > 1) {
      const [of, x, y] = [choices("of", known, "0"), choices("heat-x", axes, String(sweep.heat[0])), choices("heat-y", axes, String(sweep.heat[1]))];
      const map = section("", "Heat map", "the best over all other axes; click a cell to filter");
      map.append(element("div", { class: "choices" }, label("of", of), label("across", x), label("up", y)));
      const cells = map.appendChild(drawing("heat", "The best of a measure over two axes"));
      charts.push(() => drawings.push(heat(cells, around, of, x, y).draw));
    }
    if (sweep.axes.length) {
      const lines = element("span");
      const all = section("wide", "All axes at once", "drag along an axis to filter, click on a brush to clear it", lines);
      const strands = all.appendChild(drawing("parallel", "A line per point over all axes and objectives"));
      charts.push(() => {
        const parallels = parallel(strands, around, lines);
        let later = 0;
        drawings.push((by) => {
          // The slowest, after all others; it has drawn its own brushes.
          clearTimeout(later);
          if (by !== "parallel") later = window.setTimeout(parallels.draw, 0);
        });
      });
    }
    const alone = section("", "What each axis alone changes", "");
    const base = element("p", { id: "base", class: "dim" });
    alone.append(element("div", { class: "choices" }, label("around", middle)));
    const bars = alone.appendChild(drawing("tornado", "What each axis alone changes"));
    alone.append(base);
    charts.push(() => drawings.push(tornado(bars, around, middle, base).draw));
  }
  function byAxis(): void {
    const said = element("span");
    const strip = section("wide", `${sweep.objectives[0]!.title} by axis`, "", said);
    const all = strip.appendChild(drawing("strips", "The first objective by the values of each axis"));
    charts.push(() => drawings.push(strips(all, around, said).draw));
  }

  let waiting = 0;
  /** Draw all anew, once for all changes until the next frame. */
  function changed(by = ""): void {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => draw(by));
  }
  function choose(row: number): void {
    filter.chosen = row;
    middle.value = "chosen";
    changed();
  }
  function draw(by: string): void {
    filter.update();
    kept.textContent = filter.active ? `${filter.rows.length.toLocaleString("en-US")} of ${sweep.ok.length.toLocaleString("en-US")} ok points are kept` : "";
    clear.disabled = !filter.active;
    ranges(ranged, around);
    chips(chipList, around);
    reasons(reasonList, around);
    table(tableList, around);
    for (const each of drawings) each(by);
  }

  function section(name: string, title: string, help: string, ...more: Child[]): HTMLElement {
    return page.appendChild(element("section", name ? { class: name } : {}, element("h2", {}, title, element("small", {}, help, ...more))));
  }
}

const action = (id: string, text: string, act: () => void): HTMLButtonElement => {
  const made = element("button", { type: "button", id }, text);
  made.addEventListener("click", act);
  return made;
};
const label = (text: string, control: HTMLElement): HTMLElement => element("label", {}, text, " ", control);
const drawing = (id: string, about: string): HTMLElement => element("div", { id, class: "chart", role: "img", "aria-label": about });
const scrolling = (id: string, about: string): HTMLElement => element("div", { id, tabindex: "0", role: "region", "aria-label": about });

function choices(id: string, entries: [string, string][], chosen: string): HTMLSelectElement {
  const made = element("select", { id }, ...entries.map(([value, text]) => element("option", { value }, text)));
  made.value = chosen;
  return made;
}

/** The place of the measure that is drawn upwards at first. */
function second(sweep: Sweep): number {
  if (sweep.objectives.length > 1) return 1;
  const places = BESIDE.map((name) => sweep.measures.findIndex((measure: Measure) => measure.name === name));
  return places.find((place) => place > 0) ?? Math.min(1, sweep.measures.length - 1);
}

const content = pageData<Content>();
const root = document.getElementById("page");
if (content && root) start(root, unpack(content));
