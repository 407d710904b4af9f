import { element } from "../shared/element";
import { counted, percent, size, time } from "../shared/numbers";
import { run, type Step } from "./api";
import { table } from "./parts";
import { dotted } from "./state";
import type { Around } from "./views";

interface Row {
  change: string;
  set: Record<string, unknown>;
  fabric: number;
  peak: number;
  refused?: string;
  step_time_s?: number;
  gain?: number;
  told_apart?: boolean | null;
  needed_bytes?: number;
  fits?: boolean | null;
}
const kept = new Map<string, Row[]>();

/** Single changes of the step, each predicted as the step itself is. */
export function whatIf(place: HTMLElement, around: Around) {
  place.append(element("p", {}, "Each line is one change of this step, simulated as the step itself. Changes of the machine follow its data sheet."));
  const progress = element("progress", { max: "1", value: "0", "aria-label": "Changes done", hidden: "" });
  const said = element("span", { id: "whatif-said", role: "status" });
  place.append(element("p", { class: "row" }, progress, said));
  const numbers = place.appendChild(element("div"));
  let mine: AbortController | null = null;
  let later = 0;
  let shown = "";

  const draw = (rows: Row[], step: Step) => {
    const now = step.prediction.step_time_s;
    const sorted = [...rows].sort((one, other) => (other.gain ?? -9) - (one.gain ?? -9));
    numbers.replaceChildren(
      table("changes", `What would change the step of ${time(now)}`, ["change", ">step", ">faster by", "memory", ""],
        sorted.map((row) => {
          if (row.refused !== undefined) return [row.change, "–", "–", row.refused, null];
          const faster = row.gain!;
          const mark = element("span", { class: faster > 0.002 && row.told_apart !== false ? "good" : "" }, Math.abs(faster) < 5e-5 ? "no effect" : `${faster > 0 ? "+" : "−"}${percent(Math.abs(faster))}`,
            row.told_apart === false ? element("span", { class: "remark" }, "less than the model can tell") : null);
          // Of a trace's memory nothing is known, and its kernels are not those of a plan.
          if (row.needed_bytes === undefined) return [row.change, time(row.step_time_s!), mark, "–", null];
          const held = element("span", { class: row.fits === false ? "bad" : "" }, size(row.needed_bytes), row.fits === false ? element("span", { class: "remark" }, "DOES NOT FIT") : null);
          const button = element("button", { type: "button", "aria-label": `Try: ${row.change}` }, "Try");
          button.addEventListener("click", () => {
            // A change is one of the plan as it was run: what was chosen is kept beside it.
            const chosen = Object.fromEntries(Object.entries(dotted(step.prediction.plan)).filter(([key]) => /^(parallel\.(tp|pp|cp|ep)|microbatch|recompute|pipeline\.(schedule|virtual))$/.test(key)));
            around.change({ plan: { ...around.state().plan, ...chosen, ...dotted(row.set) }, fabric: row.fabric, peak: row.peak, software: step.prediction.software }, true);
          });
          return [row.change, time(row.step_time_s!), mark, held, button];
        })),
    );
  };
  return {
    show: (step: Step, question: object) => {
      const key = JSON.stringify(question);
      if (key === shown) return;
      shown = key;
      mine?.abort();
      clearTimeout(later);
      const before = kept.get(key);
      if (before) {
        said.textContent = "";
        progress.hidden = true;
        return draw(before, step);
      }
      const now = (mine = new AbortController());
      const rows: Row[] = [];
      progress.hidden = false;
      progress.removeAttribute("value");
      said.textContent = "starting …";
      numbers.replaceChildren();
      // Not while a slider moves.
      later = setTimeout(() => {
        void run<{ row: Row }, { rows: Row[] }>({ ...question, kind: "what-if" }, now.signal, (job) => {
          rows.push(...job.events.map((each) => each.row));
          if (job.progress) {
            progress.max = job.progress.of;
            progress.value = job.progress.done;
            said.textContent = `predicted ${job.progress.done} of ${job.progress.of} changes`;
          }
          if (job.events.length) draw(rows, step);
          if (job.state === "done" || job.state === "failed") {
            progress.hidden = true;
            said.textContent = job.error?.message ?? `${counted(rows.length, "change")} ${rows.length === 1 ? "was" : "were"} predicted`;
            if (job.state === "done") kept.set(key, rows);
          }
        }).catch((error: unknown) => (said.textContent = error instanceof Error ? error.message : String(error)));
      }, 300) as unknown as number;
    },
    leave: () => {
      clearTimeout(later);
      mine?.abort();
    },
  };
}
