// The best of a measure over two axes; a cell without a point that is ok has the letter of the reason.
import { axis as styled, chart, redraw, tooltip } from "../shared/charts";
import { cssColour, levels } from "../shared/colours";
import type { EChartsCoreOption } from "../shared/echarts";
import { cost, cut, letter, reasonText, rough, scaled, shown, told, wide, type Axis } from "./data";
import type { Around } from "./filter";

/** Cells are labelled up to this number; in more there is no room for a number. */
const LABELLED = 64;
/** Reasons that a tooltip has at most. */
const REASONS = 4;

/** What is in the cells, by row of cells and column: the best row that is ok or -1, and rows by reason. */
export interface Cells {
  readonly best: number[][];
  readonly blocked: Map<number, number>[][];
}

export function heat(place: HTMLElement, around: Around, of: HTMLSelectElement, across: HTMLSelectElement, up: HTMLSelectElement) {
  const { sweep, filter } = around;
  let cells: Cells = { best: [], blocked: [] };
  // The chart copies what it is given, and makes of a Map something else.
  const blocked = ([i, j]: readonly number[]) => cells.blocked[j!]![i!]!;
  const places = () => [Number(across.value), Number(up.value)] as const;

  const option = (): EChartsCoreOption => {
    const [ix, iy] = places();
    const [x, y] = [sweep.axes[ix]!, sweep.axes[iy]!];
    const measure = sweep.measures[Number(of.value)]!;
    cells = cellsOf(around, ix, iy, (row) => cost(measure, row));
    const { scale, title } = scaled(measure);
    const log = wide(sweep, measure, 5);
    const level = (row: number) => (log ? Math.log10(measure.values[row]!) : measure.values[row]! / scale);
    const full = cells.best.flatMap((line, j) => line.flatMap((row, i) => (row >= 0 ? [{ value: [i, j, level(row)], row }] : [])));
    const empty = cells.blocked.flatMap((line, j) => line.flatMap((reasons, i) => (reasons.size ? [{ value: [i, j, 0] }] : [])));
    const found = full.map((each) => each.value[2]!);
    const [low, high] = [Math.min(...found), Math.max(...found)];
    const few = x.values.length * y.values.length <= LABELLED;
    const edge = { borderColor: cssColour("--panel"), borderWidth: 1 };
    const names = (axis: Axis, name: object) => styled({ type: "category", name: axis.name, data: axis.values.map(cut), splitLine: { show: false }, ...name });
    const colours = measure.better === "less" ? levels() : levels().reverse();
    return {
      grid: { left: 8, right: 16, top: 76, bottom: 30, containLabel: true },
      tooltip: tooltip((params) => (params.seriesId === "empty" ? whyEmpty(around, blocked(params.value)) : told(sweep, params.data.row))),
      xAxis: names(x, { nameLocation: "middle", nameGap: 24 }),
      yAxis: names(y, { nameLocation: "end", nameTextStyle: { color: cssColour("--dim"), align: "left" } }),
      visualMap: full.length === 0 ? undefined : {
        seriesId: "best", min: low, max: high > low ? high : low + Math.max(Math.abs(low), 1) * 1e-6, dimension: 2, calculable: false, orient: "horizontal", left: "center", top: 0,
        itemHeight: 180, itemWidth: 12, text: [rough(log ? 10 ** high / scale : high), `${title}  ${rough(log ? 10 ** low / scale : low)}`],
        textStyle: { color: cssColour("--ink") }, inRange: { color: colours },
      },
      series: [
        {
          id: "best", type: "heatmap", data: full, itemStyle: edge, progressive: 0,
          label: { show: few, fontSize: 10, formatter: (params: { data: { row: number } }) => shown(measure, measure.values[params.data.row]!, rough) },
        },
        {
          id: "empty", type: "heatmap", data: empty, itemStyle: { ...edge, color: cssColour("--faint") }, progressive: 0,
          label: { show: true, color: cssColour("--ink"), formatter: (params: { value: number[] }) => letter(frequent(blocked(params.value))[0]![0]) },
        },
      ],
    };
  };

  const drawn = chart(place, option);
  drawn.on("click", (event) => {
    const [ix, iy] = places();
    const [i, j] = event.value as [number, number, number];
    const only = (axis: number, code: number) => filter.allowed[axis]?.size === 1 && filter.allowed[axis]!.has(code);
    const again = only(ix, i) && only(iy, j);
    filter.allow(ix, again ? null : new Set([i]));
    filter.allow(iy, again ? null : new Set([j]));
    around.changed();
  });
  for (const each of [of, across, up]) each.addEventListener("change", () => redraw(drawn, option()));
  return { drawn, draw: () => redraw(drawn, option()) };
}

/** Sort the points into cells of two axes: the best of those kept, and why those that are not ok are not. */
export function cellsOf({ sweep, filter }: Around, ix: number, iy: number, costOf: (row: number) => number): Cells {
  const [x, y] = [sweep.axes[ix]!, sweep.axes[iy]!];
  const best = y.values.map(() => x.values.map(() => -1));
  for (const row of filter.rows) {
    const [i, j] = [x.codes[row]!, y.codes[row]!];
    if (i < 0 || j < 0 || Number.isNaN(costOf(row))) continue;
    const old = best[j]![i]!;
    if (old < 0 || costOf(row) < costOf(old)) best[j]![i] = row;
  }
  const blocked = y.values.map(() => x.values.map(() => new Map<number, number>()));
  for (let row = 0; row < sweep.count; row++) {
    const [i, j] = [x.codes[row]!, y.codes[row]!];
    if (sweep.why[row]! < 0 || i < 0 || j < 0 || best[j]![i]! >= 0 || !filter.keepsValues(row)) continue;
    const mine = blocked[j]![i]!;
    mine.set(sweep.why[row]!, (mine.get(sweep.why[row]!) ?? 0) + 1);
  }
  return { best, blocked };
}

const frequent = (reasons: Map<number, number>): [number, number][] => [...reasons].sort((one, other) => other[1] - one[1] || one[0] - other[0]);

function whyEmpty({ sweep }: Around, reasons: Map<number, number>): string {
  const lines = frequent(reasons).slice(0, REASONS).map(([reason, count]) => `${count.toLocaleString("en-US")} ${reasonText(sweep, reason)}`);
  return ["no point is ok", ...lines].join("\n");
}
