"""How many tokens each expert gets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, comb, fsum

from armillary.base import portable
from armillary.workload.models.decoder_parts import Experts


@dataclass(frozen=True)
class Load:
    """Vectors that a rank exchanges with the other members of its group along ep.

    Attributes:
        sent: Vectors that this rank sends, itself included: one per token and expert that it visits.
        received: Vectors that the experts of this rank receive, likewise.
        splits: Vectors to each member; empty: equally many to all.
        experts: Of those received, how many each expert of this rank gets; empty: equally many.
    """

    sent: int
    received: int
    splits: tuple[int, ...] = ()
    experts: tuple[int, ...] = ()

    def rows(self, local: int, times: int, align: int) -> int:
        """Return the rows that the GEMMs of `local` experts compute, with padding.

        Args:
            local: Experts of this rank.
            times: How often each vector received counts, as members of etp have others.
            align: The number of which the rows of an expert are a multiple.
        """
        if align == 1:
            return self.received * times
        # Experts without tokens are skipped.
        used = min(local, self.received * times)
        counts = self.experts or (-(-self.received // used) if used else 0,) * used
        return sum(-(-count * times // align) * align for count in counts)


def load(own: Experts, tokens: int, ep: int, expert_rank: int, skew: float) -> Load:
    """Return the vectors that a rank with `tokens` tokens exchanges, if all ranks have as many and choose alike.

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
    # Every rank sends this one the same number, as all choose alike.
    mine = tuple(ep * each for each in chosen[expert_rank * local : (expert_rank + 1) * local])
    return Load(slots, ep * splits[expert_rank], splits, mine)


def places(own: Experts, count: int) -> float:
    """Return the mean number of `count` equal parts of the experts in which a token has at least one expert.

    All choices of `top_groups` groups, and of `top_k` experts in them, are equally likely. A part is missed by the
    choices that take all experts from outside it.
    """
    return _places(own.count, own.top_k, own.groups, own.top_groups, count)


@cache
def _places(experts: int, top_k: int, groups: int, top_groups: int, count: int) -> float:
    # Linearity of expectation: the sum over parts of the chance that a token has an expert there. Choices
    # are counted in exact integers, as floats would lose small shares of huge binomials.
    part, group = experts // count, experts // groups
    reached = group * top_groups
    every = comb(groups, top_groups) * comb(reached, top_k)
    total = 0.0
    for first in range(0, experts, part):
        # How many experts each group that overlaps the part has in it.
        shares = [
            min(first + part, (each + 1) * group) - max(first, each * group)
            for each in range(first // group, (first + part - 1) // group + 1)
        ]
        ways = {(0, 0): 1}  # (groups chosen of these, experts of theirs in the part) -> choices
        for share in shares:
            with_it = {(n + 1, own + share): number for (n, own), number in ways.items()}
            ways = {key: ways.get(key, 0) + with_it.get(key, 0) for key in {**ways, **with_it}}
        others = groups - len(shares)
        # Choices without the part: other groups fill up, and experts come from the reached ones outside it.
        missed = sum(
            number * comb(others, top_groups - n) * comb(reached - own, top_k)
            for (n, own), number in ways.items()
            if n <= top_groups
        )
        total += 1 - missed / every
    return total


def zipf(count: int, skew: float, total: int, most: int) -> list[int]:
    """Return how many of `total` choices fall on each of `count` experts, in proportion to 1 / number^skew.

    No expert gets more than `most` (a token chooses an expert once); the excess goes to the others in proportion.
    Remainders go to the largest fractions.
    """
    weights = [portable.power(number + 1.0, -skew) for number in range(count)]
    full, left, ideal = 0, total, [0.0] * count
    while full < count:  # weights fall, so those that are full come first
        scale = left / fsum(weights[full:])
        ideal = [float(most)] * full + [scale * weight for weight in weights[full:]]
        over = sum(1 for share in ideal[full:] if share > most)
        if not over:
            break
        full, left = full + over, left - over * most
    shares = [min(most, int(share)) for share in ideal]
    # Largest remainder first: the difference is minus the fraction. Several rounds, as full experts take none.
    order = sorted(range(count), key=lambda expert: shares[expert] - ideal[expert])
    while missing := total - sum(shares):
        for expert in [each for each in order if shares[each] < most][:missing]:
            shares[expert] += 1
    return shares
