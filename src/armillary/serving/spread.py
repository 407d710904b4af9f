"""What is said about how a model is served, and the plan by which it is spread over the devices of a machine."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from typing import Any

from pydantic import ValidationError

from armillary.base.errors import InputError
from armillary.base.hints import one_line
from armillary.base.kinds import check_kinds
from armillary.platform.fields import first_problem
from armillary.workload.layers.shard import near
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Plan
from armillary.workload.plan.serving import check_serving


@dataclass(frozen=True)
class Wanted:
    """How a model is to be served; None: what suits the machine.

    Attributes:
        tp: Devices that share every matrix: those of a replica, but for dp.
        pp: Pipeline stages of a replica, each of `tp` devices.
        dp: Ranks of a replica that have requests of their own and share its experts (attention data parallel).
        replicas: Of all; more than a machine holds are on further machines like it.
        router: By which a request goes to a replica (`armillary.serving.router.ROUTERS`).
        prefill_replicas: Replicas that only compute prompts, whose keys and values go to those that decode; 0: one pool
            does both.
        decode_replicas: Replicas that decode then.
        prefill_tp: Devices of those that compute prompts; None: as `tp`.
        prefill_dp: Ranks of those that compute prompts; None: as `dp`.
        engine: Whose kernels and rule: vllm, sglang or trtllm.
        ep: Devices over which whole experts are divided: 1, or all of a replica.
        precision: Of GEMMs; None, with none of the next ones: as the weights of the model are published, else bf16.
        attention_precision: Of projections of attention and their weights, where they are left out when a model is
            quantised; None: as all GEMMs.
        scales: Of operands in fp8: of a tensor, or of blocks of 128; None: as published, else of a tensor.
        counts: CSV file of how often experts were chosen; None: some more often, as in tables of kernels.
        redundant: Further copies of experts that are chosen often (EPLB), on all devices together.
        experts: As routed experts are stored: bf16, fp8, fp4 (NVFP4), mxfp4 or int4; None: in the precision of GEMMs.
        expert_kernels: Those of routed experts, where more than one kind was measured (``triton``, ``deepgemm``); None:
            what the engine takes.
        weight_precision: Of stored weights.
        cache_precision: Of keys and values.
        budget: Most tokens of a step.
        sequences: Most sequences that run at a time.
        block: Tokens of a block of keys and values.
        blocks: Blocks of a replica.
        memory: Share of the memory of a device, as the engine takes it (`armillary.serving.capacity`); None: its
            default.
        cached: Whether blocks are kept for requests that begin alike.
        fused: Whether an all-reduce does the norm behind it, too; None: as start scripts say for the device.
        ahead: Whether a step is scheduled while the one before runs.
        graphs: Tokens of the largest CUDA graph; None: 512.
        overhead_ns: What each step takes besides kernels and collectives; None: what was measured of the engine.
        ingest_ns: From the arrival of a request until it is in the queue; None: as measured, and more for each token.
        poll: Steps of tokens after which the engine looks for new requests.
        balance: Steps for which prompts wait until each rank of dp has one (TensorRT-LLM's attention_dp_config).
        drafts: Tokens that are drafted of each request before a step, which checks them (MTP, EAGLE); 0: none.
        lora: Adapters that requests choose among; 0: there are none.
        lora_rank: Of each; None: 16.
        accepted: Tokens that a step then gives a request on average; None: as measured for the model.
    """

    tp: int | None = None
    pp: int = 1
    dp: int = 1
    replicas: int | None = None
    router: str = "round-robin"
    prefill_replicas: int = 0
    decode_replicas: int = 0
    prefill_tp: int | None = None
    prefill_dp: int | None = None
    engine: str = "vllm"
    ep: int = 1
    counts: str | None = None
    redundant: int = 0
    precision: str | None = None
    attention_precision: str | None = None
    scales: str | None = None
    experts: str | None = None
    expert_kernels: str | None = None
    weight_precision: str | None = None
    cache_precision: str | None = None
    budget: int | None = None
    sequences: int | None = None
    block: int = 16
    blocks: int | None = None
    memory: float | None = None
    cached: bool = True
    fused: bool | None = None
    ahead: bool = True
    graphs: int | None = None
    overhead_ns: int | None = None
    ingest_ns: int | None = None
    poll: int = 1
    balance: int = 0
    drafts: int = 0
    accepted: float | None = None
    lora: int = 0
    lora_rank: int | None = None

    def __post_init__(self) -> None:
        """Refuse values of other kinds.

        Raises:
            InputError: there is one.
        """
        check_kinds(vars(self), {each.name: str(each.type) for each in fields(self)})

    @property
    def devices(self) -> int:
        """Devices of a replica, where `tp` is given."""
        return (self.tp or 1) * self.dp * self.pp


def as_published(model: Decoder, wanted: Wanted, able: Collection[str]) -> tuple[Wanted, list[str]]:
    """Return `wanted` with the precisions of the published weights where it says none, and sentences about that.

    Args:
        model: The model.
        wanted: What was said.
        able: Precisions of the device's GEMMs; empty: not known. Weights in another are widened for each GEMM.
    """
    own = model.published
    said = (wanted.precision, wanted.weight_precision, wanted.experts)
    if own is None or (own.gemms is None and said != (None, None, None)):
        return wanted, []
    if own.gemms is None:
        return wanted, [
            f"the weights of {model.name} are quantised by "
            f"{one_line(own.method) or 'a method that is not named'}, which is not modelled: they are "
            "taken as bf16; precision, weight-precision and experts say something else"
        ]
    if said != (None, None, None):
        alike = wanted.precision == own.gemms
        return (replace(wanted, scales=wanted.scales or own.scales) if alike else wanted), []
    wide = bool(able) and own.gemms not in able
    gemms, weights = ("bf16", own.gemms) if wide else (own.gemms, own.weights)
    found = replace(
        wanted, precision=gemms, scales=wanted.scales or (None if wide else own.scales), weight_precision=weights,
        experts=own.experts, cache_precision=wanted.cache_precision or own.cache,
    )  # fmt: skip
    words = [f"GEMMs in {gemms}" + (f", as the device has none in {own.gemms}" if wide else "")]
    words[0] += " with scales of blocks" if found.scales == "block" else ""
    words += [f"weights in {weights}"] if weights else []
    words += [f"experts in {own.experts}"] if own.experts else []
    words += [f"keys and values in {own.cache}"] if own.cache and found.cache_precision == own.cache else []
    return found, [f"{model.name} runs as it is published: {', '.join(words)}"]


def plan_of(model: Decoder, name: str, npus: int, tp: int, wanted: Wanted) -> Plan:
    """Return the plan of all replicas, on the devices of machine `name`.

    Raises:
        InputError: a key is wrong, or the devices cannot be divided so.
    """
    if tp < 1 or npus % tp:
        fits = [each for each in range(1, npus + 1) if npus % each == 0]
        raise InputError(
            f"tp {tp}: expected a divisor of {npus:,}, the devices of machine {name} "
            f"(nearest: {near(tp, fits)})"
        )
    dp, ep = wanted.dp, wanted.ep
    if dp != 1:
        fits = [each for each in range(1, npus // tp + 1) if npus % (tp * each) == 0]
        if dp < 1 or npus % (tp * dp):
            raise InputError(
                f"dp {dp}: expected a divisor of {npus // tp:,}, the devices of machine {name} by tp {tp} "
                f"(nearest: {near(dp, fits)})"
            )
        if model.experts is None:
            raise InputError(
                f"dp {dp}: {model.name} has no experts that ranks could share, expected 1: a smaller tp alone gives "
                "more replicas"
            )
        if tp > 1:
            raise InputError(f"dp {dp}: with tp {tp} it is not modelled, expected tp 1")
    if ep not in (1, tp * dp):
        what = f"tp {tp}" if dp == 1 else f"dp {dp}"
        raise InputError(f"ep {ep}: expected 1 or {what}: whole experts go to all devices or to none")
    own = model.experts
    if wanted.redundant and (own is None or ep == 1 or not 0 < wanted.redundant <= own.count * (ep - 1)):
        most = own.count * (ep - 1) if own else 0
        raise InputError(
            f"redundant {wanted.redundant}: expected 1 to {most:,}, copies of experts on other devices"
            if most
            else f"redundant {wanted.redundant}: expected it with ep above 1 only, where devices have whole experts"
        )
    if wanted.redundant and own and (own.count + wanted.redundant) % ep:
        rest = (own.count + wanted.redundant) % ep
        raise InputError(
            f"redundant {wanted.redundant}: {own.count + wanted.redundant} experts do not divide over {ep} devices, "
            f"expected {wanted.redundant - rest} or {wanted.redundant - rest + ep}"
        )
    # Experts hold nearly all weights of a model that has some.
    narrow = "fp4" if wanted.experts in ("fp4", "mxfp4", "int4") else wanted.experts
    numbers = {
        "compute": wanted.precision,
        "weights": wanted.weight_precision or narrow,
        "embeddings": "bf16" if narrow else None,
        "cache": wanted.cache_precision,
    }
    keys: dict[str, Any] = {
        "ranks": npus,
        "batch": npus // tp,
        "causal": True,
        "parallel": {"tp": tp} if dp == 1 else {"tp": tp, "ep": ep, "etp": dp // ep},
        "numbers": {name: value for name, value in numbers.items() if value is not None},
        "serve": {"prompt": 1},
    }
    try:
        plan = Plan.model_validate(keys)
    except ValidationError as error:
        place, problem = first_problem(error)
        raise InputError(f"{'.'.join(map(str, place))}: {problem or 'missing'}") from None
    check_serving(plan)
    return plan
