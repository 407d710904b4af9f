import { axis, chart, redraw, tooltip } from "../shared/charts";
import { cssColour, seriesColour } from "../shared/colours";
import { element } from "../shared/element";
import { percent, size, ticks } from "../shared/numbers";
import type { Step } from "./api";
import { asking, canvas, legend, table } from "./parts";

interface Found {
  stage: number;
  where: string;
  capacity_bytes: number | null;
  needed_bytes: number;
  at_peak_bytes: Record<string, number>;
  titles: Record<string, string>;
  points: string[];
  at: number;
  bytes: Record<string, number[]>;
}

/** What the fullest rank holds at its peak, and in the course of a step. */
export function memory(place: HTMLElement) {
  const about = place.appendChild(element("p", { id: "memory-said" }));
  const colours = legend(place);
  const drawing = place.appendChild(canvas("memory", "Bytes by kind in the course of a step; the table has those at the peak"));
  const numbers = place.appendChild(element("div"));
  let found: Found | null = null;
  const option = () => {
    if (!found) return {};
    const kinds = kindsOf(found);
    const capacity = found.capacity_bytes;
    const most = Math.max(capacity ?? 0, ...found.points.map((_, at) => kinds.reduce((sum, [, each]) => sum + each[at]!, 0)));
    const { step, top } = ticks(most);
    return {
      grid: { left: 8, right: 16, top: 16, bottom: 28, containLabel: true },
      tooltip: {
        ...(tooltip((all) => {
          const at = (all as { dataIndex: number }[])[0]!.dataIndex;
          return [found!.points[at], ...kinds.map(([name, each]) => `${found!.titles[name] ?? name}: ${size(each[at]!)}`), `together: ${size(kinds.reduce((sum, [, each]) => sum + each[at]!, 0))}`].join("\n");
        }) as object),
        trigger: "axis",
      },
      xAxis: axis({ type: "category", data: found.points.map((_, at) => at), boundaryGap: false, axisLabel: { show: false }, name: "layers, in the order in which they run", nameLocation: "middle", nameGap: 8 }),
      yAxis: axis({ type: "value", max: top, interval: step, axisLabel: { color: cssColour("--dim"), formatter: (value: number) => size(value) } }),
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
  const answer = asking<Found>(drawing, "api/memory", (given) => {
    found = given;
    about.textContent = `The fullest ranks are those of pipeline stage ${given.stage}; their peak is in the ${given.where}.`;
    redraw(drawn, option());
    colours.say(kindsOf(given).map(([name], at) => [given.titles[name] ?? name, () => seriesColour(at)]));
    const rows = Object.entries(given.at_peak_bytes)
      .filter(([, bytes]) => bytes > 0)
      .sort(([, one], [, other]) => other - one)
      .map(([name, bytes]) => [given.titles[name] ?? name, size(bytes), percent(bytes / given.needed_bytes)]);
    rows.push(["together: needed", size(given.needed_bytes), "100 %"]);
    if (given.capacity_bytes) rows.push(["a device has", size(given.capacity_bytes), ""]);
    numbers.replaceChildren(table("held", "What is held at the peak", ["kind", ">size", ">share"], rows));
  });
  return {
    show: (_: Step, question: object) => void answer.ask(question),
    leave: () => {
      answer.leave();
      colours.leave();
      drawn.dispose();
    },
  };
}

const kindsOf = (found: Found): [string, number[]][] => Object.entries(found.bytes).filter(([, each]) => each.some((value) => value > 0));
