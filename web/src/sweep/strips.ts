// The first objective against each axis, with the best and the median of each value.
import { axis as styled, chart, redraw, tooltip } from "../shared/charts";
import { cssColour, seriesColour } from "../shared/colours";
import type { EChartsCoreOption } from "../shared/echarts";
import { cost, cut, some, told } from "./data";
import type { Around } from "./filter";
import { measureAxis } from "./scatter";

/** Points that are drawn at most for each axis. */
const POINTS = 1500;
/** Values of an axis that are named at most. */
const NAMED = 8;
const HIGH = 220;
const LEFT = 64;

export function strips(place: HTMLElement, around: Around, said: HTMLElement) {
  const { sweep, filter } = around;
  const goal = sweep.objectives[0]!;
  let drawnRows: number[][] = [];
  const byGoal = Int32Array.from(sweep.ok).sort((one, other) => cost(goal, one) - cost(goal, other));
  // The fractional parts of multiples of the golden ratio: even, and the same every time.
  const spread = (row: number) => 0.6 * (((row * 0.6180339887) % 1) - 0.5);
  const across = () => Math.min(sweep.axes.length, place.clientWidth > 800 ? 4 : place.clientWidth > 420 ? 2 : 1);

  const option = (): EChartsCoreOption => {
    const columns = across();
    const lines = Math.ceil(sweep.axes.length / columns);
    place.style.height = `${HIGH * lines}px`;
    const { scale, title, axis: vertical } = measureAxis(sweep, goal);
    const drawn = some(filter.rows, POINTS);
    const few = drawn.length < filter.rows.length ? `; ${drawn.length.toLocaleString("en-US")} of ${filter.rows.length.toLocaleString("en-US")} points are drawn` : "";
    said.textContent = `orange: best of a value, line: median${few}`;
    drawnRows = sweep.axes.map((axis) => drawn.filter((row) => axis.codes[row]! >= 0));
    const wide = (place.clientWidth - LEFT - 10) / columns;
    const values = (rows: readonly number[]) => rows.map((row) => goal.values[row]! / scale);
    const ends = { min: "dataMin", max: "dataMax" };
    const grids = sweep.axes.map((_, at) => ({
      left: LEFT + wide * (at % columns), top: 24 + HIGH * Math.floor(at / columns), width: wide - 14, height: HIGH - 74,
    }));
    const all = values(sweep.ok);
    const inside = new Uint8Array(sweep.count);
    for (const row of filter.rows) inside[row] = 1;
    const kept = byGoal.filter((row) => inside[row]);
    const shared = vertical.type === "log" ? {} : { min: all.reduce((a, b) => Math.min(a, b), Infinity), max: all.reduce((a, b) => Math.max(a, b), -Infinity), ...(all.length > 1 ? {} : ends) };
    return {
      tooltip: tooltip((params) => told(sweep, drawnRows[Number(params.seriesId.split("-")[1])]![params.dataIndex]!)),
      grid: grids,
      xAxis: sweep.axes.map((axis, at) => {
        const step = Math.ceil(axis.values.length / NAMED);
        const codes = axis.values.map((_, code) => code).filter((code) => code % step === 0);
        const long = codes.reduce((sum, code) => sum + Math.min(axis.values[code]!.length, 14) + 2, 0) * 6 > wide;
        return styled({
          gridIndex: at, type: "value", min: -0.6, max: axis.values.length - 0.4, name: cut(axis.name), nameLocation: "middle", nameGap: long ? 34 : 22, splitLine: { show: false },
          axisTick: { customValues: codes }, axisLabel: { color: cssColour("--dim"), fontSize: 10, rotate: long ? 25 : 0, customValues: codes, formatter: (code: number) => cut(axis.values[code] ?? "") },
        });
      }),
      yAxis: sweep.axes.map((_, at) => styled({
        gridIndex: at, ...vertical, ...shared, name: at % columns ? "" : title, nameTextStyle: { color: cssColour("--dim"), align: "left", padding: [0, 0, 0, -LEFT + 8] }, nameGap: 8,
        axisLabel: { ...(vertical.axisLabel as object), show: at % columns === 0, ...(vertical.type === "log" ? {} : { showMinLabel: false, showMaxLabel: false }) },
      })),
      series: sweep.axes.flatMap((axis, at) => {
        const on = { xAxisIndex: at, yAxisIndex: at };
        const best: (number | null)[][] = [];
        const middle: (number | null)[][] = [];
        const ofCode: number[][] = axis.values.map(() => []);
        for (const row of kept) ofCode[axis.codes[row]!]?.push(row);
        ofCode.forEach((rows, code) => {
          if (!rows.length) return;
          const [first, half] = values([rows[0]!, rows[Math.floor((rows.length - 1) / 2)]!]) as [number, number];
          best.push([code - 0.4, first], [code + 0.4, first], [null, null]);
          middle.push([code - 0.4, half], [code + 0.4, half], [null, null]);
        });
        const mark = (id: string, data: (number | null)[][], colour: string) => ({
          ...on, id: `${id}-${at}`, type: "line", data, silent: true, symbol: "none", tooltip: { show: false }, lineStyle: { color: colour, width: 2 }, z: 3,
        });
        return [
          {
            ...on, id: `points-${at}`, type: "scatter", symbolSize: 3, large: true, largeThreshold: 500, itemStyle: { color: seriesColour(0), opacity: 0.5 },
            data: drawnRows[at]!.map((row) => [axis.codes[row]! + spread(row), goal.values[row]! / scale]),
          },
          mark("middle", middle, cssColour("--ink")),
          mark("best", best, seriesColour(1)),
        ];
      }),
    };
  };

  const drawn = chart(place, option);
  // Grids are laid out in pixels.
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth === width) return;
    width = place.clientWidth;
    redraw(drawn, option());
  }).observe(place);
  drawn.on("click", (event) => {
    const [kind, at] = (event.seriesId ?? "").split("-");
    if (kind === "points") around.choose(drawnRows[Number(at)]![event.dataIndex]!);
  });
  return { drawn, draw: () => redraw(drawn, option()) };
}
