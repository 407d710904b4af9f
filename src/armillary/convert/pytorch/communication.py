"""Communications and their properties, read from host nodes or kernels: bytes, group, ends, splits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from armillary.convert.pytorch.arguments import element_bytes, elements, size, tensors
from armillary.convert.pytorch.communication_kernels import kernel_kind, words_kind
from armillary.convert.pytorch.host import HostNode, HostTrace

SEND, RECV = "SEND", "RECV"
# A greater rank or size of a group is damage; tuples of ranks would fill the memory.
MOST_RANKS = 1 << 20
BACKENDS = ("nccl", "gloo", "mpi", "ucc", "xccl", "hccl", "ccl", "rccl", "cncl", "mccl", "fake")
SYNCHRONOUS = frozenset(("nccl", "rccl"))
"""Backends that annotate on the thread that calls them."""
ASYNCHRONOUS = tuple(f"{backend}:" for backend in BACKENDS if backend not in SYNCHRONOUS)
"""Prefixes of annotations by backends with threads of their own: they time the communication, not the caller."""

GROUP_NOTE = "armillary::process_group "
"""What `armillary trace collect` records inside each call, with the name of its group."""

KINDS: dict[str, str] = {
    "allreduce": "ALL_REDUCE", "reduce": "REDUCE", "allgather": "ALL_GATHER", "gather": "GATHER", "scatter": "SCATTER",
    "broadcast": "BROADCAST", "alltoall": "ALL_TO_ALL", "reducescatter": "REDUCE_SCATTER", "barrier": "BARRIER",
    "send": SEND, "recv": RECV, "isend": SEND, "irecv": RECV,
}  # fmt: skip
"""Kind by the bare name of an operation: lower case, without underscores and without words for the calling form."""

# ``_allgather_base_``, ``all_gather_into_tensor_coalesced`` and ``allgather_`` are one operation. A final v
# is that of alltoallv; ``all`` goes only in front of a barrier, lest ``allgather`` become ``gather``.
_HOW = re.compile(
    r"intotensor|tensor|coalesced|base|single|monitored|async|inplace|anysource|list|out$|v$|object|^all(?=barrier)"
)


@dataclass
class Communication:
    """One collective or message of one rank."""

    node: int
    """Index of the host node."""
    kind: str
    """Name of a `CollectiveType`, or SEND, RECV."""
    size: int
    """Bytes, as Chakra's ``comm_size``; 0 if unknown."""
    sized: bool = True
    """Whether the trace gives the bytes."""
    part: int = 0
    """Bytes per member of a gather or scatter, whose total only the root knows."""
    group: str | None = None
    """Name of the process group; None if no node gives it."""
    group_size: int | None = None
    ranks: tuple[int, ...] | None = None
    """Global ranks of the group, if a node gives them."""
    peer: int | None = None
    """The other end of a message, or the root, as a rank within the group."""
    tag: int = 0
    splits: tuple[int, ...] = ()
    """Bytes to each member of an all-to-all, if the operator gives them."""
    path: tuple[str, ...] = ()
    """Names of the nodes around it, innermost first."""
    storages: frozenset[int] = field(default_factory=frozenset)

    @property
    def is_empty(self) -> bool:
        """Whether, by the trace, it moves no bytes."""
        return self.sized and not self.size and not self.part and self.kind != "BARRIER"


def kind_of(name: str) -> str | None:
    """Return the kind of the operation called `name`, or None: ``_allgather_base_`` is ALL_GATHER."""
    bare = name.lower().replace("_", "").replace("-", "")
    # Before anything is cut off: cutting would take the v from ``recv``.
    if bare in KINDS:
        return KINDS[bare]
    return KINDS.get(_HOW.sub("", bare))


def backend_of(node: HostNode) -> str:
    """Return the backend whose annotation a node is, as its name begins with it: ``gloo:all_reduce``."""
    return node.name.partition(":")[0]


def of_kernel(extra: Mapping[str, Any], name: str) -> Communication | None:
    """Return the communication of a kernel, by Kineto's attributes or, without these, by its name alone.

    The kind is `communication_kernels.UNSAID` for a kernel of messages without attributes.
    """
    kind = kind_of(str(extra.get("collective_name") or "")) or kernel_kind(name)
    if kind is None:
        return None
    # Kineto puts the attributes of the call on its kernel; a node made up from them can be read like any other.
    node = HostNode(0, name, 0, 0, 0, 0, "", [], [], [], [], [], [], extra)
    made = Communication(-1, kind, 0, sized=False)
    _add_group(made, node)
    _add_said(made, node)
    _add_ends(made, node)
    if kind == "ALL_TO_ALL":
        made.splits = _said_splits([node], made.size)
    return made


