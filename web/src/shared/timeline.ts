// A timeline that zooms from the whole run to one chunk: a million slices are drawn as pixels, not as objects.
import { cssColour, onTheme } from "./colours";
import { AXIS, axis, fit, link, slices, type Band, type Scene } from "./drawing";
import { element } from "./element";
import { count, percent, size, time } from "./numbers";
import { above, moved, unpack, type Packed, type Track, type Unpacked } from "./tracks";

const ROW = 20;
const HEAD = 24;
const SHORTEST = 20; // ticks that fill the view at the deepest zoom

interface Row extends Band {
  kind: "head" | "track" | "link";
  name: string;
  track?: Track;
  link?: Packed["links"][number];
  group?: number;
}

/** Draw a timeline into an element. */
export async function timeline(host: HTMLElement, packed: Packed): Promise<void> {
  const wait = host.appendChild(element("p", { class: "dim" }, "Unpacking…"));
  const unpacked = await unpack(packed);
  wait.remove();
  new View(host, packed, unpacked);
}

class View implements Scene {
  from = 0;
  to: number;
  private readonly end: number;
  private readonly open: boolean[];
  private rows: Row[] = [];
  private readonly canvas = element("canvas", {
    tabindex: "0", role: "application",
    "aria-label": "Timeline. Left and right arrows move, plus and minus zoom, 0 shows the whole run.",
  });
  private readonly about = element("div", { class: "about", "aria-live": "polite" });
  private readonly where = element("span", { class: "dim" });
  private readonly search = element("input", { type: "search", placeholder: "find by name", "aria-label": "Find slices by name" });
  lightPath = true;
  matches: Uint8Array | null = null;
  private drag: { x: number; from: number; to: number; moved: boolean; zooms: boolean } | null = null;
  private select: [number, number] | null = null;
  private readonly pointers = new Map<number, number>();
  private pending = 0;
  /** Of runs beside each other: the run of each track, and how far each run was moved. */
  private readonly runOf: number[];
  private readonly shifts: number[];
  private picked: { at: number; slice: number } | null = null;
  private readonly aligning: HTMLButtonElement[] = [];
  wide = 0;

