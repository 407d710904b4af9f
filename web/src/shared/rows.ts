// Tables of any length: only the rows that can be seen, and a few around them, are in the page.
import { element, type Child } from "./element";

/** Up to here a table is whole in the page: it can be searched and printed as it is. */
const WHOLE = 100;
/** Rows beyond the edges of what can be seen. */
const AROUND = 10;

/** How high a row of a place was when last measured: a table that is filled anew has rows as high. */
const heights = new WeakMap<HTMLElement, number>();
/** What follows the scrolling of a place: of the table that it has now. */
const watching = new WeakMap<HTMLElement, AbortController>();

/**
 * Fill the body of a table with the rows that `place`, in which it stands and which scrolls, shows.
 *
 * Readers of screens know how many rows there are by aria-rowcount; for paper all are made.
 */
export function longBody(place: HTMLElement, table: HTMLTableElement, count: number, make: (at: number) => HTMLTableRowElement): void {
  const body = table.tBodies[0] ?? table.appendChild(element("tbody"));
  const heads = table.tHead?.rows.length ?? 0;
  watching.get(place)?.abort();
  place.classList.toggle("long", count > WHOLE);
  if (count <= WHOLE) {
    body.replaceChildren(...Array.from({ length: count }, (_, at) => make(at)));
    return;
  }
  const mine = new AbortController();
  watching.set(place, mine);
  table.setAttribute("aria-rowcount", String(count + heads));
  const [above, below] = [room(), room()];
  let made = new Map<number, HTMLTableRowElement>();
  let height = heights.get(place) ?? 24;
  let [from, to] = [0, 0];
  const widths: number[] = [];
  const show = (first: number, last: number) => {
    if (first === from && last === to) return;
    const held = body.contains(document.activeElement);
    const next = new Map<number, HTMLTableRowElement>();
    for (let at = first; at < last; at += 1) {
      const row = made.get(at) ?? make(at);
      row.setAttribute("aria-rowindex", String(at + 1 + heads));
      next.set(at, row);
    }
    // Rows that stay are not touched: what has the focus keeps it.
    for (const [at, row] of made) if (!next.has(at)) row.remove();
    let after: Node = above;
    for (const row of next.values()) {
      if (after.nextSibling !== row) body.insertBefore(row, after.nextSibling);
      after = row;
    }
    [made, from, to] = [next, first, last];
    above.style.height = `${first * height}px`;
    below.style.height = `${(count - last) * height}px`;
    if (held && !body.contains(document.activeElement)) place.focus({ preventScroll: true });
    // Columns only grow: they would jump with the rows.
    const titles = [...(table.tHead?.rows[0]?.cells ?? [])];
    const wide = titles.map((cell) => Math.ceil(cell.offsetWidth));
    titles.forEach((cell, at) => wide[at]! > (widths[at] ?? 0) && (cell.style.minWidth = `${(widths[at] = wide[at]!)}px`));
  };
  const look = () => {
    const seen = Math.ceil((place.clientHeight || 600) / height);
    const first = Math.max(0, Math.min(Math.floor(place.scrollTop / height) - AROUND, count - seen - AROUND));
    show(first, Math.min(count, first + seen + 2 * AROUND));
  };
  body.replaceChildren(above, below);
  if (heights.has(place)) look();
  else show(0, Math.min(count, 40));
  place.addEventListener("scroll", look, { passive: true, signal: mine.signal });
  // How high a row is, is known when it has been drawn.
  requestAnimationFrame(() => {
    const rows = [...made.values()];
    const measured = rows.reduce((sum, row) => sum + row.offsetHeight, 0) / Math.max(rows.length, 1);
    if (Math.abs(measured - height) < 0.5 && heights.has(place)) return;
    if (measured > 0) heights.set(place, (height = measured));
    [from, to] = [-1, -1];
    look();
  });
  addEventListener("beforeprint", () => show(0, count), { signal: mine.signal });
}

/** A row that stands for those that are not made. */
function room(): HTMLTableRowElement {
  return element("tr", { class: "room", "aria-hidden": "true" });
}

/** A row of cells, each with a class. */
export const rowOf = (cells: [string, Child][], name = ""): HTMLTableRowElement =>
  element("tr", name ? { class: name } : {}, ...cells.map(([kind, cell]) => element("td", kind ? { class: kind } : {}, cell)));
