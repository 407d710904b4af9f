// What the timeline draws on its canvas.
import { cssColour, kindColour, seriesColour } from "./colours";
import { above, busyBetween, type Packed, type Track, type Unpacked, type What } from "./tracks";

export const AXIS = 22;

/** What is shown: which ticks, on how many pixels, and what of it is lit. */
export interface Scene {
  readonly from: number;
  readonly to: number;
  readonly wide: number;
  readonly labels: number;
  readonly packed: Packed;
  readonly data: Unpacked;
  readonly matches: Uint8Array | null;
  readonly lightPath: boolean;
  x(tick: number): number;
  tick(x: number): number;
}

/** Where a row is. */
export interface Band {
  top: number;
  height: number;
}

/** Draw the axis of time, with a line down all rows at each of its marks. */
export function axis(pen: CanvasRenderingContext2D, scene: Scene, high: number, dim: string, line: string): void {
  const room = scene.wide - scene.labels;
  const least = ((scene.to - scene.from) / Math.max(room / 90, 1)) * scene.packed.tick_s;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least)! / scene.packed.tick_s;
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  for (let tick = Math.ceil(scene.from / step) * step; tick <= scene.to; tick += step) {
    const x = Math.round(scene.x(tick)) + 0.5;
    pen.strokeStyle = line;
    pen.beginPath();
    pen.moveTo(x, AXIS - 4);
    pen.lineTo(x, high);
    pen.stroke();
    pen.fillStyle = dim;
    // Ticks far from 0 and close to each other need more digits than three.
    const digitsNeeded = Math.max(3, Math.ceil(Math.log10(Math.max(tick / step, 1))) + 1);
    if (x < scene.wide - 40) pen.fillText(precise(tick * scene.packed.tick_s, digitsNeeded), x + 2, AXIS / 2);
  }
}

/** Draw the slices of a track: rectangles, and columns of pixels where there are many in one. */
export function slices(pen: CanvasRenderingContext2D, scene: Scene, row: Band, track: Track, ink: string): void {
  const scale = (scene.wide - scene.labels) / (scene.to - scene.from);
  const top = row.top + 2;
  const height = row.height - 4;
  const colours = new Map<string, string>();
  const colour = (what: What) => {
    const kind = track.kind === "path" ? what.kind : track.kind;
    if (!colours.has(kind)) colours.set(kind, colourOf(kind));
    return colours.get(kind)!;
  };
  let i = Math.max(0, above(track.start, scene.from) - 1);
  if (i < track.end.length && track.end[i]! < scene.from) i++;
  while (i < track.start.length && track.start[i]! < scene.to) {
    const what = scene.data.texts[track.what[i]!]!;
    const left = Math.max(scene.x(track.start[i]!), scene.labels);
    const width = Math.min(scene.x(track.end[i]!), scene.wide) - left;
    pen.fillStyle = colour(what);
    if (width >= 1.5) {
      pen.globalAlpha = strengthOf(scene, track, i);
      // A gap of half a pixel tells neighbours apart; among narrow ones it would be most of what one sees.
      const shownWidth = width > 4 ? width - 0.5 : width;
      pen.fillRect(left, top, shownWidth, height);
      if (track.lit[i] && scene.lightPath && track.kind !== "path") {
        pen.globalAlpha = 1;
        pen.fillStyle = cssColour("--lit");
        pen.fillRect(left, top + height - 2.5, shownWidth, 2.5);
      }
      if (width > 36) {
        pen.globalAlpha = 1;
        pen.fillStyle = "#ffffff";
        pen.font = "11px system-ui, sans-serif";
        if (isLight(colour(what))) pen.fillStyle = "#101418";
        fit(pen, what.name || what.label || what.kind, left + 3, row.top + row.height / 2, width - 6);
      }
      i++;
      continue;
    }
    // Many in a pixel: one column as high as the share of it that was busy.
    const pixel = Math.floor(left);
    const from = scene.tick(pixel);
    const to = from + 1 / scale;
    let next = Math.max(above(track.start, to), i + 1);
    // The last one may reach far beyond the pixel that it begins in: it is drawn by itself.
    if (next - 1 > i && track.end[next - 1]! > to) next--;
    let strength = 0;
    let lit = false;
    for (let k = i, looked = 0; k < next && looked < 16; k++, looked++) {
      strength = Math.max(strength, strengthOf(scene, track, k));
      lit ||= !!track.lit[k];
    }
    const share = Math.min(1, busyBetween(track, from, to) * scale);
    const part = Math.max(2, height * share);
    pen.globalAlpha = strength;
    pen.fillRect(pixel, top + height - part, 1, part);
    if (lit && scene.lightPath && track.kind !== "path") {
      pen.globalAlpha = 1;
      pen.fillStyle = cssColour("--lit");
      pen.fillRect(pixel, top + height - 2.5, 1, 2.5);
    }
    i = next;
  }
  pen.globalAlpha = 1;
  pen.fillStyle = ink;
}

function strengthOf(scene: Scene, track: Track, i: number): number {
  if (scene.matches) return scene.matches[track.what[i]!] ? 1 : 0.15;
  return !scene.lightPath || track.lit[i] || track.kind === "network" ? 1 : 0.5;
}

/** Draw how busy a link was. */
export function link(pen: CanvasRenderingContext2D, scene: Scene, row: Band, link: Packed["links"][number]): void {
  pen.fillStyle = seriesColour(2);
  const bin = link.bin_s / scene.packed.tick_s;
  const first = Math.max(0, Math.floor(scene.from / bin));
  const last = Math.min(link.share.length, Math.ceil(scene.to / bin));
  for (let i = first; i < last; i++) {
    const left = Math.max(scene.x(i * bin), scene.labels);
    const right = Math.min(scene.x((i + 1) * bin), scene.wide);
    const part = ((row.height - 3) * link.share[i]!) / 1000;
    if (part > 0) pen.fillRect(left, row.top + row.height - 1 - part, Math.max(right - left, 0.6), part);
  }
}

/** Write a text into a width, cut if need be. */
export function fit(pen: CanvasRenderingContext2D, text: string, x: number, y: number, width: number): void {
  let shown = text;
  if (pen.measureText(shown).width > width) {
    let letters = Math.floor((text.length * width) / pen.measureText(text).width);
    while (letters > 1 && pen.measureText(`${text.slice(0, letters)}…`).width > width) letters--;
    shown = letters > 1 ? `${text.slice(0, letters)}…` : "";
  }
  pen.fillText(shown, x, y);
}

const KIND_OF: Record<string, string> = {
  compute: "compute", cpu: "cpu", communication: "communication", collective: "communication", send: "communication",
  recv: "communication", memory: "memory", network: "memory", phase: "memory", none: "idle", other: "idle",
};

function colourOf(kind: string): string {
  return kindColour(KIND_OF[kind] ?? "other");
}

function isLight(colour: string): boolean {
  const value = Number.parseInt(colour.slice(1), 16);
  return ((value >> 16) & 255) * 0.3 + ((value >> 8) & 255) * 0.59 + (value & 255) * 0.11 > 128;
}

function precise(seconds: number, needed: number): string {
  if (!seconds) return "0";
  const [factor, unit] = ([[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]] as const).find(([least]) => seconds >= least * 0.9995) ?? [1e-9, "ns"];
  return `${Number((seconds / factor).toPrecision(Math.min(needed, 12)))} ${unit}`;
}
