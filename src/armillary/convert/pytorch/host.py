"""PyTorch's host execution trace (``ExecutionTraceObserver``), schemas 1.0.1 to 1.1.1."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.base.garbage import uncollected
from armillary.base.json_text import json_within
from armillary.convert.pytorch.arguments import Arguments
from armillary.convert.pytorch.records import Records

SCHEMAS = ("1.0.1", "1.0.2", "1.0.3", "1.0.4", "1.1.0", "1.1.1")
"""Schemas that can be read, without the suffix after the dash (``-chakra.0.0.4``)."""

_STRUCTURE = re.compile(
    r"\[pytorch\|profiler\|execution_(?:trace|graph)\|(?:process|thread)\]|## process_group:init ##"
)


@dataclass(slots=True)
class HostNode:
    """One operator or annotation; `inputs` and `outputs` are the values as recorded."""

    id: int
    name: str
    parent: int
    rf_id: int
    tid: int
    fw_tid: int
    op_schema: str
    inputs: list[Any]
    input_shapes: list[Any]
    input_types: list[Any]
    outputs: list[Any]
    output_shapes: list[Any]
    output_types: list[Any]
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Other attributes, such as collective_name and pg_name of schema 1.1.0."""

    @property
    def arguments(self) -> tuple[Arguments, Arguments]:
        """Its arguments and its results."""
        return (
            Arguments(self.inputs, self.input_shapes, self.input_types),
            Arguments(self.outputs, self.output_shapes, self.output_types),
        )

    @property
    def is_structure(self) -> bool:
        """Whether the node represents a process, a thread or the process groups, and ran nothing."""
        return _STRUCTURE.fullmatch(self.name) is not None


@dataclass
class HostTrace:
    """The nodes of one rank in the order of their ids, which is the order in which they started."""

    source: str
    schema: str
    nodes: list[HostNode]
    raw: list[dict[str, Any]]
    """The same nodes as read from the file, in the same order."""
    header: dict[str, Any]

    @property
    def process_groups(self) -> list[dict[str, Any]]:
        """The record of ``## process_group:init ##``: objects with pg_name, ranks ([] for all), pg_desc and more."""
        for node in self.nodes:
            if node.name == "## process_group:init ##" and node.inputs:
                return _groups(node.inputs[0])
        return []


@uncollected()
def read_host(path: str | Path) -> HostTrace:
    """Read a host trace, plain or gzip.

    Raises:
        InputError: not a host trace, a schema that is not known, or a malformed node.
    """
    raw: list[dict[str, Any]] = []
    header = Records(path, "nodes").read(raw.append)
    return host_of(header, raw, str(path))


def host_of(header: dict[str, Any], raw: list[dict[str, Any]], source: str) -> HostTrace:
    """Return the host trace of a decoded document; see `read_host`."""
    schema = str(header.get("schema", "none"))
    if schema.split("-", maxsplit=1)[0] not in SCHEMAS:
        raise InputError(
            f"{source}: schema is '{schema}', expected one of {', '.join(SCHEMAS)} (with or without -chakra.…)"
        )
    nodes: list[HostNode] = []
    for at, record in enumerate(raw):
        try:
            nodes.append(_node(record))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"has no {error}" if isinstance(error, KeyError) else str(error)
            name = str(record.get("name"))[:60]
            raise InputError(
                f"{source}: node {at + 1} of the list (id {record.get('id')}, '{name}') {what}"
            ) from error
    # Nodes are written when they end, so a file has children before their parents.
    order = sorted(range(len(nodes)), key=lambda at: nodes[at].id)
    return HostTrace(source, schema, [nodes[at] for at in order], [raw[at] for at in order], header)


def _node(record: dict[str, Any]) -> HostNode:
    # Schema 1.0.2 moved the operator's own attributes into a list, and its parent into ``ctrl_deps``.
    if "attrs" in record:
        attrs = {str(item["name"]): item["value"] for item in record["attrs"]}
        sides = [record.get(side) or {} for side in ("inputs", "outputs")]
        io = [_items(side.get(part)) for side in sides for part in ("values", "shapes", "types")]
        parent = record["ctrl_deps"]
    else:  # 1.0.1: flat keys
        attrs, parent = record, record["parent"]
        io = [
            _items(record.get(key))
            for key in ("inputs", "input_shapes", "input_types", "outputs", "output_shapes", "output_types")
        ]
    return HostNode(
        _number(record["id"], "id"),
        str(record["name"]),
        _number(parent, "its parent"),
        _number(attrs.get("rf_id", 0), "rf_id"),
        _number(attrs.get("tid", 0), "tid"),
        _number(attrs.get("fw_tid", 0), "fw_tid"),
        str(attrs.get("op_schema", "")),
        io[0],
        io[1],
        io[2],
        io[3],
        io[4],
        io[5],
        {} if attrs is record else {key: value for key, value in attrs.items() if key not in _OWN},
    )


# Attributes of every node; those beyond belong to kinds of operators.
_OWN = frozenset(("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid", "op_schema"))


def _number(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{what} is {value!r}, expected an integer")
    if not -(2**63) <= value < 2**64:
        raise ValueError(f"{what} is {value}, expected one of 64 bits")
    return value


def _items(value: Any) -> list[Any]:
    if isinstance(value, str):  # a JSON list in quotes, as some exporters write it
        value = json_within(value or "[]")
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"inputs or outputs are {value!r}, expected a list")
    return value


def _groups(text: Any) -> list[dict[str, Any]]:
    try:
        found = json_within(text) if isinstance(text, str) else text
    except ValueError:
        return []
    return [group for group in found if isinstance(group, dict)] if isinstance(found, list) else []
