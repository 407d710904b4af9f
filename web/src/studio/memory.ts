import { axis, chart, redraw, tooltip } from "../shared/charts";
import { cssColour, seriesColour } from "../shared/colours";
import { element } from "../shared/element";
import { percent, size } from "../shared/numbers";
import type { Step } from "./api";
import { asking, canvas, table } from "./parts";

interface Found {
  stage: number;
  where: string;
  capacity_bytes: number | null;
  needed_bytes: number;
  at_peak_bytes: Record<string, number>;
  points: string[];
  at: number;
  bytes: Record<string, number[]>;
}

/** What the fullest rank holds at its peak, and in the course of a step. */
export function memory(place: HTMLElement) {
  const about = place.appendChild(element("p", { id: "memory-said" }));
  const drawing = place.appendChild(canvas("memory", "Bytes by kind in the course of a step; the table has those at the peak"));
  const numbers = place.appendChild(element("div"));
  let found: Found | null = null;
  const option = () => {
    if (!found) return {};
    const kinds = Object.entries(found.bytes).filter(([, each]) => each.some((value) => value > 0));
    const capacity = found.capacity_bytes;
    return {
      grid: { left: 8, right: 16, top: 48, bottom: 28, containLabel: true },
      legend: { type: "scroll", top: 0, textStyle: { color: cssColour("--ink") }, pageTextStyle: { color: cssColour("--ink") }, pageIconColor: cssColour("--accent"), data: kinds.map(([name]) => name) },
      tooltip: {
        ...(tooltip((all) => {
          const at = (all as { dataIndex: number }[])[0]!.dataIndex;
          return [found!.points[at], ...kinds.map(([name, each]) => `${name}: ${size(each[at]!)}`), `together: ${size(kinds.reduce((sum, [, each]) => sum + each[at]!, 0))}`].join("\n");
        }) as object),
        trigger: "axis",
      },
      xAxis: axis({ type: "category", data: found.points.map((_, at) => at), boundaryGap: false, axisLabel: { show: false }, name: "layers, in the order in which they run", nameLocation: "middle", nameGap: 8 }),
      yAxis: axis({ type: "value", max: (value: { max: number }) => Math.max(value.max, capacity ?? 0) * 1.05, axisLabel: { color: cssColour("--dim"), formatter: (value: number) => size(value) } }),
      series: [
        ...kinds.map(([name, each], at) => ({
          name,
          type: "line",
          stack: "held",
          step: "end",
          symbol: "none",
          lineStyle: { width: 0 },
          areaStyle: { color: seriesColour(at), opacity: at < 7 ? 0.95 : 0.55 },
          itemStyle: { color: seriesColour(at) },
          data: each,
        })),
        ...(capacity
          ? [{ name: "capacity", type: "line", data: [], markLine: { silent: true, symbol: "none", lineStyle: { color: cssColour("--lit"), width: 2 }, label: { formatter: `capacity ${size(capacity)}`, color: cssColour("--ink"), position: "insideEndTop" }, data: [{ yAxis: capacity }] } }]
          : []),
      ],
    };
  };
  const drawn = chart(drawing, option);
  const answer = asking<Found>(place, "api/memory", (given) => {
    found = given;
    about.textContent = `The fullest ranks are those of pipeline stage ${given.stage}; their peak is in the ${given.where}.`;
    redraw(drawn, option());
    const rows = Object.entries(given.at_peak_bytes)
      .filter(([, bytes]) => bytes > 0)
      .sort(([, one], [, other]) => other - one)
      .map(([name, bytes]) => [name, size(bytes), percent(bytes / given.needed_bytes)]);
    rows.push(["needed", size(given.needed_bytes), "100 %"]);
    if (given.capacity_bytes) rows.push(["of a device", size(given.capacity_bytes), percent(given.capacity_bytes / given.needed_bytes)]);
    numbers.replaceChildren(table("held", "What is held at the peak", ["kind", ">bytes", ">share"], rows));
  });
  return {
    show: (_: Step, question: object) => void answer.ask(question),
    leave: () => {
      answer.leave();
      drawn.dispose();
    },
  };
}
