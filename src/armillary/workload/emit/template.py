"""The steps of a layer as a template of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from armillary.trace import NodeType
from armillary.trace.attention import ATTENTION
from armillary.trace.gemm import GEMM, SCALING, to_numbers
from armillary.trace.grid import AXIS, FURTHER
from armillary.trace.node import PACE, Attribute
from armillary.trace.templates import LABEL, Template
from armillary.workload.layers.layer import Step
from armillary.workload.plan.host import Host

IN = ""
"""Port of the inputs of a list of steps."""
CHAIN = "chain"
"""Port of the earlier kernels, which the first nodes of a template do not overtake."""
CALL = "call "
"""Beginning of the port, by communicator, of calls on it that were placed before; its first call waits for them."""
HOST = "host"
"""Port of what the CPU did before; it does one thing after the other."""
NO_HOST = Host()
LABELS = ("layer", "micro_batch")


@dataclass(frozen=True, eq=False)
class Piece:
    """A template of steps.

    Attributes:
        template: Its nodes.
        last: Nodes after which the result of the steps is available.
        kernel: The last kernel, or None.
        ends: Nodes without successors in the template: when they are done, all of it is.
        calls: The last calls on every communicator, by its axis set.
        late: The last collective on every communicator that this piece calls, by its axis set, if it may become ready
            after the last kernel: what waits for that kernel only could overtake it. None if it cannot.
        host: The last thing that the CPU does, or None.
    """

    template: Template
    last: tuple[int, ...]
    kernel: int | None
    ends: tuple[int, ...]
    calls: Mapping[str, tuple[int, ...]]
    late: Mapping[str, int | None]
    host: int | None = None


def piece(*lists: Sequence[Step], host: Host = NO_HOST, lane: int = 0) -> Piece:
    """Return the template of one or more lists of steps; later lists continue the first.

    Where `host` takes time, every step waits for the CPU to issue it, which it does in the order of the lists.
    Other than 0, `lane` numbers communicators of its own for pieces that run beside others.

    `Piece.last` is that of the first list: results of the later ones (gradients of weights) stay on the rank.
    """
    template, times = Template(), host_times(host)
    at: dict[str, tuple[int, ...]] = {}
    called: dict[str, tuple[int, ...]] = {}
    late: dict[str, int | None] = {}
    first: tuple[int, ...] = ()
    kernel = issued = None
    within = ""
    for number, steps in enumerate(lists):
        # Later lists start at the result of the first one, or at the input if it had no steps.
        before: tuple[int, ...] | None = first if number else None
        for step, issues in _spaced(steps, host):
            # A name that is not here belongs to the list's input, or to steps of another piece (W apart from B).
            names = None if step.after is None else [name for name in step.after if name in at]
            if step.after is None:
                after, opens = (before, False) if before else ((), True)
            else:
                assert names is not None
                after = tuple(node for name in names for node in at[name])
                # It waits for the input besides.
                opens = len(names) < len(step.after)
            # A step without predecessors still must not overtake the kernels before the piece.
            ports = (IN, CHAIN) if opens else (CHAIN,) if not after else ()
            # Calls of one communicator run in the order of the program, as in NCCL.
            axes = further(step.axes, lane) if step.collective is not None else step.axes
            after = (*after, *called.get(axes, ()))
            if step.collective is not None and axes not in late:
                ports = (*ports, f"{CALL}{axes}")
            graph = graph_of(step.name, host)
            # A CUDA graph is issued once.
            each = issues and not (graph and graph == within)
            multiples = (int(step.synchronises), int(each), step.looped * each, 0, 0)
            within = graph
            if work := host_time(times, multiples):
                issued = _issue(template, step, work, issued, (after, ports) if step.synchronises else None)
                template.multiples[issued] = multiples
                after = (*after, issued)
            before = _add(template, step, after, ports, lane)
            if step.gap:
                template.multiples[before[0]] = (0, 0, 0, step.looped, 0)
            at[step.name] = before
            if step.axes:
                called[axes] = before
                late |= {axes: before[0]} if step.collective is not None else {}
            else:
                kernel = before[0]
        if number == 0:
            first = before or ()
    followed = {parent for node in template.nodes for parent in node.data_deps}
    ends = tuple(node for node in range(len(template.nodes)) if node not in followed)
    if kernel is not None and not lane:
        # A call is ready when its kernel ends if all that it waits for ended before.
        done = _waited(template, kernel)
        for axes, call in late.items():
            assert call is not None
            late[axes] = None if done.issuperset(template.nodes[call].data_deps) else call
    return Piece(template, first, kernel, ends, called, late, issued)


def host_times(host: Host, handshake: int = 0) -> tuple[int, ...]:
    """Return the times that the durations of nodes are multiples of, see `armillary.trace.templates.of_times`."""
    return host.synchronise, host.issue, host.issue_each, host.gap, handshake


def host_time(times: Sequence[int], multiples: Sequence[int]) -> int:
    """Return the sum of multiples of times."""
    return sum(time * count for time, count in zip(times, multiples, strict=True))


def further(axis_set: str, lane: int) -> str:
    """Return the name of the communicator of a lane with the ranks of an axis set."""
    return f"{axis_set}{FURTHER}{lane}" if lane and axis_set else axis_set


def _waited(template: Template, node: int) -> set[int]:
    """Return a node of a template and all that it waits for."""
    found, left = {node}, [node]
    while left:
        new = set(template.nodes[left.pop()].data_deps) - found
        found |= new
        left += new
    return found


def _spaced(steps: Sequence[Step], host: Host) -> Iterator[tuple[Step, bool]]:
    """Yield steps, each with whether the CPU issues it apart; before a loop of kernels, what the device loses there."""
    for step in steps:
        if not (host.gap and step.looped):
            yield step, True
            continue
        gap = Step(f"gap {step.name}", after=step.after, looped=step.looped, gap=host.gap * step.looped)
        yield gap, True
        yield replace(step, after=(gap.name,)), False


GRAPHS = {
    "router": ("mlp.norm", "router", "dispatch.count", "dispatch.permute"),
    "attention": ("attention", "qkv", "positions", "core", "gate", "out", "down", "q", "kv", "mixer"),
}
"""Key of ``host.graphs`` -> how the names of the steps that it holds begin."""


def graph_of(name: str, host: Host) -> str:
    """Return the CUDA graph that a step of a layer is in; "": the CPU issues it alone."""
    block = f"{name.removeprefix('again.')}."
    return next(
        (graph for graph in host.graphs if any(block.startswith(f"{each}.") for each in GRAPHS[graph])), ""
    )


def _issue(
    template: Template,
    step: Step,
    work: int,
    issued: int | None,
    waits: tuple[Sequence[int], Sequence[str]] | None,
) -> int:
    """Add what the CPU does for a step after it `issued` the one before; if given, it `waits` for nodes and ports."""
    attributes: list[Attribute] = [("is_cpu_op", "bool", True), ("duration_ns", "int64", work), *labels()]
    nodes, ports = waits or ((), ())
    before = ((), (HOST,)) if issued is None else ((issued,), ())
    name = f"{'synchronise' if waits else 'issue'} {step.name}"
    return template.add(name, NodeType.COMP_NODE, attributes, (*before[0], *nodes), (*before[1], *ports))


def _add(
    template: Template, step: Step, after: Sequence[int], ports: Sequence[str], lane: int
) -> tuple[int, ...]:
    if step.collective is not None:
        attributes = collective(step, lane)
        return (template.add(step.name, NodeType.COMM_COLL_NODE, attributes, after, ports),)
    if step.shift:
        # Send and receive start together; the step is done when both are.
        sent = template.add(
            f"{step.name} send", NodeType.COMM_SEND_NODE, message(step, step.shift, True, lane), after, ports
        )
        got = template.add(
            f"{step.name} recv",
            NodeType.COMM_RECV_NODE,
            message(step, -step.shift, False, lane),
            after,
            ports,
        )
        return (sent, got)
    return (template.add(step.name, NodeType.COMP_NODE, kernel_attributes(step), after, ports),)


def labels() -> list[Attribute]:
    """Return the attributes for the layer and the microbatch of a node."""
    return [(name, "int32", LABEL) for name in LABELS]


def kernel_attributes(step: Step) -> list[Attribute]:
    """Return the attributes of a compute node."""
    if step.gap:
        return [("is_cpu_op", "bool", False), ("duration_ns", "int64", step.gap), *labels()]
    found: list[Attribute] = [
        ("is_cpu_op", "bool", False),
        # Readers divide by it; 1 operation takes no time.
        ("num_ops", "int64", max(1, step.flops)),
        ("tensor_size", "uint64", max(1, step.bytes)),
    ]
    # bf16 is what readers take without the attribute.
    if step.flops and step.precision != "bf16":
        found.append(("precision", "string", step.precision))
    if step.scaling and step.flops:
        found.append((SCALING, "string", step.scaling))
    if step.gemms and step.flops:
        found.append((GEMM, "int64_list", to_numbers(step.gemms)))
    if step.attention:
        found.append((ATTENTION, "int64_list", list(step.attention)))
    return found + labels()


def collective(step: Step, lane: int = 0) -> list[Attribute]:
    """Return the attributes of a collective node."""
    assert step.collective is not None
    found: list[Attribute] = [
        ("is_cpu_op", "bool", False),
        ("comm_type", "int64", int(step.collective)),
        ("comm_size", "int64", step.size),
        ("pg_name", "string", further(step.axes, lane)),
    ]
    if step.pace:
        found.append((PACE, "int64", step.pace))
    if step.splits:
        found.append(("comm_splits", "int64_list", list(step.splits)))
    return found + labels()


def message(step: Step, peer: int, send: bool, tag: int = 0) -> list[Attribute]:
    """Return the attributes of a send to, or a receive from, the rank `peer` steps along the axis."""
    return [
        ("is_cpu_op", "bool", False),
        ("comm_size", "int64", step.size),
        (AXIS, "string", step.axes),
        ("comm_dst" if send else "comm_src", "int32", peer),
        ("comm_tag", "int32", tag),
        *labels(),
    ]
