// The numbers of a question: each with a slider and a field; an empty field leaves the choice to Armillary.
import { element } from "../shared/element";
import type { Catalogue, Graph, MachineName, PlanValue } from "./api";
import { drawnNetwork, members } from "./drawn";
import { file } from "./drop";
import { graphDevices } from "./graph";
import { traceControls } from "./trace";
import { typed, type State, type Value } from "./state";

/** Change the state: `final` when a slider is let go, so that it is one step to undo. */
export type Change = (change: Partial<State>, final: boolean) => void;

export interface Slider {
  key: string;
  label: string;
  help: string;
  /** Values of the slider; the first place is "chosen" where `open`. */
  values: number[];
  open: boolean;
  /** What holds where it is open, instead of "chosen". */
  otherwise?: string;
  get: (state: State) => number | undefined;
  set: (state: State, value: number | undefined) => Partial<State>;
}

const powers = (least: number, most: number): number[] => {
  const found = [];
  for (let each = least; each <= most; each *= 2) found.push(each);
  return found;
};
/** Places of the slider at hand, on either side, that are answered ahead. */
const AHEAD = 4;
const FACTORS = [0.125, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 8];
export const counted = (machine: string): [number, string] => {
  const found = /^(\d+)x(.+)$/.exec(machine);
  return found ? [Number(found[1]), found[2]!] : [1, machine];
};

export function devices(state: State, catalogue: Catalogue): number {
  if (state.network) return state.network.reduce((product, each) => product * members(each), 1);
  if (state.topology) return graphDevices(state.topology);
  const [count, name] = counted(state.machine);
  return count * (catalogue.machines.find((each) => each.name === name)?.devices ?? 1);
}

function sliders(state: State, catalogue: Catalogue): Slider[] {
  const model = catalogue.models.find((each) => each.name === state.model && !state.config);
  const helps = new Map(catalogue.plan.map((each) => [each.path.join("."), each.help]));
  const all = devices(state, catalogue);
  const layers = model?.layers ?? 0;
  const stages = [...new Set([...powers(1, Math.min(64, all)), ...[3, 5, 6, 7, 9, 10, 12, 20, 24].filter((n) => layers % n === 0 && n <= all)])];
  const plan = (key: string, label: string, values: number[], open = true): Slider => ({
    key,
    label,
    help: helps.get(key) ?? "",
    values,
    open,
    get: (now) => (typeof now.plan[key] === "number" ? (now.plan[key] as number) : undefined),
    set: (now, value) => {
      const { [key]: _, ...rest } = now.plan;
      return { plan: value === undefined ? rest : { ...rest, [key]: value } };
    },
  });
  const [, name] = counted(state.machine);
  const machine = catalogue.machines.find((each) => each.name === name);
  const found: Slider[] = [];
  // Of a drawn network its sizes say how many there are.
  if (machine?.counted && !state.network && !state.topology) {
    found.push({
      key: "count",
      label: `${machine.domain > 16 ? "domains" : "nodes"} of ${machine.domain}`,
      help: "How many of the machine are joined by its network.",
      values: powers(1, 4096),
      open: false,
      get: (now) => counted(now.machine)[0],
      set: (now, value) => ({ machine: (value ?? 1) > 1 ? `${value}x${counted(now.machine)[1]}` : counted(now.machine)[1] }),
    });
  }
  found.push(
    plan("batch", "batch", powers(1, 65536), false),
    plan("sequence", "sequence", powers(512, Math.max(131072, model?.context ?? 0))),
    plan("microbatch", "microbatch", powers(1, 64)),
    plan("parallel.tp", "tp", powers(1, Math.min(64, all))),
    plan("parallel.pp", "pp", stages.sort((a, b) => a - b)),
    plan("parallel.cp", "cp", powers(1, Math.min(64, all))),
  );
  if (!model || model.experts) found.push(plan("parallel.ep", "ep", powers(1, Math.min(256, all))));
  found.push(plan("pipeline.virtual", "virtual stages", [1, 2, 3, 4, 5, 6, 8, 10, 12]));
  found.push(...factors().filter((each) => each.key === "peak" || state.topology || all > (machine?.domain ?? 0)));
  return found;
}

/** The sliders of how fast a machine is. */
export function factors(): Slider[] {
  const factor = (key: "fabric" | "peak", label: string, help: string): Slider => ({
    key,
    label,
    help,
    values: FACTORS,
    open: false,
    get: (now) => now[key],
    set: (_, value) => ({ [key]: value ?? 1 }),
  });
  return [
    factor("fabric", "fabric bandwidth ×", "Factor of the bandwidth between nodes."),
    factor("peak", "peak ×", "Factor of the peaks of the devices, at an unchanged memory."),
  ];
}

const CHOICES: [string, string][] = [
  ["numbers.compute", "precision"],
  ["recompute", "recomputation"],
  ["data.sharding", "sharding"],
  ["pipeline.schedule", "schedule"],
];

/** A control, and all that it shows: while that is the same, the one that was made stays. */
interface Control {
  shows: unknown[];
  make: () => HTMLElement | undefined;
}
const made = new WeakMap<Element, string>();

