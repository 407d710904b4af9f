// What the page of a trace graph is made of, as report/trace_graph_html.py writes it.
import { count, size, time } from "../shared/numbers";

/** A text is a number of `strings`; an attribute is a number, or [a text]. */
export interface Data {
  title: string;
  about: string;
  kinds: string[];
  legend: [kind: number, nodes: number][];
  strings: string[];
  /** Whether a group is a call: its first entry calls the others. */
  calls: boolean;
  groups: { parent: number[]; label: number[] };
  boxes: {
    group: number[];
    label: number[];
    kind: number[];
    ns: number[];
    bytes: number[];
    /** Nodes of which each box consists; null: each is a node, and has what follows. */
    count: number[] | null;
    id?: (number | string)[];
    name?: number[];
    start?: number[] | null;
    attrs?: (number | [number])[][];
  };
  edges: { src: number[]; dst: number[]; flag: number[]; weight: number[] };
}

export const DATA = 1;
export const CONTROL = 2;

/** An edge between two things that are shown: which kinds of dependencies, and how many. */
export interface Edge {
  from: number;
  to: number;
  flag: number;
  weight: number;
}

/**
 * The boxes of a trace in groups within groups. Things have numbers: boxes first, then groups; the root is the first of them.
 */
export class Graph {
  readonly boxes: number;
  readonly root: number;
  readonly parent: Int32Array;
  readonly children: number[][];
  readonly nodes: Float64Array;
  readonly ns: Float64Array;
  readonly bytes: Float64Array;
  readonly kind: Uint8Array;
  readonly before: number[][];
  readonly after: number[][];
  /** Boxes in the order of the tree; those of a group are a range. */
  private readonly order: Int32Array;
  private readonly first: Int32Array;
  private readonly end: Int32Array;

  constructor(readonly data: Data) {
    const n = (this.boxes = data.boxes.group.length);
    this.root = n;
    const all = n + data.groups.parent.length;
    this.parent = Int32Array.from({ length: all }, (_, at) => n + (at < n ? data.boxes.group[at]! : data.groups.parent[at - n]!));
    this.parent[n] = -1;
    this.children = Array.from({ length: all }, () => []);
    for (let at = 0; at < all; at++) if (at !== n) this.children[this.parent[at]!]!.push(at);
    this.nodes = new Float64Array(all);
    this.ns = new Float64Array(all);
    this.bytes = new Float64Array(all);
    const kinds = new Float64Array(all * data.kinds.length);
    for (let at = 0; at < n; at++) {
      this.nodes[at] = data.boxes.count?.[at] ?? 1;
      this.ns[at] = data.boxes.ns[at]!;
      this.bytes[at] = data.boxes.bytes[at]!;
      kinds[at * data.kinds.length + data.boxes.kind[at]!] = this.nodes[at]!;
    }
    // Groups come after those around them, so backwards each is complete before it is added.
    for (const at of [...Array(n).keys(), ...Array.from({ length: all - n - 1 }, (_, i) => all - 1 - i)]) {
      for (const column of [this.nodes, this.ns, this.bytes]) column[this.parent[at]!]! += column[at]!;
      for (let kind = 0; kind < data.kinds.length; kind++) kinds[this.parent[at]! * data.kinds.length + kind]! += kinds[at * data.kinds.length + kind]!;
    }
    this.kind = Uint8Array.from({ length: all }, (_, at) => {
      const of = kinds.subarray(at * data.kinds.length, (at + 1) * data.kinds.length);
      return of.indexOf(Math.max(...of));
    });
    this.order = new Int32Array(n);
    this.first = new Int32Array(all);
    this.end = new Int32Array(all);
    let placed = 0;
    const waiting = [this.root];
    while (waiting.length) {
      const at = waiting.pop()!;
      // A group comes a second time, negative, when all in it is placed.
      if (at < 0) { this.end[~at] = placed; continue; }
      this.first[at] = placed;
      if (at < n) { this.order[placed++] = at; this.end[at] = placed; continue; }
      waiting.push(~at, ...this.children[at]!.slice().reverse());
    }
    this.before = Array.from({ length: n }, () => []);
    this.after = Array.from({ length: n }, () => []);
    data.edges.src.forEach((src, edge) => {
      this.after[src]!.push(edge);
      this.before[data.edges.dst[edge]!]!.push(edge);
    });
  }

