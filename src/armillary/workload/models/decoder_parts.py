"""What the layers of a decoder consist of: attention, linear mixers, feed-forward blocks, mixtures of experts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from armillary.platform.fields import Count, Part

Natural = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Latent(Part):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values from one small vector."""

    query_rank: Count | None = Field(default=None, description="Absent: queries are projected directly.")
    kv_rank: Count
    plain_size: Count = Field(description="Part of a query or key head without rotary positions.")
    rotary_size: Count = Field(description="Part with them; all heads share one such key.")
    value_size: Count


class Sparse(Part):
    """A small attention that chooses which keys of the latent one count (DSA; DeepSeek-V3.2, arXiv 2512.02556)."""

    heads: Count = Field(description="Of its queries; all share one key of each token.")
    size: Count = Field(description="Elements of a query head, and of the key.")
    top: Count = Field(description="Keys that a query sees at most.")


class Published(Part):
    """How the published weights are quantised, and what GEMMs compute in: inference runs them so unless told otherwise.

    A method without any of these keys is not modelled.
    """

    method: str = Field(default="", max_length=60, description="Its name (quant_method).")
    gemms: Literal["bf16", "fp8", "fp4"] | None = Field(default=None, description="What GEMMs compute in.")
    scales: Literal["tensor", "block"] | None = Field(
        default=None, description="What operands in fp8 have a scale for: a tensor, or a block of 128 x 128."
    )
    weights: Literal["bf16", "fp8", "fp4"] | None = Field(default=None, description="Absent: as gemms.")
    experts: Literal["bf16", "fp8", "fp4", "mxfp4", "int4"] | None = Field(
        default=None, description="As experts are stored; absent: as other weights."
    )
    cache: Literal["bf16", "fp8"] | None = Field(default=None, description="Of keys and values.")


class Attention(Part):
    """Causal self-attention: multi-head, grouped (fewer `kv_heads`), multi-query (one) or `latent`."""

    heads: Count
    kv_heads: Count | None = Field(default=None, description="Absent: as many as heads.")
    head_size: Count | None = Field(default=None, description="Absent: hidden / heads.")
    bias: Literal["none", "qkv", "all"] = Field(default="none", description="Which projections have one.")
    gate: bool = Field(
        default=False, description="The output is gated, by as many columns as queries have (Qwen3-Next)."
    )
    qk_norm: bool = Field(default=False, description="A norm over each query and key head (Qwen3).")
    qk_norm_over: Literal["head", "all"] = Field(
        default="head",
        description="all: that norm is one over all heads, so ranks of tp sum its squares (MiniMax M2).",
    )
    sinks: bool = Field(
        default=False, description="A learned score per head beside those of the keys (gpt-oss)."
    )
    window: Count | None = Field(default=None, description="Keys a query sees at most, itself included.")
    full_layers: Natural = Field(default=0, description="First layers, which are without the window.")
    latent: Latent | None = None
    sparse: Sparse | None = Field(default=None, description="What chooses keys; absent: all count.")

    @model_validator(mode="after")
    def _heads_fit(self) -> Attention:
        # Every key head serves equally many query heads.
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(f"got {self.heads} heads for {self.kv_heads} kv_heads, expected a multiple")
        if self.qk_norm_over == "all" and not self.qk_norm:
            raise ValueError("qk_norm_over is all, but there is no such norm, expected qk_norm: true")
        # Latent attention has its own sizes, so these keys would be ignored.
        if self.latent and (
            self.kv_heads or self.head_size or self.qk_norm or self.gate or self.bias != "none"
        ):
            raise ValueError("latent attention has no kv_heads, head_size, gate, qk_norm or bias of its own")
        # Its queries come from the small vector of the queries.
        if self.sparse and not (self.latent and self.latent.query_rank):
            raise ValueError("got sparse, expected it with latent attention that has a query_rank")
        return self


