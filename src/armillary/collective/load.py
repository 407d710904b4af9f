"""What rounds cost on one network dimension: link hops, and bytes through the fullest port or link.

Bandwidth B is one-way per NPU, full duplex. A Ring or Mesh (a line) splits it over its two directions, so a
directed link has B/2; a FullyConnected link has B/(size - 1); a Switch port has all of B. Messages go the
shorter way round a Ring, half and half where both ways are as long. The time of the rounds on an idle
network is ``hops * latency + volume * D / B``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import lcm

import numpy as np

from armillary.collective import in_switch
from armillary.collective.rounds import Moves, Round, Rounds
from armillary.collective.schedule import IntArray
from armillary.errors import InputError, nearest, one_of

TOPOLOGIES = ("Ring", "Torus", "Mesh", "FullyConnected", "Switch")


@dataclass(frozen=True)
class Load:
    """What a collective costs on a dimension, per D.

    `hops`: the links that the farthest message of each round crosses, summed. `volume`: the bytes of each round,
    summed, through whatever is fullest, as if it had all of B. `sent`: the most that a member's port
    moves in one direction in all. `reduced`: the most that a member adds.
    """

    hops: int
    volume: Fraction
    sent: Fraction
    reduced: Fraction


def load(rounds: Rounds, topology: str, size: int, positions: Sequence[int] | None = None) -> Load:
    """Return what `rounds` cost on a dimension, exactly.

    Args:
        rounds: A collective.
        topology: One of `TOPOLOGIES`; a Torus of one dimension is a Ring.
        size: NPUs in the dimension.
        positions: Where in it the members are; None: they fill it, in order (a ring on a line: in `line_order`).

    Raises:
        InputError: there is no such topology.
        ValueError: the positions are not `rounds.n` different ones below `size`.
    """
    if topology not in TOPOLOGIES:
        raise InputError(
            f"unknown topology '{topology}': expected {one_of(TOPOLOGIES)}{nearest(topology, TOPOLOGIES)}"
        )
    if rounds.trees:
        if topology != "Switch":
            raise InputError(f"in-switch: got topology {topology}, expected Switch")
        # Segments follow each other, so a latency up and one down are all.
        up, down = in_switch.ports(rounds.operation, rounds.n)
        most = max(up, down)
        return Load(2, most, most, down if rounds.operation == "reduce-scatter" else Fraction(0))
    n, where = rounds.n, () if positions is None else tuple(int(p) for p in positions)
    if n != size if positions is None else not n == len(where) == len(set(where) & set(range(size))):
        raise ValueError(f"{n} members at positions {where or 'by default'} of {size}")
    if topology in ("FullyConnected", "Switch"):
        where = ()  # all places are alike
    elif topology == "Mesh" and rounds.algorithm == "ring" and positions is None:
        where = line_order(range(size))
    return _load(rounds, "Ring" if topology == "Torus" else topology, size, where)


def line_order(places: Iterable[int]) -> tuple[int, ...]:
    """Return `places` of a line in the order of a ring in which no two neighbours are far apart.

    Every second place on the way there, the others on the way back: the ring needs no link from end to end.
    """
    ordered = sorted(places)
    return (*ordered[::2], *reversed(ordered[1::2]))


@lru_cache(maxsize=2048)
def _load(rounds: Rounds, topology: str, size: int, where: tuple[int, ...]) -> Load:
    """Do it; without `where` the members fill the dimension in order."""
    unit = 2 * lcm(*{d for part in rounds.rounds for d in part.base.denominator.tolist()})
    gap = _gap(topology, size, where)
    all_alike = gap is not None and all(part.rotates for part in rounds.rounds)
    width = np.int64 if all_alike else _width(rounds, unit)
    hops, volume = 0, Fraction(0)
    everyone, adds = 0, 0
    out, into, reduced = (np.zeros(rounds.n, dtype=width) for _ in range(3))
    for part in rounds.rounds:
        if part.rotates and gap is not None:
            far, full, moved, added = _same_for_all(part, topology, size, gap, unit)
            everyone += part.repeat * moved
            adds += part.repeat * added
        else:
            far, full = _member_by_member(part, topology, size, where, unit, (out, into, reduced))
        hops += part.repeat * far
        volume += part.repeat * full
    sent = everyone + int(max(out.max(), into.max()))
    return Load(
        hops, Fraction(volume) / unit, Fraction(sent, unit), Fraction(adds + int(reduced.max()), unit)
    )


def _gap(topology: str, size: int, where: Sequence[int]) -> int | None:
    """Return the distance between neighbours if the members are evenly spaced all around, else None."""
    if topology in ("FullyConnected", "Switch"):
        return 1
    if topology == "Mesh":
        return None
    if not where:
        return 1
    gap = (where[1] - where[0]) % size
    even = all((b - a) % size == gap for a, b in zip(where, (*where[1:], where[0]), strict=True))
    return gap if even else None


def _same_for_all(
    part: Round, topology: str, size: int, gap: int, unit: int
) -> tuple[int, Fraction | int, int, int]:
    """Return (hops, volume, bytes out, bytes added) of one round, from the messages of one member."""
    base, n = part.base, part.n
    steps = (base.target % n).tolist()
    ratios = zip(base.numerator.tolist(), base.denominator.tolist(), strict=True)
    sizes = [numerator * unit // denominator for numerator, denominator in ratios]
    moved = sum(sizes)
    added = sum(s for s, reduce in zip(sizes, base.reduce.tolist(), strict=True) if reduce)
    if topology == "Switch":
        return 2, moved, moved, added
    if topology == "FullyConnected":
        links: dict[int, int] = {}
        for step, bytes_ in zip(steps, sizes, strict=True):
            links[step] = links.get(step, 0) + bytes_
        return 1, max(links.values()) * (size - 1), moved, added
    far, ways = 0, [0, 0]
    for step, bytes_ in zip(steps, sizes, strict=True):
        clockwise = step * gap % size
        length = min(clockwise, size - clockwise)
        far = max(far, length)
        if 2 * clockwise == size:
            ways = [way + bytes_ * length // 2 for way in ways]
        else:
            ways[2 * clockwise > size] += bytes_ * length
    # n members start at even distances, so a link sees length * n / size of them; it has B/2.
    return far, Fraction(2 * max(ways) * n, size), moved, added


Totals = tuple[IntArray, IntArray, IntArray]


def _member_by_member(
    part: Round, topology: str, size: int, where: Sequence[int], unit: int, totals: Totals
) -> tuple[int, int]:
    """Return (hops, volume) of one round, and add every member's bytes (out, in, added) to `totals`."""
    width, n = totals[0].dtype, part.n
    place = np.array(where if where else range(n))
    out, into = (np.zeros(n, dtype=width) for _ in range(2))
    links = np.zeros((2, size + 1), dtype=width)
    pairs: dict[int, int] = {}
    far = 0
    for moves in part.batches():
        sizes = moves.numerator.astype(width) * (unit // moves.denominator).astype(width)
        np.add.at(out, moves.source, sizes)
        np.add.at(into, moves.target, sizes)
        np.add.at(totals[2], moves.target[moves.reduce], sizes[moves.reduce] * part.repeat)
        if topology in ("Ring", "Mesh"):
            length = _along(links, topology, size, place[moves.source], place[moves.target], sizes)
            far = max(far, int(length.max(initial=0)))
        elif topology == "FullyConnected":
            _per_pair(pairs, moves, n, sizes)
    totals[0][:] += out * part.repeat
    totals[1][:] += into * part.repeat
    full = int(max(out.max(), into.max()))
    if topology == "Switch":
        return 2, full
    if topology == "FullyConnected":
        return 1, max(pairs.values(), default=0) * (size - 1)
    return far, max(full, 2 * int(np.cumsum(links, axis=1).max()))


def _along(
    links: IntArray, topology: str, size: int, source: IntArray, target: IntArray, sizes: IntArray
) -> IntArray:
    """Add messages to `links`, the differences of link loads by direction and link; return their lengths.

    Link x of direction 0 goes from x to x+1, of direction 1 from x+1 to x.
    """
    ahead = (target - source) % size if topology == "Ring" else target - source
    if topology == "Mesh":
        tie, forward = np.zeros(len(ahead), dtype=bool), ahead > 0
        length: IntArray = np.abs(ahead)
    else:
        tie, forward = 2 * ahead == size, 2 * ahead < size
        length = np.minimum(ahead, size - ahead)
    for way, these, start in ((0, forward | tie, source), (1, ~forward | tie, target)):
        share = np.where(tie, sizes // 2, sizes)[these]
        first, last = start[these], start[these] + length[these]
        np.add.at(links[way], first, share)
        np.add.at(links[way], np.where(last > size, last - size, last), -share)
        around = last > size
        links[way, 0] += share[around].sum()
    return length


def _per_pair(pairs: dict[int, int], moves: Moves, n: int, sizes: IntArray) -> None:
    keys, index = np.unique(moves.source * n + moves.target, return_inverse=True)
    sums = np.zeros(len(keys), dtype=sizes.dtype)
    np.add.at(sums, index, sizes)
    for key, total in zip(keys.tolist(), sums.tolist(), strict=True):
        pairs[key] = pairs.get(key, 0) + total


def _width(rounds: Rounds, unit: int) -> type[np.int64] | type[object]:
    """Return int64, or object (Python integers) where the sum of all bytes could pass it."""
    total = 0.0
    for part in rounds.rounds:
        share = part.base.numerator.astype(float) / part.base.denominator
        total += part.repeat * float(share.sum()) * (part.n if part.rotates else 1)
    return np.int64 if 4 * total * unit < 2**62 else object
