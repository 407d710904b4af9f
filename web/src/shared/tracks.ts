// The slices of a run, unpacked: see report/page/tracks.py, which packs them.

export interface Packed {
  tick_s: number;
  end: number;
  classes: number;
  groups: { name: string; ranks: number; finish: number; tracks: number; run: number }[];
  tracks: [name: string, kind: string, slices: number][];
  joined: number;
  slices: number;
  links: { name: string; bin_s: number; share: number[]; mean: number; waiting: number }[];
  text_bytes: number;
  widths: Record<"gap" | "length" | "what" | "count" | "lit", number>;
  data: string;
}

/** What a slice is: all texts come from files and are shown as text only. */
export interface What {
  name: string;
  label: string;
  place: string;
  kind: string;
  bytes: number;
  flops: number;
}

/** A track: columns of slices in order, none of which overlap, in ticks. `busy[i]` is the sum of lengths before i. */
export interface Track {
  name: string;
  kind: string;
  start: Float64Array;
  end: Float64Array;
  busy: Float64Array;
  what: Uint32Array;
  count: Uint32Array;
  lit: Uint8Array;
}

export interface Unpacked {
  tracks: Track[];
  texts: What[];
}

async function inflate(base64: string): Promise<Uint8Array> {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Unpack the columns of a run. */
export async function unpack(packed: Packed): Promise<Unpacked> {
  const bytes = await inflate(packed.data);
  const texts = new TextDecoder()
    .decode(bytes.subarray(0, packed.text_bytes))
    .split("\n")
    .map((row): What => {
      const [name = "", label = "", place = "", kind = "", size = "0", flops = "0"] = row.split("\t");
      return { name, label, place, kind, bytes: Number(size), flops: Number(flops) };
    });
  const total = packed.tracks.reduce((sum, [, , slices]) => sum + slices, 0);
  let at = packed.text_bytes;
  // Planes of bytes: all lowest ones first.
  const column = (width: number): Float64Array => {
    const values = new Float64Array(total);
    for (let plane = 0, scale = 1; plane < width; plane++, scale *= 256) {
      for (let i = 0; i < total; i++) values[i]! += bytes[at + i]! * scale;
      at += total;
    }
    return values;
  };
  const gap = column(packed.widths.gap);
  const length = column(packed.widths.length);
  const what = Uint32Array.from(column(packed.widths.what));
  const count = Uint32Array.from(column(packed.widths.count));
  const lit = Uint8Array.from(column(packed.widths.lit));
  let first = 0;
  const tracks = packed.tracks.map(([name, kind, slices]): Track => {
    const start = new Float64Array(slices);
    const end = new Float64Array(slices);
    const busy = new Float64Array(slices + 1);
    for (let i = 0, reached = 0; i < slices; i++) {
      start[i] = reached + gap[first + i]!;
      reached = end[i] = start[i]! + length[first + i]!;
      busy[i + 1] = busy[i]! + length[first + i]!;
    }
    const last = first + slices;
    const track = {
      name, kind, start, end, busy,
      what: what.subarray(first, last), count: count.subarray(first, last), lit: lit.subarray(first, last),
    };
    first = last;
    return track;
  });
  return { tracks, texts };
}

/** Move a track in time. */
export function moved(track: Track, ticks: number): void {
  for (let i = 0; i < track.start.length; i++) {
    track.start[i]! += ticks;
    track.end[i]! += ticks;
  }
}

/** The first index whose value is above `limit`. */
export function above(values: Float64Array, limit: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Ticks in which a track was busy between two ticks. */
export function busyBetween(track: Track, from: number, to: number): number {
  const until = (tick: number): number => {
    const next = above(track.start, tick);
    if (!next) return 0;
    return track.busy[next]! - Math.max(0, track.end[next - 1]! - tick);
  };
  return until(to) - until(from);
}
