"""Plans of a corpus: the models and parallelisms to draw, reproducible by their seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.counts import MOST_DRAWS, check_count
from armillary.base.errors import InputError, nearest
from armillary.base.reading import MOST_YAML, read_plain
from armillary.base.units import format_bytes
from armillary.base.yaml_text import load_yaml
from armillary.lab.learned.conditions import DEFAULTS, NUMBERS, WORDS, Value, Wish, wish
from armillary.trace import Trace
from armillary.workload.generate import generate
from armillary.workload.layers.decoder import check_width
from armillary.workload.layers.experts import check_experts, check_keys
from armillary.workload.layers.shard import training_shard
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.numbers import gradient
from armillary.workload.plan.ranks import replicas
from armillary.workload.plan.schema import Plan

KEYS = ("count", "seed", "nodes", "choices")
_TRIES = 400


@dataclass(frozen=True)
class Request:
    """Traces to draw.

    Attributes:
        count: Number of traces.
        seed: Seed of the draws.
        nodes: Most nodes of a trace's distinct graphs.
        choices: Values of each condition, from which one is drawn.
        text: Text of the file, which identifies the request.
    """

    count: int
    seed: int
    nodes: int
    choices: Mapping[str, tuple[Value, ...]]
    text: str = ""


def read_request(path: Path) -> Request:
    """Read a plan file.

    Raises:
        InputError: it is no such file; names the key.
    """
    try:
        text = read_plain(path, MOST_YAML).decode()
        found = load_yaml(text, path)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as YAML ({error})") from error
    if not isinstance(found, dict) or not isinstance(found.get("choices"), dict):
        raise InputError(
            f"{path}: choices: expected a list of values for each condition, e.g. hidden: [1024, 2048]"
        )
    for key in found:
        if key not in KEYS:
            raise InputError(
                f"{path}: {key}: no such key, expected one of {', '.join(KEYS)}{nearest(str(key), KEYS)}"
            )
    numbers = {}
    for key, usual in (("count", 100), ("seed", 0), ("nodes", 50_000)):
        value = found.get(key, usual)
        if not isinstance(value, int) or value < (key != "seed"):
            raise InputError(f"{path}: {key} {value}: expected a positive integer")
        numbers[key] = value
    check_count(numbers["count"], MOST_DRAWS, f"{path}: count: traces", "a smaller count")
    choices = {str(key): _values(path, str(key), values) for key, values in found["choices"].items()}
    return Request(choices=choices, text=text, **numbers)


def _values(path: Path, key: str, values: Any) -> tuple[Value, ...]:
    known = (*NUMBERS, *WORDS)
    if key not in known:
        raise InputError(
            f"{path}: choices.{key}: no such condition, expected one of {', '.join(known)}{nearest(key, known)}"
        )
    values = values if isinstance(values, list) else [values]
    allowed = WORDS.get(key)
    for value in values:
        if allowed and value not in allowed:
            hint = nearest(str(value), allowed)
            raise InputError(f"{path}: choices.{key}: {value}, expected one of {', '.join(allowed)}{hint}")
        if not allowed and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise InputError(f"{path}: choices.{key}: {value}, expected a positive integer")
    if not values:
        raise InputError(f"{path}: choices.{key}: no value, expected one at least")
    return tuple(values)


def draw(request: Request, part: int, count: int) -> Iterator[tuple[Wish, Trace]]:
    """Yield `count` different models and plans that are possible, with their traces.

    Raises:
        InputError: hardly any choice is possible; gives the reason for the last one.
    """
    # Each part has a stream of its own, so parts can be made in any order and by several processes.
    rng = np.random.default_rng([request.seed, part])
    seen: set[tuple[Value, ...]] = set()
    last: str = "all are the same"
    tries = 0
    while count:
        tries += 1
        if tries > _TRIES:
            raise InputError(
                f"choices: after {tries} draws in a row {count} traces are still missing; the last one failed: {last}"
            )
        given = {key: values[int(rng.integers(len(values)))] for key, values in request.choices.items()}
        try:
            wished = wish(completed(given))
            key = tuple(wished.condition.values())
            if key in seen:
                continue
            check_modelled(wished)
            trace = generate(wished.model, wished.plan)
        except InputError as error:
            last = str(error)
            continue
        nodes = sum(graph.n_nodes for graph in trace.graphs)
        if nodes > request.nodes:
            last = f"{nodes} nodes, expected at most {request.nodes} (key nodes)"
            continue
        seen.add(key)
        count, tries = count - 1, 0
        yield wished, trace


def completed(given: Mapping[str, Value]) -> dict[str, Value]:
    """Return a condition with ranks, dp, batch and heads, which follow from the other numbers if left out."""
    found = dict(given)
    n = {key: int(value) for key, value in found.items() if not isinstance(value, str)}
    if "ranks" not in found and "dp" in found:
        found["ranks"] = prod(n.get(key, 1) for key in ("tp", "cp", "pp", "dp"))
    if "dp" not in found:
        ranks = n.get("ranks", int(DEFAULTS["ranks"]))
        found["dp"] = max(1, ranks // max(1, prod(n.get(key, 1) for key in ("tp", "cp", "pp"))))
    if "microbatches" in found:
        many = int(found.pop("microbatches"))
        found.setdefault("batch", many * int(found.get("dp", 1)) * n.get("microbatch", 1))
    if "heads" not in found and "hidden" in found:
        found["heads"] = max(1, n["hidden"] // n.get("head_size", 128))
    return found


def check_modelled(wished: Wish) -> None:
    """Refuse conditions that are impossible or that the statistical generator cannot model.

    Raises:
        InputError: names it.
    """
    model, plan = wished.model, wished.plan
    pp = plan.parallel.pp
    check_width(plan.parallel.tp, model)
    check_keys(plan, model)
    check_experts(training_shard(plan, plan.sequence or model.context, 0), model)
    if model.layers < pp:
        raise InputError(
            f"layers {model.layers}: expected one for each of {pp} stages at least (nearest: {pp})"
        )
    if plan.data.sharding in ("ddp", "zero-1"):
        _check_buckets(model, plan)


def _check_buckets(model: Decoder, plan: Plan) -> None:
    """Refuse layers and tables that do not fill a bucket of gradients.

    Raises:
        InputError: names sizes.
    """
    own = plan.parallel
    # Without replicas no gradients are reduced, so there are no buckets.
    if own.cp * replicas(plan) == 1:
        return
    dense, routed = _layer_parameters(model, own.tp)
    least = {f"hidden {model.hidden}, tp {own.tp}": min(dense, model.vocabulary * model.hidden // own.tp)}
    etp = own.etp or own.tp
    # The gradients of experts are reduced apart, if their ranks are replicas of each other at all.
    if model.experts and own.tp * own.cp * replicas(plan) > etp * own.ep:
        key = f"experts {model.experts.count}, expert_size {model.experts.size}, ep {own.ep}, etp {etp}"
        least[key] = routed // (own.ep * etp)
    for key, parameters in least.items():
        size = parameters * gradient(plan)
        if size < plan.data.bucket:
            raise InputError(
                f"{key}: gradients of a layer or table have {format_bytes(size)}, expected at least a bucket of "
                f"{format_bytes(plan.data.bucket)}: layers that share one are not learned"
            )


def _layer_parameters(model: Decoder, tp: int) -> tuple[int, int]:
    """Return the weights of a layer's GEMMs: those for all tokens on a rank, and those of all experts together."""
    hidden, wide, experts = model.hidden, 3 if model.gated else 2, model.experts
    # Query and output have one matrix for each head, keys and values one for each of their own.
    divided = model.head_size * (2 * model.attention.heads + 2 * model.kv_heads)
    if experts is None:
        return hidden * (divided + wide * (model.mlp.size if model.mlp else 0)) // tp, 0
    divided += wide * experts.shared * experts.size
    # The router has hidden x experts weights, which tp does not divide.
    return hidden * (divided // tp + experts.count), wide * model.expert_width * experts.count * experts.size
