import { axis, chart, redraw, tooltip } from "../shared/charts";
import { cssColour, dark } from "../shared/colours";
import { element } from "../shared/element";
import { percent, rate, size, time } from "../shared/numbers";
import type { Step } from "./api";
import { asking, canvas, table } from "./parts";

interface Found {
  said: string;
  total_s: number;
  of: string;
  dimensions: { ranks: string; dimension: string; bytes: number; busy_s: number; capacity_bytes_per_s: number | null; utilisation: number | null; utilisation_busy: number | null }[];
  heat: { dimensions: string[]; shares: (number[] | null)[] };
  collectives: { label: string; members: number | null; bytes: number; count: number; time_s: number; waiting_s: number; bus_bytes_per_s: number | null }[];
}

/** How busy each network is, over time and over the step, and with which collectives. */
export function network(place: HTMLElement) {
  const about = place.appendChild(element("p", { id: "network-said" }));
  const drawing = place.appendChild(canvas("network", "Share of the bandwidth that is used, by dimension and time; the table has the means"));
  const numbers = place.appendChild(element("div"));
  let found: Found | null = null;
  const option = () => {
    if (!found) return {};
    const names = found.heat.dimensions;
    const bins = Math.max(0, ...found.heat.shares.map((each) => each?.length ?? 0));
    const bin = found.total_s / Math.max(bins, 1);
    const marks = round(found.total_s, bin);
    const data = found.heat.shares.flatMap((each, at) => (each ?? []).map((share, x) => [x, at, share]));
    return {
      grid: { left: 8, right: 16, top: 8, bottom: 70, containLabel: true },
      tooltip: tooltip((each) => {
        const [x, at, share] = each.value as [number, number, number];
        return `${names[at]}: ${percent(share)} of its bandwidth\n${time(x * bin)} to ${time((x + 1) * bin)}`;
      }),
      xAxis: axis({
        type: "category", data: Array.from({ length: bins }, (_, x) => String(x)), splitArea: { show: false }, axisTick: { interval: (x: number) => marks.has(x) },
        axisLabel: { color: cssColour("--dim"), interval: (x: number) => marks.has(x), formatter: (x: string) => time(marks.get(Number(x)) ?? 0), hideOverlap: true },
      }),
      yAxis: axis({ type: "category", data: names }),
      visualMap: {
        min: 0, max: 1, calculable: false, orient: "horizontal", left: "center", bottom: 0, text: ["100 % of the bandwidth", "0 %"],
        textStyle: { color: cssColour("--ink") },
        // One hue from the colour of the page to the far end of lightness: read the same without colours.
        inRange: { color: dark() ? ["#1d2329", "#3d4f7c", "#b06a3c", "#ffd9a0"] : ["#f3f5f7", "#9dc3dd", "#0072b2", "#00263d"] },
      },
      series: [{ type: "heatmap", data, itemStyle: { borderWidth: 0 }, progressive: 0 }],
    };
  };
  const drawn = chart(drawing, option);
  const answer = asking<Found>(drawing, "api/network", (given) => {
    found = given;
    about.textContent = `Collectives of ${given.of}, which finishes last, in ${given.said}.`;
    // Of recorded communication nobody knows how it used a network.
    drawing.hidden = !given.heat.shares.some(Boolean);
    drawing.style.height = `${given.heat.dimensions.length * 4 + 7}rem`;
    drawn.resize();
    redraw(drawn, option());
    numbers.replaceChildren(
      table("dimensions", "Use of each dimension by the collectives of each class of ranks", ["ranks", "dimension", ">sent by a rank", ">busy", ">of the bandwidth, over the step", ">while busy"],
        alike(given.dimensions).map((each) => [each.ranks, each.dimension, size(each.bytes), time(each.busy_s), each.utilisation === null ? "–" : percent(each.utilisation), each.utilisation_busy === null ? "–" : percent(each.utilisation_busy)])),
      table("collectives", `Collectives of ${given.of}, the most time first`, ["collective", ">members", ">size", ">times", ">time", ">of it waiting", ">bus bandwidth"],
        given.collectives.map((each) => [each.label, each.members === null ? "–" : String(each.members), size(each.bytes), String(each.count), time(each.time_s), time(each.waiting_s), each.bus_bytes_per_s === null ? "–" : rate(each.bus_bytes_per_s)])),
    );
  });
  return {
    show: (_: Step, question: object) => void answer.ask(question),
    leave: () => {
      answer.leave();
      drawn.dispose();
    },
  };
}

/** Pieces of the time that begin nearest to round times, with these. */
function round(total: number, bin: number): Map<number, number> {
  const power = 10 ** Math.floor(Math.log10(Math.max(total, 1e-12) / 6));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => total / each <= 8)!;
  return new Map(Array.from({ length: Math.floor(total / step) + 1 }, (_, at) => [Math.round((at * step) / bin), at * step]));
}

/** One row for classes of ranks that use the dimensions alike. */
function alike(rows: Found["dimensions"]): Found["dimensions"] {
  const classes = new Map<string, Found["dimensions"]>();
  for (const row of rows) classes.set(row.ranks, [...(classes.get(row.ranks) ?? []), row]);
  const same = new Map<string, Found["dimensions"][]>();
  for (const each of classes.values()) {
    const use = JSON.stringify(each.map(({ ranks: _, ...rest }) => rest));
    same.set(use, [...(same.get(use) ?? []), each]);
  }
  return [...same.values()].flatMap((all) => {
    const more = all.length > 1 ? `, and ${all.length - 1} more like it` : "";
    return all[0]!.map((row) => ({ ...row, ranks: `${row.ranks}${more}` }));
  });
}
