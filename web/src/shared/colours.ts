// Colours of what a step consists of: told apart by those who see red and green alike, in the light and in the dark.
// The base is Okabe and Ito's palette; in the dark its blue is lighter.

/** Whether the page is shown in the dark. */
export function dark(): boolean {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

const KINDS: Record<string, readonly [string, string]> = {
  compute: ["#0072b2", "#56a8e0"],
  communication: ["#d55e00", "#ee8a45"],
  memory: ["#009e73", "#2cc79c"],
  cpu: ["#5d4fa2", "#a396e6"],
  idle: ["#9aa2ab", "#6b7580"],
  other: ["#cc79a7", "#dd97bd"],
};
const SERIES: readonly (readonly [string, string])[] = [
  ["#0072b2", "#56a8e0"],
  ["#d55e00", "#ee8a45"],
  ["#009e73", "#2cc79c"],
  ["#cc79a7", "#dd97bd"],
  ["#a87900", "#e5b73b"],
  ["#5d4fa2", "#a396e6"],
  ["#5b6670", "#a9b4be"],
];

/** The colour of a kind: compute, communication, memory, cpu, idle or other. */
export const kindColour = (kind: string): string => (KINDS[kind] ?? KINDS.other!)[dark() ? 1 : 0];
/** The colour of the n-th series; after seven they come again. */
export const seriesColour = (index: number): string => SERIES[index % SERIES.length]![dark() ? 1 : 0];
/** A variable of shared.css, such as "--ink". */
export const cssColour = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Ten steps of Viridis, which are told apart without colours, too.
const LEVELS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
/** Colours from the best to the worst: the best is the furthest from the colour of the page. */
export const levels = (): string[] => (dark() ? [...LEVELS].reverse() : LEVELS);

/** Call back whenever light turns dark or the other way round. */
export function onTheme(changed: () => void): void {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  new MutationObserver(changed).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}