  isGroup = (thing: number): boolean => thing >= this.boxes;
  text = (at: number): string => this.data.strings[at] ?? "";
  label = (thing: number): string => this.text(this.isGroup(thing) ? this.data.groups.label[thing - this.boxes]! : this.data.boxes.label[thing]!);
  /** The whole name, which a label shortens. */
  name = (thing: number): string => (this.isGroup(thing) || !this.data.boxes.name ? this.label(thing) : this.text(this.data.boxes.name[thing]!));
  /** The groups around a thing, the innermost first. */
  around(thing: number): number[] {
    const found = [];
    for (let at = this.parent[thing]!; at >= 0; at = this.parent[at]!) found.push(at);
    return found;
  }
  /** The boxes in a thing. */
  inside = (thing: number): Int32Array => this.order.subarray(this.first[thing], this.end[thing]);

  /** Nodes, time and bytes in one line. */
  summary(thing: number): string {
    const parts = [];
    if (this.nodes[thing]! > 1) parts.push(`×${count(this.nodes[thing]!)}`);
    if (this.ns[thing]) parts.push(time(this.ns[thing]! * 1e-9));
    if (this.bytes[thing]) parts.push(size(this.bytes[thing]!));
    return parts.join(" · ");
  }

  /** What is known of a thing, as names and texts. */
  facts(thing: number): [string, string][] {
    const { boxes, kinds } = this.data;
    const many = this.nodes[thing]! > 1;
    const found: [string, string][] = [[many ? "most are" : "kind", kinds[this.kind[thing]!]!]];
    if (many) found.push(["nodes", count(this.nodes[thing]!)]);
    if (this.ns[thing]) found.push([many ? "total time" : "duration", time(this.ns[thing]! * 1e-9)]);
    if (this.bytes[thing]) found.push(["bytes", size(this.bytes[thing]!)]);
    if (this.isGroup(thing) || !boxes.id) return found;
    found.splice(1, 0, ["id", String(boxes.id[thing])]);
    if (boxes.start) found.push(["start", time(boxes.start[thing]! * 1e-9)]);
    const attrs = boxes.attrs?.[thing] ?? [];
    for (let at = 0; at < attrs.length; at += 2) {
      const value = attrs[at + 1]!;
      found.push([this.text(attrs[at] as number), Array.isArray(value) ? this.text(value[0]) : String(value)]);
    }
    return found;
  }

  /** What is shown: the scope's entries, and in place of each open group its own. */
  shown(scope: number, open: ReadonlySet<number>): number[] {
    const found: number[] = [];
    const waiting = this.isGroup(scope) ? this.children[scope]!.slice().reverse() : [scope];
    while (waiting.length) {
      const at = waiting.pop()!;
      if (open.has(at)) waiting.push(...this.children[at]!.slice().reverse());
      else found.push(at);
    }
    return found;
  }

  /** Dependencies between things that are shown, those of the same two as one edge. */
  edges(shown: readonly number[], wanted: number): Edge[] {
    const at = new Int32Array(this.boxes).fill(-1);
    for (const thing of shown) for (const box of this.inside(thing)) at[box] = thing;
    const found = new Map<number, Edge>();
    const { src, dst, flag, weight } = this.data.edges;
    // That a call calls what its frame holds, the frame says.
    const says = (from: number, to: number) => {
      const group = this.parent[from]!;
      return this.data.calls && group !== this.root && this.children[group]![0] === from && this.first[group]! <= this.first[to]! && this.end[to]! <= this.end[group]!;
    };
    for (let edge = 0; edge < src.length; edge++) {
      const [from, to, kept] = [at[src[edge]!]!, at[dst[edge]!]!, flag[edge]! & wanted];
      if (from < 0 || to < 0 || !kept || (from === to && this.isGroup(from))) continue;
      if (kept === CONTROL && says(from, to)) continue;
      const key = from * this.parent.length + to;
      const one = found.get(key);
      if (one) {
        one.flag |= kept;
        one.weight += weight[edge]!;
      } else found.set(key, { from, to, flag: kept, weight: weight[edge]! });
    }
    return [...found.values()];
  }

  /** What a thing waits for (-1), or what needs it (1), outside of it: the most frequent first, and why. */
  neighbours(thing: number, way: -1 | 1): [thing: number, flag: number, weight: number][] {
    const found = new Map<number, [number, number, number]>();
    const own = new Set(this.inside(thing));
    const { src, dst, flag, weight } = this.data.edges;
    for (const box of own) {
      for (const edge of (way < 0 ? this.before : this.after)[box]!) {
        const other = (way < 0 ? src : dst)[edge]!;
        if (own.has(other) && other !== thing) continue;
        const one = found.get(other) ?? [other, 0, 0];
        found.set(other, [other, one[1] | flag[edge]!, one[2] + weight[edge]!]);
      }
    }
    return [...found.values()].sort((one, two) => two[2] - one[2]);
  }
}