def of_operator(at: int, host: HostTrace, kernel: str) -> Communication | None:
    """Return the communication of a program's own kernel, by the operator `at` that launched it; None if unclear.

    ``vllm::all_reduce(input, …)`` and ``symm_mem::one_shot_all_reduce(input, …)`` take their input first, as PyTorch's
    collectives do. A dispatch of tokens sends what its routing decides, which no operator records.
    """
    node, kind = host.nodes[at], kernel_kind(kernel)
    if kind is None or kind != words_kind(node.name.rpartition("::")[2]) or kind == "ALL_TO_ALL":
        return None
    operand = next((value for value in node.inputs if any(True for _ in tensors(value))), None)
    if operand is None:
        return None
    return Communication(-1, kind, size(operand), path=(node.name,))


def of_nodes(
    at: int, node: HostNode, kind: str, nodes: Sequence[HostNode], path: tuple[str, ...]
) -> Communication:
    """Return the communication that a host node issues.

    Args:
        at: index of the node.
        node: the node.
        kind: kind of the communication.
        nodes: all nodes that record the communication, including `node`.
        path: names of the nodes around it, innermost first.
    """
    made = Communication(at, kind, 0)
    for member in nodes:
        _add_group(made, member)
    made.path = path
    made.storages = frozenset(
        record[1] for value in (*node.inputs, *node.outputs) for record in tensors(value)
    )
    operand = _operand(node, kind)
    made.size, made.sized = size(operand), _whole(operand)
    # c10d operators fill output tensors among their arguments, the first one; others return them.
    fills = node.name.startswith("c10d::")
    result = _at(node, 0) if fills else node.outputs
    # The root has a list with a tensor for every member, the others an empty one; all have their own part.
    if kind in ("GATHER", "SCATTER"):
        one, many = (operand, result) if kind == "GATHER" else (result, operand)
        made.size, made.part = size(many), size(one)
        made.sized = _whole(one) or _whole(many)
    # The ratio of whole to part is the size of the group, which helps where no node names the group.
    if kind == "ALL_GATHER":
        _set_size(made, elements(result), elements(operand))
    if kind == "REDUCE_SCATTER":
        _set_size(made, elements(operand), elements(result))
    # Only with neither tensor recorded: attributes of the call first, then the backend's annotation.
    for member in () if made.sized else nodes:
        _add_said(made, member)
        if not made.sized and (backend_of(member) in BACKENDS):
            _add_annotated(made, member)
    # Some backends pass a dummy tensor to synchronise with; a barrier moves nothing.
    if kind == "BARRIER":
        made.size, made.sized = 0, True
    _add_ends(made, node)
    if made.kind in (SEND, RECV) and made.peer is None:
        for member in nodes:
            _add_said_peer(made, member)
    if kind == "ALL_TO_ALL":
        made.splits = _splits(node, operand) or _said_splits(nodes, made.size)
    return made


def add_event(made: Communication, node: HostNode | None) -> None:
    """Take the bytes of a communication from the backend's annotation, unless the operator gave them."""
    if node is not None and not made.sized:
        _add_annotated(made, node)


def _whole(value: Any) -> bool:
    """Whether a value holds tensor records, and so sizes; an empty tensor has size 0."""
    return any(True for _ in tensors(value))


def _add_annotated(made: Communication, node: HostNode) -> None:
    """Take the bytes from a backend's annotation, which records the input of the rank."""
    records = list(tensors(_at(node, 0)))
    # 0 bytes per element: the dtype is unknown, and so are the bytes.
    if not records or not all(record[4] for record in records):
        return
    found = size(_at(node, 0))
    made.sized = True
    if made.kind in ("GATHER", "SCATTER"):
        made.part = found
    else:
        made.size = found


def _add_ends(made: Communication, node: HostNode) -> None:
    """Set the peer and tag of a message, or the root."""
    numbers = [value for value in node.inputs if type(value) is int]
    if node.name == "record_param_comms":  # (…, sequence number, group, rank or root or peer, name, …)
        at = next((at for at, value in enumerate(node.inputs) if isinstance(value, str)), 0)
        numbers = [value for value in node.inputs[max(at - 1, 0) : at] if type(value) is int]
    if made.kind in (SEND, RECV):
        ends = re.search(r"(?:->|<-)\s*(\d{1,9})$", node.name)  # nccl:send 0->1
        numbers = [int(ends[1])] if ends else numbers
        # ``recv_any_source_`` has no argument for the peer: the first number is the tag.
        numbers = [-1, *numbers] if "any_source" in node.name else numbers
        made.peer = numbers[0] if numbers and numbers[0] >= 0 else None
        made.tag = numbers[1] if len(numbers) > 1 else 0
    elif made.kind in ("BROADCAST", "REDUCE", "GATHER", "SCATTER") and numbers:
        made.peer = numbers[0]


def _operand(node: HostNode, kind: str) -> Any:
    """Return the argument whose bytes are Chakra's ``comm_size``: the input of the rank."""
    # Only c10d's own operators put outputs first; the others, and annotations, have the input there.
    if "c10d_functional" in node.name or node.name == "record_param_comms" or "::" not in node.name:
        return _at(node, 0)
    outputs_first = kind in ("ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL", "GATHER", "SCATTER")
    return _at(node, 1 if outputs_first else 0)


