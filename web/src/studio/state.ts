// What is asked, as an object and as the fragment of the address: every state has a link, and going back undoes.
import type { Catalogue, Dimension, Graph, PlanValue } from "./api";

export type Value = string | number | boolean | (string | number)[];
/** The files of a trace, as the server keeps them, and what they are of. */
export interface Trace {
  files: { name: string; id: string }[];
  ranks: number;
  /** Ranks of the run, of which files may be missing. */
  world: number;
  /** Whether all ranks do what the one of the file did. */
  one: boolean;
  kind: "chakra" | "pytorch";
}
export interface State {
  model: string;
  config: Record<string, unknown> | null;
  /** null: a model is asked about. */
  trace: Trace | null;
  /** Of a trace, "": all takes its recorded time. */
  machine: string;
  /** Drawn by hand, the innermost first; null: that of the machine. */
  network: Dimension[] | null;
  /** A graph that was drawn by hand; null: that of the machine. */
  topology: Graph | null;
  /** Whether messages move over a graph one by one ("messages"), or it is taken by its "levels"; "": by its size. */
  graph: string;
  fabric: number;
  peak: number;
  software: string;
  /** Dotted key of a plan, such as "parallel.tp", -> its value. */
  plan: Record<string, Value>;
  view: string;
}

export const FIRST: State = {
  model: "llama-3-70b",
  config: null,
  trace: null,
  machine: "64xdgx-h100",
  network: null,
  topology: null,
  graph: "",
  fabric: 1,
  peak: 1,
  software: "",
  plan: { batch: 1024 },
  view: "breakdown",
};

/** The question as the server reads it. */
export function question(state: State): object {
  if (state.trace) {
    const { trace, machine, fabric, peak } = state;
    return { trace: trace.files, ...(trace.one ? { from_one_rank: true } : {}), machine, fabric, peak };
  }
  const plan: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(state.plan)) {
    const [section, name] = key.split(".") as [string, string?];
    if (name === undefined) plan[section] = value;
    else plan[section] = { ...(plan[section] as object | undefined), [name]: value };
  }
  const { model, machine, network, topology, graph, fabric, peak, software } = state;
  return { model, ...(state.config ? { config: state.config } : {}), machine, ...(network ? { network } : {}), ...(topology ? { topology } : {}), ...(graph ? { graph } : {}), fabric, peak, software, plan };
}

/** The keys of a plan in sections as dotted keys; what is deeper or empty is left out. */
export function dotted(plan: Record<string, unknown>): Record<string, Value> {
  const found: Record<string, Value> = {};
  for (const [key, value] of Object.entries(plan)) {
    if (value !== null && typeof value === "object" && !Array.isArray(value)) {
      for (const [name, each] of Object.entries(value as object)) if (each !== null) found[`${key}.${name}`] = each as Value;
    } else if (value !== null && value !== undefined) found[key] = value as Value;
  }
  return found;
}

export function fragment(state: State): string {
  const found = new URLSearchParams({ model: state.model, machine: state.machine });
  if (state.config) found.set("config", JSON.stringify(state.config));
  if (state.trace) {
    const { files, ranks, world, one, kind } = state.trace;
    found.set("of", [kind, ranks, world, ...(one ? ["one"] : [])].join());
    for (const { name, id } of files) found.append("trace", `${id}/${name}`);
  }
  if (state.network) found.set("network", JSON.stringify(state.network));
  if (state.topology) found.set("topology", JSON.stringify(state.topology));
  if (state.graph) found.set("graph", state.graph);
  if (state.fabric !== 1) found.set("fabric", String(state.fabric));
  if (state.peak !== 1) found.set("peak", String(state.peak));
  if (state.software) found.set("software", state.software);
  for (const [key, value] of Object.entries(state.plan)) found.set(`plan.${key}`, String(value));
  if (state.view !== FIRST.view) found.set("view", state.view);
  return `#${found}`;
}

/** What a fragment says; what it leaves out is as at first, and what is no such value is left to the server to refuse. */
export function parsed(text: string, catalogue: Catalogue): State {
  const given = new URLSearchParams(text.replace(/^#/, ""));
  if (!given.has("model")) return FIRST;
  const types = new Map(catalogue.plan.map((each) => [each.path.join("."), each]));
  const plan: Record<string, Value> = {};
  for (const [key, value] of given) {
    const name = key.startsWith("plan.") ? key.slice(5) : "";
    if (name) plan[name] = typed(value, types.get(name));
  }
  // Of a link that was cut, the model and the machine by their names are what is left.
  const config = json<State["config"]>(given.get("config"));
  const network = json<State["network"]>(given.get("network"));
  const topology = json<State["topology"]>(given.get("topology"));
  return {
    model: given.get("model")!,
    config,
    trace: traceOf(given),
    machine: given.get("machine") ?? FIRST.machine,
    network: Array.isArray(network) && network.length && network.every(isDimension) ? network : null,
    topology: isGraph(topology) ? topology : null,
    graph: given.get("graph") ?? "",
    fabric: Number(given.get("fabric") ?? 1),
    peak: Number(given.get("peak") ?? 1),
    software: given.get("software") ?? "",
    plan,
    view: given.get("view") ?? FIRST.view,
  };
}

/** Whether the page can draw it; whether its values make sense the server says. */
function isDimension(each: unknown): each is Dimension {
  const { name, topology, size, shape, bandwidth, latency } = (each ?? {}) as Record<string, unknown>;
  const texts = [name ?? "", topology, bandwidth, latency].every((text) => typeof text === "string");
  return texts && (Array.isArray(shape) ? shape.every((side) => typeof side === "number") : shape === undefined && ["number", "string"].includes(typeof size));
}

function isGraph(given: unknown): given is Graph {
  const { kind, links, npus } = (given ?? {}) as Record<string, unknown>;
  const named = (link: unknown) => ["from", "to"].every((end) => typeof (link as Record<string, unknown> | null)?.[end] === "string");
  return typeof kind === "string" && (links === undefined ? kind !== "edges" : Array.isArray(links) && links.every(named)) && (npus === undefined || Array.isArray(npus));
}

function json<T>(text: string | null): T | null {
  try {
    return JSON.parse(text ?? "null") as T | null;
  } catch {
    return null;
  }
}

/** The trace that a link names; whether its files are still there, the server says. */
function traceOf(given: URLSearchParams): Trace | null {
  const files = given.getAll("trace").map((each) => ({ id: each.split("/", 1)[0]!, name: each.slice(each.indexOf("/") + 1) }));
  if (!files.length) return null;
  const [kind, ranks, world, one] = (given.get("of") ?? "").split(",");
  const number = (text: string | undefined) => (Number.isInteger(Number(text)) && Number(text) > 0 ? Number(text) : 1);
  return { files, ranks: number(ranks), world: number(world), one: one === "one", kind: kind === "pytorch" ? kind : "chakra" };
}

/** A text as a value of the type that a key has. */
export function typed(text: string, value: PlanValue | undefined): Value {
  const number = Number(text);
  if (value?.type === "boolean") return text === "true";
  if (value?.type === "array") return text.split(",").map((each) => (Number.isFinite(Number(each)) ? Number(each) : each));
  if ((value?.type === "integer" || value?.type === "number") && text.trim() && Number.isFinite(number)) return number;
  return text;
}
