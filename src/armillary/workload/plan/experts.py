"""How a plan runs mixtures of experts: the key ``experts`` of a plan."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from armillary.platform.fields import Count, Part

Dispatcher = Literal["alltoall", "deepep", "hybridep"]
"""What sends tokens to experts, as Megatron-core names it, see `armillary.workload.layers.dispatcher`."""


class ExpertLoad(Part):
    """How uneven tokens choose experts."""

    skew: Annotated[float, Field(ge=0, le=10)] = Field(
        default=0.0, description="Exponent of the Zipf distribution over the experts; 0: uniform."
    )
    align: Count | None = Field(
        default=None,
        description="Pad the tokens of each expert to a multiple of this; by default to what the recipe needs: 16 "
        "(delayed, current, block), 32 (mx) or 64 (nvfp4).",
    )
    domain: Count | None = Field(
        default=None,
        description="Ranks of ep per node: a token goes to each node once, and from there to the ranks of its "
        "experts (DeepEP); by default it goes to each expert.",
    )
    dispatcher: Dispatcher | None = Field(
        default=None,
        description="How tokens reach experts, in Megatron-core's names. alltoall: as copies, sorted before and after; "
        "deepep and hybridep: once per rank, then copied there; by default as copies, sorted once.",
    )
    dispatch: Literal["fp32", "bf16", "fp8"] | None = Field(
        default=None,
        description="Precision of tokens, and of gradients, sent to experts; by default fp8 with fp8 or fp4, else that "
        "of activations. Precision of expert outputs is never reduced.",
    )
    quantise: Literal["joined", "apart"] = Field(
        default="joined",
        description="Kernels that quantise for experts in mx and nvfp4. joined: they order scales for GEMMs, and take "
        "all experts at once in nvfp4; apart: for each expert, others order scales (Transformer Engine up to 2.11).",
    )
