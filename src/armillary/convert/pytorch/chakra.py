"""A rank's steps as the nodes of a Chakra graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from armillary.convert.pytorch.arguments import tensors
from armillary.convert.pytorch.communication import RECV, SEND, Communication
from armillary.convert.pytorch.device import DeviceOp
from armillary.convert.pytorch.host import HostNode
from armillary.convert.pytorch.link import Linked
from armillary.convert.pytorch.rank import Rank
from armillary.convert.pytorch.steps import Step
from armillary.trace import CollectiveType, Node, NodeType
from armillary.trace.gemm import GEMM, Gemm, to_numbers
from armillary.trace.node import REPLAY_ONLY, Attribute


@dataclass(frozen=True)
class Group:
    """A communicator: the number by which nodes name it, and its members as ranks of the job."""

    number: int
    ranks: tuple[int, ...]
    """Its members, in the order of their ranks within the group."""

    def rank(self, member: int | None) -> int | None:
        """Return the job rank of the member at this place in the group; None if the place is unknown or outside it."""
        return self.ranks[member] if member is not None and 0 <= member < len(self.ranks) else None


def nodes_of_rank(
    rank: Rank,
    linked: Linked,
    number: int,
    first_id: int,
    origin: int,
    group_of: Callable[[Communication], Group],
    work: Sequence[tuple[int, int]],
) -> tuple[list[Node], int]:
    """Return the nodes of a rank, with ids in issue order, and how many dependencies against that order were dropped.

    Args:
        rank: its steps.
        linked: the joined trace that they were made from.
        number: the rank in the job.
        first_id: id of the first node.
        origin: zero of the start times, ns.
        group_of: returns the communicator of a communication.
        work: (FLOPs, bytes) of every host node, exclusive of the nodes inside it.
    """
    host = linked.host.nodes
    index = {node.id: at for at, node in enumerate(host)}
    ids: dict[int, int] = {}
    head: dict[int, int] = {}
    shares = _shares(rank.steps, work)
    nodes: list[Node] = []
    dropped = 0
    for ident, step in enumerate(rank.steps, first_id):
        # A step gets its id when its turn comes, so a wait for a later step finds none. Only clocks so coarse
        # that steps wait for each other leave any (`rank.issue_order`); such an edge would close a cycle.
        waits = [found for wait in step.waits if (found := ids.get(id(wait))) is not None]
        dropped += len(step.waits) - len(waits)
        ids[id(step)] = ident
        source = host[step.host] if step.host >= 0 else None
        # Chakra's control dependency is the call stack: a CPU node hangs on the head of the operator around
        # it. Kernels and later parts of an operator have data dependencies alone.
        above = head.get(index.get(source.parent, -1)) if source and step.kind == "cpu" else None
        if step.kind == "cpu" and step.host >= 0:
            head[step.host] = ident
        # Chakra counts whole microseconds; the exact nanoseconds follow in attributes of our own.
        length = max(step.end - step.begin, 0) if rank.timed else 0
        node = Node(
            ident,
            step.name,
            NodeType.COMP_NODE,
            () if above is None else (above,),
            tuple(sorted(set(waits))),
            max(step.begin - origin, 0) // 1000 if rank.timed else 0,
            (length + 500) // 1000,
        )
        flops, moved = shares.get(id(step), (0, 0))
        if isinstance(step.source, Communication):
            _communicate(node, step.source, group_of(step.source), number)
        else:
            # Without times there are no kernels: the operator that needs one stands for it.
            computes = not rank.timed and source is not None and bool(flops or moved) and _on_device(source)
            node.attrs.append(("is_cpu_op", "bool", step.kind != "kernel" and not computes))
        if rank.timed:
            node.attrs.append(("duration_ns", "int64", length))
            node.attrs.append(("start_ns", "int64", step.begin - origin))
        node.attrs += _place(step)
        if source and step.kind == "cpu":
            node.attrs.append(("rf_id", "int64", source.rf_id))
            if source.op_schema:
                node.attrs.append(("op_schema", "string", source.op_schema))
        # A kernel's tensors and GEMM are those of the operator that launched it.
        worker = host[step.item.host] if step.item and (flops or moved) else source
        if worker and (step.kind == "cpu" or flops or moved):
            _name_tensors(node, worker)
        if flops or moved:
            node.attrs += [("num_ops", "int64", flops), ("tensor_size", "uint64", moved)]
            gemm = worker and flops and _gemm(worker)
            # An operator whose work several kernels share is no single GEMM.
            if gemm and gemm.operations == flops:
                node.attrs.append((GEMM, "int64_list", to_numbers([gemm])))
        nodes.append(node)
    return nodes, dropped


def _gemm(source: HostNode) -> Gemm | None:
    from armillary.convert.pytorch.flops import gemm

    return gemm(source.name, source.op_schema, *source.arguments)


def _on_device(source: HostNode) -> bool:
    """Whether an operator works on tensors of a device."""
    # A recorded tensor ends with its device: ``cuda:0``, ``cpu``, ``meta``.
    found = (record for value in (*source.inputs, *source.outputs) for record in tensors(value))
    return any(isinstance(record[-1], str) and not record[-1].startswith(("cpu", "meta")) for record in found)


def _place(step: Step) -> list[Attribute]:
    # A communication has a track only if a stream or a thread ran it; without one it has no place.
    if step.kind == "kernel" or (step.kind == "comm" and step.track >= 0):
        # Device 0 is the default and is not written.
        device = step.source.device if isinstance(step.source, DeviceOp) else 0
        attrs: list[Attribute] = [("stream", "int64", step.track)]
        return [*attrs, ("device", "int64", device)] if device else attrs
    if step.kind == "comm":
        return []
    where: list[Attribute] = [("tid", "int64", step.track)]
    return where if step.kind in ("cpu", "call") else [*where, (step.kind, "bool", True)]


def _name_tensors(node: Node, source: HostNode) -> None:
    if source.inputs:
        node.inputs = (str(source.inputs), str(source.input_shapes), str(source.input_types))
    if source.outputs:
        node.outputs = (str(source.outputs), str(source.output_shapes), str(source.output_types))


def _communicate(node: Node, comm: Communication, group: Group, rank: int) -> None:
    attrs = node.attrs
    attrs.append(("is_cpu_op", "bool", False))
    if not comm.sized:
        attrs.append((REPLAY_ONLY, "bool", True))
    # PyTorch gives peers and roots as ranks within the group; Chakra wants ranks of the job.
    peer = group.rank(comm.peer)
    if comm.kind in (SEND, RECV):
        if peer is None:  # from any source: it takes its recorded time
            return
        node.type = NodeType.COMM_SEND_NODE if comm.kind == SEND else NodeType.COMM_RECV_NODE
        source, target = (rank, peer) if comm.kind == SEND else (peer, rank)
        attrs += [("comm_size", "int64", comm.size), ("comm_src", "int32", source)]
        attrs += [("comm_dst", "int32", target), ("comm_tag", "int32", comm.tag % 2**31)]
        return
    node.type = NodeType.COMM_COLL_NODE
    kind = CollectiveType[comm.kind]
    # Of a gather or scatter, ranks other than the root know one part only; all parts are equally long.
    size = max(comm.size, comm.part * len(group.ranks))
    attrs += [("comm_type", "int64", int(kind)), ("comm_size", "int64", size)]
    if group.number:
        attrs.append(("pg_name", "string", str(group.number)))
    # Without comm_root, readers take the first member.
    if peer is not None and peer != group.ranks[0]:
        attrs.append(("comm_root", "int64", peer))
    # Splits count only if they fit the group found and the size; else the all-to-all is taken to be uniform.
    if len(comm.splits) == len(group.ranks) > 1 and sum(comm.splits) == size:
        attrs.append(("comm_splits", "int64_list", list(comm.splits)))


def _shares(steps: Sequence[Step], work: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Return (FLOPs, bytes) by the id of a step: an operator's work, divided among its kernels by their time.

    Without kernels the longest step of the operator takes all of it. Device fills and copies take a part only
    where an operator launched nothing else.
    """
    kernels: dict[int, list[Step]] = {}
    own: dict[int, list[Step]] = {}
    for step in steps:
        if step.kind == "kernel" and step.item is not None and step.item.host >= 0:
            kernels.setdefault(step.item.host, []).append(step)
        elif step.kind in ("cpu", "part") and 0 <= step.host < len(work) and any(work[step.host]):
            own.setdefault(step.host, []).append(step)
    shares: dict[int, tuple[int, int]] = {}
    for host, parts in own.items():
        total = work[host]
        # A memset of a GEMM's workspace would otherwise take FLOPs away from the GEMM's kernel.
        launched = kernels.get(host, [])
        mine = [each for each in launched if not each.name.startswith(("Memset", "Memcpy"))] or launched
        if not mine:
            shares[id(max(parts, key=lambda step: step.end - step.begin))] = total
            continue
        whole = sum(kernel.end - kernel.begin for kernel in mine) or 1
        # Integer division leaves a remainder. The first kernel takes it, so that the sum is exact.
        left = list(total)
        for kernel in mine[1:]:
            part = [amount * (kernel.end - kernel.begin) // whole for amount in total]
            shares[id(kernel)] = (part[0], part[1])
            left = [amount - less for amount, less in zip(left, part, strict=True)]
        shares[id(mine[0])] = (left[0], left[1])
    return shares
