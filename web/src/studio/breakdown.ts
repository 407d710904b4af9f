import { axis, chart, redraw, tooltip } from "../shared/charts";
import { cssColour } from "../shared/colours";
import { element } from "../shared/element";
import { percent, time } from "../shared/numbers";
import type { Step } from "./api";
import { canvas, legend, partColour, table } from "./parts";

/** What the step consists of: a bar to scale with the interval below it, and a table. */
export function breakdown(place: HTMLElement) {
  const colours = legend(place);
  const drawing = place.appendChild(canvas("breakdown", "The parts of the step, to scale, and the 90 % interval; the table below has the numbers"));
  const numbers = place.appendChild(element("div"));
  let step: Step | null = null;
  const option = () => {
    if (!step) return {};
    const { parts_s, interval_s, step_time_s } = step.prediction;
    const parts = Object.entries(parts_s).filter(([, seconds]) => seconds > 0);
    return {
      grid: { left: 8, right: 16, top: 8, bottom: 28, containLabel: true },
      tooltip: tooltip((each) => (interval_s && each.seriesName === "interval" ? `90 % interval ${time(interval_s[0])} to ${time(interval_s[1])}` : `${each.seriesName}: ${time(each.value)}, ${percent(each.value / step_time_s)}`)),
      xAxis: axis({ type: "value", max: Math.max(interval_s?.[1] ?? 0, step_time_s) * 1.02, axisLabel: { color: cssColour("--dim"), formatter: (value: number) => time(value), hideOverlap: true, showMaxLabel: false } }),
      yAxis: axis({ type: "category", data: interval_s ? ["90 % interval", "step"] : ["step"] }),
      series: [
        ...parts.map(([name, seconds]) => ({
          name: step!.titles[name] ?? name,
          type: "bar",
          stack: "all",
          barWidth: "55%",
          data: interval_s ? [null, seconds] : [seconds],
          itemStyle: { color: partColour(name), borderColor: cssColour("--panel"), borderWidth: 1 },
        })),
        ...(interval_s
          ? [
              { name: "before", type: "bar", stack: "all", silent: true, data: [interval_s[0], null], itemStyle: { color: "transparent" }, legendHoverLink: false },
              { name: "interval", type: "bar", stack: "all", data: [interval_s[1] - interval_s[0], null], itemStyle: { color: cssColour("--line"), borderColor: cssColour("--dim"), borderWidth: 1 } },
            ]
          : []),
      ],
    };
  };
  const drawn = chart(drawing, option);
  return {
    show: (found: Step) => {
      step = found;
      redraw(drawn, option());
      const parts = Object.keys(found.prediction.parts_s).filter((name) => found.prediction.parts_s[name]! > 0);
      colours.say(parts.map((name) => [found.titles[name] ?? name, () => partColour(name)]));
      const { parts_s, step_time_s, interval_s, mfu, tokens_per_s } = found.prediction;
      const rows = Object.entries(parts_s)
        .filter(([, seconds]) => seconds > 0)
        .map(([name, seconds]) => [found.titles[name] ?? name, time(seconds), percent(seconds / step_time_s)]);
      rows.push(["the step", time(step_time_s), "100 %"]);
      if (interval_s) rows.push(["90 % interval", `${time(interval_s[0])} to ${time(interval_s[1])}`, ""]);
      if (mfu !== null) rows.push(["model FLOP utilisation", "", percent(mfu)]);
      if (tokens_per_s !== null) rows.push(["tokens a second", Math.round(tokens_per_s).toLocaleString("en-US"), ""]);
      const why = (found.why ?? []).map(([text, help]) => element("li", {}, text, help ? element("p", { class: "dim" }, help) : null));
      numbers.replaceChildren(...(why.length ? [element("h2", {}, "Why it takes so long"), element("ul", { id: "why" }, ...why)] : []), table("parts", "What the rank that finishes last does", ["part", ">time", ">share"], rows));
    },
    leave: () => {
      colours.leave();
      drawn.dispose();
    },
  };
}
