"""The layout of a model description, as pydantic models: one class for each ``kind`` of model file.

Sizes are counts of elements. A key that is not listed here is an error.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from armillary.platform.fields import Count, Part
from armillary.workload.models.decoder_parts import Attention, Experts, Linear, Mlp, Natural, Published

Many = Annotated[int, Field(ge=1, le=2**63 - 1)]
MOST_LAYERS = 100_000
Depth = Annotated[int, Field(ge=1, le=MOST_LAYERS)]
Side = Annotated[int, Field(ge=1, le=2**16)]


class Described(Part):
    """What every model file says about itself."""

    name: str = Field(min_length=1)
    source: list[str] = Field(default=[], description="Where the numbers come from.")


class Decoder(Described):
    """A decoder-only transformer: GPT, Llama, Mixtral, DeepSeek, Qwen."""

    kind: Literal["decoder"] = "decoder"
    layers: Depth
    hidden: Count
    vocabulary: Count
    context: Count = Field(description="Longest sequence it is made for; the default one for FLOPs.")
    learned_positions: Count | None = Field(
        default=None, description="Rows of the table of positions; absent: rotary, without parameters."
    )
    tied: bool = Field(description="The output head is the token embedding.")
    norm: Literal["rms", "layer"] = Field(description="rms has a weight; layer has a weight and a bias.")
    activation: Literal["gelu", "relu", "swiglu", "geglu"]
    attention: Attention
    mlp: Mlp | None = None
    experts: Experts | None = None
    linear: Linear | None = Field(default=None, description="What some layers have in place of attention.")
    full_every: Count | None = Field(
        default=None, description="Of every so many layers the last has attention, the others are linear."
    )
    layout: str | None = Field(
        default=None,
        min_length=1,
        max_length=100_000,
        description="Layers of one block each, a letter for each: M linear, * attention, E experts, - feed-forward "
        "(Nemotron-H's hybrid_override_pattern).",
    )

    published: Published | None = Field(
        default=None, description="How its weights are quantised; absent: they are not."
    )

    @model_validator(mode="after")
    def _mixers(self) -> Decoder:
        if self.layout is not None:
            if strange := sorted(set(self.layout) - set(LETTERS)):
                raise ValueError(f"got '{strange[0]}' in layout, expected only M, *, E and -")
            if len(self.layout) != self.layers:
                raise ValueError(f"got a layout of {len(self.layout)} for {self.layers} layers")
            for letter, (name, what) in LETTERS.items():
                if letter in self.layout and getattr(self, name) is None:
                    raise ValueError(f"got '{letter}' in layout, expected {name}: {what}")
            if self.full_every or (self.experts and (self.experts.dense_first or self.experts.every > 1)):
                raise ValueError("got a layout, expected no full_every, dense_first nor every beside it")
        if (self.linear is not None) != bool(self.full_every or "M" in (self.layout or "")):
            raise ValueError("expected linear with full_every or with M in layout, and only there")
        return self

    @model_validator(mode="after")
    def _fits(self) -> Decoder:
        heads = self.attention.heads
        # Without a head size it is hidden / heads, which must be whole.
        if self.attention.head_size is None and self.attention.latent is None and self.hidden % heads:
            raise ValueError(f"got hidden {self.hidden} for {heads} heads, expected a multiple, or head_size")
        if self.mlp is None and any(self.feeds(layer) == "mlp" for layer in range(self.layers)):
            raise ValueError("expected mlp: some layers are dense")
        return self

    @property
    def gated(self) -> bool:
        """Whether feed-forward blocks have two input projections."""
        return self.activation in ("swiglu", "geglu")

    @property
    def head_size(self) -> int:
        """Size of a query head without latent attention."""
        return self.attention.head_size or self.hidden // self.attention.heads

    @property
    def kv_heads(self) -> int:
        """How many heads keys and values have."""
        return self.attention.kv_heads or self.attention.heads

    @property
    def expert_width(self) -> int:
        """Size of the vectors that routed experts read and make."""
        return (self.experts and self.experts.latent) or self.hidden

    def has_experts(self, layer: int) -> bool:
        """Return whether layer `layer`, counted from 0, is a mixture of experts."""
        experts = self.experts
        if self.layout is not None:
            return self.layout[layer] == "E"
        # ``decoder_sparse_step`` of Qwen2-MoE: every n-th layer, counted from 1.
        return experts is not None and layer >= experts.dense_first and (layer + 1) % experts.every == 0

    def mixes(self, layer: int) -> Literal["attention", "linear", ""]:
        """Return what mixes the tokens in layer `layer`, counted from 0; "": nothing does."""
        if self.layout is not None:
            return {"*": "attention", "M": "linear"}.get(self.layout[layer], "")  # type: ignore[return-value]
        return "linear" if self.full_every and (layer + 1) % self.full_every else "attention"

    def feeds(self, layer: int) -> Literal["mlp", "experts", ""]:
        """Return the feed-forward block of layer `layer`; "": it has none."""
        if self.has_experts(layer):
            return "experts"
        return "mlp" if self.layout is None or self.layout[layer] == "-" else ""


LETTERS = {
    "M": ("linear", "a linear mixer"), "*": ("attention", "attention"), "E": ("experts", "a mixture of experts"),
    "-": ("mlp", "a feed-forward block"),
}  # fmt: skip
"""Letter of a layout -> the key that describes such a layer, and what it is."""


class Table(Part):
    """Embedding tables of one shape."""

    count: Count = 1
    rows: Many | None = Field(default=None, description="Absent: not known, and not counted.")
    size: Count = Field(description="Elements of a row.")
    pooling: Count = Field(default=1, description="Rows that a sample looks up and sums.")


class Dlrm(Described):
    """A recommendation model (arXiv 1906.00091): a bottom MLP and tables, their interaction, a top MLP."""

    kind: Literal["dlrm"] = "dlrm"
    dense_features: Count
    bottom: list[Count] = Field(min_length=1, description="Outputs of each layer.")
    top: list[Count] = Field(min_length=1, description="Outputs of each layer.")
    bias: bool = True
    interaction: Literal["dot", "concatenation"] = Field(
        description="dot: of every pair, beside the bottom MLP's output."
    )
    tables: list[Table] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_size(self) -> Dlrm:
        sizes = {self.bottom[-1], *(table.size for table in self.tables)}
        # Dot products need vectors of one length.
        if self.interaction == "dot" and len(sizes) > 1:
            text = ", ".join(map(str, sorted(sizes)))
            raise ValueError(f"got sizes {text}, expected one for the bottom MLP's output and all tables")
        return self

    @property
    def vectors(self) -> int:
        """How many vectors interact."""
        return 1 + sum(table.count for table in self.tables)

    @property
    def top_inputs(self) -> int:
        """Inputs of the top MLP."""
        if self.interaction == "dot":
            # Each pair once, without squares of the vectors themselves.
            return self.bottom[-1] + self.vectors * (self.vectors - 1) // 2
        return self.bottom[-1] + sum(table.count * table.size for table in self.tables)


class Vit(Described):
    """A vision transformer (arXiv 2010.11929): every layer has biases and layer norms."""

    kind: Literal["vit"] = "vit"
    image: Count = Field(description="Side, in pixels.")
    patch: Count = Field(description="Side, in pixels.")
    channels: Count = 3
    layers: Depth
    hidden: Count
    heads: Count
    mlp: Count = Field(description="Inner size of the feed-forward block.")
    qkv_bias: bool = True
    pooler: bool = Field(default=False, description="A dense layer on the class token.")
    classes: Natural = Field(description="0: no classifier.")

    @model_validator(mode="after")
    def _fits(self) -> Vit:
        if self.image % self.patch or self.hidden % self.heads:
            raise ValueError("expected image to be a multiple of patch, and hidden of heads")
        return self

    @property
    def patches(self) -> int:
        """How many patches an image has."""
        return (self.image // self.patch) ** 2


class Resnet(Described):
    """A residual network of bottleneck blocks (arXiv 1512.03385), each convolution with a batch norm."""

    kind: Literal["resnet"] = "resnet"
    image: Side = Field(description="Side, in pixels.")
    channels: Side = 3
    width: Side = Field(default=64, description="Channels of the stem and of the first stage.")
    blocks: list[Depth] = Field(min_length=1, max_length=10, description="Blocks of each stage.")
    stride_in: Literal["1x1", "3x3"] = Field(
        default="3x3", description="The convolution of a stage's first block that halves the image."
    )
    classes: Count


class Gnmt(Described):
    """The LSTM translator of MLPerf Training (GNMT v2).

    The first encoder layer is bidirectional; the context that attention finds for the output of the first decoder
    layer goes into all later ones.
    """

    kind: Literal["gnmt"] = "gnmt"
    hidden: Count
    encoder_layers: Annotated[int, Field(ge=2, le=1000)]
    decoder_layers: Annotated[int, Field(ge=2, le=1000)]
    vocabulary: Count
    sequence: Count = Field(default=50, description="Length of source and target for FLOPs.")
    shared_embedding: bool = Field(default=True, description="Encoder and decoder share one table.")


class Gemm(Part):
    """A GEMM per sample: an m × k activation times a k × n weight."""

    m: Count = 1
    n: Count
    k: Count
    bias: bool = False


class Conv2d(Part):
    """A square convolution per sample, on an image of `height` × `width` with `inputs` channels."""

    inputs: Count
    outputs: Count
    height: Count
    width: Count
    kernel: Count
    stride: Count = 1
    padding: Natural = 0
    groups: Count = 1
    bias: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Conv2d:
        if self.inputs % self.groups or self.outputs % self.groups:
            raise ValueError(
                f"got {self.inputs} inputs, {self.outputs} outputs, expected multiples of {self.groups} groups"
            )
        if min(self.height, self.width) + 2 * self.padding < self.kernel:
            raise ValueError(f"got kernel {self.kernel}, expected at most the padded image")
        return self

    @property
    def weights(self) -> int:
        """Parameters without the bias."""
        return self.kernel**2 * (self.inputs // self.groups) * self.outputs

    @property
    def pixels(self) -> int:
        """Pixels of the result."""
        sides = (self.height, self.width)
        rows, columns = ((side + 2 * self.padding - self.kernel) // self.stride + 1 for side in sides)
        return rows * columns


class StackLayer(Part):
    """One layer of a stack, `repeat` times."""

    name: str | None = None
    repeat: Count = 1
    gemm: Gemm | None = None
    conv2d: Conv2d | None = None

    @model_validator(mode="after")
    def _one(self) -> StackLayer:
        if (self.gemm is None) == (self.conv2d is None):
            raise ValueError("expected either gemm or conv2d")
        return self


class Stack(Described):
    """GEMMs and convolutions, one after the other."""

    kind: Literal["stack"] = "stack"
    layers: list[StackLayer] = Field(min_length=1)


Model = Decoder | Dlrm | Vit | Resnet | Gnmt | Stack
KINDS: dict[str, type[Model]] = {
    "decoder": Decoder,
    "dlrm": Dlrm,
    "vit": Vit,
    "resnet": Resnet,
    "gnmt": Gnmt,
    "stack": Stack,
}
