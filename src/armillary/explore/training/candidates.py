"""Plans to choose from: the parallelism, recomputation and microbatch that a model and a machine allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import lcm, prod
from typing import Any

from armillary.base.errors import one_of
from armillary.compute.machine import Machine
from armillary.platform.files.preset import merged
from armillary.workload.layers.shard import near
from armillary.workload.models import Model
from armillary.workload.models.schema import Decoder

LONG = 16_384
"""Tokens of a sequence from which on it is worth being shared by context parallelism."""
VIRTUAL = 8
"""Most virtual stages of a rank: beyond, their messages cost more than the bubble that is left."""
RECOMPUTE = ("none", "selective", "full")
MICROBATCHES = (1, 2, 4, 8)
MOST_EXPERT_PARALLEL = 64


def candidates(model: Model, machine: Machine, given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the keys of plans that agree with those that are given, the simplest first.

    Simple means: no full recomputation, few ranks that share a model, few pipeline stages. Sizes are powers of two and
    the divisors of what they divide; whether a plan is possible and fits, the caller finds out.
    """
    found = sorted(_of_model(model, machine, given), key=lambda each: each[1])
    return [merged(given, values) for values, _ in found]


def why_none(model: Model, machine: Machine, given: Mapping[str, Any]) -> str:
    """Return why no plan agrees with the keys that are given, with the batch that is nearest to one that does."""
    batch, steps = given["batch"], _steps(model, machine, given)
    if not steps:
        return _in_the_way(model, machine, given)
    near = min((max(1, round(batch / step)) * step for step in steps), key=lambda each: abs(each - batch))
    return f"no number of replicas divides the batch, expected a multiple of {min(steps)} (nearest: {near:,})"


def left_out(model: Model, machine: Machine, given: Mapping[str, Any]) -> str:
    """Return how few numbers of replicas divide a batch that is large enough for all, if most do not; else "".

    Racks have 72 devices, and batches are powers of two: what is left may be plans that nobody would run.
    """
    batch, all_ = given["batch"], machine.npus * given.get("microbatch", 1)
    if batch < all_ or batch % all_ == 0:
        return ""
    steps = _steps(model, machine, given)
    some = sum(batch % step == 0 for step in steps)
    near = round(batch / lcm(*steps)) * lcm(*steps)
    if not near or 2 * some >= len(steps):
        return ""
    return (
        f"batch {batch:,} is a multiple of {some} of the {len(steps)} numbers of replicas that "
        f"{machine.npus:,} devices allow, batch {near:,} of all"
    )


