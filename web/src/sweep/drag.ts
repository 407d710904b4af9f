// A rectangle that the reader draws over a chart with mouse or pen; a finger scrolls the page.
import { element } from "../shared/element";

type Corner = [number, number];
/** Pixels that a click may tremble. */
const STILL = 5;

/** Call back with two corners, in pixels from the top left of the element, whenever a rectangle has been drawn over it. */
export function onDrag(place: HTMLElement, done: (one: Corner, other: Corner) => void): void {
  const box = element("div", { class: "drag", hidden: "" });
  place.append(box);
  let begun: Corner | null = null;
  const corner = (event: PointerEvent): Corner => {
    const frame = place.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  };
  const far = (one: Corner, other: Corner) => Math.hypot(one[0] - other[0], one[1] - other[1]) >= STILL;
  place.addEventListener("pointerdown", (event) => {
    // Shift moves what is zoomed.
    if (event.button === 0 && !event.shiftKey && event.pointerType !== "touch") begun = corner(event);
  });
  // On the window, as a drag may end outside of the chart.
  window.addEventListener("pointermove", (event) => {
    if (!begun) return;
    const now = corner(event);
    if (box.hidden && !far(begun, now)) return;
    box.hidden = false;
    box.style.left = `${Math.min(begun[0], now[0])}px`;
    box.style.top = `${Math.min(begun[1], now[1])}px`;
    box.style.width = `${Math.abs(begun[0] - now[0])}px`;
    box.style.height = `${Math.abs(begun[1] - now[1])}px`;
  });
  window.addEventListener("pointerup", (event) => {
    const from = begun;
    begun = null;
    if (!from || box.hidden) return;
    box.hidden = true;
    done(from, corner(event));
  });
  window.addEventListener("pointercancel", () => {
    begun = null;
    box.hidden = true;
  });
}
