// What is kept of the points: one filter, from which every chart, list and table is drawn.
import type { Measure, Sweep } from "./data";

export class Filter {
  /** Codes that are kept, by axis; null: all. */
  readonly allowed: (Set<number> | null)[];
  /** Least and greatest value that is kept, by measure. */
  readonly ranges = new Map<Measure, readonly [number, number]>();
  /** The reason whose points are counted, null: those that are ok. */
  reason: number | null = null;
  /** The point that was clicked. */
  chosen: number | null = null;
  /** Rows that are ok and kept, the best first. */
  rows: readonly number[] = [];
  /** Rows of which the chips count those that are kept. */
  counted: readonly number[] = [];

  constructor(private readonly sweep: Sweep) {
    this.allowed = sweep.axes.map(() => null);
    this.update();
  }

  /** Choose the rows anew after a change. */
  update(): void {
    this.rows = this.sweep.ok.filter((row) => this.keeps(row));
    this.counted = this.sweep.ok;
    if (this.reason !== null) {
      this.counted = Array.from({ length: this.sweep.count }, (_, row) => row).filter((row) => this.sweep.why[row] === this.reason);
    }
  }

  /** Whether the values of a point are kept, not counting one axis. */
  keepsValues(row: number, but = -1): boolean {
    return this.allowed.every((codes, axis) => axis === but || !codes || codes.has(this.sweep.axes[axis]!.codes[row]!));
  }

  /** Whether a point is kept, not counting one axis. */
  keeps(row: number, but = -1): boolean {
    if (!this.keepsValues(row, but)) return false;
    // Of what is not ok there are no measures.
    if (this.sweep.why[row]! >= 0) return true;
    for (const [measure, [low, high]] of this.ranges) {
      const value = measure.values[row]!;
      if (!(value >= low && value <= high)) return false;
    }
    return true;
  }

  /** Keep some codes of an axis; none or all of them: do not filter by it. */
  allow(axis: number, codes: Set<number> | null): void {
    const all = this.sweep.axes[axis]!.values.every((_, code) => codes?.has(code));
    this.allowed[axis] = codes?.size && !all ? codes : null;
  }

  get active(): boolean {
    return this.allowed.some(Boolean) || this.ranges.size > 0 || this.reason !== null;
  }

  clear(): void {
    this.allowed.fill(null);
    this.ranges.clear();
    this.reason = null;
  }
}

/** What a chart needs: the points, what is kept, and whom to tell of a change. */
export interface Around {
  readonly sweep: Sweep;
  readonly filter: Filter;
  /** Draw all anew; the chart that made the change may name itself. */
  changed(by?: string): void;
  /** Put a point in the middle of the tornado. */
  choose(row: number): void;
}
