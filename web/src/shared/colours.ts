// Colours of what a step consists of: told apart by those who see red and green, or blue and yellow, alike, in the light
// and in the dark. Blue, vermilion and green are Okabe and Ito's; the others are as far from them and from each other as a
// random search found, also in lightness. report.css has the same ones.

/** Whether the page is shown in the dark. */
export function dark(): boolean {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

const KINDS: Record<string, readonly [string, string]> = {
  compute: ["#0072b2", "#56a8e0"],
  communication: ["#d55e00", "#ee8a45"],
  memory: ["#009e73", "#2cc79c"],
  other: ["#896083", "#9c3590"],
  issuing: ["#5b4814", "#a08d56"],
  cpu: ["#1c1eaa", "#4360fd"],
  outside: ["#3b3c3d", "#d5dbe8"],
  idle: ["#aab7c1", "#868b8f"],
};
const SERIES = Object.values(KINDS).slice(0, 7);

/** The colour of a kind: one of the above, else that of other. */
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
