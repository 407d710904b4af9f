"""The dependencies of a trace as a file: DOT, GraphML, an HTML page, or a picture."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.files import replacing
from armillary.base.pictures import check_matplotlib
from armillary.base.text import dot_text, xml_attribute, xml_text
from armillary.report.trace_drawing import CTRL, DATA, MAX_NODES, Drawing, drawing
from armillary.report.trace_graph_html import COLOURS, about, drawing_for_page, graph_page
from armillary.report.trace_times import KINDS, durations
from armillary.trace import Graph
from armillary.trace.columns import type_name
from armillary.trace.node import node_at

TABLES = (".dot", ".gv", ".graphml")
PICTURES = (".html", ".svg", ".pdf", ".png")
_DEPENDENCY = {DATA: "data", CTRL: "control", DATA | CTRL: "data+control"}
_BATCH = 10_000


def write_trace_graph(
    graph: Graph, path: str | os.PathLike[str], collapse: str | None = None, max_nodes: int = MAX_NODES
) -> str:
    """Write the dependencies of `graph` in the format of the file's suffix; return a description of what was drawn.

    Args:
        graph: the trace.
        path: ``.dot`` or ``.gv``, ``.graphml``, ``.html``, ``.svg``, ``.pdf`` or ``.png``. No layout is
            computed for the first three.
        collapse: see `trace_drawing.drawing`; by default "none" for DOT and GraphML, else "auto".
        max_nodes: see there.

    Raises:
        InputError: no such suffix, the graph cannot be drawn, or the file cannot be written.
    """
    suffix = check_suffix(path)
    how = collapse or ("none" if suffix in TABLES else "auto")
    made = drawing_for_page(graph, how, max_nodes) if suffix == ".html" else drawing(graph, how, max_nodes)
    if suffix in TABLES:
        with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
            for batch in _batches(_graphml(made) if suffix == ".graphml" else _dot(made)):
                stream.write(batch)
    elif suffix == ".html":
        page = graph_page(made)
        with replacing(path) as temporary:
            temporary.write_text(page, encoding="utf-8")
    else:
        from armillary.report.trace_graph_plot import plot_graph

        plot_graph(made, Path(path))
    return f"{about(made)}, {len(made.src):,} edges"


def check_trace_graph(path: str | os.PathLike[str]) -> None:
    """Raise early the errors that `write_trace_graph` would raise.

    Raises:
        InputError: no such suffix, or matplotlib is needed and not installed.
    """
    if check_suffix(path) in (".svg", ".pdf", ".png"):
        check_matplotlib()


def check_suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix of a path that `write_trace_graph` can write.

    Raises:
        InputError: the suffix is unknown.
    """
    suffix = Path(path).suffix.lower()
    known = TABLES + PICTURES
    if suffix not in known:
        raise InputError(f"{path}: suffix {suffix!r}, expected {one_of(known)}{nearest(suffix, known)}")
    return suffix


def _batches(lines: Iterable[str]) -> Iterator[str]:
    batch: list[str] = []
    for line in lines:
        batch.append(line)
        if len(batch) == _BATCH:
            yield "\n".join(batch) + "\n"
            batch = []
    yield "\n".join(batch) + "\n"


def _names(made: Drawing) -> list[str]:
    # Single nodes keep their ids, so that a file can be compared with the trace.
    if made.how == "none":
        return [str(ident) for ident in made.graph.ids.tolist()]
    return [f"box{number}" for number in range(made.n_boxes)]


def _edges(made: Drawing) -> Iterator[tuple[int, int, int, int]]:
    columns = (made.src, made.dst, made.dependency, made.weight)
    return zip(*(column.tolist() for column in columns), strict=True)


