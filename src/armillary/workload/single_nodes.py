"""The smallest traces: one or two nodes per rank, one family for each thing a reader must understand.

Families, ids and attributes are those of ``chakra_generator`` in mlcommons/chakra 1.0.0, except for sends and
receives. These have no peer, tag or size there, so that nothing can run them; here ranks 2k and 2k + 1 are partners,
and one of them has the other half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from armillary.base.allowed import require
from armillary.base.errors import InputError
from armillary.trace import CollectiveType, Graph, GraphBuilder, NodeType
from armillary.trace.node import Attribute

VERSION = "1.0.0"

_COLLECTIVES = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_TO_ALL,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.BROADCAST,
    CollectiveType.BARRIER,
)


@dataclass(frozen=True)
class Sizes:
    """Durations and sizes of the nodes."""

    runtime_micros: int = 5
    tensor_bytes: int = 1024
    comm_bytes: int = 65536


def families(npus: int, sizes: Sizes | None = None) -> Iterator[tuple[str, list[Graph]]]:
    """Yield the name of each family and its graphs, one per rank; ids continue from file to file.

    Raises:
        InputError: fewer than one NPU.
    """
    if npus < 1:
        raise InputError(f"{npus} NPUs: expected at least 1")
    # Graphs of one family are made before any is written: 6.4 kB a rank.
    require(npus * 7_000, f"{npus:,} NPUs: making their graphs", "fewer NPUs")
    next_id = 0
    for name, build in _families(sizes or Sizes()).items():
        graphs = []
        for rank in range(npus):
            builder = GraphBuilder(rank=rank, version=VERSION, first_id=next_id)
            build(builder, npus)
            next_id += len(builder.nodes)
            graphs.append(builder.graph())
        yield name, graphs


_Build = Callable[[GraphBuilder, int], object]


def _families(sizes: Sizes) -> Mapping[str, _Build]:
    def compute(builder: GraphBuilder, after: tuple[int, ...] = ()) -> int:
        return builder.compute("COMP_NODE", duration_micros=sizes.runtime_micros, after=after)

    def collective(kind: CollectiveType) -> _Build:
        # A barrier moves no bytes.
        size = 0 if kind == CollectiveType.BARRIER else sizes.comm_bytes
        return lambda builder, npus: builder.collective(kind.name, kind, size)

    built: dict[str, _Build] = {
        "one_metadata_node_all_types": lambda builder, npus: builder.metadata(
            "METADATA_NODE", attrs=all_types()
        ),
        "one_remote_mem_load_node": lambda builder, npus: builder.memory_load(
            "MEM_LOAD_NODE", sizes.tensor_bytes
        ),
        "one_remote_mem_store_node": lambda builder, npus: builder.memory_store(
            "MEM_STORE_NODE", sizes.tensor_bytes
        ),
        "one_comp_node": lambda builder, npus: compute(builder),
        "two_comp_nodes_independent": lambda builder, npus: (compute(builder), compute(builder)),
        "two_comp_nodes_dependent": lambda builder, npus: compute(builder, (compute(builder),)),
    }
    built |= {kind.name: collective(kind) for kind in _COLLECTIVES}
    for name, kind in (
        ("one_comm_send_node", NodeType.COMM_SEND_NODE),
        ("one_comm_recv_node", NodeType.COMM_RECV_NODE),
    ):
        built[name] = _message(kind, sizes.tensor_bytes)
    return built


def _message(kind: NodeType, size: int) -> _Build:
    """Return the builder of a family in which even ranks run the node of its name, and odd ones its other half."""

    def build(builder: GraphBuilder, npus: int) -> None:
        rank = builder.rank or 0
        # Flips the last bit: 2k and 2k + 1 are partners.
        peer = rank ^ 1
        if peer >= npus:
            builder.compute("COMP_NODE")  # the last of an odd number has no partner
        elif (kind == NodeType.COMM_SEND_NODE) == (rank % 2 == 0):
            builder.send(peer, size, name=NodeType.COMM_SEND_NODE.name)
        else:
            builder.recv(peer, size, name=NodeType.COMM_RECV_NODE.name)

    return build


def all_types() -> list[Attribute]:
    """Return one attribute of every kind that the schema has."""
    found: list[Attribute] = []
    # The values of ``chakra_generator``, so that files compare equal to its own, doc strings included.
    for kind, first, second, documented in (
        ("double", 1.2345, 2.3456, True),
        ("float", 1.2345, 2.3456, True),
        ("int32", 12345, 23456, True),
        ("int64", 9876543210, 1234567890, True),
        ("uint32", 12345, 23456, True),
        ("uint64", 9876543210, 1234567890, True),
        ("sint32", -12345, -23456, True),
        ("sint64", -9876543210, -1234567890, True),
        ("fixed32", 12345, 23456, False),
        ("fixed64", 9876543210, 1234567890, False),
        ("sfixed32", -12345, -23456, False),
        ("sfixed64", -9876543210, -1234567890, False),
    ):
        found.append((kind, kind, first, kind) if documented else (kind, kind, first))
        # The lists of signed kinds hold both signs.
        found.append((f"{kind}_list", f"{kind}_list", [abs(first), second]))
    found += [("bool", "bool", True, "bool"), ("bool_list", "bool_list", [i % 2 == 0 for i in range(10)])]
    numbers = [str(12345 + i) for i in range(10)]
    found += [("string", "string", numbers[0], "string"), ("string_list", "string_list", numbers)]
    found.append(("bytes", "bytes", numbers[0].encode()))
    found.append(("bytes_list", "bytes_list", [number.encode() for number in numbers]))
    return found
