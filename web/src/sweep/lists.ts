// Values and reasons to choose among, what is filtered by, and the table of the best points.
import { csvText } from "../shared/csv";
import { element } from "../shared/element";
import { save } from "../shared/save";
import { longBody, rowOf } from "../shared/rows";
import { letter, reasonText, shown, valueText } from "./data";
import type { Around } from "./filter";

const counted = (value: number): string => value.toLocaleString("en-US");

/** Fill a place anew; the button that had the focus has it again. */
function replace(place: HTMLElement, children: Node[]): void {
  const before = document.activeElement;
  const at = place.contains(before) ? [...place.querySelectorAll("button")].indexOf(before as HTMLButtonElement) : -1;
  const scrolled = [...place.children].map((each) => each.lastElementChild?.scrollTop ?? 0);
  place.replaceChildren(...children);
  [...place.children].forEach((each, line) => each.lastElementChild && (each.lastElementChild.scrollTop = scrolled[line] ?? 0));
  if (at >= 0) place.querySelectorAll("button")[at]?.focus({ preventScroll: true });
}

function button(pressed: boolean, name: string, act: () => void, ...children: (Node | string)[]): HTMLButtonElement {
  const made = element("button", { type: "button", class: name, "aria-pressed": String(pressed) }, ...children);
  made.addEventListener("click", act);
  return made;
}

/** A chip per value of each axis, with how many points it would leave. */
export function chips(place: HTMLElement, { sweep, filter, changed }: Around): void {
  const lines: Node[] = sweep.axes.map((axis, at) => {
    const count = new Int32Array(axis.values.length);
    for (const row of filter.counted) if (axis.codes[row]! >= 0 && filter.keeps(row, at)) count[axis.codes[row]!]!++;
    const all = axis.values.map((value, code) =>
      button(Boolean(filter.allowed[at]?.has(code)), count[code] ? "chip" : "chip none", () => {
        const codes = new Set(filter.allowed[at]);
        if (!codes.delete(code)) codes.add(code);
        filter.allow(at, codes);
        changed();
      }, value, element("i", {}, counted(count[code]!))));
    return element("div", { class: "axis" }, element("b", { title: axis.name }, axis.name), element("div", {}, ...all));
  });
  if (sweep.fixed.length) lines.push(element("p", { class: "dim" }, `All points: ${sweep.fixed.join(", ")}`));
  replace(place, lines);
}

/** What is filtered by a range of a measure: a click ends it. */
export function ranges(place: HTMLElement, { filter, changed }: Around): void {
  replace(place, [...filter.ranges].map(([measure, [low, high]]) => {
    const from = low > -Infinity ? ` from ${shown(measure, low)}` : "";
    const to = high < Infinity ? ` to ${shown(measure, high)}` : "";
    return button(true, "chip", () => {
      filter.ranges.delete(measure);
      changed();
    }, `${measure.title}${from}${to} ✕`);
  }));
}

/** Why points are not ok, the most frequent reason first. */
export function reasons(place: HTMLElement, { sweep, filter, changed }: Around): void {
  if (!sweep.reasons.length) return place.replaceChildren(element("p", { class: "dim" }, "all points are ok"));
  const most = Math.max(...sweep.reasons.map((each) => each.count));
  replace(place, sweep.reasons.map((each, at) => {
    const bar = element("span", { class: "bar" });
    bar.style.width = `${(100 * each.count) / most}%`;
    return button(filter.reason === at, "reason", () => {
      filter.reason = filter.reason === at ? null : at;
      changed();
    }, bar, element("b", {}, counted(each.count)), element("span", {}, `${letter(at)}  ${reasonText(sweep, at)}`));
  }));
}

/** The best points that are kept. */
export function table(place: HTMLElement, { sweep, filter, choose }: Around): void {
  if (!filter.rows.length) return place.replaceChildren(element("p", { class: "dim" }, "no point that is ok is left"));
  const several = sweep.objectives.length > 1;
  const names = ["#", "point", ...(several ? ["front"] : []), ...sweep.axes.map((axis) => axis.name), ...sweep.measures.map((measure) => measure.title)];
  const line = (at: number) => {
    const row = filter.rows[at]!;
    const number = button(row === filter.chosen, "plain", () => choose(row), String(sweep.numbers[row]));
    const cells = [
      String(at + 1), number, ...(several ? [String(sweep.pareto[row]! + 1)] : []), ...sweep.axes.map((axis) => valueText(axis, row)),
      ...sweep.measures.map((measure) => shown(measure, measure.values[row]!)),
    ];
    const made = rowOf(cells.map((cell) => ["", cell]), row === filter.chosen ? "on" : "");
    made.addEventListener("click", (event) => {
      if (event.target !== number) choose(row);
    });
    return made;
  };
  const head = element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name))));
  const scrolled = place.scrollTop;
  const made = element("table", {}, head);
  replace(place, [made]);
  longBody(place, made, filter.rows.length, line);
  place.scrollTop = scrolled;
}

/** Save the points that are kept, with all digits, as a table. */
export function saveCsv({ sweep, filter }: Around): void {
  const head = ["point", ...sweep.axes.map((axis) => axis.name), ...sweep.measures.map((measure) => measure.name)];
  const lines = filter.rows.map((row) => [
    sweep.numbers[row]!, ...sweep.axes.map((axis) => valueText(axis, row)),
    ...sweep.measures.map((measure) => (Number.isFinite(measure.values[row]!) ? measure.values[row]! : "")),
  ]);
  save(new Blob([csvText([head, ...lines])], { type: "text/csv" }), "points.csv");
}