/** Fill a form with the controls of a state. What is typed while one is made anew keeps its focus. */
export function controls(form: HTMLElement, state: () => State, catalogue: Catalogue, change: Change): void {
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement.id : "";
  const now = state();
  const open = [...form.querySelectorAll("details")].filter((each) => each.open).map((each) => each.id);
  const old = new Map([...form.children].map((each) => [made.get(each), each]));
  const listed = now.trace
    ? traceControls(state, catalogue, change).map((each, at): Control => ({ shows: [at, now], make: () => each }))
    : planControls(state, catalogue, change);
  const found = listed.flatMap(({ shows, make }): Element[] => {
    const shown = JSON.stringify(shows);
    const kept = old.get(shown);
    if (kept) return [kept];
    const control = make();
    if (!control) return [];
    made.set(control, shown);
    // What a hand has moved shows something else.
    for (const event of ["input", "change"]) control.addEventListener(event, () => made.delete(control));
    return [control];
  });
  const stays = new Set(found);
  for (const each of [...form.children]) if (!stays.has(each)) each.remove();
  found.forEach((each, at) => form.children[at] !== each && form.insertBefore(each, form.children[at] ?? null));
  for (const id of open) form.querySelector<HTMLDetailsElement>(`#${CSS.escape(id)}`)?.setAttribute("open", "");
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
}

function planControls(state: () => State, catalogue: Catalogue, change: Change): Control[] {
  const now = state();
  const preset = catalogue.machines.find((each) => each.name === counted(now.machine)[1]);
  const models = names(catalogue.models.map((each) => each.name), now.config ? now.model : "");
  return [
    { shows: ["model", now.model, models.length], make: () => choice("model", "model", models, now.model, "", (value) => change({ model: value, config: null }, true)) },
    { shows: ["file"], make: () => file(catalogue, change) },
    {
      shows: ["machine", preset?.name],
      make: () =>
        choice("machine", "machine", catalogue.machines.map((each) => each.name), counted(now.machine)[1], "", (value) => {
          const found = catalogue.machines.find((each) => each.name === value);
          const [count] = counted(state().machine);
          change({ machine: found?.counted && count > 1 ? `${count}x${value}` : value, network: null, topology: found ? beginning(found) : null }, true);
        }),
    },
    {
      shows: ["drawn", now.machine, now.network, now.topology, now.graph],
      make: () => preset && drawnNetwork(state, catalogue, change, preset, counted(now.machine)[0]),
    },
    ...sliders(now, catalogue).map((each) => ({ shows: ["slider", each, each.get(now)], make: () => sliderOf(each, state, change) })),
    ...CHOICES.map(([key, label]) => ({
      shows: [key, now.plan[key]],
      make: () => ofPlan(catalogue.plan.find((each) => each.path.join(".") === key)!, label, state, change),
    })),
    {
      shows: ["software", now.software],
      make: () => choice("software", "software", ["", ...catalogue.software], now.software, "What it is trained with.", (value) => change({ software: value }, true)),
    },
    { shows: ["more", ...catalogue.plan.map((each) => each.path.join(".")).filter((key) => !SHOWN.has(key)).map((key) => now.plan[key])], make: () => more(state, catalogue, change) },
  ];
}

/** Of a preset whose network is a graph, as much of it as a step takes seconds on. */
const beginning = ({ topology, begin }: MachineName): Graph | null =>
  topology && Object.entries(begin).some(([key, most]) => topology[key] !== most) ? { ...topology, ...begin } : null;

const names = (known: string[], own: string): string[] => (own ? [own, ...known] : known);

/** The values of a slider in order, undefined for "chosen"; one that was typed has a place of its own. */
function places(slider: Slider, now: number | undefined): (number | undefined)[] {
  const values = now !== undefined && !slider.values.includes(now) ? [...slider.values, now].sort((a, b) => a - b) : slider.values;
  return slider.open ? [undefined, ...values] : values;
}

/** What the sliders say a few places further on: first that of the slider at hand, then a place of all others, then two. */
export function near(state: State, catalogue: Catalogue, hand: Slider | null): Partial<State>[] {
  const around = (slider: Slider, far: number): Partial<State>[][] => {
    const values = places(slider, slider.get(state));
    const at = Math.max(values.indexOf(slider.get(state)), 0);
    const steps = Array.from({ length: far }, (_, by) => [by + 1, -by - 1]);
    return steps.map((each) => each.filter((by) => at + by in values).map((by) => slider.set(state, values[at + by])));
  };
  const others = sliders(state, catalogue).filter((each) => each.key !== hand?.key).map((each) => around(each, 2));
  return [...(hand ? around(hand, AHEAD).flat() : []), ...[0, 1].flatMap((far) => others.flatMap((each) => each[far]!))];
}

