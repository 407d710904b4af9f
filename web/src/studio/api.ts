// What the page asks the server. The token came in the fragment of the address; it is kept for this tab, and leaves in
// a header only.
const KEY = "armillary-token";

/** Take the token out of the address, so that nobody copies it with a link. */
export function takeToken(): boolean {
  const given = /(?:^#|&)token=([\w-]+)/.exec(location.hash);
  if (given) {
    sessionStorage.setItem(KEY, given[1]!);
    const rest = location.hash.replace(/(^#|&)token=[\w-]+&?/, "$1").replace(/&$/, "");
    history.replaceState(history.state, "", rest.length > 1 ? rest : location.pathname);
  }
  return sessionStorage.getItem(KEY) !== null;
}

/** What the server refused, in the words of the command line. */
export class Refused extends Error {}

export async function ask<T>(path: string, body?: object, signal?: AbortSignal, method?: string): Promise<T> {
  const request: RequestInit = { method: method ?? (body ? "POST" : "GET") };
  if (body) {
    request.body = JSON.stringify(body);
    request.headers = { "Content-Type": "application/json" };
  }
  if (signal) request.signal = signal;
  return asked<T>(path, request);
}

async function asked<T>(path: string, request: RequestInit): Promise<T> {
  const headers = { ...request.headers, Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` };
  let response: Response;
  try {
    response = await fetch(path, { ...request, headers });
  } catch (error) {
    if (request.signal?.aborted) throw error;
    throw new Refused("The studio does not answer: has `armillary studio` been ended?");
  }
  const found = (await response.json().catch(() => ({}))) as T & { error?: string | null };
  if (!response.ok) throw new Refused(String(found.error ?? `the studio answers ${response.status}`));
  return found;
}

/** Send a file, which the server keeps: questions name it by its id. */
export async function send(given: File): Promise<{ name: string; id: string }> {
  return asked(`api/files?name=${encodeURIComponent(given.name)}`, { method: "PUT", body: given, headers: { "Content-Type": "application/octet-stream" } });
}

export interface Job<Event, Result> {
  id: string;
  state: "waiting" | "running" | "done" | "failed" | "cancelled";
  progress: { what: string; done: number; of: number } | null;
  error: { message: string } | null;
  events: Event[];
  next: number;
  result: Result | null;
}

/** Run a job, and call back with all that is new of it, until it has ended or is aborted. */
export async function run<Event, Result>(
  question: object,
  signal: AbortSignal,
  changed: (job: Job<Event, Result>) => void,
): Promise<void> {
  let job = await ask<Job<Event, Result>>("api/jobs", question);
  const end = () => void ask(`api/jobs/${job.id}`, undefined, undefined, "DELETE").catch(() => undefined);
  if (signal.aborted) return end();
  signal.addEventListener("abort", end, { once: true });
  while (!signal.aborted) {
    changed(job);
    if (job.state !== "waiting" && job.state !== "running") break;
    await new Promise((done) => setTimeout(done, 200));
    if (signal.aborted) return;
    job = await ask<Job<Event, Result>>(`api/jobs/${job.id}?since=${job.next}`);
  }
  signal.removeEventListener("abort", end);
}

export interface PlanValue {
  path: string[];
  option: string;
  heading: string;
  help: string;
  type: "choice" | "integer" | "number" | "boolean" | "string" | "array";
  choices: string[];
  /** The largest value; null: none is known. */
  most: number | null;
  default: unknown;
}
export interface ModelName {
  name: string;
  kind: string;
  layers?: number;
  heads?: number;
  context?: number;
  experts?: number;
}
/** A dimension of a network, as study files have it. */
export interface Dimension {
  name?: string | undefined;
  topology: string;
  size?: number | undefined;
  shape?: number[] | undefined;
  bandwidth: string;
  per?: "npu" | "link" | undefined;
  latency: string;
}
/** A link of a graph, as edge lists of study files have it. */
export interface Link {
  from: string;
  to: string;
  bandwidth: string;
  latency: string;
  buffer?: string;
  kind?: string;
  way?: string;
}
/** A graph, as `topology` of study files: of a kind, with the keys of that. */
export interface Graph {
  kind: string;
  links?: Link[];
  npus?: string[];
  [key: string]: unknown;
}
export interface MachineName {
  name: string;
  title: string;
  devices: number;
  domain: number;
  counted: boolean;
  /** What is counted in a machine of any size, such as "h100". */
  device: string | null;
  dimensions: string[];
  network: Dimension[];
  /** What joins several of it. */
  between: Dimension | null;
  /** The keys of a network that is a graph; null: it has dimensions. */
  topology: Graph | null;
  /** Keys by which it is as large as a step on it takes seconds. */
  begin: Record<string, number>;
}
export interface Catalogue {
  models: ModelName[];
  machines: MachineName[];
  software: string[];
  /** Name -> whether it may have sides. */
  topologies: Record<string, boolean>;
  most_dimensions: number;
  /** Kind of graph -> its keys. */
  graphs: Record<string, { key: string; help: string; needed: boolean }[]>;
  most_links: number;
  most_file_bytes: number;
  plan: PlanValue[];
}
export interface Prediction {
  model: string;
  machine: string;
  devices: number;
  software: string;
  step_time_s: number;
  /** null: not known. */
  interval_s: [number, number] | null;
  mfu: number | null;
  tokens_per_s: number | null;
  memory: { peak_bytes: number; needed_bytes: number; capacity_bytes: number | null; fits: boolean | null } | null;
  parts_s: Record<string, number>;
  limits: string;
  plan: Record<string, unknown>;
  assumptions: string[];
}
export interface Step {
  prediction: Prediction;
  headline: string;
  /** What is approximate of it; null: nothing. */
  approximate?: string | null;
  memory: string;
  plan: string;
  titles: Record<string, string>;
  /** Of a trace: reasons for its time, and what would help. */
  why?: [string, string][];
  command: string;
  python: string;
  study: string;
  files: Record<string, string>;
}
