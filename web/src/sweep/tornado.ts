// What each axis alone changes, around one point.
import { axis as styled, chart, redraw, tooltip } from "../shared/charts";
import { cssColour, seriesColour } from "../shared/colours";
import type { CustomSeriesRenderItemAPI, CustomSeriesRenderItemParams, CustomSeriesRenderItemReturn, EChartsCoreOption } from "../shared/echarts";
import { cost, cut, described, number, scaled, shown, told, valueText, type Axis } from "./data";
import type { Around } from "./filter";

interface Swing {
  readonly axis: Axis;
  readonly low: number;
  readonly high: number;
}

export function tornado(place: HTMLElement, around: Around, which: HTMLSelectElement, said: HTMLElement) {
  const { sweep, filter } = around;
  const goal = sweep.objectives[0]!;
  let items: Record<string, number[]> = {};

  const basePoint = (): number => {
    if (which.value === "chosen" && filter.chosen !== null) return filter.chosen;
    if (which.value !== "median") return filter.rows[0] ?? -1;
    const sorted = [...filter.rows].sort((one, other) => cost(goal, one) - cost(goal, other));
    return sorted[Math.floor((sorted.length - 1) / 2)] ?? -1;
  };

  const option = (): EChartsCoreOption => {
    const base = basePoint();
    said.textContent = base < 0 ? "no point that is ok is left" : `point ${sweep.numbers[base]}: ${described(sweep, base).join(", ")}: ${shown(goal, goal.values[base]!)}`;
    const span = (one: Swing) => Math.abs(goal.values[one.high]! - goal.values[one.low]!);
    const found = base < 0 ? [] : swings(around, base).sort((one, other) => span(one) - span(other));
    const { scale, title } = scaled(goal);
    const middle = base < 0 ? 0 : goal.values[base]! / scale;
    const at = (row: number) => goal.values[row]! / scale;
    const all = [middle, ...found.flatMap((one) => [at(one.low), at(one.high)])];
    const [least, most] = [Math.min(...all), Math.max(...all)];
    // Texts stand beyond the ends of the bars.
    const room = 0.4 * (most - least || Math.abs(middle) || 1);
    items = { better: found.map((one) => one.low), worse: found.map((one) => one.high) };
    const change = (row: number) => {
      const value = 100 * (goal.values[row]! / goal.values[base]! - 1);
      return Number.isFinite(value) ? `${value.toLocaleString("en-US", { maximumSignificantDigits: 3, signDisplay: "always" })} %` : "";
    };
    const side = (id: "better" | "worse", colour: string) => ({
      id, name: id, type: "custom", color: colour, data: items[id]!.map((row, line) => [at(row), line]), encode: { x: 0, y: 1 },
      renderItem: (_: CustomSeriesRenderItemParams, api: CustomSeriesRenderItemAPI): CustomSeriesRenderItemReturn => {
        const line = Number(api.value(1));
        const row = items[id]![line]!;
        if (row === base) return { type: "group", children: [] };
        const [from, to] = [api.coord([middle, line]), api.coord([at(row), line])];
        const high = Math.min(20, 0.6 * Number((api.size!([0, 1]) as number[])[1]));
        const left = to[0]! < from[0]!;
        return {
          type: "rect",
          shape: { x: Math.min(from[0]!, to[0]!), y: to[1]! - high / 2, width: Math.max(1, Math.abs(to[0]! - from[0]!)), height: high },
          style: { fill: colour },
          textConfig: { position: left ? "left" : "right", distance: 4 },
          textContent: { type: "text", style: { text: `${cut(valueText(found[line]!.axis, row))} ${change(row)}`, fill: cssColour("--ink"), fontSize: 10 } },
        };
      },
    });
    return {
      grid: { left: 8, right: 12, top: 30, bottom: 34, containLabel: true },
      legend: { top: 0, left: 0, textStyle: { color: cssColour("--ink") } },
      tooltip: tooltip((params) => told(sweep, items[params.seriesId]![params.dataIndex]!)),
      xAxis: styled({ type: "value", name: title, nameLocation: "middle", nameGap: 24, min: least - room, max: most + room, axisLabel: { color: cssColour("--dim"), formatter: number, hideOverlap: true, showMinLabel: false, showMaxLabel: false } }),
      yAxis: styled({ type: "category", data: found.map((one) => `${cut(one.axis.name)} = ${cut(valueText(one.axis, base))}`), splitLine: { show: false } }),
      series: [
        { ...side("better", seriesColour(0)), markLine: { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: cssColour("--dim"), type: "solid" }, data: base < 0 ? [] : [{ xAxis: middle }] } },
        side("worse", seriesColour(1)),
      ],
    };
  };

  place.style.height = `${90 + 38 * Math.max(sweep.axes.length, 2)}px`;
  const drawn = chart(place, option);
  drawn.on("click", (event) => {
    const row = items[event.seriesId ?? ""]?.[event.dataIndex];
    if (row !== undefined) around.choose(row);
  });
  which.addEventListener("change", () => redraw(drawn, option()));
  return { drawn, draw: () => redraw(drawn, option()) };
}

/** The best and the worst point that differs from a point in one axis, for each axis that is varied there. */
export function swings({ sweep }: Around, base: number): Swing[] {
  const goal = sweep.objectives[0]!;
  return sweep.axes.flatMap((axis, moved) => {
    if (axis.codes[base]! < 0) return [];
    let [low, high] = [base, base];
    for (const row of sweep.ok) {
      const code = axis.codes[row]!;
      if (code < 0 || code === axis.codes[base]) continue;
      const alone = sweep.axes.every(
        (other, at) => at === moved || other.codes[row] === other.codes[base] || other.codes[row]! < 0 || other.codes[base]! < 0,
      );
      if (!alone) continue;
      if (cost(goal, row) < cost(goal, low)) low = row;
      if (cost(goal, row) > cost(goal, high)) high = row;
    }
    return [{ axis, low, high }];
  });
}
