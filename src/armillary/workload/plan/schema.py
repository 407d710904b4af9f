"""How a model is spread over ranks and run, as pydantic models: the keys of ``workload.generate`` in a study file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from armillary.platform.fields import Count, Part, Size, WholeTime
from armillary.workload.layers.layer import Precision
from armillary.workload.plan.experts import ExpertLoad
from armillary.workload.plan.host import Host

Natural = Annotated[int, Field(ge=0, le=2**31 - 1)]
Kept = Literal["q", "k", "v", "attention", "out", "gate", "up", "down"]
"""Results of a layer: projections, attention itself, output projection; the feed-forward block's projections."""
Module = Literal["core_attn", "layernorm", "mla_up_proj", "mlp", "moe_act", "moe"]
Share = Annotated[float, Field(gt=0, le=1)]
Context = Literal["ring", "all-gather", "all-gather-steps", "all-to-all"]
Scaling = Literal["delayed", "current", "block", "mx", "nvfp4"]
"""How operands of GEMMs in fp8 or fp4 are scaled, see `armillary.workload.plan.scaling`."""


class Parallel(Part):
    """Along which axes the work is divided, and where ranks lie."""

    tp: Count = Field(default=1, description="Tensor parallel: ranks that share every matrix.")
    sequence: bool = Field(default=True, description="With tp: split norms and residuals along the sequence.")
    overlap: bool = Field(
        default=False,
        description="With sequence parallelism: gather and scatter in pieces, overlapped with the adjacent GEMMs.",
    )
    backward: Literal["any", "in-order", "serial"] = Field(
        default="any",
        description="What the collectives of a layer overlap in its backward pass. any: every weight gradient of "
        "the layer; in-order: only that of the same GEMM, as kernels run in Megatron-LM's issue order; serial: "
        "nothing, for collectives of tp.",
    )
    cp: Count = Field(default=1, description="Context parallel: ranks that share every sequence.")
    context: Context = Field(
        default="ring",
        description="How keys and values reach all queries under cp; all-gather-steps attends to those of one rank "
        "after another and merges in fp32 (PyTorch), all-to-all swaps heads for sequence (Ulysses).",
    )
    pp: Count = Field(default=1, description="Number of pipeline stages.")
    dp: Count | None = Field(default=None, description="Replicas; by default all remaining ranks.")
    ep: Count = Field(default=1, description="Expert parallel: ranks that share the experts of a layer.")
    etp: Count | None = Field(default=None, description="Ranks that share every expert; by default tp.")
    order: str = Field(
        default="tp-cp-ep-dp-pp",
        min_length=1,
        description="Axis order, neighbouring ranks first (Megatron's order).",
    )


class Pipeline(Part):
    """Which microbatch a stage works on when."""

    schedule: Literal["gpipe", "1f1b", "interleaved", "zero-bubble", "pipedream", "dualpipe"] = Field(
        default="1f1b", description="Order of the microbatches of a stage."
    )
    virtual: Count = Field(
        default=1, description="Virtual pipeline stages (vpp) per rank, with schedule interleaved."
    )
    layers: list[Natural] | None = Field(
        default=None,
        description="Layers of each virtual stage, in model order; by default as even as possible.",
    )
    overlap: bool = Field(
        default=False,
        description="Overlap consecutive tasks, so that communication of one hides behind kernels of the other.",
    )
    scatter: bool = Field(
        default=False,
        description="Without sequence parallelism: each rank of tp sends part of an activation; receivers gather it.",
    )
    handshake: WholeTime = Field(
        default=0,
        description="CPU time per message from another stage; the CPU waits for messages, and kernels for the CPU.",
    )


