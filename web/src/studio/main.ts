import "../shared/shared.css";
import "./studio.css";
import { element } from "../shared/element";
import { counted } from "../shared/numbers";
import { ask, Refused, takeToken, type Catalogue, type Step } from "./api";
import { controls, near, type Slider } from "./controls";
import { dropped } from "./drop";
import { fragment, parsed, question, type State } from "./state";
import { VIEWS, type View } from "./views";

const BUSY = 150;
const STALE = 1500;
const STOPPABLE = 1000;
/** Characters of questions that are asked ahead: fewer than a request may have. */
const AT_ONCE = 200_000;
/** Pause before an answer is completed: who still moves a slider is answered first. */
const SETTLED = 300;

async function begin(): Promise<void> {
  const page = document.body;
  const title = element("h1", {}, "Armillary studio");
  const undo = element("button", { id: "undo", type: "button", title: "Undo (Ctrl+Z)" }, "Undo");
  const redo = element("button", { id: "redo", type: "button", title: "Redo (Ctrl+Shift+Z)" }, "Redo");
  const take = element("button", { id: "take", type: "button", title: "Command line, Python and study (Alt+0)" }, "Take away");
  const theme = element("button", { id: "theme", type: "button" }, "Dark");
  const status = element("p", { id: "status", role: "status" });
  const stop = element("button", { id: "stop", type: "button", title: "End this simulation" }, "Stop");
  stop.hidden = true;
  const form = element("form", { id: "controls", "aria-label": "Model, machine and plan" });
  const answer = element("div", { id: "answer", "aria-live": "polite" });
  const tabs = element("div", { role: "tablist", id: "tabs", "aria-label": "Views" });
  const shown = element("div", { id: "view", role: "tabpanel", tabindex: "0" });
  page.replaceChildren(
    element("header", {}, title, element("span", { class: "space" }), undo, redo, take, theme),
    element("div", { class: "columns" }, form, element("main", {}, answer, element("div", { class: "asked" }, status, stop), tabs, shown)),
  );
  form.addEventListener("submit", (event) => event.preventDefault());
  dress(theme);
  if (!takeToken()) {
    status.textContent = "Open the address that `armillary studio` printed: it has the token without which nothing is answered.";
    return;
  }

  let catalogue: Catalogue;
  status.textContent = "starting …";
  try {
    catalogue = await ask<Catalogue>("api/catalogue");
  } catch (error) {
    status.textContent = error instanceof Error ? error.message : String(error);
    return;
  }
  let state: State = parsed(location.hash, catalogue);
  let step: Step | null = null;
  let before: Step | null = null;
  let stateOfStep = "";
  let depth = Number(history.state?.depth ?? 0);
  let deepest = depth;
  history.replaceState({ depth }, "", fragment(state));
  let view: View | null = null;
  let stepShown: Step | null = null;

  const change = (more: Partial<State>, final: boolean) => {
    state = { ...state, ...more };
    if (final) {
      // To look at another view is nothing to undo.
      if (Object.keys(more).join() === "view") history.replaceState(history.state, "", fragment(state));
      else if (fragment(state) !== location.hash) {
        depth += 1;
        deepest = depth;
        history.pushState({ depth }, "", fragment(state));
      }
      draw();
    }
    void follow();
  };
  // A trace says nothing of plans and memory.
  const can = (name: string) => !state.trace || VIEWS[name]?.ofTrace !== false;
  const draw = () => {
    controls(form, () => state, catalogue, change);
    undo.disabled = depth === 0;
    redo.disabled = depth >= deepest;
    for (const tab of tabs.children) {
      const chosen = tab.id === `tab-${state.view}`;
      tab.setAttribute("aria-selected", String(chosen));
      tab.setAttribute("tabindex", chosen ? "0" : "-1");
      (tab as HTMLElement).hidden = !can(tab.id.slice("tab-".length));
    }
    shown.setAttribute("aria-labelledby", `tab-${state.view}`);
  };
  addEventListener("popstate", () => {
    state = parsed(location.hash, catalogue);
    depth = Number(history.state?.depth ?? 0);
    draw();
    void follow();
  });

  // At most one question is with the server; of those that come meanwhile the last one follows.
  let busy: AbortController | null = null;
  let since = 0;
  let again = false;
  let stopped = false;
  let quick = false;
  let whole = true;
  stop.addEventListener("click", () => {
    stopped = true;
    busy?.abort();
  });
  let hand: Slider | null = null;
  let moved = false;
  /** Have answered ahead what a hand may do next. */
  const ahead = () => {
    // What takes long would keep the process of searches from its work.
    if (state.trace || !quick) return;
    // A drawn graph or a configuration is in each: no more of them than a request may have.
    const most = Math.floor(AT_ONCE / JSON.stringify(question(state)).length);
    const questions = near(state, catalogue, hand).slice(0, most).map((more) => question({ ...state, ...more }));
    if (questions.length) void ask("api/ahead", { questions }).catch(() => undefined);
  };
  form.addEventListener("ahead", (event) => {
    hand = (event as CustomEvent<Slider>).detail;
    // The answer that is awaited goes first.
    if (busy) moved = true;
    else ahead();
  });
  async function follow(): Promise<void> {
    if (busy) {
      again = true;
      // An old answer that takes long holds up the new one.
      if (performance.now() - since > STALE) busy.abort();
      return;
    }
    const asked = JSON.stringify(question(state));
    if (asked === stateOfStep) return showView();
    const mine = (busy = new AbortController());
    since = performance.now();
    const clock = setInterval(() => {
      const waited = performance.now() - since;
      if (waited > BUSY) status.textContent = `simulating … ${(waited / 1000).toFixed(1)} s`;
      document.body.classList.toggle("busy", waited > BUSY);
      stop.hidden = waited < STOPPABLE;
      if (again && waited > STALE) mine.abort();
    }, 50);
    try {
      const found = await ask<Step>(state.trace ? "api/run" : "api/headline", JSON.parse(asked) as object, mine.signal);
      quick = performance.now() - since < STALE;
      // A trace is nothing to compare a plan with.
      before = step && (found.prediction.memory ? step.prediction.memory : step.prediction.model === found.prediction.model) ? step : null;
      step = found;
      stateOfStep = asked;
      whole = Boolean(state.trace || state.software);
      status.textContent = "";
      showAnswer();
      showView();
      if (moved) setTimeout(ahead);
      moved = false;
      setTimeout(() => void settle(asked), SETTLED);
    } catch (error) {
      if (!mine.signal.aborted || stopped) {
        stateOfStep = asked;
        status.textContent = stopped ? "stopped; change anything to ask again" : error instanceof Refused ? error.message : String(error);
        document.body.classList.add("refused");
        view?.leave();
        view = null;
        shown.replaceChildren();
        answer.classList.add("old");
      }
    } finally {
      clearInterval(clock);
      stop.hidden = true;
      stopped = false;
      document.body.classList.remove("busy");
      document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
      busy = null;
      if (again) {
        again = false;
        void follow();
      }
    }
  }

  /** What follows an answer that stays for a while. */
  async function settle(asked: string): Promise<void> {
    if (busy || asked !== stateOfStep) return;
    if (!whole) await complete(asked);
    if (!busy && asked === stateOfStep) ahead();
  }

  /** Ask for what the software adds, which takes as long as the step and stands among the assumptions. */
  async function complete(asked: string): Promise<void> {
    const begun = performance.now();
    const found = await ask<Step>("api/train", JSON.parse(asked) as object).catch(() => null);
    if (!found || busy || asked !== stateOfStep) return;
    step = found;
    whole = true;
    // The first answer of all waited until the simulator was there.
    quick = performance.now() - begun < STALE;
    showAnswer();
  }

  function showAnswer(): void {
    document.body.classList.remove("refused");
    answer.classList.remove("old");
    const { prediction } = step!;
    const lines: (HTMLElement | null)[] = [
      element("p", { class: "headline", id: "headline" }, step!.headline),
      step!.approximate ? element("p", { id: "approximate" }, step!.approximate) : null,
      element("p", { id: "memory", class: prediction.memory?.fits === false ? "bad" : "" }, prediction.memory ? `Memory: ${step!.memory}` : step!.memory),
      element("p", { id: "plan" }, prediction.memory ? `Plan: ${step!.plan}` : `Trace: ${step!.plan}`),
      element("p", { id: "limits" }, `Most of it: ${prediction.limits}`),
    ];
    if (before) {
      const ratio = prediction.step_time_s / before.prediction.step_time_s - 1;
      const faster = `${Math.abs(100 * ratio).toFixed(1)} % ${ratio > 0 ? "longer" : "shorter"}`;
      lines.push(element("p", { id: "before", class: "dim" }, `The step is ${faster} than before (${before.plan}).`));
    }
    // Said above already; what follows holds its place, so that nothing below moves when it comes.
    const assumed = prediction.assumptions.filter((each) => each !== step!.approximate);
    if (!whole) assumed.unshift("what the software adds to kernels and collectives: …");
    if (assumed.length) {
      lines.push(
        element("details", {}, element("summary", {}, counted(assumed.length, "assumption")),
          element("ul", { id: "assumptions" }, ...assumed.map((each) => element("li", {}, each)))),
      );
    }
    answer.replaceChildren(...lines.filter((each) => each !== null));
    // Where there is room, what is assumed stands beside the answer.
    if (innerWidth > 800) answer.querySelector("details")?.setAttribute("open", "");
  }

  function showView(): void {
    if (!step) return;
    if (!view || view.name !== state.view) {
      view?.leave();
      shown.replaceChildren();
      stepShown = null;
      view = (Object.hasOwn(VIEWS, state.view) && can(state.view) ? VIEWS[state.view]! : VIEWS.breakdown!).make(shown, { state: () => state, change });
    }
    // A slider that is let go says again what it said when it moved.
    if (stepShown === step) return;
    stepShown = step;
    view.show(step, question(state));
  }

  for (const [name, each] of Object.entries(VIEWS)) {
    const tab = element("button", { role: "tab", type: "button", id: `tab-${name}`, "aria-controls": "view", title: `${each.help} (Alt+${tabs.children.length + 1})` }, each.title);
    tab.addEventListener("click", () => change({ view: name }, true));
    tabs.append(tab);
  }
  const turn = (by: number) => {
    const all = Object.keys(VIEWS).filter(can);
    const next = all[(all.indexOf(state.view) + by + all.length) % all.length]!;
    change({ view: next }, true);
    document.getElementById(`tab-${next}`)?.focus();
  };
  tabs.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") turn(1);
    if (event.key === "ArrowLeft") turn(-1);
  });
  undo.addEventListener("click", () => depth > 0 && history.back());
  redo.addEventListener("click", () => depth < deepest && history.forward());
  take.addEventListener("click", () => change({ view: "take" }, true));
  addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement && event.target.type !== "range";
    if (event.altKey && /^[0-9]$/.test(event.key)) {
      const name = event.key === "0" ? "take" : Object.keys(VIEWS)[Number(event.key) - 1];
      if (name && can(name)) change({ view: name }, true);
      event.preventDefault();
    }
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !typing) {
      (event.shiftKey ? redo : undo).click();
      event.preventDefault();
    }
  });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    void dropped([...(event.dataTransfer?.files ?? [])], catalogue, change);
  });

  draw();
  void follow();
}

/** The button that turns light and dark; what was chosen holds for this tab. */
function dress(button: HTMLButtonElement): void {
  const root = document.documentElement;
  const kept = sessionStorage.getItem("armillary-theme");
  if (kept) root.dataset.theme = kept;
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const say = () => (button.textContent = isDark() ? "Light" : "Dark");
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    sessionStorage.setItem("armillary-theme", root.dataset.theme);
    say();
  });
  say();
}

void begin();
