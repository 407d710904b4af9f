"""Nodes as Python objects, for writing and looking at a few by hand; graphs keep columns."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from armillary.base.errors import InputError, nearest, one_of
from armillary.trace import columns as c
from armillary.trace.columns import (
    BOOL,
    BYTES,
    DOUBLE,
    FLOAT_KINDS,
    INTEGER_KINDS,
    KIND_NAMES,
    KINDS,
    RANGES,
    RAW,
    STRING,
    VERSION,
    Columns,
    NodeType,
)

if TYPE_CHECKING:
    from armillary.trace.graph import Graph

Attribute = tuple[str, str, Any] | tuple[str, str, Any, str]
"""(name, kind, value) or (name, kind, value, doc string); kind is a key of `schema.KINDS`."""
DELAY = "delay_ns"
"""Integer attribute of a METADATA node: the ns that pass between its start and its end."""
REPLAY_ONLY = "replay_only"
"""A bool: a communication whose bytes are not known; it takes its recorded time on every machine."""
PACE, WHOLE_PACE = "comm_pace", 1000
"""Attribute of a collective that a kernel sends itself, in thousandths of the links' bandwidth that it reaches."""


class Common(list[Attribute]):
    """Attributes that many nodes have in common, which are packed once; nobody changes them."""


@dataclass
class Node:
    """One node; `inputs` and `outputs` are IOInfo (values, shapes, types), None where absent."""

    id: int = 0
    name: str = ""
    type: int = NodeType.INVALID_NODE
    ctrl_deps: Sequence[int] = ()
    data_deps: Sequence[int] = ()
    start_micros: int = 0
    duration_micros: int = 0
    inputs: tuple[str, str, str] | None = None
    outputs: tuple[str, str, str] | None = None
    attrs: list[Attribute] = field(default_factory=list)


def graph_of(
    nodes: Iterable[Node], source: str = "<nodes>", version: str = VERSION, metadata: Sequence[Attribute] = ()
) -> Graph:
    """Return the graph of `nodes`, in the order given.

    Args:
        nodes: the nodes; ids may be in any order.
        source: what messages call the graph.
        version: GlobalMetadata.version.
        metadata: GlobalMetadata.attr.

    Raises:
        InputError: a value does not fit its field; names the node, the attribute and the value.
    """
    from armillary.trace.graph import Graph

    packer = Packer(source)
    for name, kind, *_ in metadata:
        if kind == KIND_NAMES[RAW]:
            raise InputError(
                f"{source}: GlobalMetadata has an attribute '{name}' of kind {kind}, which only nodes have"
            )
    packer.add(Node(name=version, attrs=list(metadata)), "GlobalMetadata")
    for node in nodes:
        packer.add(node, f"node {node.id} '{node.name}'")
    return Graph(packer.columns(), 0, source)


def nodes_of(graph: Graph) -> list[Node]:
    """Return the nodes of `graph` as objects, in file order."""
    return [node_at(graph, position) for position in range(graph.n_nodes)]


def node_at(graph: Graph, position: int) -> Node:
    """Return one node of `graph` as an object."""
    ctrl, data = graph.ctrl_ptr[position : position + 2], graph.data_ptr[position : position + 2]
    io = graph.io(position)
    return Node(
        id=int(graph.ids[position]),
        name=graph.name(position),
        type=int(graph.types[position]),
        ctrl_deps=graph.ctrl_deps[ctrl[0] : ctrl[1]].tolist(),
        data_deps=graph.data_deps[data[0] : data[1]].tolist(),
        start_micros=int(graph.start_micros[position]),
        duration_micros=int(graph.duration_micros[position]),
        inputs=io.get("inputs"),
        outputs=io.get("outputs"),
        attrs=graph.attrs_with_docs(position),
    )


def is_newer_field(data: bytes) -> bool:
    """Return whether bytes are one whole field of a node that this schema does not have."""
    from armillary.trace import wire_kernel as wire

    number, _, _, after = wire.field(data, 0, len(data), [0] * (wire.ERROR_AT + 1))
    return bool(number > 10 and after == len(data))