def _dot(made: Drawing) -> Iterator[str]:
    names = _names(made)
    yield f"digraph {dot_text(made.graph.source)} {{"
    yield '  node [shape=box, style=filled, fontname="sans-serif", fontsize=10]'
    for name, label, note, kind in zip(names, made.labels, made.notes, made.kind.tolist(), strict=True):
        text = f"{label}\n{note}" if note else label
        yield f'  {name} [label={dot_text(text)}, fillcolor="{COLOURS[kind]}33", color="{COLOURS[kind]}"]'
    for src, dst, dependency, weight in _edges(made):
        style = {"style": "dashed", "arrowhead": "tee"} if dependency == CTRL else {}
        style |= {"label": str(weight)} if weight > 1 and made.how != "none" else {}
        listed = ", ".join(f"{key}={value}" for key, value in style.items())
        yield f"  {names[src]} -> {names[dst]}" + (f" [{listed}]" if listed else "")
    yield "}"


def _graphml(made: Drawing) -> Iterator[str]:
    keys = _Keys()
    for name, kind in (("label", "string"), ("kind", "string"), ("duration_ns", "long")):
        keys.of(name, kind)
    if made.how == "none":
        for name, kind in (("type", "string"), ("start_micros", "long")):
            keys.of(name, kind)
        for name, found in made.graph.attribute_kinds().items():
            # An attribute that has several types in the trace is declared as text.
            kinds = {_graphml_kind(kind) for kind in found}
            keys.of(name, kinds.pop() if len(kinds) == 1 else "string")
    else:
        keys.of("nodes", "long")
    yield '<?xml version="1.0" encoding="utf-8"?>'
    yield '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    yield from keys.declared()
    yield '<key id="dependency" for="edge" attr.name="dependency" attr.type="string"/>'
    yield '<key id="weight" for="edge" attr.name="weight" attr.type="long"/>'
    yield '<graph edgedefault="directed">'
    names = _names(made)
    for name, values in zip(names, _graphml_values(made), strict=True):
        yield f'<node id="{name}">{"".join(keys.data(*pair) for pair in values)}</node>'
    for src, dst, dependency, weight in _edges(made):
        yield (
            f'<edge source="{names[src]}" target="{names[dst]}"><data key="dependency">'
            f'{_DEPENDENCY[dependency]}</data><data key="weight">{weight}</data></edge>'
        )
    yield "</graph>\n</graphml>"


def _graphml_values(made: Drawing) -> Iterator[list[tuple[str, Any]]]:
    graph = made.graph
    if made.how != "none":
        for label, kind, ns, count in zip(made.labels, made.kind.tolist(), made.duration.tolist(),
                                          made.count.tolist(), strict=True):  # fmt: skip
            yield [("label", label), ("kind", KINDS[kind]), ("duration_ns", ns), ("nodes", count)]
        return
    for at, (kind, ns) in enumerate(zip(made.kind.tolist(), durations(graph).tolist(), strict=True)):
        node = node_at(graph, at)
        values = {name: value for name, _, value, *_ in node.attrs}
        values |= {"label": node.name, "kind": KINDS[kind], "duration_ns": ns, "type": type_name(node.type)}
        yield list((values | {"start_micros": node.start_micros}).items())


def _graphml_kind(kind: str) -> str:
    if kind in ("bool", "double", "float"):
        return {"bool": "boolean"}.get(kind, "double")
    # Lists have no type in GraphML.
    whole = ("int" in kind or "fixed" in kind) and not kind.endswith("_list")
    return "long" if whole else "string"


class _Keys:
    """The attributes of nodes, each declared once with its type."""

    def __init__(self) -> None:
        self.kinds: dict[str, str] = {}
        self.ids: dict[str, str] = {}

    def of(self, name: str, kind: str) -> None:
        if name not in self.kinds:
            self.kinds[name] = kind
            self.ids[name] = f"d{len(self.ids)}"

    def declared(self) -> Iterator[str]:
        for name, kind in self.kinds.items():
            title = xml_attribute(name)
            yield f'<key id="{self.ids[name]}" for="node" attr.name={title} attr.type="{kind}"/>'

    def data(self, name: str, value: Any) -> str:
        text = str(value).lower() if self.kinds[name] == "boolean" else str(value)
        return f'<data key="{self.ids[name]}">{xml_text(text)}</data>'
