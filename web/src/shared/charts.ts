// A chart in an element: follows its width and the theme, and never takes a text for markup.
import { cssColour, onTheme } from "./colours";
import { init, type ECharts, type EChartsCoreOption } from "./echarts";

/** Draw what `option` returns, which is called again when the theme changes, into an element; return the chart. */
export function chart(element: HTMLElement, option: () => EChartsCoreOption): ECharts {
  const drawn = init(element, null, { renderer: "canvas" });
  const draw = () => drawn.setOption({ ...common(), ...option() }, { notMerge: true });
  draw();
  onTheme(draw);
  new ResizeObserver(() => drawn.resize()).observe(element);
  return drawn;
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