export function sliderOf(slider: Slider, state: () => State, change: Change): HTMLElement {
  const now = slider.get(state());
  const values = places(slider, now);
  const text = (value: number | undefined) => (value === undefined ? (slider.otherwise ?? "chosen") : value.toLocaleString("en-US"));
  const range = element("input", {
    type: "range", id: `slider-${slider.key}`, min: "0", max: String(values.length - 1), step: "1",
    "aria-label": slider.label, "aria-valuetext": text(now), title: slider.help,
  });
  range.value = String(Math.max(values.indexOf(now), 0));
  const field = element("input", {
    type: "number", id: `field-${slider.key}`, min: "0", step: "any", "aria-label": `${slider.label}, exactly`,
    placeholder: slider.open ? (slider.otherwise ?? "chosen") : "", title: slider.help,
  });
  field.value = now === undefined ? "" : String(now);
  const move = (final: boolean) => {
    const value = values[Number(range.value)];
    field.value = value === undefined ? "" : String(value);
    range.setAttribute("aria-valuetext", text(value));
    change(slider.set(state(), value), final);
  };
  // The nearest other values are answered ahead, so that they are there when the slider moves.
  const ahead = () => range.dispatchEvent(new CustomEvent("ahead", { bubbles: true, detail: slider }));
  range.addEventListener("pointerenter", ahead);
  range.addEventListener("focus", ahead);
  range.addEventListener("input", () => {
    move(false);
    ahead();
  });
  range.addEventListener("change", () => move(true));
  field.addEventListener("change", () => {
    const value = field.value === "" ? undefined : Number(field.value);
    if (value === undefined && !slider.open) field.value = String(slider.get(state()) ?? "");
    else change(slider.set(state(), value), true);
  });
  return element("div", { class: "slider" }, element("label", { for: range.id, title: slider.help }, slider.label), range, field);
}

export function choice(id: string, label: string, values: string[], now: string, help: string, changed: (value: string) => void): HTMLElement {
  const select = element("select", { id: `choice-${id}`, title: help });
  for (const value of values.includes(now) ? values : [now, ...values]) {
    select.append(new Option(value || "chosen", value, false, value === now));
  }
  select.addEventListener("change", () => changed(select.value));
  return element("div", { class: "choice" }, element("label", { for: select.id, title: help }, label), select);
}

/** Places of the slider of a value: tenths of a share, quarters of another number, and powers of two of a count. */
function steps({ type, most }: PlanValue): number[] {
  if (type === "integer") return powers(1, Math.min(most ?? 4096, 4096));
  return Array.from({ length: 11 }, (_, at) => at / (most !== null && most <= 1 ? 10 : 4));
}

function ofPlan(value: PlanValue, label: string, state: () => State, change: Change): HTMLElement {
  const key = value.path.join(".");
  const set = (given: Value | undefined) => {
    const { [key]: _, ...rest } = state().plan;
    change({ plan: given === undefined ? rest : { ...rest, [key]: given } }, true);
  };
  const now = state().plan[key];
  if (value.type === "integer" || value.type === "number") {
    const slider: Slider = {
      key, label, help: value.help, values: steps(value), open: true,
      get: (given) => (typeof given.plan[key] === "number" ? (given.plan[key] as number) : undefined),
      set: (given, chosen) => {
        const { [key]: _, ...rest } = given.plan;
        return { plan: chosen === undefined ? rest : { ...rest, [key]: chosen } };
      },
    };
    if (value.default !== null && value.default !== undefined) slider.otherwise = String(value.default);
    return sliderOf(slider, state, change);
  }
  if (value.type === "choice" || value.type === "boolean") {
    const values = value.type === "boolean" ? ["true", "false"] : value.choices;
    return choice(key, label, ["", ...values], now === undefined ? "" : String(now), value.help, (text) =>
      set(text === "" ? undefined : typed(text, value)),
    );
  }
  const field = element("input", { type: "text", id: `value-${key}`, title: value.help, placeholder: value.default === null || value.default === undefined ? "chosen" : String(value.default) });
  field.value = now === undefined ? "" : String(now);
  field.addEventListener("change", () => set(field.value.trim() === "" ? undefined : typed(field.value, value)));
  return element("div", { class: "choice" }, element("label", { for: field.id, title: value.help }, label), field);
}

/** The values of a plan that have a control of their own at the top. */
const SHOWN = new Set(["batch", "sequence", "microbatch", "ranks", "parallel.tp", "parallel.pp", "parallel.cp", "parallel.ep", "pipeline.virtual", ...CHOICES.map(([key]) => key)]);

/** All other values of a plan, below the headings that they have on the command line. */
function more(state: () => State, catalogue: Catalogue, change: Change): HTMLElement {
  const groups = new Map<string, PlanValue[]>();
  for (const each of catalogue.plan) {
    if (!SHOWN.has(each.path.join("."))) groups.set(each.heading, [...(groups.get(each.heading) ?? []), each]);
  }
  const parts = [...groups].map(([heading, values]) =>
    element("details", { id: `more-${heading}` }, element("summary", {}, heading), ...values.map((each) => ofPlan(each, each.option.replace(/^--/, ""), state, change))),
  );
  return element("details", { id: "more" }, element("summary", {}, "More values of a plan"), ...parts);
}
