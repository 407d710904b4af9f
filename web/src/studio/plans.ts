import { axis, chart, redraw, tooltip } from "../shared/charts";
import { cssColour, seriesColour } from "../shared/colours";
import { element } from "../shared/element";
import { percent, size, ticks, time } from "../shared/numbers";
import { run, type Job, type Prediction, type Step } from "./api";
import { canvas, table } from "./parts";
import { dotted } from "./state";
import type { Around } from "./views";

interface Point {
  step_time_s: number;
  needed_bytes: number;
  text: string;
  plan: Record<string, unknown>;
  software: string;
}
interface Choice {
  simulated: number;
  capacity_bytes: number | null;
  plans: (Prediction & { interval_s: [number, number]; memory: { needed_bytes: number }; text: string; told_apart: boolean })[];
  rejected: { why: string; plans: number; such_as: string }[];
}
interface Search {
  points: Point[];
  result: Choice | null;
}
/** Searches of this tab by their question: going back to a view does not search again. */
const kept = new Map<string, Search>();
const SEARCHED = /^(parallel\.(tp|pp|cp|ep|etp)|microbatch|recompute|pipeline\.(schedule|virtual))$/;
/** What a search chooses where it is left open; once it is used, it is part of the question. */
const ALSO = "data.sharding";

/** The search for the fastest plans: time and memory of each that was simulated, as they come, and the best ten. */
export function plans(place: HTMLElement, around: Around) {
  const button = element("button", { type: "button", id: "search" }, "Search the plans");
  const progress = element("progress", { max: "1", value: "0", "aria-label": "Plans done", hidden: "" });
  const said = element("span", { id: "search-said", role: "status" });
  place.append(
    element("p", {}, "Parallelism, microbatch, recomputation and virtual stages are chosen anew; all else stays as it is. Plans are bounded first, and those that may be among the best are simulated."),
    element("p", { class: "row" }, button, progress, said),
  );
  const drawing = place.appendChild(canvas("plans", "Step time and memory of the plans that were simulated; the table has the best"));
  const numbers = place.appendChild(element("div"));
  let asked: object = {};
  let here: Search = { points: [], result: null };
  let mine: AbortController | null = null;

  let used = false;
  const use = (plan: Record<string, unknown>, software: string) => {
    const rest = Object.fromEntries(Object.entries(around.state().plan).filter(([key]) => !SEARCHED.test(key)));
    const found = Object.fromEntries(Object.entries(dotted(plan)).filter(([key]) => SEARCHED.test(key) || key === ALSO));
    // The search goes on to be shown: what was used is one of its plans.
    used = true;
    around.change({ plan: { ...rest, ...found }, software }, true);
  };
  const option = () => {
    const best = frontier(here.points);
    const capacity = here.result?.capacity_bytes;
    const { step, top } = ticks(Math.max(...here.points.map((point) => point.needed_bytes)));
    return {
      grid: { left: 8, right: 24, top: 52, bottom: 36, containLabel: true },
      legend: { top: 0, textStyle: { color: cssColour("--ink") } },
      tooltip: tooltip((each) => {
        const point = each.data.point as Point;
        return `${point.text}\nstep ${time(point.step_time_s)}, needs ${size(point.needed_bytes)}\nclick to use it`;
      }),
      xAxis: axis({ type: "value", scale: true, name: "step", nameLocation: "middle", nameGap: 24, axisLabel: { color: cssColour("--dim"), formatter: (value: number) => time(value), hideOverlap: true } }),
      yAxis: axis({ type: "value", max: top, interval: step, name: "memory", nameLocation: "end", nameTextStyle: { color: cssColour("--dim"), align: "right" }, axisLabel: { color: cssColour("--dim"), formatter: (value: number) => size(value) } }),
      series: [
        {
          name: "simulated", type: "scatter", symbolSize: 9, itemStyle: { color: seriesColour(0), opacity: 0.8 },
          data: here.points.map((point) => ({ value: [point.step_time_s, point.needed_bytes], point })),
          ...(capacity ? { markLine: { silent: true, symbol: "none", lineStyle: { color: cssColour("--lit") }, label: { formatter: "capacity", color: cssColour("--ink"), position: "insideEndTop" }, data: [{ yAxis: capacity }] } } : {}),
        },
        {
          name: "none is faster with less memory", type: "line", step: "end", symbol: "diamond", symbolSize: 12, itemStyle: { color: seriesColour(1) }, lineStyle: { color: seriesColour(1) },
          data: best.map((point) => ({ value: [point.step_time_s, point.needed_bytes], point })),
        },
      ],
    };
  };
  const drawn = chart(drawing, option);
  drawn.on("click", (event) => {
    const point = (event.data as { point?: Point } | undefined)?.point;
    if (point) use(point.plan, point.software);
  });
  const draw = () => {
    drawing.dataset.points = String(here.points.length);
    drawing.hidden = here.points.length === 0;
    drawn.resize();
    redraw(drawn, option());
    const result = here.result;
    if (!result) return numbers.replaceChildren();
    const first = result.plans[0]!;
    numbers.replaceChildren(
      table("best", `The ${result.plans.length} best plans; ${result.simulated} were simulated`, ["plan", ">step", ">90 % interval", ">MFU", ">memory", "slower than the first", ""],
        result.plans.map((each, at) => {
          const button = element("button", { type: "button", "aria-label": `Use plan ${at + 1}: ${each.text}` }, "Use");
          button.addEventListener("click", () => use(each.plan, each.software));
          const behind = at ? `${percent(each.step_time_s / first.step_time_s - 1)}${each.told_apart ? "" : ", less than the model can tell"}` : "";
          const [low, high] = each.interval_s;
          return [each.text, time(each.step_time_s), `${time(low)} to ${time(high)}`, each.mfu === null ? "–" : percent(each.mfu), size(each.memory.needed_bytes), behind, button];
        })),
      table("rejected", "Why the others are not among them", [">plans", "why", "such as"], result.rejected.map((each) => [String(each.plans), each.why, each.such_as])),
    );
  };
  const stop = () => {
    mine?.abort();
    mine = null;
    button.textContent = "Search the plans";
    progress.hidden = true;
  };
  button.addEventListener("click", () => {
    if (mine) {
      stop();
      said.textContent = "ended";
      return;
    }
    const now = (mine = new AbortController());
    const fresh: Search = { points: [], result: null };
    here = fresh;
    kept.set(key(asked), fresh);
    button.textContent = "Stop";
    progress.hidden = false;
    progress.removeAttribute("value");
    said.textContent = "starting …";
    draw();
    void run<{ point?: Point }, Choice>({ ...asked, kind: "plan" }, now.signal, (job: Job<{ point?: Point }, Choice>) => {
      for (const event of job.events) if (event.point) fresh.points.push(event.point);
      if (job.progress) {
        progress.max = job.progress.of;
        progress.value = job.progress.done;
        said.textContent = `${job.progress.what} ${job.progress.done} of ${job.progress.of}`;
      }
      fresh.result = job.result;
      if (job.state === "done" || job.state === "failed") {
        stop();
        said.textContent = job.error?.message ?? "done";
      }
      if (here === fresh && (job.events.length || job.result)) draw();
    }).catch((error: unknown) => {
      stop();
      said.textContent = error instanceof Error ? error.message : String(error);
    });
  });
  return {
    show: (_: Step, question: object) => {
      if (key(asked) !== key(question) && used) {
        asked = question;
        kept.set(key(question), here);
      } else if (key(asked) !== key(question)) {
        stop();
        said.textContent = "";
        asked = question;
        here = kept.get(key(question)) ?? { points: [], result: null };
        draw();
      }
      used = false;
    },
    leave: () => {
      stop();
      drawn.dispose();
    },
  };
}

/** A search does not depend on what it chooses. */
function key(question: object): string {
  const { plan, ...rest } = question as { plan?: Record<string, unknown> };
  const left = Object.entries(dotted(plan ?? {})).filter(([name]) => !SEARCHED.test(name));
  return JSON.stringify([rest, left]);
}

function frontier(points: Point[]): Point[] {
  const found: Point[] = [];
  for (const each of [...points].sort((one, other) => one.step_time_s - other.step_time_s || one.needed_bytes - other.needed_bytes)) {
    if (!found.length || each.needed_bytes < found[found.length - 1]!.needed_bytes) found.push(each);
  }
  return found;
}
