// All axes at once: a line per point over its values and the objectives. A brush on an axis is a filter.
import { chart, redraw } from "../shared/charts";
import { cssColour, levels } from "../shared/colours";
import type { EChartsCoreOption } from "../shared/echarts";
import { cost, cut, ends, rough, shown, some, wide, type Measure } from "./data";
import type { Around } from "./filter";

/** Lines that are drawn at most; those that are kept come first. */
const LINES = 1500;
/** Values of an axis that are named at most. */
const NAMED = 14;
type Interval = [number, number];

export function parallel(place: HTMLElement, around: Around, said: HTMLElement) {
  const { sweep, filter } = around;
  const goal = sweep.objectives[0]!;
  // Where a point is between the best, 0, and the worst, 1.
  const share = new Float32Array(sweep.count);
  [...sweep.ok].sort((one, other) => cost(goal, one) - cost(goal, other)).forEach((row, at) => (share[row] = at / Math.max(sweep.ok.length - 1, 1)));
  const open = sweep.axes.map((axis) => sweep.ok.some((row) => axis.codes[row]! < 0));
  // Lines of one value are spread, the best below, so that they can be told apart.
  const onAxis = (axis: number, row: number) => {
    const code = sweep.axes[axis]!.codes[row]!;
    return code < 0 ? -1 : code + 0.5 * (share[row]! - 0.5);
  };
  const turn = (measure: Measure, value: number) => (wide(sweep, measure, 5) ? Math.log(value) : value);
  const back = (measure: Measure, value: number) => (wide(sweep, measure, 5) ? Math.exp(value) : value);
  const spans = sweep.objectives.map((measure) => ends(measure, sweep.ok).map((value) => turn(measure, value)) as Interval);
  const logs = sweep.objectives.map((measure) => wide(sweep, measure, 5));

  const option = (): EChartsCoreOption => {
    const inside = new Set(filter.rows);
    const others = sweep.ok.filter((row) => !inside.has(row));
    const faint = some(others, LINES / 5);
    // The best are drawn last, above all others.
    const kept = some(filter.rows, LINES - faint.length).sort((one, other) => share[other]! - share[one]!);
    const count = faint.length + kept.length;
    said.textContent = count < sweep.ok.length ? `; ${count.toLocaleString("en-US")} of ${sweep.ok.length.toLocaleString("en-US")} lines are drawn` : "";
    const line = (row: number) => [
      ...sweep.axes.map((_, axis) => onAxis(axis, row)),
      ...sweep.objectives.map((measure, at) => (logs[at] ? Math.log(measure.values[row]!) : measure.values[row]!)),
    ];
    const colours = levels();
    const level = (row: number) => Math.min(colours.length - 1, Math.floor(share[row]! * colours.length));
    const lines: number[][][] = colours.map(() => []);
    for (const row of kept) lines[level(row)]!.push(line(row));
    const common = { type: "parallel", silent: true, progressive: 0 };
    const label = { color: cssColour("--ink"), fontSize: 10, textBorderColor: cssColour("--panel"), textBorderWidth: 3 };
    const narrow = place.clientWidth < 90 * (sweep.axes.length + sweep.objectives.length);
    const axisLooks = { z: 30, nameTextStyle: { color: cssColour("--ink"), fontSize: 12, align: narrow ? "left" : "center" }, nameRotate: narrow ? 25 : 0, nameGap: 12, splitLine: { show: false } };
    const axes = sweep.axes.map((axis, at) => {
      const step = Math.ceil(axis.values.length / NAMED);
      const codes = axis.values.map((_, code) => code).filter((code) => code % step === 0);
      const marks = open[at] ? [-1, ...codes] : codes;
      return {
        ...axisLooks, id: `axis-${at}`, dim: at, name: cut(axis.name), type: "value", min: open[at] ? -1.3 : -0.4, max: axis.values.length - 0.6, realtime: false,
        axisTick: { customValues: marks }, axisLabel: { ...label, customValues: marks, formatter: (code: number) => (code < 0 ? "not varied" : cut(axis.values[code] ?? "")) },
      };
    });
    const measures = sweep.objectives.map((measure, at) => {
      const [low, high] = spans[at]!;
      const marks = [0, 0.25, 0.5, 0.75, 1].map((each) => low + each * (high - low));
      return {
        ...axisLooks, id: `measure-${at}`, dim: sweep.axes.length + at, name: measure.title, type: "value", min: low, max: high > low ? high : low + 1, realtime: false,
        axisTick: { customValues: marks }, axisLabel: { ...label, customValues: marks, formatter: (value: number) => shown(measure, back(measure, value), rough) },
      };
    });
    return {
      tooltip: { show: false },
      parallel: {
        left: 40, right: 70, top: narrow ? 74 : 40, bottom: 16,
        parallelAxisDefault: { areaSelectStyle: { width: 18, borderColor: cssColour("--accent"), color: cssColour("--accent"), opacity: 0.3 }, axisLine: { lineStyle: { color: cssColour("--dim") } }, axisTick: { lineStyle: { color: cssColour("--dim") } } },
      },
      parallelAxis: [...axes, ...measures],
      series: [
        { ...common, lineStyle: { width: 1, opacity: 0.6, color: cssColour("--faint") }, inactiveOpacity: 0.3, data: faint.map(line) },
        // A series for each colour, the best last: lines with looks of their own take twice the time.
        ...colours.map((color, at) => ({ ...common, lineStyle: { width: 1, opacity: 0.5, color }, inactiveOpacity: 0.04, data: lines[at]! })).reverse(),
      ],
    };
  };

  /** The brushes that say what the filter says. */
  const brushes = () => [
    ...sweep.axes.map((_, at) => ({
      parallelAxisId: `axis-${at}`, intervals: [...(filter.allowed[at] ?? [])].sort((a, b) => a - b).map((code) => [code - 0.3, code + 0.3]),
    })),
    ...sweep.objectives.map((measure, at) => {
      const range = filter.ranges.get(measure);
      const [low, high] = spans[at]!;
      const inside = (value: number) => Math.min(Math.max(logs[at] && value <= 0 ? low : turn(measure, value), low), high);
      return { parallelAxisId: `measure-${at}`, intervals: range ? [range.map(inside)] : [] };
    }),
  ];
  const drawn = chart(place, option);
  const draw = () => {
    redraw(drawn, option());
    const batch = brushes().filter((each) => each.intervals.length);
    if (batch.length) drawn.dispatchAction({ type: "axisAreaSelect", batch }, { silent: true });
  };
  drawn.on("axisareaselected", (event) => {
    const { parallelAxisId, intervals } = event as unknown as { parallelAxisId: string; intervals: Interval[] };
    const [kind, at] = parallelAxisId.split("-") as [string, string];
    const place = Number(at);
    if (kind === "axis") {
      const codes = new Set(sweep.axes[place]!.values.map((_, code) => code));
      if (open[place]) codes.add(-1);
      // A line is at most 0.25 away from its value.
      for (const code of codes) if (!intervals.some(([low, high]) => low <= code + 0.26 && high >= code - 0.26)) codes.delete(code);
      filter.allow(place, codes);
    } else {
      const measure = sweep.objectives[place]!;
      const last = intervals[intervals.length - 1];
      if (last) filter.ranges.set(measure, reach(measure, place, last));
      else filter.ranges.delete(measure);
    }
    around.changed("parallel");
  });

  /** The range that a brush keeps; one that is drawn beyond an end of the axis keeps the point at that end. */
  function reach(measure: Measure, at: number, [one, other]: Interval): [number, number] {
    const [low, high] = spans[at]!;
    const hair = (high - low) * 1e-6;
    return [one <= low + hair ? -Infinity : back(measure, one), other >= high - hair ? Infinity : back(measure, other)];
  }
  return { drawn, draw };
}