class Linear(Part):
    """A mixer of tokens whose cost grows with their number, in place of attention.

    ``gated-delta``: Gated DeltaNet (arXiv 2412.06464), of Qwen3-Next; ``mamba-2`` (arXiv 2405.21060), of Nemotron-H.
    """

    kind: Literal["gated-delta", "mamba-2"]
    heads: Count = Field(description="Heads of values; each has a state of key_size x value_size.")
    key_heads: Count = Field(description="Heads of keys and queries (groups of Mamba-2, of B and C).")
    key_size: Count = Field(description="Elements of a key (Mamba-2: of the state, per element of a value).")
    value_size: Count = Field(description="Elements of a value.")
    conv: Count = Field(default=4, description="Tokens that the convolution before it sees.")
    chunk: Count = Field(
        default=64, description="Tokens that kernels work on at a time (Mamba-2: usually 128 or 256)."
    )

    @model_validator(mode="after")
    def _heads_fit(self) -> Linear:
        if self.heads % self.key_heads:
            raise ValueError(f"got {self.heads} heads for {self.key_heads} key_heads, expected a multiple")
        return self

    @property
    def values(self) -> int:
        """Elements of the values of a token."""
        return self.heads * self.value_size

    @property
    def keys(self) -> int:
        """Elements of the keys of a token, and of its queries."""
        return self.key_heads * self.key_size

    @property
    def channels(self) -> int:
        """Elements of a token that pass the convolution: queries, keys and values."""
        return 2 * self.keys + self.values

    @property
    def inputs(self) -> int:
        """Columns of the input projection: what passes the convolution, a gate, and numbers of each head."""
        return self.channels + self.values + self.heads * (2 if self.kind == "gated-delta" else 1)

    @property
    def operations(self) -> int:
        """Operations of a forward pass per token, beside the projections: those of GEMMs of kernels in chunks."""
        k, v, chunk = self.key_size, self.value_size, self.chunk
        if self.kind == "gated-delta":
            # Scores of keys and of queries, keys and values through the inverse, values by scores; three GEMMs with the
            # state; the inverse itself.
            return self.heads * (2 * chunk * (3 * k + 2 * v) + 6 * k * v + chunk * chunk)
        # Scores of B and C, which heads share, and values by scores; the state written and read.
        return 2 * chunk * k * self.key_heads + self.heads * (2 * chunk * v + 4 * k * v)

    @property
    def small(self) -> int:
        """Parameters beside the projections: convolution, norm, and numbers of each head."""
        if self.kind == "gated-delta":
            # Decay and time step of each head; one norm for all heads.
            return self.channels * self.conv + 2 * self.heads + self.value_size
        # A bias of the convolution; decay, skip and time step of each head; a norm of all values.
        return self.channels * (self.conv + 1) + 3 * self.heads + self.values


class Mlp(Part):
    """The feed-forward block of a dense layer."""

    size: Count
    bias: bool = False


class Experts(Part):
    """A mixture of experts in place of the feed-forward block.

    Layer i, counted from 0, has one if i ≥ `dense_first` and (i + 1) divides by `every`.
    """

    count: Count
    top_k: Count = Field(description="Routed experts that a token visits.")
    size: Count = Field(description="Inner size of one expert.")
    shared: Natural = Field(default=0, description="Experts that every token visits.")
    shared_size: Count | None = Field(default=None, description="Inner size of one; absent: size.")
    shared_gate: bool = Field(default=False, description="A learned gate on the shared experts (Qwen2-MoE).")
    latent: Count | None = Field(
        default=None,
        description="Size of the vectors that routed experts read and make, which two projections lead to and from "
        "(LatentMoE, Nemotron 3 Super); absent: hidden.",
    )
    dense_first: Natural = 0
    every: Count = 1
    bias: bool = False
    router_bias: bool = Field(default=False, description="One number per expert, e.g. to balance the load.")
    limit: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="Largest input of their activation (GPT-OSS); absent: none. In training kernels of its own hold "
        "inputs to it, as in Megatron-core.",
    )
    capacity_factor: float | None = Field(
        default=None, gt=0, le=1e6, description="Slots per expert over the mean; absent: dropless."
    )
    groups: Count = Field(
        default=1, description="Of neighbouring experts, of which a token takes `top_groups`."
    )
    top_groups: Count = Field(
        default=1, description="Groups to which a token's experts belong (DeepSeek-V3)."
    )

    @model_validator(mode="after")
    def _enough(self) -> Experts:
        if self.top_k > self.count:
            raise ValueError(f"got top_k {self.top_k} of {self.count} experts, expected at most {self.count}")
        if self.count % self.groups:
            raise ValueError(f"got {self.groups} groups of {self.count} experts, expected a divisor")
        if self.top_groups > self.groups:
            raise ValueError(
                f"got top_groups {self.top_groups} of {self.groups} groups, expected at most that"
            )
        # A token takes all its experts from its top groups.
        reached = self.count // self.groups * self.top_groups
        if self.top_k > reached:
            raise ValueError(
                f"got top_k {self.top_k} of {reached} experts in {self.top_groups} groups, expected at most {reached}"
            )
        if not self.shared and (self.shared_size or self.shared_gate):
            raise ValueError("got shared_size or shared_gate, expected them with shared experts only")
        return self
