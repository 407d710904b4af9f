// The views of a step; each is told when the step has changed, and when it is left.
import type { Step } from "./api";
import type { Change } from "./controls";
import type { State } from "./state";
import { breakdown } from "./breakdown";
import { memory } from "./memory";
import { network } from "./network";
import { plans } from "./plans";
import { take } from "./take";
import { timeline } from "./timeline";
import { whatIf } from "./whatif";

export interface Around {
  state: () => State;
  change: Change;
}
export interface View {
  name: string;
  show: (step: Step, question: object) => void;
  leave: () => void;
}
type Make = (place: HTMLElement, around: Around) => Omit<View, "name">;

const named = (name: string, title: string, help: string, make: Make, ofTrace = true) => ({
  ofTrace,
  title,
  help,
  make: (place: HTMLElement, around: Around): View => ({ name, ...make(place, around) }),
});

export const VIEWS: Record<string, ReturnType<typeof named>> = {
  breakdown: named("breakdown", "Breakdown", "What the step consists of", breakdown),
  timeline: named("timeline", "Timeline", "What each class of ranks does when", timeline),
  memory: named("memory", "Memory", "What the fullest rank holds", memory, false),
  network: named("network", "Network", "How busy each network is", network),
  plans: named("plans", "Best plans", "Search for the fastest plans", plans, false),
  whatif: named("whatif", "What if", "What single changes would bring", whatIf),
  take: named("take", "Take away", "Command line, Python and study file", take),
};
