// Two measures of all points: a drag keeps a rectangle, a click looks at a point.
import { axis as styled, chart, redraw, tooltip } from "../shared/charts";
import { cssColour, seriesColour } from "../shared/colours";
import type { EChartsCoreOption } from "../shared/echarts";
import { cost, ends, number, scaled, told, wide, type Measure, type Sweep } from "./data";
import { onDrag } from "./drag";
import type { Around } from "./filter";

const GRID = { left: 8, right: 20, top: 58, bottom: 36, containLabel: true };
/** From so many points on they are drawn at once, as one shape. */
const LARGE = 1000;

/** The scale of a measure and its axis, logarithmic where the values are far apart. */
export function measureAxis(sweep: Sweep, measure: Measure): { scale: number; title: string; axis: Record<string, unknown> } {
  const { scale, title } = scaled(measure);
  const label = { color: cssColour("--dim"), formatter: number, hideOverlap: true };
  if (!wide(sweep, measure, 12)) return { scale, title, axis: { type: "value", scale: true, axisLabel: label } };
  const [low, high] = ends(measure, sweep.ok).map((value) => value / scale) as [number, number];
  const steps = high > 300 * low ? [1] : [1, 2, 5];
  const marks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) marks.push(...steps.map((step) => step * 10 ** power));
  const room = (high / low) ** 0.03;
  const inside = marks.filter((mark) => mark >= low / room && mark <= high * room);
  return {
    scale, title,
    axis: {
      type: "log", min: low / room, max: high * room, axisLabel: { ...label, customValues: inside }, axisTick: { customValues: inside },
      splitLine: { show: false },
    },
  };
}

export function scatter(place: HTMLElement, around: Around, across: HTMLSelectElement, up: HTMLSelectElement) {
  const { sweep, filter } = around;
  let zoom: Record<string, object> = {};
  /** The rows behind the items of each series. */
  let drawnRows: Record<string, readonly number[]> = {};
  const chosen = () => [across, up].map((each) => sweep.measures[Number(each.value)]!) as [Measure, Measure];

  const option = (): EChartsCoreOption => {
    const [x, y] = chosen();
    const [sx, sy] = [measureAxis(sweep, x), measureAxis(sweep, y)];
    const inside = new Set(filter.rows);
    const front = frontOf(filter.rows, x, y);
    drawnRows = { out: sweep.ok.filter((row) => !inside.has(row)), kept: filter.rows, front, chosen: filter.chosen === null ? [] : [filter.chosen] };
    const points = (id: string, name: string) => ({
      id, name, type: "scatter", data: drawnRows[id]!.map((row) => [x.values[row]! / sx.scale, y.values[row]! / sy.scale]), large: drawnRows[id]!.length > LARGE,
    });
    const red = seriesColour(1);
    return {
      grid: GRID,
      legend: { top: 0, left: 0, data: ["filtered out", "kept", "Pareto front"], textStyle: { color: cssColour("--ink") } },
      tooltip: tooltip((params) => told(sweep, drawnRows[params.seriesId]![params.dataIndex]!)),
      dataZoom: ["x", "y"].map((id) => ({
        id, type: "inside", [`${id}AxisIndex`]: 0, filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: "shift", moveOnMouseWheel: false, ...zoom[id],
      })),
      xAxis: styled({ name: sx.title, nameLocation: "middle", nameGap: 26, ...sx.axis }),
      yAxis: styled({ name: sy.title, nameLocation: "end", nameTextStyle: { color: cssColour("--dim"), align: "left" }, ...sy.axis }),
      series: [
        { ...points("out", "filtered out"), silent: true, symbolSize: 3, itemStyle: { color: cssColour("--faint") } },
        { ...points("kept", "kept"), symbolSize: 5, itemStyle: { color: seriesColour(0), opacity: 0.5 } },
        {
          ...points("front", "Pareto front"), type: "line", step: x.better === "less" ? "end" : "start", symbol: "circle", symbolSize: 7, showAllSymbol: true, z: 3,
          itemStyle: { color: red }, lineStyle: { color: red, width: 1.5 },
        },
        { ...points("chosen", "clicked"), silent: true, symbolSize: 14, z: 4, itemStyle: { color: "transparent", borderColor: cssColour("--ink"), borderWidth: 2 } },
      ],
    };
  };

  const drawn = chart(place, option);
  drawn.on("click", (event) => {
    const row = drawnRows[event.seriesId ?? ""]?.[event.dataIndex];
    if (row !== undefined) around.choose(row);
  });
  drawn.on("datazoom", (event) => {
    const parts = (event as { batch?: { dataZoomId: string; start: number; end: number }[] }).batch ?? [];
    for (const { dataZoomId, start, end } of parts) zoom[dataZoomId] = { start, end };
  });
  drawn.getZr().on("dblclick", () => {
    zoom = {};
    filter.clear();
    around.changed();
  });
  onDrag(place, (one, other) => {
    const corners = [one, other].map((corner) => drawn.convertFromPixel({ gridIndex: 0 }, corner) as [number, number]);
    chosen().forEach((measure, at) => {
      const { scale } = scaled(measure);
      filter.ranges.set(measure, corners.map((corner) => corner[at]! * scale).sort((a, b) => a - b) as [number, number]);
    });
    around.changed();
  });
  for (const each of [across, up]) {
    each.addEventListener("change", () => {
      zoom = {};
      redraw(drawn, option());
    });
  }
  return { drawn, draw: () => redraw(drawn, option()) };
}

/** The rows that no other one beats in both measures, in the order in which they are joined. */
export function frontOf(rows: readonly number[], x: Measure, y: Measure): number[] {
  const known = rows.filter((row) => Number.isFinite(x.values[row]!) && Number.isFinite(y.values[row]!));
  known.sort((one, other) => cost(x, one) - cost(x, other) || cost(y, one) - cost(y, other));
  let least = Infinity;
  const found = known.filter((row) => {
    const better = cost(y, row) < least;
    if (better) least = cost(y, row);
    return better;
  });
  return x.better === "less" ? found : found.reverse();
}
