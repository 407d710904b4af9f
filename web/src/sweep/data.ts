// The points of a sweep as explore/views/page.py packs them, and how their values are written.

/** An axis with its values as texts; a code is the place of a point's value among them, -1 where it is not varied. */
export interface Axis {
  readonly name: string;
  readonly values: readonly string[];
  readonly codes: Int16Array;
}

/** A measure: a value per point, NaN where it has none; `ladder` has units and how much one of each is, ascending. */
export interface Measure {
  readonly name: string;
  readonly title: string;
  readonly better: "less" | "more";
  readonly before: string;
  readonly ladder: readonly (readonly [number, string])[];
  readonly values: Float32Array;
}

export interface Reason {
  readonly status: string;
  readonly text: string;
  readonly count: number;
}

type Packed<T> = { [K in keyof T]: T[K] extends ArrayBufferView ? string : T[K] };
export interface Content {
  title: string;
  status: string;
  count: number;
  axes: Packed<Axis>[];
  fixed: string[];
  measures: Packed<Measure>[];
  objectives: { name: string; better: "less" | "more" }[];
  numbers: string;
  why: string;
  pareto: string;
  reasons: Reason[];
  heat: number[];
}

/** All points, by row; `ok` has the rows that are ok, the best first. */
export interface Sweep {
  readonly title: string;
  readonly status: string;
  readonly count: number;
  readonly axes: readonly Axis[];
  readonly fixed: readonly string[];
  /** The objectives first. */
  readonly measures: readonly Measure[];
  readonly objectives: readonly Measure[];
  /** Number of the point in its store. */
  readonly numbers: Int32Array;
  /** -1 where ok, else the place of the reason. */
  readonly why: Int16Array;
  /** Pareto rank, 0 on the front. */
  readonly pareto: Int32Array;
  readonly reasons: readonly Reason[];
  /** The two axes that say the most. */
  readonly heat: readonly number[];
  readonly ok: readonly number[];
}

/** Unpack the points. */
export function unpack(content: Content): Sweep {
  const better = new Map(content.objectives.map((each) => [each.name, each.better]));
  const known = content.measures.map((each) => ({
    ...each, better: better.get(each.name) ?? each.better, values: new Float32Array(bytes(each.values)),
  }));
  const objectives = content.objectives.flatMap((each) => known.filter((measure) => measure.name === each.name));
  const axes = content.axes.map((each) => ({ ...each, codes: new Int16Array(bytes(each.codes)) }));
  const numbers = new Int32Array(bytes(content.numbers));
  const why = new Int16Array(bytes(content.why));
  const pareto = new Int32Array(bytes(content.pareto));
  const goal = objectives[0];
  const ok = Array.from({ length: content.count }, (_, row) => row).filter((row) => why[row]! < 0);
  if (goal) ok.sort((one, other) => pareto[one]! - pareto[other]! || cost(goal, one) - cost(goal, other) || numbers[one]! - numbers[other]!);
  const measures = [...objectives, ...known.filter((each) => !objectives.includes(each))];
  return { ...content, axes, measures, objectives, numbers, why, pareto, ok };
}

function bytes(text: string): ArrayBuffer {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
}

/** A value of a measure, signed so that less is better. */
export const cost = (measure: Measure, row: number): number => measure.values[row]! * (measure.better === "less" ? 1 : -1);

const DIGITS = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });

/** Four digits. */
export function number(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toPrecision(3) : DIGITS.format(value);
}

/** The same with three digits, for labels. */
export const rough = (value: number): string => number(Number(value.toPrecision(3)));

function rung(measure: Measure, value: number): readonly [number, string] {
  const size = Math.abs(value);
  let found = measure.ladder[0]!;
  for (const step of measure.ladder) {
    // An hour is more readable as a part of a day than as 3,600 s.
    if (step[1] === "days" ? size >= 3600 : size >= step[0] * 0.99995) found = step;
  }
  return found;
}

/** A value with its unit, "-" without one. */
export function shown(measure: Measure, value: number, write = number): string {
  if (!Number.isFinite(value)) return "-";
  const [scale, unit] = rung(measure, value);
  return `${measure.before}${write(value / scale)}${unit && ` ${unit}`}`;
}

/** One unit for all values of a measure, as axes need it, and the title that names it. */
export function scaled(measure: Measure): { scale: number; title: string } {
  const [scale, unit] = rung(measure, measure.values.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 0));
  return { scale, title: `${measure.title}${measure.before || unit ? ` (${measure.before}${unit})` : ""}` };
}

/** Least and greatest value of a measure among some rows. */
export function ends(measure: Measure, rows: readonly number[]): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const row of rows) {
    const value = measure.values[row]!;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** Whether the values that are ok are all above zero and the greatest is more than `times` the least. */
export function wide(sweep: Sweep, measure: Measure, times: number): boolean {
  const [low, high] = ends(measure, sweep.ok);
  return low > 0 && high > times * low;
}

/** The value of a point on an axis. */
export const valueText = (axis: Axis, row: number): string => (axis.codes[row]! < 0 ? "-" : axis.values[axis.codes[row]!]!);

/** A text that fits beside an axis. */
export const cut = (text: string): string => (text.length > 14 ? `${text.slice(0, 13)}…` : text);

/** The values of a point, such as "tp 8". */
export const described = (sweep: Sweep, row: number): string[] =>
  sweep.axes.filter((axis) => axis.codes[row]! >= 0).map((axis) => `${axis.name} ${valueText(axis, row)}`);

/** What a tooltip says of a point. */
export function told(sweep: Sweep, row: number): string {
  const known = sweep.measures.filter((measure) => Number.isFinite(measure.values[row]!)).slice(0, 12);
  const lines = known.map((measure) => `${measure.title} ${shown(measure, measure.values[row]!)}`);
  return [`point ${sweep.numbers[row]}`, ...described(sweep, row), "", ...lines].join("\n");
}

/** The letter of a reason in the heat map. */
export const letter = (reason: number): string => (reason < 26 ? String.fromCharCode(65 + reason) : "…");

/** A reason as a line; those beyond the listed ones are "other". */
export function reasonText(sweep: Sweep, reason: number): string {
  const one = sweep.reasons[reason];
  return one ? `${one.status}: ${one.text}` : "other reasons";
}

/** `count` of a list at most, evenly chosen. */
export function some<T>(list: readonly T[], count: number): T[] {
  const step = Math.max(1, list.length / count);
  return Array.from({ length: Math.min(list.length, Math.floor(count)) }, (_, at) => list[Math.floor(at * step)]!);
}