class Packer:
    """Appends nodes to lists that become `Columns`."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.where = ""
        self.rows: list[list[int]] = []
        self.ctrl: list[int] = []
        self.data: list[int] = []
        self.attrs: list[tuple[int, int, int]] = []
        self.names: dict[str, int] = {}
        self.list_ptr = [0]
        self.items: list[int] = []
        # Offsets of string 0, the empty one, which stands for every absent text.
        self.string_ptr, self.pool = [0, 0], bytearray()
        self.io: list[tuple[int, ...]] = []
        self.docs: list[tuple[int, int]] = []
        # By identity, and kept so that no other gets it.
        self._packed: dict[int, tuple[Common, list[tuple[int, int, int]]]] = {}

    def _fail(self, message: str) -> NoReturn:
        raise InputError(f"{self.source}: {self.where}: {message}")

    def add(self, node: Node, where: str) -> None:
        """Append a frame; `where` is what errors call it."""
        self.where = where
        unsigned = [
            self._integer(getattr(node, key), key, 0, 2**64 - 1)
            for key in ("id", "start_micros", "duration_micros")
        ]
        # Any int32 passes: files of a newer schema have types that `NodeType` does not know.
        kind = self._integer(node.type, "type", -(2**31), 2**31 - 1)
        head = [len(self.ctrl), len(self.data), len(self.attrs)]
        self.rows.append([unsigned[0], kind, *unsigned[1:], self._string(node.name, "name"), *head])
        for key, target in (("ctrl_deps", self.ctrl), ("data_deps", self.data)):
            target.extend(self._integer(dep, key, 0, 2**64 - 1) for dep in getattr(node, key))
        for side, info in enumerate((node.inputs, node.outputs)):
            if info is not None:
                texts = (self._string(text, "IOInfo") for text in info)
                self.io.append((len(self.rows) - 1, side, *texts))
        if id(node.attrs) in self._packed:
            self.attrs += self._packed[id(node.attrs)][1]
            return
        first, docs = len(self.attrs), len(self.docs)
        for attribute in node.attrs:
            self.attribute(*attribute)
        if isinstance(node.attrs, Common) and docs == len(self.docs):
            self._packed[id(node.attrs)] = node.attrs, self.attrs[first:]

    def _integer(self, value: Any, what: str, low: int, high: int) -> int:
        # True is an int in Python, but an id or a size that is a bool is a mistake.
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
            self._fail(f"{what} is {value!r}, expected an integer from {low} to {high}")
        # Columns are int64: a uint64 keeps its bits, so its upper half is stored as negative.
        return int(value) - 2**64 if value >= 2**63 else int(value)

    def _encoded(self, value: Any, what: str) -> bytes:
        if not isinstance(value, str):
            self._fail(f"{what} is {value!r}, expected text")
        try:
            return value.encode()
        except UnicodeEncodeError:
            self._fail(f"{what} is {value!r}, expected text that UTF-8 can encode")

    def _string(self, value: Any, what: str) -> int:
        raw = value if isinstance(value, bytes) else self._encoded(value, what)
        if not raw:
            return 0
        self.pool += raw
        self.string_ptr.append(len(self.pool))
        return len(self.string_ptr) - 2

    def attribute(self, name: str, kind_name: str, value: Any, doc: str = "") -> None:
        """Append an attribute of the node that was added last."""
        kind = KINDS.get(kind_name) if isinstance(kind_name, str) else None
        if kind is None:
            self._fail(
                f"attribute '{name}' has kind {kind_name!r}, expected "
                f"{one_of(KINDS)}{nearest(str(kind_name), KINDS)}"
            )
        # A oneof without a member: the attribute has a name and no value.
        if kind == 0:
            bits = 0
        # Scalars have odd field numbers; the list of a kind has the even number after it.
        elif kind & 1:
            bits = self._scalar(name, kind, value)
        else:
            if not isinstance(value, (list, tuple)):
                self._fail(f"attribute '{name}' is {value!r}, expected a list ({kind_name})")
            self.items.extend([self._scalar(name, kind - 1, item) for item in value])
            self.list_ptr.append(len(self.items))
            bits = len(self.list_ptr) - 2
        if doc and kind == RAW:
            self._fail(
                f"a field of a newer schema has the text {doc!r}, which nothing can hold, expected none"
            )
        if doc:
            self.docs.append((len(self.attrs), self._string(doc, "doc string")))
        self._encoded(name, "an attribute's name")
        self.attrs.append((self.names.setdefault(name, len(self.names)), kind, bits))

    def _scalar(self, name: str, kind: int, value: Any) -> int:
        what = f"attribute '{name}' ({KIND_NAMES[kind]})"
        bits: int | None = None
        if kind == BOOL and isinstance(value, (bool, np.bool_)):
            bits = int(value)
        elif kind in INTEGER_KINDS and kind != BOOL:
            bits = self._integer(value, what, *RANGES[kind])
        elif (
            (kind == STRING and isinstance(value, str))
            or (kind == BYTES and isinstance(value, bytes))
            or (kind == RAW and isinstance(value, bytes) and not name and is_newer_field(value))
        ):
            bits = self._string(value, what)
        elif kind in FLOAT_KINDS and isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                # Floats keep their bits. A value beyond the range of float32 raises OverflowError.
                if kind == DOUBLE:
                    bits = int(struct.unpack("<q", struct.pack("<d", value))[0])
                else:
                    bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
            except (OverflowError, struct.error):
                bits = None
        if bits is None:
            self._fail(f"{what} is {value!r}, expected a value of that kind")
        return bits

    def columns(self) -> Columns:
        """Return the added frames as the columns of one graph; the first frame must be its GlobalMetadata."""
        n = len(self.rows)
        rows = np.zeros((c.ROW_FIELDS, n + 1), dtype=np.int64)
        rows[:, :n] = np.array(self.rows, dtype=np.int64).T
        # The column after the last frame closes the CSR offsets.
        rows[c.CTRL_AT :, n] = len(self.ctrl), len(self.data), len(self.attrs)
        attrs = np.array(self.attrs, dtype=np.int64).reshape(-1, 3).T
        return Columns(
            frame_ptr=np.array([0, n], dtype=np.int64),
            unknown=np.zeros(1, dtype=np.int64),
            rows=rows,
            ctrl=np.array(self.ctrl, dtype=np.int64),
            data=np.array(self.data, dtype=np.int64),
            attr_name=attrs[0].astype(np.int32),
            attr_kind=attrs[1].astype(np.uint8),
            attr_value=attrs[2].copy(),
            list_ptr=np.array(self.list_ptr, dtype=np.int64),
            items=np.array(self.items, dtype=np.int64),
            string_ptr=np.array(self.string_ptr, dtype=np.int64),
            pool=np.frombuffer(self.pool, dtype=np.uint8),
            io=np.array(self.io, dtype=np.int64).reshape(-1, 5).T.copy(),
            docs=np.array(self.docs, dtype=np.int64).reshape(-1, 2).T.copy(),
            names=list(self.names),
        )
