"""TrioSim's traces: the operators of a step with their times (trace.csv), and their tensors (tensor.csv)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from armillary.base.errors import InputError
from armillary.base.units import format_bytes, format_time
from armillary.convert.converted import Converted
from armillary.convert.triosim import Step, read_step
from armillary.trace import GraphBuilder, NodeType, Trace
from armillary.trace.node import Attribute

# Bytes of an element where no file states them.
_ELEMENT = 4


def convert(inputs: Sequence[Path], *, npus: int = 1) -> Converted:
    """Return the operators of every GPU in program order, with their recorded times.

    What an operator reads that another GPU has made is sent. A step of one GPU may run on several, which then add up
    their gradients once, before the optimizer.

    Args:
        inputs: trace.csv, or trace.csv and tensor.csv, or a folder of both.
        npus: Number of GPUs; each runs the step on its own part of the batch (data parallelism).

    Raises:
        InputError: a file is none of TrioSim's, or an option does not fit; names the line.
    """
    paths = [file for path in inputs for file in (sorted(path.glob("*.csv")) if path.is_dir() else [path])]
    if not 1 <= len(paths) <= 2:
        raise InputError(f"{len(paths)} files, expected trace.csv, or trace.csv and tensor.csv")
    step = read_step(paths)
    gpus = sorted({each.gpu for each in step.operators})
    gradients = sum(each.size for each in step.tensors.values() if each.kind.startswith(("weight", "bias")))
    warnings = []
    if npus < 1 or npus > 1 << 20:
        raise InputError(f"--ranks is {npus}, expected from 1 to {1 << 20}")
    if npus > 1 and len(gpus) > 1:
        raise InputError(f"--ranks is {npus}, and the trace is of {len(gpus)} GPUs: expected a trace of one")
    if npus > 1 and not gradients:
        raise InputError(
            f"--ranks is {npus}: expected tensor.csv too, whose weights are the bytes of the gradients"
        )
    if not step.tensors:
        warnings.append(f"no tensor.csv: elements are taken to have {_ELEMENT} bytes")
    builders = _graphs(step, gpus, gradients if npus > 1 else 0, warnings)
    graphs = [builder.graph(f"{step.path}, GPU {gpu}") for gpu, builder in zip(gpus, builders, strict=True)]
    ns = sum(each.ns for each in step.operators)
    says = f"{len(step.operators)} operators took {format_time(ns)} in all ({format_time(step.whole_ns)} with overlaps)"
    if npus > 1:
        says += f"; {npus} GPUs add up {format_bytes(gradients)} of gradients, after the backward pass"
    facts = {"operators": len(step.operators), "recorded_ns": ns, "recorded_with_overlaps_ns": step.whole_ns}
    trace = Trace.replicate(graphs[0], npus) if len(gpus) == 1 else Trace.from_ranks(graphs)
    return Converted(trace, warnings=tuple(warnings), facts=facts, statements=(says,))


def _graphs(step: Step, gpus: list[int], gradients: int, warnings: list[str]) -> list[GraphBuilder]:
    rank = {gpu: number for number, gpu in enumerate(gpus)}
    builders = [GraphBuilder(rank=number) for number in range(len(gpus))]
    last: dict[int, int] = {}  # GPU -> its last node
    made: dict[
        int, dict[int, int]
    ] = {}  # tensor -> GPU -> the node that made or received it, the maker first
    unsized = tag = 0
    reduced = not gradients
    for each in step.operators:
        builder = builders[rank[each.gpu]]
        after = [last[each.gpu]] if each.gpu in last else []
        for tensor in each.inputs:
            holders = made.get(tensor, {})
            if not holders:
                continue
            if each.gpu not in holders:
                size = step.tensors[tensor].size if tensor in step.tensors else 0
                unsized += not size
                owner, node = next(iter(holders.items()))
                sent = builders[rank[owner]].send(
                    rank[each.gpu], size, tag, name=f"send {tensor}", after=[node]
                )
                del sent  # beside the operators of its GPU
                holders[each.gpu] = builder.recv(rank[owner], size, tag, name=f"recv {tensor}")
                tag += 1
            after.append(holders[each.gpu])
        if not reduced and each.stage == "optimizer":
            after = [builder.all_reduce("gradients", gradients, after=after)]
            reduced = True
        attrs: list[Attribute] = [("is_cpu_op", "bool", False), ("duration_ns", "int64", each.ns)]
        size = _bytes(step, each.inputs + each.outputs) or each.elements * _ELEMENT
        # Bytes would time a GEMM as if it only moved them; it keeps its recorded time.
        if size and not each.heavy:
            attrs.append(("tensor_size", "uint64", size))
        node = builder.add(
            each.name,
            NodeType.COMP_NODE,
            attrs,
            after=sorted(set(after)),
            duration_micros=(each.ns + 500) // 1000,
        )
        last[each.gpu] = node
        for tensor in each.outputs:
            made[tensor] = {each.gpu: node}
    if not reduced:
        gpu = gpus[0]
        builders[0].all_reduce("gradients", gradients, after=[last[gpu]])
    if unsized:
        warnings.append(
            f"{unsized} tensors go from GPU to GPU and have no bytes: tensor.csv does not name them"
        )
    return builders


def _bytes(step: Step, tensors: tuple[int, ...]) -> int:
    return sum(step.tensors[each].size for each in tensors if each in step.tensors)
