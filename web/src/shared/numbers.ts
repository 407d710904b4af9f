// Numbers as a reader wants them: four digits and a unit, as the command line has them. Times are seconds, sizes bytes.

/** Four significant digits, without an exponent where a plain number is readable. */
export function digits(value: number, significant = 4): string {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e9 || size < 1e-4) return value.toExponential(significant - 1);
  if (size >= 10 ** significant) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(significant)));
}

function scaled(value: number, units: readonly (readonly [number, string])[]): string {
  const size = Math.abs(value);
  // 0.9995 of a unit rounds to 1 of it.
  const [factor, unit] = units.find(([least]) => size >= least * 0.9995) ?? units[units.length - 1]!;
  return `${digits(value / factor)} ${unit}`;
}

const TIMES = [[86400, "days"], [3600, "h"], [60, "min"], [1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]] as const;
const SIZES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]] as const;
const RATES = [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]] as const;

/** A time in seconds. */
export const time = (seconds: number): string => (seconds === 0 ? "0 s" : scaled(seconds, TIMES));
/** A size in bytes, in powers of 1024. */
export const size = (bytes: number): string => (bytes === 0 ? "0 B" : scaled(bytes, SIZES));
/** Marks of an axis of sizes, at powers of two: 16 GiB, not 18.63; `step` apart, up to `top`. */
export function ticks(most: number): { step: number; top: number } {
  const step = 2 ** Math.ceil(Math.log2(Math.max(most, 1) / 6));
  return { step, top: step * Math.ceil((most * 1.04) / step) };
}
/** A rate in bytes a second, in powers of 1000. */
export const rate = (bytes: number): string => (bytes === 0 ? "0 B/s" : scaled(bytes, RATES));
/** A share, as 12.3 %. */
export const percent = (share: number): string => `${digits(share * 100, 3)} %`;
/** A number of things, as "1 change" or "4,096 changes". */
export const counted = (value: number, what: string): string => `${count(value)} ${what}${value === 1 ? "" : "s"}`;
/** A count, as 4,096. */
export const count = (value: number): string => value.toLocaleString("en-US");