# Sizes of a plan are checked together in `plan.ranks`; here only what one key says about another.
class Data(Part):
    """What replicas share, and when they meet."""

    sharding: Literal["ddp", "zero-1", "zero-2", "zero-3", "fsdp", "hsdp", "parameter-server"] = Field(
        default="ddp",
        description="fsdp is zero-3 of whole layers with prefetch; hsdp shards within `shard` ranks.",
    )
    bucket: Size = Field(default=25 * 2**20, description="Size of a bucket of gradients reduced together.")
    overlap: bool = Field(default=True, description="Overlap communication with the backward pass.")
    average: Literal["collective", "kernel"] = Field(
        default="collective",
        description="What divides gradients by the number of replicas: the collective, or a kernel before each "
        "reduction (ddp, zero-1, zero-2).",
    )
    check: bool = Field(
        default=False, description="Check gradients for NaN before they are reduced (ddp, zero-1, zero-2)."
    )
    clear: bool = Field(
        default=False,
        description="Set the gradient buffer to 0 after each step, where GEMMs accumulate into it (ddp, zero-1).",
    )
    copies: bool = Field(
        default=False,
        description="Copy weights out of the buffers of gathers and gradients into those of reductions, in kernels, as "
        "FSDP2 does (zero-3, fsdp, hsdp).",
    )
    shard: Count | None = Field(default=None, description="Ranks that share one copy (hsdp).")
    prefetch: Natural = Field(default=1, description="Layers to gather ahead (zero-3, fsdp, hsdp).")
    limit: Count = Field(default=2, description="Maximum number of gathered layers held at a time.")
    reshard: bool = Field(
        default=True,
        description="Free gathered weights after each use and reduce gradients in each microbatch; otherwise hold "
        "both for the whole step (zero-3, fsdp, hsdp).",
    )
    servers: Count = Field(default=1, description="Ranks that hold the weights (parameter-server).")
    asynchronous: bool = Field(
        default=False, description="Do not make workers wait for each other (parameter-server)."
    )

    @model_validator(mode="after")
    def _shard_of_hsdp(self) -> Data:
        # For any other sharding a number of ranks per copy would be ignored without a word.
        if (self.sharding == "hsdp") != (self.shard is not None):
            raise ValueError("expected shard with sharding hsdp, and only there")
        return self


OF_RECIPE: dict[str, Precision] = {
    "delayed": "fp8", "current": "fp8", "block": "fp8", "mx": "fp8", "nvfp4": "fp4",
}  # fmt: skip
"""Recipe -> the precision that it is of."""


class Numbers(Part):
    """Types of numbers; sizes in bytes follow from them."""

    compute: Precision = Field(
        default="bf16", description="Precision of GEMMs; in training, fp8 and fp4 keep weights in bf16."
    )
    weights: Precision | None = Field(
        default=None, description="Precision of stored weights in inference, with scales; by default compute."
    )
    embeddings: Precision | None = Field(
        default=None, description="Precision of stored embedding and head in inference; by default weights."
    )
    cache: Precision | None = Field(
        default=None,
        description="Precision of keys and values in inference; by default bf16 (with compute fp32: fp32).",
    )
    activations: Literal["fp32", "bf16", "fp8"] | None = Field(
        default=None,
        description="Precision between kernels and in messages of inference; by default bf16, or fp32 with compute "
        "fp32.",
    )
    recipe: Scaling | None = Field(
        default=None,
        description="How training scales operands. For fp8: delayed, current (one scale per tensor), block, mx; for "
        "fp4: nvfp4. Kernels quantise operands, and tp gathers them quantised; by default each GEMM casts its own.",
    )
    gradients: Literal["fp32", "bf16"] = Field(
        default="fp32", description="Precision of sums and reductions."
    )
    fused: bool = Field(
        default=True,
        description="Accumulate weight gradients in the GEMMs that compute them; otherwise in separate kernels.",
    )

    @model_validator(mode="after")
    def _recipe_of_precision(self) -> Numbers:
        if self.recipe and (found := OF_RECIPE[self.recipe]) != self.compute:
            fits = [name for name, each in OF_RECIPE.items() if each == self.compute]
            expected = f"{' or '.join(fits)}" if fits else "none"
            raise ValueError(
                f"got recipe {self.recipe}, which is of {found}, with compute {self.compute}, expected {expected}"
            )
        return self


class Offload(Part):
    """What waits in memory outside of the NPU (remote memory of the machine)."""

    optimizer: Share | None = Field(default=None, description="Offloaded share of the optimizer states.")
    weights: Share | None = Field(default=None, description="Offloaded share of the weights.")
    activations: Share | None = Field(
        default=None, description="Offloaded share of what is kept for the backward pass."
    )


