// Files that are dropped on the page, or chosen: a model's config.json, or the files of a trace, which the server keeps.
import { element } from "../shared/element";
import { ask, send, type Catalogue } from "./api";
import type { Change } from "./controls";
import { FIRST, type Trace } from "./state";

const MOST_CONFIG = 200_000;

/** What the server says of the files of a trace. */
interface About {
  kind: "chakra" | "pytorch";
  ranks: number;
  world: number;
  nodes: number;
  recorded: boolean;
}

/** The line by which files are chosen. */
export function file(catalogue: Catalogue, change: Change): HTMLElement {
  const input = element("input", { type: "file", multiple: "", id: "file", class: "hidden-input" });
  input.addEventListener("change", () => void dropped([...(input.files ?? [])], catalogue, change));
  return element("label", { class: "file", for: "file" }, input, "or choose, or drop anywhere: a config.json of Hugging Face, a Chakra trace (.et of all ranks), or a PyTorch trace");
}

/** Take files that were dropped; what is wrong with them is said where the answer would stand. */
export async function dropped(given: File[], catalogue: Catalogue, change: Change): Promise<void> {
  if (!given.length) return;
  const status = document.getElementById("status")!;
  try {
    const config = given.length === 1 ? await configuration(given[0]!) : null;
    if (config) return change({ model: given[0]!.name.slice(0, 200), config, trace: null }, true);
    const most = catalogue.most_file_bytes;
    const large = given.find((each) => each.size > most);
    if (large) throw new Error(`${large.name}: ${Math.ceil(large.size / 2 ** 20)} MiB, expected at most ${Math.floor(most / 2 ** 20)} MiB`);
    const files: Trace["files"] = [];
    for (const each of given) {
      status.textContent = given.length > 1 ? `reading ${each.name}, ${files.length + 1} of ${given.length} …` : `reading ${each.name} …`;
      const { name, id } = await send(each);
      files.push({ name, id });
    }
    // Rank 0 first: by it the trace is called.
    files.sort((one, other) => one.name.localeCompare(other.name, "en", { numeric: true }));
    const about = await ask<About>("api/trace", { trace: files });
    status.textContent = "";
    // Without recorded times only a machine can say how long communication takes.
    const machine = about.recorded ? "" : machineOf("dgx-h100", about.ranks, catalogue);
    change({ trace: { files, ranks: about.ranks, world: about.world, one: false, kind: about.kind }, machine, network: null, topology: null, fabric: 1, peak: 1, view: FIRST.view }, true);
  } catch (error) {
    status.textContent = error instanceof Error ? error.message : String(error);
  }
}

/** A machine of so many devices, by its name where it has them. */
export function machineOf(name: string, ranks: number, catalogue: Catalogue): string {
  const found = catalogue.machines.find((each) => each.name === name);
  return found?.device && found.devices !== ranks ? `${ranks}x${found.device}` : name;
}

/** What a config.json holds; null: the file is something else. */
async function configuration(given: File): Promise<Record<string, unknown> | null> {
  if (given.size > MOST_CONFIG || !/\.json$/i.test(given.name)) return null;
  let found: unknown;
  try {
    found = JSON.parse(await given.text());
  } catch (error) {
    throw new Error(`${given.name}: no JSON: ${error instanceof Error ? error.message : ""}`);
  }
  if (found === null || typeof found !== "object" || Array.isArray(found)) throw new Error(`${given.name}: expected a config.json or a trace`);
  // PyTorch's traces and Chakra's graphs have these.
  return ["traceEvents", "nodes", "format"].some((key) => Object.hasOwn(found as object, key)) ? null : (found as Record<string, unknown>);
}