def _steps(model: Model, machine: Machine, given: Mapping[str, Any]) -> set[int]:
    """Return the samples of a microbatch of all replicas, for each number of them that model and machine allow."""
    micro = given.get("microbatch", 1)
    # All numbers of replicas and microbatches divide this batch.
    every = candidates(model, machine, {**given, "batch": machine.npus * lcm(micro, *MICROBATCHES)})
    shared = {prod(each["parallel"][axis] for axis in ("tp", "pp", "cp")) for each in every}
    return {machine.npus // size * micro for size in shared}


def _in_the_way(model: Model, machine: Machine, given: Mapping[str, Any]) -> str:
    """Return which size that is given leaves no plan, with those that would."""
    own = given.get("parallel") or {}
    batch = machine.npus * lcm(given.get("microbatch", 1), *MICROBATCHES)
    for axis in own:
        rest = {**given, "batch": batch, "parallel": {key: own[key] for key in own if key != axis}}
        if sizes := sorted({_size(axis, each, machine) for each in candidates(model, machine, rest)}):
            return (
                f"{axis} {own[axis]}: expected {one_of(map(str, sizes))} (nearest: {near(own[axis], sizes)})"
            )
    return "no sizes of tp, pp, cp and ep divide both the devices and the model"


def _size(axis: str, plan: Mapping[str, Any], machine: Machine) -> int:
    """Return a size of a plan; of an axis that candidates leave to the plan, what it makes of that."""
    own: Mapping[str, int] = plan["parallel"]
    replicas = machine.npus // prod(own[each] for each in ("tp", "pp", "cp"))
    return own.get(axis, replicas if axis == "dp" else 1)


def _of_model(
    model: Model, machine: Machine, given: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], tuple[int, ...]]]:
    own = given.get("parallel") or {}
    npus, decoder = machine.npus, model if isinstance(model, Decoder) else None
    experts = decoder.experts if decoder else None

    def sizes(axis: str, usual: list[int]) -> list[int]:
        return [own[axis]] if axis in own else [size for size in usual if npus % size == 0]

    heads = decoder.attention.heads if decoder else 1
    kv_heads = (decoder.attention.kv_heads or heads) if decoder else 1
    tps = sizes(
        "tp",
        [n for n in _powers(min(machine.domain, 16)) if heads % n == 0 and (kv_heads % n == 0 or n <= 8)],
    )
    layers = decoder.layers if decoder else 1
    pps = sizes("pp", sorted({n for n in (*_powers(64), layers) if layers % n == 0 or n < layers / 2}))
    sequence = given.get("sequence") or 0
    cps = sizes("cp", _powers(16) if sequence >= LONG else [1])
    eps = sizes("ep", _expert_sizes(experts.count) if experts else [1])
    recompute = [given["recompute"]] if "recompute" in given else _recompute(given)
    sizes_ = (
        (*each, micro, npus // prod(each[:3]))
        for each in product(tps, pps, cps, eps, recompute)
        if npus % prod(each[:3]) == 0
        for micro in _microbatches(given, npus // prod(each[:3]), decoder is not None)
    )
    for tp, pp, cp, ep, how, micro, replicas in sizes_:
        if given["batch"] % (replicas * micro) or (ep > 1 and (tp * cp * replicas) % ep):
            continue
        parallel: dict[str, Any] = {"tp": tp, "pp": pp, "cp": cp}
        if experts:
            parallel |= {"ep": ep, "etp": own.get("etp", 1)}
        rounds = given["batch"] // (replicas * micro)
        for virtual in _virtual(layers, pp, rounds, given):
            values: dict[str, Any] = {"parallel": parallel, "recompute": how, "microbatch": micro}
            if virtual > 1:
                values["pipeline"] = {"schedule": "interleaved", "virtual": virtual}
            yield (
                values,
                (
                    RECOMPUTE.index(how) == 2, tp * pp * cp, pp, ep, RECOMPUTE.index(how),
                    micro if decoder else -micro, -virtual,
                ),
            )  # fmt: skip


def _microbatches(given: Mapping[str, Any], replicas: int, decoder: bool) -> list[int]:
    """Return the microbatches to try: small ones of sequences; of pictures and rows all of a replica's, or a part."""
    if "microbatch" in given:
        return [given["microbatch"]]
    own = max(1, given["batch"] // replicas)
    return list(MICROBATCHES) if decoder else [own >> k for k in range(len(MICROBATCHES)) if own >> k]


def _recompute(given: Mapping[str, Any]) -> list[str]:
    # Fused attention keeps no scores that selective recomputation could leave out.
    flash = given.get("attention", "flash") == "flash"
    return [each for each in RECOMPUTE if each != "selective" or not flash]


def _virtual(layers: int, pp: int, rounds: int, given: Mapping[str, Any]) -> list[int]:
    """Return the numbers of virtual stages to try: one, and the most that divides the layers of a stage."""
    section = given.get("pipeline") or {}
    if pp == 1 or "schedule" in section or "virtual" in section or rounds % pp or layers % pp:
        return [1]
    most = max(n for n in range(1, VIRTUAL + 1) if (layers // pp) % n == 0)
    return [1, most] if most > 1 else [1]


def _powers(most: int) -> list[int]:
    return [2**k for k in range(most.bit_length()) if 2**k <= most]


def _expert_sizes(count: int) -> list[int]:
    return [size for size in _powers(min(count, MOST_EXPERT_PARALLEL)) if count % size == 0]