class Lora(Part):
    """Adapters of low rank beside frozen weights: only these are trained."""

    rank: Count = Field(description="Rank of the adapter beside each target; weights are frozen.")
    targets: Annotated[list[Literal["qkv", "out", "up", "down"]], Field(min_length=1)] = Field(
        default=["qkv", "out", "up", "down"],
        description="GEMMs with an adapter: projections of attention and of the feed-forward block.",
    )


class Serve(Part):
    """Inference instead of training: prompts are read, then answers grow by one token at a time."""

    prompt: Count = Field(description="Tokens per prompt.")
    outputs: Count = Field(default=1, description="Tokens per answer.")
    phase: Literal["both", "prefill", "decode"] = Field(
        default="both",
        description="prefill computes the first token; decode computes the others, from an existing cache.",
    )

    @model_validator(mode="after")
    def _some(self) -> Serve:
        if self.phase == "decode" and self.outputs < 2:
            raise ValueError("got outputs 1, which prefill makes; expected at least 2 for decode")
        return self


class Plan(Part):
    """A run of a model: sizes, parallelism, schedule and numbers."""

    ranks: Count = Field(description="Number of NPUs.")
    batch: Count = Field(description="Samples per step, over all replicas.")
    microbatch: Count = Field(default=1, description="Samples that a replica processes at a time.")
    sequence: Count | None = Field(default=None, description="Tokens per sample; by default the model's.")
    iterations: Count = Field(default=1, description="Number of consecutive steps.")
    checkpoint_every: Count | None = Field(
        default=None,
        description="Steps between checkpoints: weights and optimizer states are written to storage while nothing "
        "else runs; by default never.",
    )
    checkpoint_async: bool = Field(
        default=False,
        description="Train on while a checkpoint is written; the next checkpoint waits until it is complete.",
    )
    sample_size: Size | None = Field(
        default=None,
        description="Size of a sample, which the first pipeline stage reads from storage one step ahead; by default "
        "nothing is read.",
    )
    parallel: Parallel = Parallel()
    pipeline: Pipeline = Pipeline()
    data: Data = Data()
    numbers: Numbers = Numbers()
    recompute: Literal["none", "selective", "full"] = Field(
        default="none", description="What the backward pass recomputes instead of keeping it."
    )
    recompute_modules: list[Module] = Field(
        default=[],
        description="What selective recomputation recomputes, in Megatron-core's names; by default the attention "
        "scores, if they are kept. core_attn: all of attention, even in fused kernels.",
    )
    recompute_every: Count = Field(
        default=1,
        description="Recompute one layer in N, and keep the others whole (torchtitan's selective layer: 2).",
    )
    keep: list[Kept] = Field(
        default=[],
        description="What full recomputation keeps instead of recomputing: results of projections, attention.",
    )
    early_stop: bool = Field(
        default=False,
        description="Recompute a layer only as far as its backward pass needs (PyTorch without reentry).",
    )
    optimizer: Literal["adam", "sgd", "momentum", "none"] = Field(
        default="adam", description="Optimizer that updates the weights."
    )
    clip: bool = Field(
        default=True, description="Scale gradients by their norm, which is computed in either case."
    )
    offload: Offload = Offload()
    experts: ExpertLoad = ExpertLoad()
    lora: Lora | None = Field(
        default=None, description="Adapters beside frozen weights; by default all weights are trained."
    )
    host: Host = Host()
    attention: Literal["flash", "unfused", "eager"] = Field(
        default="flash",
        description="flash keeps no scores; unfused writes them to memory and keeps them; eager also scales, masks "
        "and casts them in separate kernels.",
    )
    compiled: bool = Field(
        default=True,
        description="Run norms, rotary positions and activations as one kernel each (Transformer Engine, "
        "torch.compile); false: one kernel per operation, as PyTorch runs them.",
    )
    projections: Literal["joined", "separate"] = Field(
        default="joined",
        description="joined: one GEMM for queries, keys and values, and one for gate and up; separate: one for each, "
        "whose input gradients are added up.",
    )
    loss: Literal["unfused", "fused", "eager"] = Field(
        default="unfused",
        description="fused: the kernels keep no probabilities; the gradient of the logits takes their place. eager: "
        "PyTorch's cross entropy in fp32, one kernel per operation.",
    )
    causal: bool = Field(default=False, description="Count only the scores that a causal mask keeps.")
    serve: Serve | None = Field(default=None, description="Inference; by default training.")
    dropout: bool = Field(default=False, description="Keep dropout masks for the backward pass.")

    @model_validator(mode="after")
    def _kept_of_recomputed(self) -> Plan:
        # Without recomputation everything is kept, so that neither key would have an effect.
        if self.keep and self.recompute != "full":
            raise ValueError(
                f"got keep {', '.join(self.keep)} with recompute {self.recompute}, expected recompute full"
            )
        if self.recompute_modules and self.recompute != "selective":
            raise ValueError(
                f"got recompute_modules {', '.join(self.recompute_modules)} with recompute {self.recompute}, expected "
                "recompute selective"
            )
        if "attention" in self.keep and self.attention != "flash":
            raise ValueError(f"got keep attention with attention {self.attention}, expected attention flash")
        if self.serve is not None and not self.compiled:
            raise ValueError("got compiled false with serve, expected it in training only")
        if self.recompute_every > 1 and self.recompute == "none":
            raise ValueError(
                f"got recompute_every {self.recompute_every} without recompute, expected full or selective"
            )
        return self

    @model_validator(mode="after")
    def _storage_of_steps(self) -> Plan:
        if self.checkpoint_async and self.checkpoint_every is None:
            raise ValueError("got checkpoint_async true, expected checkpoint_every too, e.g. 100")
        names = [key for key in ("checkpoint_every", "sample_size") if getattr(self, key) is not None]
        if not names:
            return self
        why = ""
        if self.serve is not None:
            why = "in inference"
        elif self.data.sharding == "parameter-server":
            why = "with data.sharding parameter-server"
        elif self.pipeline.schedule == "pipedream":
            why = "with schedule pipedream, whose steps do not end"
        if why:
            raise ValueError(f"got {names[0]} {getattr(self, names[0])}, expected none {why}")
        return self

    @model_validator(mode="after")
    def _adapters_of_training(self) -> Plan:
        if self.lora is None:
            return self
        why = ""
        if self.serve is not None:
            why = "in inference"
        elif self.data.sharding == "parameter-server":
            why = "with data.sharding parameter-server"
        elif self.parallel.overlap:
            why = "with parallel.overlap, which runs GEMMs in pieces"
        if why:
            raise ValueError(f"got lora.rank {self.lora.rank}, expected no lora {why}")
        return self

    @model_validator(mode="after")
    def _host_of_training(self) -> Plan:
        for name in ("issue", "issue_each", "gap", "synchronise"):
            if not getattr(self.host, name):
                continue
            # Their graphs are written by other code, which leaves the CPU out.
            if self.serve is not None or self.data.sharding == "parameter-server":
                what = "inference" if self.serve is not None else "data.sharding parameter-server"
                raise ValueError(f"got host.{name} {getattr(self.host, name)} ns, expected none with {what}")
        return self

    @model_validator(mode="after")
    def _order_of_backward(self) -> Plan:
        own, why = self.parallel, ""
        if self.serve is not None:
            why = "in inference, which has no backward pass"
        elif self.data.sharding == "parameter-server":
            why = "with data.sharding parameter-server"
        elif self.pipeline.schedule in ("zero-bubble", "dualpipe"):
            why = f"with schedule {self.pipeline.schedule}, which defers gradients of weights"
        elif own.backward == "serial" and own.overlap:
            why = "or in-order with parallel.overlap, which hides collectives of tp"
        if own.backward != "any" and why:
            raise ValueError(f"got parallel.backward {own.backward}, expected any {why}")
        return self

    @model_validator(mode="after")
    def _stores_of_inference(self) -> Plan:
        if self.serve is not None and self.numbers.recipe:
            raise ValueError(f"got numbers.recipe {self.numbers.recipe}, expected it in training only")
        for name in ("weights", "embeddings", "cache", "activations"):
            # Training derives all of these from `compute`, so a value given would have no effect.
            if self.serve is None and getattr(self.numbers, name) is not None:
                raise ValueError(
                    f"got numbers.{name} {getattr(self.numbers, name)}, expected it in inference only"
                )
        return self


ELEMENT = {"fp32": 4, "bf16": 2, "fp8": 1, "fp4": 1}
"""Bytes of an element."""
