// Where boxes stand and edges run: dagre's layers, with open groups as frames around what they hold.
import dagre from "@dagrejs/dagre";
import type { Edge, Graph } from "./data";

export const WIDTH = 176;
export const HEIGHT = 36;
/** Room for the name of a frame above what is in it. */
const TITLE = 20;

export interface Place {
  thing: number;
  x: number;
  y: number;
  width: number;
  height: number;
}
export interface Placed {
  width: number;
  height: number;
  boxes: Place[];
  /** The outer ones first. */
  frames: Place[];
  lines: { edge: Edge; points: { x: number; y: number }[] }[];
}

/** Place what is shown of a scope. */
export function layout(graph: Graph, scope: number, shown: readonly number[], edges: readonly Edge[]): Placed {
  const made = new dagre.graphlib.Graph({ compound: true });
  made.setGraph({ rankdir: "TB", nodesep: 22, edgesep: 10, ranksep: 44, marginx: 16, marginy: 30 });
  const frames = new Set<number>();
  for (const thing of shown) {
    made.setNode(String(thing), { width: WIDTH, height: HEIGHT });
    for (let at = thing; at !== scope && graph.parent[at] !== scope; ) {
      const outer = graph.parent[at]!;
      if (!frames.has(outer)) made.setNode(String(outer), {});
      frames.add(outer);
      made.setParent(String(at), String(outer));
      at = outer;
    }
  }
  for (const edge of edges) if (edge.from !== edge.to) made.setEdge(String(edge.from), String(edge.to), { weight: 1 + Math.log2(edge.weight) });
  dagre.layout(made);
  const place = (thing: number): Place => {
    const { x, y, width, height } = made.node(String(thing));
    return { thing, x: x!, y: y!, width: width!, height: height! };
  };
  const around = [...frames].sort((one, two) => one - two).map(place);
  for (const each of around) {
    each.y -= TITLE / 2;
    each.height += TITLE;
  }
  return {
    width: made.graph().width ?? 0,
    height: made.graph().height ?? 0,
    boxes: shown.map(place),
    frames: around,
    lines: edges.filter((edge) => edge.from !== edge.to).map((edge) => ({ edge, points: made.edge(String(edge.from), String(edge.to)).points })),
  };
}
