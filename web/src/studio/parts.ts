// What views share: tables, colours of the parts of a step, and answers that are asked for when a view is open.
import { kindColour } from "../shared/colours";
import { element, type Child } from "../shared/element";
import { longBody, rowOf } from "../shared/rows";
import { ask, Refused } from "./api";

/** The colour of a part of a step, by its key in `parts_s` or its name in a timeline. */
export function partColour(part: string): string {
  return kindColour(PARTS[part] ?? part);
}

const PARTS: Record<string, string> = {
  gemm: "compute", GEMMs: "compute", attention: "cpu", "other kernels": "other", waiting: "idle", "waiting for other ranks": "idle",
  "CPU and remote memory": "memory", checkpoint: "memory",
};

/** A table that scrolls on its own where it is too wide; numbers are columns with a leading ">". */
export function table(id: string, caption: string, columns: string[], rows: Child[][]): HTMLElement {
  const right = columns.map((each) => each.startsWith(">"));
  const head = columns.map((each, at) => element("th", { scope: "col", class: right[at] ? "right" : "" }, each.replace(/^>/, "")));
  const made = element("table", { id }, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...head)));
  const place = element("div", { class: "wide", tabindex: "0", role: "region", "aria-label": caption }, made);
  longBody(place, made, rows.length, (row) => rowOf(rows[row]!.map((each, at) => [right[at] ? "right" : "", each])));
  return place;
}

/** A place for a chart, with its description for those who do not see it. */
export function canvas(name: string, label: string): HTMLElement {
  return element("div", { class: `chart ${name}`, role: "img", "aria-label": label });
}

/** What the colours of a drawing mean; it wraps where a chart's own legend would hide its end behind arrows. */
export function legend(place: HTMLElement) {
  const list = place.appendChild(element("p", { class: "legend" }));
  let shown: [string, () => string][] = [];
  const say = () =>
    list.replaceChildren(
      ...shown.map(([name, colour]) => {
        const mark = element("i");
        mark.style.background = colour();
        return element("span", {}, mark, name);
      }),
    );
  const watch = new MutationObserver(say);
  watch.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  return {
    say: (entries: [string, () => string][]) => {
      shown = entries;
      say();
    },
    leave: () => watch.disconnect(),
  };
}

/** Ask for an answer of the open view: the last question wins, and what takes long or is refused is said. */
export function asking<T>(drawing: HTMLElement, path: string, shown: (found: T) => void) {
  const said = element("p", { class: "said", role: "status" });
  drawing.before(said);
  // Before there is an answer an empty chart is only in the way.
  drawing.classList.add("empty");
  let mine: AbortController | null = null;
  return {
    said,
    ask: async (question: object) => {
      mine?.abort();
      const now = (mine = new AbortController());
      const begun = performance.now();
      const clock = setInterval(() => {
        const waited = performance.now() - begun;
        if (waited > 150 && !now.signal.aborted) said.textContent = `simulating … ${(waited / 1000).toFixed(1)} s`;
      }, 50);
      try {
        const found = await ask<T>(path, question, now.signal);
        if (!now.signal.aborted) {
          said.textContent = "";
          drawing.classList.remove("empty");
          shown(found);
        }
      } catch (error) {
        if (!now.signal.aborted) said.textContent = error instanceof Refused ? error.message : String(error);
      } finally {
        clearInterval(clock);
      }
    },
    leave: () => mine?.abort(),
  };
}
