// The parts of Apache ECharts that pages use; everything else stays out of the bundle.
export { init, getInstanceByDom } from "echarts/core";
export type { ECharts, EChartsCoreOption } from "echarts/core";
export type { CustomSeriesRenderItemAPI, CustomSeriesRenderItemParams, CustomSeriesRenderItemReturn } from "echarts";

import { BarChart, CustomChart, HeatmapChart, LineChart, ParallelChart, ScatterChart } from "echarts/charts";
import {
  AriaComponent,
  DataZoomComponent,
  GridComponent,
  LegendComponent,
  MarkLineComponent,
  ParallelComponent,
  TooltipComponent,
  VisualMapComponent,
} from "echarts/components";
import { use } from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";

use([
  AriaComponent,
  BarChart,
  CanvasRenderer,
  CustomChart,
  DataZoomComponent,
  GridComponent,
  HeatmapChart,
  LegendComponent,
  LineChart,
  MarkLineComponent,
  ParallelChart,
  ParallelComponent,
  ScatterChart,
  TooltipComponent,
  VisualMapComponent,
]);
