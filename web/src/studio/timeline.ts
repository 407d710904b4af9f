import { axis, chart, redraw, tooltip } from "../shared/charts";
import { cssColour } from "../shared/colours";
import { element } from "../shared/element";
import { percent, time } from "../shared/numbers";
import type { CustomSeriesRenderItemAPI, CustomSeriesRenderItemParams, CustomSeriesRenderItemReturn } from "../shared/echarts";
import type { Step } from "./api";
import { asking, canvas, legend, partColour } from "./parts";

interface Lane {
  name: string;
  kinds: string[];
  /** Start, end, kind, name of each node; or, where there are too many, */
  spans?: [number, number, number, string][];
  /** the share of each piece of the time that each kind takes. */
  shares?: number[][];
}
interface Found {
  said: string;
  total_s: number;
  from_s: number;
  to_s: number;
  left_out: number;
  classes: { name: string; ranks: number; finish_s: number; lanes: Lane[] }[];
}

/** What each class of ranks does when: kernels above, communication and waiting below; finer where one zooms in. */
export function timeline(place: HTMLElement) {
  place.append(element("p", { class: "dim" }, "Drag, pinch, or turn the wheel with Ctrl to zoom; the bar below shows which part is seen. Where there are too many nodes, a column is as high as the share of the time that they take."));
  const buttons = place.appendChild(element("p", { class: "row" }));
  const colours = legend(place);
  colours.say(["GEMMs", "attention", "other kernels", "communication", "waiting for other ranks", "CPU and remote memory"].map((each) => [each, () => partColour(each)]));
  const about = place.appendChild(element("p", { id: "timeline-said" }));
  const drawing = place.appendChild(canvas("timeline", "Spans of time of each class of ranks"));
  let found: Found | null = null;
  let question: object = {};
  let window: [number, number] = [0, 0];
  let later = 0;
  const answer = asking<Found>(drawing, "api/timeline", (given) => {
    found = given;
    if (!window[1]) window = [0, given.total_s];
    about.textContent = `Drawn is ${given.said}; ${given.classes.length === 1 ? "one class" : `${given.classes.length} classes`} of ranks${given.left_out ? `, ${given.left_out} more are left out` : ""}. The ranks of a class do the same, in three lanes: kernels, communication, and the CPU.`;
    drawing.style.height = `${Math.max(12, given.classes.length * 4 + 7)}rem`;
    drawn.resize();
    redraw(drawn, option());
    drawing.dataset.spans = String(given.classes.reduce((sum, each) => sum + each.lanes.reduce((all, lane) => all + (lane.spans?.length ?? lane.shares![0]!.length), 0), 0));
  });
  const zoomed = (from: number, to: number) => {
    window = [from, to];
    clearTimeout(later);
    later = setTimeout(() => void answer.ask({ ...question, from, to }), 150) as unknown as number;
  };
  for (const [name, how] of [["Zoom in", 0.5], ["Zoom out", 2], ["Whole step", 0]] as const) {
    const button = element("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      if (!found) return;
      const middle = (window[0] + window[1]) / 2;
      const half = how ? ((window[1] - window[0]) * how) / 2 : found.total_s;
      zoomed(Math.max(0, middle - half), Math.min(found.total_s, middle + half));
    });
    buttons.append(button);
  }
  const option = () => {
    if (!found) return {};
    const rows = found.classes.flatMap((each) => each.lanes.map((lane, at) => ({ lane, label: at ? lane.name : each.name })));
    rows.reverse();
    const narrow = drawing.clientWidth < 600;
    const label = (text: string) => (narrow ? text.split(" (")[0]! : text);
    const data: unknown[] = [];
    rows.forEach(({ lane }, at) => {
      for (const [from, to, kind, text] of lane.spans ?? []) {
        data.push({ value: [at, from, to, 0, 1], name: `${lane.kinds[kind]!}: ${text}`, itemStyle: { color: partColour(lane.kinds[kind]!) } });
      }
      const bin = (found!.to_s - found!.from_s) / (lane.shares?.[0]?.length ?? 1);
      for (let x = 0; x < (lane.shares?.[0]?.length ?? 0); x += 1) {
        let base = 0;
        lane.kinds.forEach((kind, which) => {
          const share = Math.min(lane.shares![which]![x]!, 1 - base);
          if (share > 0) data.push({ value: [at, found!.from_s + x * bin, found!.from_s + (x + 1) * bin, base, share], name: kind, itemStyle: { color: partColour(kind) } });
          base += share;
        });
      }
    });
    return {
      grid: { left: 8, right: 16, top: 8, bottom: 56, containLabel: true },
      tooltip: tooltip((each) => {
        const [, from, to, , share] = each.value as [number, number, number, number, number];
        return `${each.name}${share < 1 ? `, ${percent(share)} of this piece` : ""}\n${time(from)} to ${time(to)}: ${time(to - from)}`;
      }),
      xAxis: axis({ type: "value", min: 0, max: found.total_s, axisLabel: { color: cssColour("--dim"), formatter: (value: number) => time(value), hideOverlap: true } }),
      yAxis: axis({ type: "category", data: rows.map((each) => label(each.label)), axisTick: { show: false }, axisLabel: { color: cssColour("--dim"), width: narrow ? 84 : 175, fontSize: narrow ? 10 : 12, overflow: "truncate", interval: 0 } }),
      dataZoom: [
        { type: "slider", xAxisIndex: 0, startValue: window[0], endValue: window[1], bottom: 8, height: 22, labelFormatter: (value: number) => time(value), textStyle: { color: cssColour("--dim") }, filterMode: "weakFilter" },
        { type: "inside", xAxisIndex: 0, startValue: window[0], endValue: window[1], zoomOnMouseWheel: "ctrl", filterMode: "weakFilter" },
      ],
      series: [{ type: "custom", renderItem: span, encode: { x: [1, 2], y: 0 }, data, clip: true, progressive: 0 }],
    };
  };
  const drawn = chart(drawing, option);
  drawn.on("datazoom", () => {
    const zoom = (drawn.getOption() as { dataZoom?: { startValue: number; endValue: number }[] }).dataZoom?.[0];
    if (zoom && (Math.abs(zoom.startValue - window[0]) > 1e-9 || Math.abs(zoom.endValue - window[1]) > 1e-9)) zoomed(zoom.startValue, zoom.endValue);
  });
  return {
    show: (_: Step, asked: object) => {
      question = asked;
      window = [0, 0];
      void answer.ask(asked);
    },
    leave: () => {
      clearTimeout(later);
      colours.leave();
      answer.leave();
      drawn.dispose();
    },
  };
}

function span(params: CustomSeriesRenderItemParams, api: CustomSeriesRenderItemAPI): CustomSeriesRenderItemReturn {
  const lane = api.value(0);
  const [left, y] = api.coord([api.value(1), lane]) as [number, number];
  const [right] = api.coord([api.value(2), lane]) as [number, number];
  const whole = (api.size!([0, 1]) as number[])[1]! * 0.84;
  const height = whole * (api.value(4) as number);
  const top = y + whole / 2 - whole * (api.value(3) as number) - height;
  const area = params.coordSys as unknown as { x: number; width: number };
  const from = Math.max(left, area.x);
  const width = Math.min(right, area.x + area.width) - from;
  if (width < 0) return null;
  return { type: "rect", shape: { x: from, y: top, width: Math.max(width, 0.5), height }, style: { fill: api.visual("color") as string } };
}