  constructor(host: HTMLElement, readonly packed: Packed, readonly data: Unpacked) {
    this.end = Math.max(packed.end, 1);
    this.to = this.end;
    // A dozen classes would bury the slowest: only the first is open.
    const first = packed.groups.findIndex((group) => group.ranks);
    this.open = packed.groups.map((group, index) => !group.ranks || index === first || packed.groups.length < 5);
    const button = (text: string, label: string, act: () => void) => {
      const made = element("button", { type: "button", title: label, "aria-label": label }, text);
      made.addEventListener("click", act);
      return made;
    };
    const lit = element("input", { type: "checkbox", checked: "" });
    lit.addEventListener("change", () => { this.lightPath = lit.checked; this.later(); });
    this.search.addEventListener("input", () => this.find());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1);
    });
    this.runOf = packed.groups.flatMap((group) => Array<number>(group.tracks).fill(group.run ?? 0));
    this.shifts = Array<number>(Math.max(0, ...this.runOf) + 1).fill(0);
    if (this.shifts.length > 1) {
      this.aligning.push(button("align here", "align here: move the other runs so that what was clicked begins at the same time", () => this.align()),
        button("align starts", "align starts: let all runs begin at the same time", () => this.shift((run) => -this.shifts[run]!)));
      this.aligning[0]!.disabled = true;
    }
    host.append(
      element("div", { class: "tools" },
        button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)),
        button("‹", "Earlier", () => this.move(-0.5)), button("›", "Later", () => this.move(0.5)),
        button("whole", "Show the whole run", () => this.show(0, this.end)),
        element("label", {}, lit, " critical path"), this.search, ...this.aligning, this.where),
      this.canvas, this.about);
    this.listen();
    onTheme(() => this.later());
    new ResizeObserver(() => this.later()).observe(host);
    this.layout();
    this.say(null);
  }

  private get ranked(): number {
    return this.packed.groups.filter((group) => group.ranks).length;
  }

  get labels(): number {
    return this.wide < 600 ? 84 : 170;
  }

  private layout(): void {
    this.rows = [];
    let top = AXIS;
    const add = (row: Omit<Row, "top">) => { this.rows.push({ ...row, top }); top += row.height; };
    const tracks = this.data.tracks;
    let at = 0;
    this.packed.groups.forEach((group, index) => {
      const alike = group.ranks > 1 ? ` · stands for ${count(group.ranks)} ranks` : "";
      const name = `${this.open[index] ? "▾" : "▸"} ${group.name.replace(/ \(.*/, "")}${alike}`;
      if (group.ranks) add({ kind: "head", height: HEAD, name, group: index });
      if (this.open[index]) {
        for (const track of tracks.slice(at, at + group.tracks)) {
          add({ kind: "track", height: group.ranks ? ROW : ROW + 4, name: group.ranks ? track.name : group.name, track });
        }
      }
      at += group.tracks;
    });
    if (this.packed.links.length) {
      add({ kind: "head", height: HEAD, name: "busiest links, share of bandwidth" });
      for (const link of this.packed.links) add({ kind: "link", height: ROW, name: link.name, link });
    }
    this.canvas.style.height = `${top + 4}px`;
    this.later();
  }

  private later(): void {
    this.pending ||= requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }

  private show(from: number, to: number): void {
    const length = Math.min(Math.max(to - from, Math.min(SHORTEST, this.end)), this.end);
    this.from = Math.min(Math.max(0, from), this.end - length);
    this.to = this.from + length;
    this.later();
  }

  private zoom(factor: number, middle = (this.from + this.to) / 2): void {
    this.show(middle - (middle - this.from) * factor, middle + (this.to - middle) * factor);
  }

  private move(share: number): void {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }

  tick(x: number): number {
    return this.from + ((x - this.labels) / Math.max(this.wide - this.labels, 1)) * (this.to - this.from);
  }

  x(tick: number): number {
    return this.labels + ((tick - this.from) / (this.to - this.from)) * (this.wide - this.labels);
  }

  private listen(): void {
    const canvas = this.canvas;
    canvas.addEventListener("wheel", (event) => {
      // The page keeps scrolling unless a key says that the timeline is meant.
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        this.zoom(Math.exp(event.deltaY * 0.0025), this.tick(event.offsetX));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        this.move(((event.deltaX || event.deltaY) / Math.max(this.wide, 1)) * 1);
      }
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event.offsetX);
      this.drag = { x: event.offsetX, from: this.from, to: this.to, moved: false, zooms: event.pointerType === "mouse" && !event.shiftKey };
    });
    canvas.addEventListener("pointermove", (event) => this.pointed(event));
    const release = (event: PointerEvent) => {
      this.pointers.delete(event.pointerId);
      const drag = this.drag;
      this.drag = null;
      if (drag?.moved && this.select) this.show(this.tick(this.select[0]), this.tick(this.select[1]));
      else if (drag && !drag.moved && event.type === "pointerup") this.click(event.offsetX, event.offsetY);
      this.select = null;
      this.later();
    };
    canvas.addEventListener("pointerup", release);
    canvas.addEventListener("pointercancel", release);
    canvas.addEventListener("dblclick", (event) => this.zoom(0.25, this.tick(event.offsetX)));
    canvas.addEventListener("keydown", (event) => {
      const act: Record<string, () => void> = {
        ArrowLeft: () => this.move(-0.2), ArrowRight: () => this.move(0.2), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5),
        "-": () => this.zoom(2), "0": () => this.show(0, this.end), Home: () => this.show(0, this.to - this.from),
        End: () => this.show(this.end - (this.to - this.from), this.end),
      };
      const chosen = act[event.key];
      if (!chosen || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      chosen();
    });
  }

  private pointed(event: PointerEvent): void {
    const drag = this.drag;
    if (drag && this.pointers.size === 2) {
      // Two fingers: what is between them stays between them.
      const before = [...this.pointers.values()] as [number, number];
      this.pointers.set(event.pointerId, event.offsetX);
      const after = [...this.pointers.values()] as [number, number];
      const factor = Math.abs(before[0] - before[1]) / Math.max(Math.abs(after[0] - after[1]), 8);
      drag.moved = true;
      this.zoom(Math.min(Math.max(factor, 0.5), 2), this.tick((after[0] + after[1]) / 2));
      return;
    }
    if (drag) {
      if (Math.abs(event.offsetX - drag.x) > 4) drag.moved = true;
      if (!drag.moved) return;
      if (drag.zooms) {
        this.select = [Math.min(drag.x, event.offsetX), Math.max(drag.x, event.offsetX)];
      } else {
        const by = ((drag.x - event.offsetX) / Math.max(this.wide - this.labels, 1)) * (drag.to - drag.from);
        this.show(drag.from + by, drag.to + by);
      }
      this.later();
      return;
    }
    const row = this.rows.find((each) => event.offsetY >= each.top && event.offsetY < each.top + each.height);
    this.canvas.style.cursor = row?.kind === "head" ? "pointer" : "crosshair";
    this.say(row ? this.at(row, event.offsetX) : null);
  }

  private click(x: number, y: number): void {
    const row = this.rows.find((each) => y >= each.top && y < each.top + each.height);
    if (!row) return;
    if (row.kind === "head" && row.group !== undefined) {
      this.open[row.group] = !this.open[row.group];
      this.layout();
    } else {
      this.say(this.at(row, x));
      this.mark(row, x);
    }
  }

  /** Remember the slice that was clicked, for other runs to be aligned at. */
  private mark(row: Row, x: number): void {
    if (!this.aligning.length || !row.track) return;
    const slice = above(row.track.start, this.tick(x)) - 1;
    this.picked = slice < 0 ? null : { at: this.data.tracks.indexOf(row.track), slice };
    this.aligning[0]!.disabled = !this.picked;
  }

  private called(track: Track, slice: number): string {
    const what = this.data.texts[track.what[slice]!]!;
    return what.name || what.label;
  }

  /** Let the slice that was picked, and the same one of each other run, begin together: as many of its name come before. */
  private align(): void {
    if (!this.picked) return;
    const { at, slice } = this.picked;
    const own = this.data.tracks[at]!;
    const name = this.called(own, slice);
    let nth = 0;
    for (let i = 0; i < slice; i++) nth += Number(this.called(own, i) === name);
    this.shift((run) => {
      if (run === this.runOf[at]) return 0;
      let [last, seen] = [NaN, 0];
      for (const [other, track] of this.data.tracks.entries()) {
        if (this.runOf[other] !== run || track.name !== own.name || track.kind !== own.kind) continue;
        for (let i = 0; i < track.what.length && seen <= nth; i++) {
          if (this.called(track, i) !== name) continue;
          last = track.start[i]!;
          seen++;
        }
        if (seen) break;
      }
      return Number.isNaN(last) ? 0 : own.start[slice]! - last;
    });
  }

  /** Move runs by so many ticks. */
  private shift(by: (run: number) => number): void {
    const ticks = this.shifts.map((_, run) => by(run));
    this.data.tracks.forEach((track, at) => moved(track, ticks[this.runOf[at]!]!));
    ticks.forEach((each, run) => (this.shifts[run]! += each));
    this.later();
  }

  /** The lines that describe what is at a place, or null for nothing. */
  private at(row: Row, x: number): string[] | null {
    const tick = this.tick(x);
    if (x < this.labels || tick < 0) return row.kind === "head" ? null : [row.name];
    if (row.link) {
      const bin = Math.floor((tick * this.packed.tick_s) / row.link.bin_s);
      const queue = row.link.waiting ? `, up to ${size(row.link.waiting)} waited for it` : "";
      return [row.name, `${percent((row.link.share[bin] ?? 0) / 1000)} of its bandwidth here, ${percent(row.link.mean)} over the run${queue}`];
    }
    const track = row.track;
    if (!track) return null;
    // Half a pixel of grace, so that what is drawn can be pointed at.
    const near = above(track.start, tick + ((this.to - this.from) / Math.max(this.wide, 1)) * 0.5) - 1;
    if (near < 0 || track.end[near]! < tick - (this.to - this.from) / Math.max(this.wide, 1)) return [row.name, `nothing at ${this.text(tick)}`];
    const what = this.data.texts[track.what[near]!]!;
    const start = track.start[near]!;
    const length = track.end[near]! - start;
    const lines = [[what.name || what.label || row.name, what.name ? what.label : ""].filter(Boolean).join(" · ")];
    lines.push(`${this.text(length)}, from ${this.text(start)}${track.lit[near] ? ", on the critical path" : ""}`);
    const facts = [what.bytes ? size(what.bytes) : "", what.flops ? `${(what.flops / 1e9).toLocaleString("en-US", { maximumSignificantDigits: 3 })} GFLOP` : "",
      what.place ? `dimension ${what.place}` : "", track.count[near]! > 1 ? `stands for ${count(track.count[near]!)} short slices` : ""];
    lines.push(facts.filter(Boolean).join(", "));
    return lines;
  }

  private text(ticks: number): string {
    return time(ticks * this.packed.tick_s);
  }

  private say(lines: string[] | null): void {
    const help = "Point at a slice. Drag to zoom to what you mark, shift-drag to move, ctrl-wheel to zoom, click a rank to open it.";
    const joined = this.packed.joined ? ` Slices shorter than ${this.text(this.packed.joined)} are joined with their neighbours: the run has ${count(this.packed.slices)}.` : "";
    const missing = this.packed.classes > this.ranked ? ` Shown are the ${count(this.ranked)} slowest of ${count(this.packed.classes)} classes of ranks.` : "";
    const shown = lines?.filter(Boolean) ?? [help + joined + missing];
    this.about.replaceChildren(...shown.map((line, index) => element(index || !lines ? "span" : "b", {}, line)));
  }

  private find(): void {
    const wanted = this.search.value.trim().toLowerCase();
    this.matches = wanted
      ? Uint8Array.from(this.data.texts, (what) => Number(`${what.name} ${what.label}`.toLowerCase().includes(wanted)))
      : null;
    if (this.matches) {
      let slices = 0;
      let ticks = 0;
      for (const { track } of this.rows) {
        if (!track || track.kind === "path") continue;
        for (let i = 0; i < track.what.length; i++) {
          if (this.matches[track.what[i]!]) {
            slices += track.count[i]!;
            ticks += track.end[i]! - track.start[i]!;
          }
        }
      }
      this.say([slices === 1 ? "1 slice" : `${count(slices)} slices`, slices ? `${this.text(ticks)} in all; Enter shows the next` : "no name has this in it"]);
    } else this.say(null);
    this.later();
  }

  private next(step: number): void {
    const matches = this.matches;
    if (!matches) return;
    const middle = (this.from + this.to) / 2;
    let best: [number, number] | null = null;
    for (const { track } of this.rows) {
      if (!track) continue;
      for (let i = 0; i < track.what.length; i++) {
        const centre = (track.start[i]! + track.end[i]!) / 2;
        if (!matches[track.what[i]!] || (centre - middle) * step <= 1e-9 * this.end) continue;
        if (!best || Math.abs(centre - middle) < Math.abs((best[0] + best[1]) / 2 - middle)) best = [track.start[i]!, track.end[i]!];
      }
    }
    if (!best) return;
    const length = Math.min(this.to - this.from, Math.max((best[1] - best[0]) * 12, SHORTEST));
    this.show((best[0] + best[1] - length) / 2, (best[0] + best[1] + length) / 2);
  }

  private draw(): void {
    const ratio = devicePixelRatio || 1;
    this.wide = this.canvas.clientWidth;
    const high = this.canvas.clientHeight;
    if (!this.wide) return;
    this.canvas.width = Math.round(this.wide * ratio);
    this.canvas.height = Math.round(high * ratio);
    const pen = this.canvas.getContext("2d")!;
    pen.scale(ratio, ratio);
    pen.clearRect(0, 0, this.wide, high);
    const ink = cssColour("--ink");
    const dim = cssColour("--dim");
    const line = cssColour("--line");
    axis(pen, this, high, dim, line);
    pen.textBaseline = "middle";
    for (const row of this.rows) {
      const middle = row.top + row.height / 2;
      if (row.track) slices(pen, this, row, row.track, ink);
      if (row.link) link(pen, this, row, row.link);
      // What was drawn may reach into the column of names.
      if (row.kind !== "head") {
        pen.fillStyle = cssColour("--panel");
        pen.fillRect(0, row.top, this.labels - 2, row.height);
      }
      pen.font = row.kind === "head" ? "600 12px system-ui, sans-serif" : "12px system-ui, sans-serif";
      pen.fillStyle = row.kind === "head" ? ink : dim;
      fit(pen, row.name, row.kind === "head" ? 0 : 12, middle, row.kind === "head" ? this.wide : this.labels - 18);
    }
    if (this.select) {
      pen.fillStyle = cssColour("--accent");
      pen.globalAlpha = 0.2;
      pen.fillRect(this.select[0], AXIS, this.select[1] - this.select[0], high - AXIS);
      pen.globalAlpha = 1;
    }
    this.where.textContent = `${this.text(this.from)} to ${this.text(this.to)}`;
  }
}
