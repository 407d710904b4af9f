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
        description="CPU time to issue an operation of a layer, which frameworks may run as several kernels.",
    )
    issue_each: WholeTime = Field(
        default=0,
        description="Additional CPU time to issue each kernel of a loop over experts: the GEMMs of a group, which "
        "Transformer Engine passes to cuBLAS one by one, the kernels that quantise for them, and bias additions.",
    )
    gap: WholeTime = Field(
        default=0,
        description="Additional device time for each of these kernels, which are too small to fill the device: "
        "start, ramp and tail.",
    )
    synchronise: WholeTime = Field(
        default=0,
        description="CPU time to read a result from the device and continue: the number of tokens per expert, in "
        "every layer of experts. The CPU waits for all earlier kernels, and issues later ones only afterwards.",
    )
    graphs: list[Graphed] = Field(
        default=[],
        description="Parts that the CPU issues as one CUDA graph: attention (or its replacement) with its norm and "
        "projections; the router of experts with the permutation of tokens.",
    )
