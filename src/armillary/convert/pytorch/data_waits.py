"""Dependencies by data: reads of what another step wrote, across threads, streams and communication.

Steps of one thread, or of one stream, are ordered already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from armillary.convert.pytorch.communication import Communication
from armillary.convert.pytorch.dataflow import access, data_dependencies
from armillary.convert.pytorch.link import Linked
from armillary.convert.pytorch.steps import Step, Thread

Use = tuple[list[Step], list[Step]]
"""The steps of an operator, and those of one whose results it uses or overwrites."""


def uses(steps: Iterable[Step], linked: Linked, comms: Iterable[Communication]) -> list[Use]:
    """Return which operators use the results of others that a thread or a stream does not order already."""
    nodes = linked.host.nodes
    run: dict[int, list[Step]] = {}
    for step in steps:
        # A kernel belongs to the operator that launched it, found through its item.
        where = step.host if step.kind != "kernel" else step.item.host if step.item else -1
        if where >= 0 and step.kind in ("cpu", "kernel", "comm"):
            run.setdefault(where, []).append(step)
    asynchronous = {at for at, own in run.items() if any(step.kind != "cpu" for step in own)}
    if (
        # One thread without kernels or communication: program order implies all data dependencies.
        len({step.track for own in run.values() for step in own if step.kind == "cpu"}) < 2
        and not asynchronous
    ):
        return []
    index = {node.id: at for at, node in enumerate(nodes)}
    parents = {index.get(node.parent, -1) for node in nodes}
    inside = _inside({comm.node for comm in comms}, index, linked)
    # An operator's accesses repeat those of the operators inside it, so only leaves count, and whatever ran
    # a kernel or a communication itself. A communication's inner nodes are part of it.
    chosen = [at for at in sorted(run) if at in asynchronous or (at not in parents and at not in inside)]
    # By when the work takes effect: a kernel when it began, a CPU step when it was issued.
    chosen.sort(key=lambda at: min(step.begin if step.kind == "kernel" else step.key for step in run[at]))
    touched = [
        access(nodes[at].op_schema, *nodes[at].arguments, allocates=at not in parents) for at in chosen
    ]
    return [
        (run[at], run[chosen[other]])
        for at, earlier in zip(chosen, data_dependencies(touched), strict=True)
        for other in earlier
    ]


def end_before_use(found: Iterable[Use], threads: Mapping[int, Thread], linked: Linked) -> None:
    """Let communication of a backend's thread end no later than an operator on its result began.

    gloo completes a future, which DDP waits for, before it closes the annotation; on a busy machine the thread that
    waited runs first, up to 9 ms as measured on two cores. The wait was the longest unrecorded time before, if one was
    long.
    """
    from armillary.convert.pytorch.flops import work

    for reader, writer in found:
        comm, item = _last(writer), reader[0].item
        if comm is None or not _on_host(comm) or item is None or not comm.begin < item.start < comm.end:
            continue
        node = linked.host.nodes[reader[0].host]
        # An operator of known work cannot have waited itself, as ``wait_tensor`` does; one without bytes, such as a
        # question about a tensor's type, needs no data.
        known = work(node.name, node.op_schema, *node.arguments)
        if not _is_on_cpu(reader) or known is None or not known.bytes:
            continue
        comm.end = threads[reader[0].track].idle_until(comm.begin, item.start) or item.start


def add_data_waits(found: Iterable[Use]) -> None:
    """Let steps wait for the steps whose results they use, where the measured times allow it."""
    for reader, writer in found:
        _wait(reader, writer)


def _inside(roots: set[int], index: dict[int, int], linked: Linked) -> set[int]:
    """Return the indices of the nodes below those in `roots`."""
    found: set[int] = set()
    for at, node in enumerate(linked.host.nodes):
        above = index.get(node.parent, -1)
        # One pass is enough: ids grow from parents to children, so a parent's answer is known.
        if above in roots or above in found:
            found.add(at)
    return found


def _last(steps: list[Step]) -> Step | None:
    """Return the asynchronous step that completes the results."""
    return max((step for step in steps if step.kind != "cpu"), key=lambda step: step.end, default=None)


def _is_on_cpu(steps: list[Step]) -> bool:
    return all(step.kind == "cpu" for step in steps)


def _on_host(step: Step) -> bool:
    """Whether a step is communication whose results are in host memory.

    One colon in the name marks a backend's own thread (``gloo:all_reduce``); two are a kernel of a C++ namespace
    (``vllm::cross_device_reduce``).
    """
    return step.kind == "comm" and re.match(r"[^:]+:(?!:)", step.name) is not None


def _wait(reader: list[Step], writer: list[Step]) -> None:
    # The last asynchronous step of the writer completes its result; the first of the reader needs it.
    last = _last(writer)
    if not _is_on_cpu(reader):
        first = min((step for step in reader if step.kind != "cpu"), key=lambda step: step.begin)
        if last is not None and last.track != first.track and last.end <= first.begin:
            first.waits.append(last)
        return
    # What a CPU step without a kernel does with a device's tensor needs only its description.
    source = last if last is not None and _on_host(last) else None
    if last is None:
        source = writer[0] if writer[0].track != reader[0].track else None
    # What ended later than the reader was not waited for, whatever the recorded data say.
    if source is not None and source.end <= reader[0].end:
        reader[0].waits.append(source)
