// A chart in an element: follows its width and the theme, and never takes a text for markup.
import { cssColour, onTheme } from "./colours";
import { init, type ECharts, type EChartsCoreOption } from "./echarts";
import { save } from "./save";

/** Draw what `option` returns, which is called again when the theme changes, into an element; return the chart. */
export function chart(element: HTMLElement, option: () => EChartsCoreOption): ECharts {
  const drawn = init(element, null, { renderer: "canvas" });
  const draw = () => redraw(drawn, option());
  draw();
  onTheme(draw);
  new ResizeObserver(() => {
    // It calls at once, too: a chart of 10,000 points is not drawn again for that. And after a chart is gone.
    if (drawn.isDisposed()) return;
    if (drawn.getWidth() !== element.clientWidth || drawn.getHeight() !== element.clientHeight) drawn.resize();
  }).observe(element);
  return drawn;
}

/** Draw a chart anew. */
export function redraw(drawn: ECharts, option: EChartsCoreOption): void {
  drawn.setOption({ ...common(), ...option }, { notMerge: true });
}

/** Let the reader save what a chart shows, at twice the resolution of the screen. */
export function savePicture(drawn: ECharts, name: string): void {
  const url = drawn.getDataURL({ type: "png", pixelRatio: 2, backgroundColor: cssColour("--panel") });
  const bytes = Uint8Array.from(atob(url.slice(url.indexOf(",") + 1)), (letter) => letter.charCodeAt(0));
  save(new Blob([bytes], { type: "image/png" }), name);
}

/** What all charts have in common. Tooltips are plain text: a name may come from a stranger's file. */
export function common(): EChartsCoreOption {
  return {
    animation: false,
    backgroundColor: "transparent",
    textStyle: { color: cssColour("--ink"), fontFamily: "system-ui, sans-serif" },
    tooltip: tooltip(),
    aria: { enabled: true },
  };
}

/** A tooltip of plain text: what `text` returns goes into an element as text. */
export function tooltip(text?: (params: any) => string): object {
  return {
    confine: true,
    renderMode: "html",
    backgroundColor: cssColour("--panel"),
    borderColor: cssColour("--line"),
    textStyle: { color: cssColour("--ink"), fontSize: 12 },
    formatter: text
      ? (params: unknown) => {
          const element = document.createElement("div");
          element.style.whiteSpace = "pre-wrap";
          element.style.maxWidth = "22rem";
          element.textContent = text(params);
          return element;
        }
      : undefined,
  };
}

/** An axis in the colours of the page. */
export function axis(more: object = {}): object {
  const line = cssColour("--line");
  const ink = cssColour("--dim");
  return {
    axisLine: { lineStyle: { color: line } },
    axisTick: { lineStyle: { color: line } },
    axisLabel: { color: ink, hideOverlap: true },
    nameTextStyle: { color: ink },
    splitLine: { lineStyle: { color: line, opacity: 0.5 } },
    ...more,
  };
}
