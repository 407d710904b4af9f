// Validations as evidence/validate/page.py writes them.

/** Errors are |predicted / measured - 1|; null where there is none. */
export interface Errors {
  rows: number;
  refused: number;
  mean: number | null;
  worst: number | null;
  median: number | null;
  rank: number | null;
  bias: number | null;
  within: number | null;
  held: number | null;
}
export interface Part {
  name: string;
  title: string;
  unit: string;
  source: string;
  relation: string;
  n: number;
  errors: Errors;
  bars: string[];
  verdict: "met" | "missed" | "shown";
}
/** Rows by columns, the worst first; what is refused has no prediction and comes last. */
export interface Rows {
  label: string[];
  group: string[];
  measured: number[];
  predicted: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
  error: (number | null)[];
  reason: string[];
}
export interface Table extends Part {
  parts: Part[];
  groups: Record<string, Errors>;
  refused: Record<string, number>;
  notes: string[];
  rows: Rows;
}
export interface Content {
  /** The relative error up to which a prediction is near. */
  near: number;
  tables: Table[];
  skipped: string[];
}

export const number = (value: number | null, unit = ""): string =>
  value === null ? "–" : `${Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 })} ${unit}`.trim();
export const percent = (value: number | null, sign = false): string =>
  value === null ? "–" : `${sign && value > 0 ? "+" : ""}${(100 * value).toFixed(1)} %`;
export const plural = (count: number, word: string): string => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
