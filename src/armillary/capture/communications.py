"""Collectives and messages among the operators that a dispatch mode sees: type, bytes, group and peer."""

from __future__ import annotations

from typing import Any, NamedTuple

TYPES = {
    "allreduce_": "all-reduce", "allreduce_coalesced_": "all-reduce", "all_reduce": "all-reduce",
    "all_reduce_": "all-reduce", "all_reduce_coalesced": "all-reduce", "all_reduce_coalesced_": "all-reduce",
    "_allgather_base_": "all-gather", "allgather_": "all-gather", "allgather_coalesced_": "all-gather",
    "allgather_into_tensor_coalesced_": "all-gather", "all_gather_into_tensor": "all-gather",
    "all_gather_into_tensor_out": "all-gather", "all_gather_into_tensor_coalesced": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter", "reduce_scatter_": "reduce-scatter",
    "reduce_scatter_tensor_coalesced_": "reduce-scatter", "reduce_scatter_tensor": "reduce-scatter",
    "reduce_scatter_tensor_out": "reduce-scatter", "reduce_scatter_tensor_coalesced": "reduce-scatter",
    "alltoall_": "all-to-all", "alltoall_base_": "all-to-all", "all_to_all_single": "all-to-all",
    "shard_dim_alltoall": "all-to-all",
    "broadcast_": "broadcast", "broadcast": "broadcast", "reduce_": "reduce", "gather_": "gather",
    "scatter_": "scatter", "barrier": "barrier", "send": "send", "isend": "send", "recv_": "recv", "irecv": "recv",
}  # fmt: skip
"""Operator of these namespaces -> what it is."""
OUTPUTS = ("output", "outputs", "output_tensor", "output_tensors", "output_lists", "out")
INPUTS = ("input", "inputs", "input_tensor", "input_tensors", "input_list")
PEERS = {"dst": 0, "src": 0, "root_rank": 0}
ROOTED = ("broadcast", "reduce", "gather", "scatter")
NAMESPACES = ("c10d", "_c10d_functional", "_dtensor")


class Call(NamedTuple):
    """A communication, before its group has a number.

    Attributes:
        type: As in `armillary.capture.log.Communication`, with `input`, `output`, `own_stream`, `tag` and `splits`.
        ranks: Of its group.
        peer: Rank of the other end or of the root; -1: none.
        tensors: That it writes.
    """

    type: str
    input: int
    output: int
    ranks: tuple[int, ...]
    own_stream: bool
    peer: int
    tag: int
    splits: tuple[int, ...]
    tensors: tuple[Any, ...]


class Groups:
    """Ranks of process groups."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._ranks: dict[str, tuple[int, ...]] = {}

    def of(self, given: Any) -> tuple[int, ...]:
        """Return the ranks of a group: an object, its boxed form, or its name."""
        distributed = self._torch.distributed
        if isinstance(given, self._torch.ScriptObject):
            given = distributed.ProcessGroup.unbox(given)
        name = given if isinstance(given, str) else given.group_name
        if name not in self._ranks:
            group = distributed.distributed_c10d._resolve_process_group(name)
            self._ranks[name] = tuple(distributed.get_process_group_ranks(group))
        return self._ranks[name]


def call_of(torch: Any, groups: Groups, func: Any, args: Any, kwargs: Any, out: Any) -> Call | None:
    """Return the communication that an operator is; None: it is none."""
    found = TYPES.get(func._overloadpacket.__name__)
    if found is None or func.namespace not in NAMESPACES:
        return None
    leaves = torch.utils._pytree.tree_leaves
    given: dict[str, Any] = {}
    for at, argument in enumerate(func._schema.arguments):
        given[argument.name] = (
            args[at] if at < len(args) else kwargs.get(argument.name, argument.default_value)
        )

    def tensors(names: tuple[str, ...]) -> list[Any]:
        return [each for name in names for each in leaves(given.get(name)) if isinstance(each, torch.Tensor)]

    ranks = groups.of(given["process_group"] if "process_group" in given else given["group_name"])
    inputs, outputs = tensors(INPUTS), tensors(OUTPUTS)
    if not inputs and not outputs:  # in place: all-reduce, broadcast, messages
        inputs = tensors(("tensors", "tensor"))
        outputs = [] if found == "send" else inputs
        inputs = [] if found == "recv" else inputs
    if not outputs and found != "send":
        outputs = [each for each in leaves(out) if isinstance(each, torch.Tensor)]
    functional = func.namespace == "_c10d_functional"
    # Messages and what `c10d` was asked to do beside go on the group's stream; what the caller waits for is on its own.
    beside = functional or found in ("send", "recv") or bool(given.get("async_op", True))
    sizes = _size(inputs), _size(outputs)
    if found == "barrier":
        sizes = 0, 0
    return Call(
        found, *sizes, ranks, beside, _peer(found, given, ranks), int(given.get("tag", 0) or 0),
        _splits(found, given, inputs, len(ranks)), tuple(outputs),
    )  # fmt: skip


def _size(tensors: list[Any]) -> int:
    return sum(int(each.numel()) * int(each.element_size()) for each in tensors)


def _peer(found: str, given: dict[str, Any], ranks: tuple[int, ...]) -> int:
    """Return the other end or the root as a rank of the program: PyTorch counts within the group."""
    if found not in ("send", "recv", *ROOTED):
        return -1
    place = next((given[name] for name in PEERS if isinstance(given.get(name), int)), -1)
    return ranks[place] if 0 <= place < len(ranks) else -1


def _splits(found: str, given: dict[str, Any], inputs: list[Any], members: int) -> tuple[int, ...]:
    """Return the bytes to each member of an all-to-all whose parts differ."""
    rows = given.get("input_split_sizes")
    if found != "all-to-all" or not rows or len(rows) != members or not inputs:
        return ()
    rows = [int(each) for each in rows]
    each = _size(inputs) // max(sum(rows), 1)
    return () if len(set(rows)) == 1 else tuple(count * each for count in rows)
