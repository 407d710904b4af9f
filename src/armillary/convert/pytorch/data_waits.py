"""Dependencies by data: reads of what another step wrote, across threads, streams and communication.

Steps of one thread, or of one stream, are ordered already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from armillary.convert.pytorch.arguments import Arguments
from armillary.convert.pytorch.communication import Communication
from armillary.convert.pytorch.dataflow import access, data_dependencies
from armillary.convert.pytorch.link import Linked
from armillary.convert.pytorch.steps import Step


def add_data_waits(steps: Iterable[Step], linked: Linked, comms: Iterable[Communication]) -> None:
    """Let steps wait for the steps whose results they use, where the measured times allow it."""
    nodes = linked.host.nodes
    work: dict[int, list[Step]] = {}
    for step in steps:
        # A kernel belongs to the operator that launched it, found through its item.
        where = step.host if step.kind != "kernel" else step.item.host if step.item else -1
        if where >= 0 and step.kind in ("cpu", "kernel", "comm"):
            work.setdefault(where, []).append(step)
    asynchronous = {at for at, run in work.items() if any(step.kind != "cpu" for step in run)}
    if (
        # One thread without kernels or communication: program order implies all data dependencies.
        len({step.track for run in work.values() for step in run if step.kind == "cpu"}) < 2
        and not asynchronous
    ):
        return
    index = {node.id: at for at, node in enumerate(nodes)}
    parents = {index.get(node.parent, -1) for node in nodes}
    inside = _inside({comm.node for comm in comms}, index, linked)
    # An operator's accesses repeat those of the operators inside it, so only leaves count, and whatever ran
    # a kernel or a communication itself. A communication's inner nodes are part of it.
    chosen = [at for at in sorted(work) if at in asynchronous or (at not in parents and at not in inside)]
    # By when the work takes effect: a kernel when it began, a CPU step when it was issued.
    chosen.sort(key=lambda at: min(step.begin if step.kind == "kernel" else step.key for step in work[at]))
    touched = [
        access(
            nodes[at].op_schema,
            Arguments(nodes[at].inputs, nodes[at].input_shapes, nodes[at].input_types),
            Arguments(nodes[at].outputs, nodes[at].output_shapes, nodes[at].output_types),
            allocates=at not in parents,
        )
        for at in chosen
    ]
    for at, earlier in zip(chosen, data_dependencies(touched), strict=True):
        for other in earlier:
            _wait(work[at], work[chosen[other]])


def _inside(roots: set[int], index: dict[int, int], linked: Linked) -> set[int]:
    """Return the indices of the nodes below those in `roots`."""
    found: set[int] = set()
    for at, node in enumerate(linked.host.nodes):
        above = index.get(node.parent, -1)
        # One pass is enough: ids grow from parents to children, so a parent's answer is known.
        if above in roots or above in found:
            found.add(at)
    return found


def _wait(reader: list[Step], writer: list[Step]) -> None:
    # The last asynchronous step of the writer completes its result; the first of the reader needs it.
    last = max((step for step in writer if step.kind != "cpu"), key=lambda step: step.end, default=None)
    first = min((step for step in reader if step.kind != "cpu"), key=lambda step: step.begin, default=None)
    if first is not None:
        if last is not None and last.track != first.track and last.end <= first.begin:
            first.waits.append(last)
        return
    # What a CPU step without a kernel does with a device's tensor needs only its description.
    # One colon in the name marks a backend's own thread (``gloo:all_reduce``), whose results are in host memory; two
    # are a kernel of a C++ namespace (``vllm::cross_device_reduce``).
    host = last is not None and last.kind == "comm" and re.match(r"[^:]+:(?!:)", last.name)
    source = last if host else None
    if last is None:
        source = writer[0] if writer[0].track != reader[0].track else None
    # What ended later than the reader was not waited for, whatever the recorded data say.
    if source is not None and source.end <= reader[0].end:
        reader[0].waits.append(source)
