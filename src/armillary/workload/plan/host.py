"""What the CPU of a rank does: the key ``host`` of a plan."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from armillary.platform.fields import Part, WholeTime

Graphed = Literal["attention", "router"]


class Host(Part):
    """What the CPU of a rank does in a step without CUDA graphs: it issues kernels, ahead of them if it can."""

    issue: WholeTime = Field(
        default=0,
        description="What it takes to issue an operation of a layer, which frameworks may run as several kernels.",
    )
    issue_each: WholeTime = Field(
        default=0,
        description="What it takes besides to issue each kernel of a loop over experts: the GEMMs of a group, which "
        "Transformer Engine gives to cuBLAS one by one, what quantises for them, and additions of biases.",
    )
    gap: WholeTime = Field(
        default=0,
        description="What the device takes besides for each of these kernels, which are too small to fill it: start, "
        "ramp and tail.",
    )
    synchronise: WholeTime = Field(
        default=0,
        description="What it takes to read a result of the device and to go on: how many tokens each expert gets, in "
        "every layer of experts. It waits for the kernels before, and issues the others only then.",
    )
    graphs: list[Graphed] = Field(
        default=[],
        description="What it issues as one CUDA graph: attention (or what takes its place) with its norm and "
        "projections, the router of experts with the permutation of tokens.",
    )
