"""How many tokens every expert gets."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from armillary.workload.models.schema import Experts


@dataclass(frozen=True)
class Load:
    """Vectors that a rank exchanges with the other members of its group along ep.

    Attributes:
        sent: By this rank, what it keeps included: one for each token and expert that it visits.
        received: Likewise; those of the experts of this rank.
        splits: To each member; empty: to all alike.
    """

    sent: int
    received: int
    splits: tuple[int, ...] = ()


def load(own: Experts, tokens: int, ep: int, expert_rank: int, skew: float) -> Load:
    """Return what a rank with `tokens` tokens exchanges, if all have as many and choose alike.

    With a capacity the slots of every rank for every expert are sent and computed whole, so `skew` changes nothing.

    Args:
        own: The experts.
        tokens: Of each rank.
        ep: Ranks that share the experts; each has neighbouring ones.
        expert_rank: This one of them.
        skew: Exponent of the Zipf law.
    """
    slots = tokens * own.top_k
    if own.capacity_factor is not None:
        slots = own.count * ceil(own.capacity_factor * slots / own.count)
        return Load(slots, slots)
    if not skew or ep == 1:
        return Load(slots, slots)
    chosen = zipf(own.count, skew, slots, tokens)
    local = own.count // ep
    splits = tuple(sum(chosen[rank * local : (rank + 1) * local]) for rank in range(ep))
    return Load(slots, ep * splits[expert_rank], splits)


def zipf(count: int, skew: float, total: int, most: int) -> list[int]:
    """Return how many of `total` choices fall on each of `count` experts: in proportion to 1 / number^skew.

    Nobody gets more than `most` (a token chooses an expert once); what is over goes to the others in proportion.
    Remainders go to the largest fractions.
    """
    weights = [(number + 1) ** -skew for number in range(count)]
    full, left, ideal = 0, total, [0.0] * count
    while full < count:  # weights fall, so those that are full come first
        scale = left / sum(weights[full:])
        ideal = [float(most)] * full + [scale * weight for weight in weights[full:]]
        over = sum(1 for share in ideal[full:] if share > most)
        if not over:
            break
        full, left = full + over, left - over * most
    shares = [min(most, int(share)) for share in ideal]
    order = sorted(range(count), key=lambda expert: shares[expert] - ideal[expert])
    while missing := total - sum(shares):
        for expert in [each for each in order if shares[each] < most][:missing]:
            shares[expert] += 1
    return shares
