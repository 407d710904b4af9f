// Predicted over measured, or the errors: a point per row, coloured by group.
import { axis as styled, tooltip } from "../shared/charts";
import { cssColour, seriesColour } from "../shared/colours";
import type { CustomSeriesRenderItemAPI, CustomSeriesRenderItemParams, CustomSeriesRenderItemReturn, EChartsCoreOption } from "../shared/echarts";
import { number, percent, type Table } from "./data";

/** Points that are drawn at most; a quarter of them are the worst. */
export const POINTS = 2000;
/** Groups that have colours of their own. */
const COLOURS = 6;

/** The rows to draw of those that are known, which come worst first: a part of them the worst, evenly chosen others. */
export function drawnOf(known: readonly number[]): { points: readonly number[]; worst: number; step: number } {
  const worst = POINTS / 4;
  const step = Math.max(1, Math.ceil((known.length - worst) / (POINTS - worst)));
  return { points: known.length <= POINTS ? known : known.filter((_, at) => at < worst || at % step === 0), worst, step };
}

/** A cloud of the rows `known`, all with a prediction, of one group or of all; `ratio`: their errors. */
export function cloud(table: Table, known: readonly number[], only: string | null, ratio: boolean, near: number, zoom: Record<string, object>): EChartsCoreOption {
  const { measured, predicted, low, high, label, error, group } = table.rows;
  const { points } = drawnOf(known);
  let [least, most] = [Infinity, 0];
  for (const row of known) {
    least = Math.min(least, measured[row]!, predicted[row]!);
    most = Math.max(most, measured[row]!, predicted[row]!);
  }
  const ends = [least / 1.15, most * 1.15] as const;
  const at = (row: number, value: number) => (ratio ? value / measured[row]! - 1 : value);
  /** Where the prediction is a factor of the measurement. */
  const edge = (factor: number): [number, number][] => ends.map((end) => [end, ratio ? factor - 1 : end * factor]);
  const far = (row: number) => Math.max(...[predicted[row], low[row], high[row]].map((value) => Math.abs((value ?? measured[row]!) / measured[row]! - 1)));
  const off = 1.1 * points.reduce((worst, row) => Math.max(worst, far(row)), near);
  const names = Object.keys(table.groups);
  const many = names.length > COLOURS;
  const split = many || only !== null ? [only] : names;
  const rowsOf = split.map((name) => (many || only !== null ? points : points.filter((row) => group[row] === name)));
  const colourOf = (name: string | null) => seriesColour(many ? 0 : Math.max(0, names.indexOf(name ?? "")));
  const nameOf = (name: string | null) => name || "rows";
  const dim = cssColour("--dim");
  const logarithmic = { type: "log", min: ends[0], max: ends[1], splitLine: { show: false }, axisLabel: { color: dim, hideOverlap: true, formatter: (value: number) => number(value), ...marks(ends) }, axisTick: marks(ends) };
  const errors = { type: "value", min: -off, max: off, axisLabel: { color: dim, showMinLabel: false, showMaxLabel: false, formatter: (value: number) => `${value > 0 ? "+" : ""}${(100 * value).toFixed(off < 0.05 ? 1 : 0)} %` } };
  return {
    grid: { left: 8, right: 16, top: split.length > 1 ? 62 : 34, bottom: 34, containLabel: true },
    legend: split.length > 1 ? { top: 0, left: 0, type: "scroll", data: split.map(nameOf), textStyle: { color: cssColour("--ink") } } : { show: false },
    tooltip: tooltip((params) => {
      const row = rowsOf[Number(params.seriesId.split("-")[1])]![params.dataIndex]!;
      return `${label[row]}\nmeasured ${number(measured[row]!, table.unit)}\npredicted ${number(predicted[row]!, table.unit)} (${percent(error[row]!, true)})`;
    }),
    dataZoom: ["x", "y"].map((id) => ({ id, type: "inside", [`${id}AxisIndex`]: 0, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: true, moveOnMouseWheel: false, ...zoom[id] })),
    xAxis: styled({ name: `measured, ${table.unit}`, nameLocation: "middle", nameGap: 24, ...logarithmic }),
    yAxis: styled({ name: ratio ? "error" : `predicted, ${table.unit}`, nameLocation: "end", nameTextStyle: { color: dim, align: "left" }, ...(ratio ? errors : logarithmic) }),
    series: [
      band([...edge(1 - near), ...edge(1 + near).reverse()], ends),
      { id: "equal", type: "line", silent: true, symbol: "none", tooltip: { show: false }, data: edge(1), lineStyle: { color: dim, width: 1 } },
      ...split.flatMap((name, place) => {
        const rows = rowsOf[place]!;
        const stated = rows.filter((row) => low[row] !== null && high[row] !== null);
        const colour = colourOf(name);
        return [
          intervals(nameOf(name), stated.map((row) => [measured[row]!, at(row, low[row]!), at(row, high[row]!)]), colour),
          {
            id: `rows-${place}`, name: nameOf(name), type: "scatter", data: rows.map((row) => [measured[row]!, at(row, predicted[row]!)]),
            symbolSize: known.length > 300 ? 4 : 8, itemStyle: { color: colour, opacity: 0.7 }, large: rows.length > 1000,
          },
        ];
      }),
    ],
  };
}

/** Marks of a logarithmic axis: powers of ten, between them 2 and 5, or round numbers where the ends are close. */
function marks([low, high]: readonly [number, number]): { customValues?: number[] } {
  if (high < 5 * low) {
    const step = 10 ** Math.floor(Math.log10(high - low));
    const width = [1, 2, 5].map((each) => each * step).find((each) => (high - low) / each <= 6) ?? 10 * step;
    const first = Math.ceil(low / width);
    return { customValues: Array.from({ length: Math.floor(high / width) - first + 1 }, (_, at) => (first + at) * width) };
  }
  const steps = high > 300 * low ? [1] : [1, 2, 5];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) found.push(...steps.map((step) => step * 10 ** power));
  return { customValues: found.filter((value) => value >= low && value <= high) };
}

/** What is near, in grey. */
function band(corners: [number, number][], ends: readonly [number, number]): object {
  return {
    id: "near", type: "custom", silent: true, clip: true, tooltip: { show: false }, data: [[...ends]], z: 0,
    renderItem: (_: CustomSeriesRenderItemParams, api: CustomSeriesRenderItemAPI): CustomSeriesRenderItemReturn => ({
      type: "polygon", shape: { points: corners.map((corner) => api.coord(corner) as [number, number]) }, style: { fill: cssColour("--line"), opacity: 0.5 },
    }),
  };
}

/** Stated intervals as upright lines. */
function intervals(name: string, data: number[][], colour: string): object {
  return {
    name, type: "custom", silent: true, clip: true, tooltip: { show: false }, data, color: colour, encode: { x: 0, y: [1, 2] },
    renderItem: (_: CustomSeriesRenderItemParams, api: CustomSeriesRenderItemAPI): CustomSeriesRenderItemReturn => {
      const [x1, y1] = api.coord([api.value(0), api.value(1)]) as [number, number];
      const [x2, y2] = api.coord([api.value(0), api.value(2)]) as [number, number];
      return { type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: colour, lineWidth: 1 } };
    },
  };
}
