// A table of a validation: its groups to choose among, its cloud of points, its rows, and its notes.
import { chart, redraw, savePicture } from "../shared/charts";
import type { ECharts, EChartsCoreOption } from "../shared/echarts";
import { element, type Child } from "../shared/element";
import { cloud, drawnOf } from "./cloud";
import { longBody, rowOf } from "../shared/rows";
import { number, percent, plural, type Table } from "./data";

type Column = "row" | "group" | "measured" | "predicted" | "error";

export class View {
  readonly section: HTMLElement;
  readonly place = element("div", { class: "chart", role: "img", "aria-label": "Predicted over measured; the table has the rows" });
  private readonly names: string[];
  private readonly chips = element("div", { class: "chips" });
  private readonly drawnText = element("p", { class: "dim" });
  private readonly list: HTMLElement;
  private readonly turned = element("button", { type: "button" }, "show errors");
  private group: string | null = null;
  private by: Column = "error";
  private down = true;
  private ratio = false;
  private drawn: ECharts | null = null;
  private zoom: Record<string, object> = {};

  constructor(private readonly table: Table, private readonly near: number) {
    this.names = Object.keys(table.groups);
    this.list = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Rows of ${table.name}` });
    const picture = element("button", { type: "button" }, "save picture");
    picture.addEventListener("click", () => this.drawn && savePicture(this.drawn, "validation.png"));
    this.turned.addEventListener("click", () => {
      this.ratio = !this.ratio;
      this.zoom = {};
      this.turned.textContent = this.ratio ? "show predicted" : "show errors";
      this.drawChart();
    });
    const refused = Object.entries(table.refused).map(([reason, count]) => element("li", { class: "refused" }, `${plural(count, "row")} refused: ${reason}`));
    this.section = element("section", { id: table.name },
      element("h2", {}, table.name, element("small", {}, table.title)),
      element("p", { class: "dim" }, `${table.relation}; from ${table.source}`),
      this.names.length > 1 && this.chips,
      element("div", { class: "two" },
        element("div", {}, element("p", { class: "tools" }, this.turned, picture, element("span", { class: "dim" }, "ctrl and wheel zoom, a drag moves, a double click shows all")), this.place, this.drawnText),
        element("div", {}, this.list)),
      element("ul", {}, ...refused, ...table.notes.map((note) => element("li", {}, note))));
    this.drawChips();
    this.drawRows();
  }

  /** Draw the chart for the first time: the section is in the page, and near the window. */
  open(): void {
    if (!this.known().length) {
      this.place.textContent = "all rows are refused";
      return;
    }
    this.drawn = chart(this.place, () => this.option());
    this.drawn.on("datazoom", (event) => {
      for (const { dataZoomId, start, end } of (event as { batch?: { dataZoomId: string; start: number; end: number }[] }).batch ?? []) this.zoom[dataZoomId] = { start, end };
    });
    this.drawn.getZr().on("dblclick", () => {
      this.zoom = {};
      this.drawChart();
    });
    this.sayDrawn();
  }

  private chosen(): number[] {
    return this.table.rows.label.map((_, row) => row).filter((row) => this.group === null || this.table.rows.group[row] === this.group);
  }

  private known(): number[] {
    return this.chosen().filter((row) => this.table.rows.predicted[row] !== null);
  }

  private option(): EChartsCoreOption {
    const known = this.known();
    return known.length ? cloud(this.table, known, this.group, this.ratio, this.near, this.zoom) : { title: [] };
  }

  private drawChart(): void {
    this.sayDrawn();
    if (this.drawn) redraw(this.drawn, this.option());
  }

  private sayDrawn(): void {
    const known = this.known();
    const { points, worst, step } = drawnOf(known);
    const part = `${points.length.toLocaleString("en")} of ${plural(known.length, "point")} drawn: the ${worst} worst, and 1 of ${step} others`;
    this.drawnText.textContent = !known.length ? "all rows are refused" : points.length < known.length ? part : "";
  }

  private drawChips(): void {
    const chip = (text: string, group: string | null, error: number | null) => {
      const button = element("button", { type: "button", "aria-pressed": String(this.group === group) }, text, element("i", {}, percent(error)));
      button.addEventListener("click", () => {
        this.group = group;
        this.zoom = {};
        for (const each of this.chips.children) each.setAttribute("aria-pressed", String(each === button));
        this.drawChart();
        this.drawRows();
      });
      return button;
    };
    this.chips.replaceChildren(
      chip("all", null, this.table.errors.mean),
      ...this.names.map((name) => chip(name || "no group", name, this.table.groups[name]!.mean)));
  }

  private sorted(): number[] {
    const { label, group, measured, predicted, error } = this.table.rows;
    const key: Record<Column, (row: number) => string | number> = {
      row: (row) => label[row]!, group: (row) => group[row]!, measured: (row) => measured[row]!, predicted: (row) => predicted[row] ?? -1,
      error: (row) => (error[row] === null ? -1 : Math.abs(error[row]!)),
    };
    const of = key[this.by];
    const order = (one: number, other: number) => (of(one) < of(other) ? -1 : of(one) > of(other) ? 1 : 0);
    return this.chosen().sort((one, other) => (this.down ? order(other, one) : order(one, other)) || one - other);
  }

  private drawRows(): void {
    const { label, group, measured, predicted, low, high, error, reason } = this.table.rows;
    const unit = this.table.unit;
    const rows = this.sorted();
    const intervals = low.some((value) => value !== null);
    const grouped = this.names.length > 1;
    const line = (at: number): [string, Child[]] => {
      const row = rows[at]!;
      const refused = predicted[row] === null;
      return [refused ? "refused" : "", [
        label[row]!, ...(grouped ? [group[row]!] : []), number(measured[row]!, unit), refused ? "refused" : number(predicted[row]!, unit),
        ...(intervals ? [low[row] === null ? "" : `${number(low[row]!)} … ${number(high[row]!)}`] : []), refused ? reason[row]! : percent(error[row]!, true),
      ]];
    };
    const left = grouped ? 2 : 1;
    const names = ["row", ...(grouped ? ["group"] : []), "measured", "predicted", ...(intervals ? ["interval"] : []), "error"];
    const found = tableOf(names.map((name) => (name === "interval" ? name : this.sorter(name as Column))), [], left);
    const sortedBy = found.tHead!.rows[0]!.cells[names.indexOf(this.by)];
    sortedBy?.setAttribute("aria-sort", this.down ? "descending" : "ascending");
    const focused = this.list.contains(document.activeElement);
    this.list.replaceChildren(found);
    this.list.scrollTop = 0;
    longBody(this.list, found, rows.length, (at) => lineOf(...line(at), left));
    if (focused) sortedBy?.querySelector("button")?.focus({ preventScroll: true });
  }

  private sorter(name: Column): HTMLElement {
    const button = element("button", { type: "button", class: "sort" }, name === this.by ? `${name} ${this.down ? "▾" : "▴"}` : name);
    button.addEventListener("click", () => {
      // Names ascend at first, the largest number comes first.
      this.down = name === this.by ? !this.down : name !== "row" && name !== "group";
      this.by = name;
      this.drawRows();
    });
    return button;
  }
}

/** A table whose first columns are texts, the others numbers; lines have a class and cells. */
export function tableOf(header: Child[], lines: [string, Child[]][], left: number): HTMLTableElement {
  const kind = (at: number) => ({ class: at < left ? "left" : "" });
  return element("table", {},
    element("thead", {}, element("tr", {}, ...header.map((name, at) => element("th", { scope: "col", ...kind(at) }, name)))),
    element("tbody", {}, ...lines.map(([name, cells]) => lineOf(name, cells, left))));
}

const lineOf = (name: string, cells: Child[], left: number): HTMLTableRowElement => rowOf(cells.map((cell, at) => [at < left ? "left" : "", cell]), name);