def _at(node: HostNode, position: int) -> Any:
    return node.inputs[position] if position < len(node.inputs) else None


def _set_size(made: Communication, whole: int, part: int) -> None:
    # An uneven gather has no ratio, and with one part empty there is nothing to divide by.
    if made.group_size is None and part and whole % part == 0 and whole >= part:
        made.group_size = whole // part


def _splits(node: HostNode, operand: Any) -> tuple[int, ...]:
    # ``alltoall_`` takes one tensor per member; ``alltoall_base_`` one tensor and a list of split sizes.
    if isinstance(operand, list) and operand and all(isinstance(one, list) for one in operand):
        return tuple(size(one) for one in operand)
    lists = [
        value
        for value in node.inputs
        if isinstance(value, list)
        and all(type(part) is int for part in value)
        and not any(True for _ in tensors(value))
    ]
    total = elements(operand)
    # Operators say output splits first, then input splits; record_param_comms the other way round.
    splits = lists[0 if node.name == "record_param_comms" else -1] if lists else []
    # Split sizes count rows of the first dimension, so they scale by the bytes of a row.
    rows = sum(splits)
    if not rows or total % rows:
        return ()
    scale = size(operand) // rows
    return tuple(part * scale for part in splits)


def _add_said(made: Communication, node: HostNode) -> None:
    """Take the bytes from the attributes that PyTorch records with a collective, if present."""
    # Message sizes are in elements, of the dtype that stands beside them.
    each = element_bytes(str(node.extra.get("dtype")))
    given, got = (_count(node.extra.get(key)) for key in ("in_msg_nelems", "out_msg_nelems"))
    if made.sized or not each or (given is None and got is None):
        return
    members = made.group_size or _count(node.extra.get("pg_size")) or 0
    made.sized = True
    if made.kind == "GATHER":
        made.part = (given or 0) * each
    elif made.kind == "SCATTER":
        made.part = (got or 0) * each or ((given or 0) // members * each if members else 0)
    elif given is not None and (given or made.kind not in (RECV, "ALL_GATHER", "REDUCE_SCATTER")):
        made.size = given * each
    elif made.kind == "ALL_GATHER" and members:
        made.size = (got or 0) // members * each
    elif made.kind == "REDUCE_SCATTER" and members:
        made.size = (got or 0) * members * each
    else:
        made.size = (got or 0) * each


def _said_splits(nodes: Iterable[HostNode], total: int) -> tuple[int, ...]:
    """Return the bytes to each member by the attributes of a collective; () for a long list, which is cut short."""
    for node in nodes:
        text = node.extra.get("in_split_size")
        found = (
            # The whole list must match: Kineto ends a long one with ``...``, and a part of it would be wrong.
            re.fullmatch(r"\[\s*(\d{1,15}(?:\s*,\s*\d{1,15})*)\s*\]", text) if isinstance(text, str) else None
        )
        parts = [int(part) for part in found[1].split(",")] if found else []
        if sum(parts) and total % sum(parts) == 0:
            return tuple(part * (total // sum(parts)) for part in parts)
    return ()


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _add_said_peer(made: Communication, node: HostNode) -> None:
    """Take the peer of a message from Kineto's attributes, which give a rank of the job."""
    rank = node.extra.get("dst_rank" if made.kind == SEND else "src_rank")
    if type(rank) is int and rank >= 0 and made.ranks and rank in made.ranks:
        made.peer = made.ranks.index(rank)


def _add_group(made: Communication, node: HostNode) -> None:
    extra = node.extra
    name = extra.get("pg_name")
    if isinstance(name, str) and name:
        made.group = name
    # Kineto gives the ranks of a regular group as start and stride; a list of them replaces these.
    start, stride, count = (extra.get(key) for key in ("global_rank_start", "global_rank_stride", "pg_size"))
    if type(count) is int and 0 < count <= MOST_RANKS:
        made.group_size = count
        if type(start) is int and type(stride) is int and start >= 0 and stride > 0:
            made.ranks = tuple(range(start, start + stride * count, stride))
    ranks = extra.get("ranks")
    if isinstance(ranks, list) and ranks and all(type(rank) is int and rank >= 0 for rank in ranks):
        made.ranks = tuple(ranks)
    if node.name.startswith(GROUP_NOTE):
        made.group = node.name.removeprefix(GROUP_NOTE)
    if node.name == "record_param_comms" and made.group is None:
        # ``record_param_comms`` has the group as [name, description] among its inputs.
        pair = next(
            (v for v in node.inputs if isinstance(v, list) and len(v) == 2 and isinstance(v[0], str)), None
        )
        if pair:
            made.group = str(pair[0])
    if "c10d_functional" in node.name and made.group is None:
        words = [value for value in node.inputs if isinstance(value, str) and not value.startswith("<")]
        if len(words) > ("reduce" in node.name):  # the first one says how to reduce
            made.group = words[-1]
