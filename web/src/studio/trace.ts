// The controls of a trace: which files it is of, the machine, and how fast that is.
import { element } from "../shared/element";
import type { Catalogue } from "./api";
import { choice, factors, sliderOf, type Change } from "./controls";
import { file, machineOf } from "./drop";
import { FIRST, type State } from "./state";

const RECORDED = "as recorded";

export function traceControls(state: () => State, catalogue: Catalogue, change: Change): HTMLElement[] {
  const now = state();
  const { files, ranks, world, one, kind } = now.trace!;
  const back = element("button", { type: "button", id: "model-again" }, "Back to a model");
  back.addEventListener("click", () => change({ trace: null, machine: FIRST.machine, fabric: 1, peak: 1 }, true));
  const count = one ? world : ranks;
  // Only a machine of as many devices as there are ranks can run it.
  const fits = catalogue.machines.filter((each) => each.device || each.devices === count);
  const chosen = fits.find((each) => machineOf(each.name, count, catalogue) === now.machine);
  const found = [
    element("p", { id: "trace", class: "trace" }, element("b", {}, files[0]!.name, files.length > 1 ? ` and ${files.length - 1} more` : ""),
      `, ${kind === "chakra" ? "Chakra" : "PyTorch"}, ${ranks} ${ranks === 1 ? "rank" : "ranks"}${world > ranks ? ` of ${world}` : ""}`),
    element("p", { class: "row" }, back),
    file(catalogue, change),
  ];
  if (kind === "pytorch" && ranks === 1 && world > 1) found.push(everywhere(state, catalogue, change));
  found.push(
    choice("machine", "machine", [RECORDED, ...fits.map((each) => each.name)], chosen?.name ?? (now.machine || RECORDED), "With as many devices as the trace has ranks.", (value) =>
      change(value === RECORDED ? { machine: "", fabric: 1, peak: 1 } : { machine: machineOf(value, count, catalogue) }, true),
    ),
  );
  if (now.machine) {
    const wide = count > (chosen?.domain ?? count);
    found.push(...factors().filter((each) => each.key === "peak" || wide || now.fabric !== 1).map((each) => sliderOf(each, state, change)));
  }
  return found;
}

/** Whether all ranks do what the one of the file did. */
function everywhere(state: () => State, catalogue: Catalogue, change: Change): HTMLElement {
  const box = element("input", { type: "checkbox", id: "one-rank" });
  const { one, ranks, world } = state().trace!;
  box.checked = one;
  box.addEventListener("change", () => {
    const { trace, machine } = state();
    const name = catalogue.machines.find((each) => [ranks, world].some((count) => machineOf(each.name, count, catalogue) === machine))?.name;
    change({ trace: { ...trace!, one: box.checked }, machine: name ? machineOf(name, box.checked ? world : ranks, catalogue) : machine }, true);
  });
  return element("p", { class: "row" }, element("label", { for: "one-rank" }, box, ` all ${world} ranks do what this one did`));
}
