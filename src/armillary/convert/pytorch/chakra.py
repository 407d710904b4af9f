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
    """A communicator as a node names it: its number, and its members as ranks of the job."""

    number: int
    ranks: tuple[int, ...]
    """Its members in order."""

    def rank(self, member: int | None) -> int | None:
        """Return the rank of a member by its place in the group; None where that is not known."""
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
    """Return the nodes of a rank, ids in issue order, and how many dependencies against it were dropped.

    Args:
        rank: its steps.
        linked: what they were made from.
        number: the rank in the job.
        first_id: id of the first node.
        origin: time that start times count from, ns.
        group_of: tells the communicator.
        work: FLOPs and bytes of every host node without those inside it.
    """
    host = linked.host.nodes
    index = {node.id: at for at, node in enumerate(host)}
    ids: dict[int, int] = {}
    head: dict[int, int] = {}
    shares = _shares(rank.steps, work)
    nodes: list[Node] = []
    dropped = 0
    for ident, step in enumerate(rank.steps, first_id):
        waits = [found for wait in step.waits if (found := ids.get(id(wait))) is not None]
        dropped += len(step.waits) - len(waits)
        ids[id(step)] = ident
        source = host[step.host] if step.host >= 0 else None
        above = head.get(index.get(source.parent, -1)) if source and step.kind == "cpu" else None
        if step.kind == "cpu" and step.host >= 0:
            head[step.host] = ident
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
    from armillary.convert.pytorch.flops import Arguments, gemm

    return gemm(
        source.name,
        source.op_schema,
        Arguments(source.inputs, source.input_shapes, source.input_types),
        Arguments(source.outputs, source.output_shapes, source.output_types),
    )


def _on_device(source: HostNode) -> bool:
    """Whether an operator works on tensors of a device."""
    found = (record for value in (*source.inputs, *source.outputs) for record in tensors(value))
    return any(isinstance(record[-1], str) and not record[-1].startswith(("cpu", "meta")) for record in found)


def _place(step: Step) -> list[Attribute]:
    if step.kind == "kernel" or (step.kind == "comm" and step.track >= 0):
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
    size = max(comm.size, comm.part * len(group.ranks))
    attrs += [("comm_type", "int64", int(kind)), ("comm_size", "int64", size)]
    if group.number:
        attrs.append(("pg_name", "string", str(group.number)))
    if peer is not None and peer != group.ranks[0]:
        attrs.append(("comm_root", "int64", peer))
    if len(comm.splits) == len(group.ranks) > 1 and sum(comm.splits) == size:
        attrs.append(("comm_splits", "int64_list", list(comm.splits)))


def _shares(steps: Sequence[Step], work: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Share the work of each operator among its kernels by their time; without kernels its longest step does it.

    Fills and copies of the device have a part only where there is nothing else.
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
        launched = kernels.get(host, [])
        mine = [each for each in launched if not each.name.startswith(("Memset", "Memcpy"))] or launched
        if not mine:
            shares[id(max(parts, key=lambda step: step.end - step.begin))] = total
            continue
        whole = sum(kernel.end - kernel.begin for kernel in mine) or 1
        left = list(total)
        for kernel in mine[1:]:
            part = [amount * (kernel.end - kernel.begin) // whole for amount in total]
            shares[id(kernel)] = (part[0], part[1])
            left = [amount - less for amount, less in zip(left, part, strict=True)]
        shares[id(mine[0])] = (left[0], left[1])
    return shares
