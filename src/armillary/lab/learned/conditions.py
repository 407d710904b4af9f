"""Conditions of a trace: its model, its plan, and the class of ranks, as numbers and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.units import whole
from armillary.trace.grid import RankGrid
from armillary.workload.models.decoder_parts import Attention, Experts, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.pipeline.partition import even
from armillary.workload.plan.ranks import microbatches, rank_grid, replicas
from armillary.workload.plan.schema import Data, Numbers, Parallel, Pipeline, Plan

Value = int | str
Condition = Mapping[str, Value]
MODEL = (
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_size",
    "ffn",
    "vocabulary",
    "experts",
    "top_k",
    "expert_size",
    "shared_experts",
)
PLAN = ("ranks", "tp", "cp", "pp", "dp", "ep", "etp", "batch", "microbatch", "sequence")
DERIVED = ("microbatches",)
CLASS = (
    "stage",
    "stages_left",
    "stage_layers",
    "spare",
    "replicas",
    "expert_replicas",
    "kv_here",
    "routed",
    "one_dp",
    "one_tp",
)
"""Numbers of a class of ranks: `spare` microbatches are more than the stages from it on; `replicas` is cp x dp,
`expert_replicas` ranks of a stage have the same part of the experts; `kv_here` heads of keys are on a rank,
and `routed` tokens come to its experts. `one_dp` and `one_tp` are 1 where experts have the same groups along dp and tp
as other weights."""
NUMBERS = (*MODEL, *PLAN, *DERIVED)
"""Conditions that are numbers."""
WORDS: dict[str, tuple[str, ...]] = {
    "activation": ("gelu", "relu", "swiglu", "geglu"),
    "norm": ("layer", "rms"),
    "tied": ("no", "yes"),
    "context": ("ring", "all-gather"),
    "schedule": ("1f1b", "gpipe", "zero-bubble"),
    "sharding": ("ddp", "zero-1", "zero-2", "zero-3", "fsdp"),
    "recompute": ("none", "selective", "full"),
    "attention": ("flash", "unfused"),
    "precision": ("bf16", "fp8", "fp32"),
    "gradients": ("fp32", "bf16"),
}
"""Conditions that are words, the default first."""
MAY_BE_0 = ("ffn", "experts", "top_k", "expert_size", "shared_experts", "etp")
"""Numbers that a model without a feed-forward block or without experts does not have; etp 0 is that of tp."""
OPTIONAL = {**dict.fromkeys(MAY_BE_0[1:], 0), "tp": 1, "cp": 1, "pp": 1, "ep": 1, "microbatch": 1}
DEFAULTS: dict[str, Value] = {
    "layers": 32, "hidden": 4096, "heads": 32, "vocabulary": 32000, "ranks": 8, "sequence": 2048,
    "activation": "swiglu", "norm": "rms",
}  # fmt: skip
"""Values of conditions that a request leaves out."""


@dataclass(frozen=True)
class Wish:
    """A model and a plan that a condition describes."""

    model: Decoder
    plan: Plan

    @property
    def condition(self) -> dict[str, Value]:
        """The condition, complete.

        Raises:
            InputError: the plan is impossible.
        """
        model, plan, own = self.model, self.plan, self.plan.parallel
        experts = model.experts
        return {
            "layers": model.layers,
            "hidden": model.hidden,
            "heads": model.attention.heads,
            "kv_heads": model.kv_heads,
            "head_size": model.head_size,
            "ffn": model.mlp.size if model.mlp else 0,
            "vocabulary": model.vocabulary,
            "experts": experts.count if experts else 0,
            "top_k": experts.top_k if experts else 0,
            "expert_size": experts.size if experts else 0,
            "shared_experts": experts.shared if experts else 0,
            "ranks": plan.ranks,
            "tp": own.tp,
            "cp": own.cp,
            "pp": own.pp,
            "dp": replicas(plan),
            "ep": own.ep,
            "etp": own.etp or 0,
            "batch": plan.batch,
            "microbatch": plan.microbatch,
            "sequence": plan.sequence or model.context,
            "microbatches": microbatches(plan),
            "activation": model.activation,
            "norm": model.norm,
            "tied": "yes" if model.tied else "no",
            "context": own.context,
            "schedule": plan.pipeline.schedule,
            "sharding": plan.data.sharding,
            "recompute": plan.recompute,
            "attention": plan.attention,
            "precision": plan.numbers.compute,
            "gradients": plan.numbers.gradients,
        }

    @property
    def grid(self) -> RankGrid:
        """The grid of the ranks."""
        return rank_grid(self.plan)


def wish(given: Condition) -> Wish:
    """Return the model and plan of a condition; keys that are left out follow from the rest or have their defaults.

    Raises:
        InputError: a key is not known, a value is no positive number or none of the words, or the plan is impossible.
    """
    known = [key for key in (*NUMBERS, *WORDS) if key not in DERIVED]
    for key, value in given.items():
        if key not in known:
            raise InputError(
                f"{key}: no such condition, expected one of {', '.join(known)}{nearest(key, known)}"
            )
        if key in WORDS and value not in WORDS[key]:
            raise InputError(f"{key} {value}: expected {one_of(WORDS[key])}{nearest(str(value), WORDS[key])}")
        if key in NUMBERS and (not isinstance(value, int) or value < (key not in MAY_BE_0)):
            raise InputError(f"{key} {value}: expected a positive integer")
    words = {key: str(given.get(key, DEFAULTS.get(key, choices[0]))) for key, choices in WORDS.items()}
    numbers = {**OPTIONAL, **{k: v for k, v in {**DEFAULTS, **given}.items() if k in NUMBERS}}
    n: dict[str, int] = {key: int(value) for key, value in numbers.items()}
    gated = words["activation"] in ("swiglu", "geglu")
    if not n.get("ffn"):
        # Gated: two thirds of the usual 4 x hidden, as there are three matrices instead of two, rounded up to 256.
        n["ffn"] = (8 * n["hidden"] // 3 + 255) // 256 * 256 if gated else 4 * n["hidden"]
    model_ranks = n["tp"] * n["cp"] * n["pp"]
    # Twice as many microbatches as stages, unless stated.
    n.setdefault("batch", n.get("dp", max(1, n["ranks"] // model_ranks)) * n["microbatch"] * 2 * n["pp"])
    try:
        return Wish(_model(n, words), _plan(n, words))
    except ValueError as error:
        raise InputError(f"no such model or plan: {_first(error)}") from error


def _model(n: Mapping[str, int], words: Mapping[str, str]) -> Decoder:
    experts = None
    if n["experts"]:
        experts = Experts(
            count=n["experts"],
            top_k=n["top_k"] or 2,
            size=n["expert_size"] or n["ffn"],
            shared=n["shared_experts"],
        )
    return Decoder(
        name="learned", layers=n["layers"], hidden=n["hidden"], vocabulary=n["vocabulary"], context=n["sequence"],
        tied=words["tied"] == "yes", norm=words["norm"], activation=words["activation"],  # type: ignore[arg-type]
        attention=Attention(heads=n["heads"], kv_heads=n.get("kv_heads"), head_size=n.get("head_size")),
        mlp=None if experts else Mlp(size=n["ffn"]), experts=experts,
    )  # fmt: skip


def _plan(n: Mapping[str, int], words: Mapping[str, Any]) -> Plan:
    parallel = Parallel(
        tp=n["tp"],
        cp=n["cp"],
        pp=n["pp"],
        ep=n["ep"],
        etp=n["etp"] or None,
        dp=n.get("dp"),
        context=words["context"],
    )
    return Plan(
        ranks=n["ranks"], batch=n["batch"], microbatch=n["microbatch"], sequence=n["sequence"], parallel=parallel,
        pipeline=Pipeline(schedule=words["schedule"]), data=Data(sharding=words["sharding"]),
        numbers=Numbers(compute=words["precision"], gradients=words["gradients"]), recompute=words["recompute"],
        attention=words["attention"],
    )  # fmt: skip


def _first(error: ValueError) -> str:
    # pydantic's errors list all that is wrong; the first is enough.
    errors = getattr(error, "errors", None)
    return str(errors()[0]["msg"]) if errors else str(error)


def of_class(condition: Condition, stage: int) -> dict[str, Value]:
    """Return the condition of the ranks of a pipeline stage."""
    n = {key: value for key, value in condition.items() if isinstance(value, int)}
    # A trace of files has no plan: what it lacks counts as 1 of a kind and 0 layers.
    tp, pp, layers = n.get("tp", 1), n.get("pp", 1), n.get("layers", 0)
    replicas = n.get("cp", 1) * n.get("dp", 1)
    return {
        **condition, "stage": stage, "stages_left": pp - 1 - stage, "stage_layers": even(layers, pp)[stage],
        "spare": max(0, n.get("microbatches", 0) - pp + stage), "replicas": replicas,
        "kv_here": -(-n.get("kv_heads", 1) // tp), **_of_experts(n, tp, replicas),
    }  # fmt: skip


def _of_experts(n: Mapping[str, int], tp: int, replicas: int) -> dict[str, Value]:
    # The same keys as with experts, so that every class has every condition.
    if not n.get("experts", 0):
        return {"etp": 1, "expert_replicas": 1, "routed": 0, "one_dp": 0, "one_tp": 0}
    etp = n.get("etp", 0) or tp
    expert_replicas = tp * replicas // (n.get("ep", 1) * etp)
    tokens = n.get("microbatch", 1) * n.get("sequence", 1) // n.get("cp", 1)
    return {
        "etp": etp, "expert_replicas": expert_replicas, "routed": tokens * n.get("top_k", 0) * etp // tp,
        "one_dp": int(expert_replicas == replicas), "one_tp": int(etp == tp),
    }  # fmt: skip


def uneven(condition: Condition) -> int:
    """Return 1 where pipeline stages differ in their number of layers, else 0."""
    return int(int(condition.get("layers", 0)) % int(condition.get("pp", 1)) > 0)


def several_layers(condition: Condition) -> int:
    """Return 1 where a stage has several layers, 0 where it has one."""
    return int(int(condition.get("stage_layers", 0)) > 1)


def program_of(condition: Condition) -> tuple[Value, ...]:
    """Return the kind of program of a class: the conditions that decide on its shape.

    These are words, then numbers reduced to whether there are several of something (1) or not (0).
    """
    several = ("stage", "stages_left", "replicas", "microbatches", "experts", "expert_replicas")
    ones = {"replicas": 1, "microbatches": 1, "expert_replicas": 1}
    return (
        *(condition.get(key, "") for key in ("trace", "schedule", "sharding", "tied")),
        *(int(int(condition.get(key, 0)) > ones.get(key, 0)) for key in several),
    )


def read_settings(settings: Sequence[str]) -> dict[str, Value]:
    """Read ``key=value`` texts.

    Raises:
        InputError: one is no such text.
    """
    found: dict[str, Value] = {}
    for text in settings:
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise InputError(f"--set {text}: expected key=value, e.g. layers=40")
        number = whole(value.replace("_", ""))
        found[key.strip()] = value.strip() if number is None else number
    return found
