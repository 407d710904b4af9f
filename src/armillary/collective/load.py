"""What rounds cost on one network dimension: link hops, and bytes through the fullest port or link.

Bandwidth B is one-way per NPU, full duplex. A Ring or Mesh (a line) splits it over its two directions, so a
directed link has B/2; a FullyConnected link has B/(size - 1), and so on by the links of an NPU; a Switch port has all
of B. A message takes one
way round a Ring, the shorter one. Where both are as long, it goes up from even positions and down from odd ones
(`upwards`), as the messages of every network model do. The time of the rounds on an idle network is
``hops * latency + volume * D / B``. Parts of D that follow each other need not wait for all rounds of the part before:
k of them take ``hops * latency + (volume + (k - 1) * fullest) * D / (k * B)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import NamedTuple

import numpy as np

from armillary.base.allowed import Pace
from armillary.base.errors import InputError, nearest, one_of
from armillary.collective.rounds import IntArray, Round, Rounds
from armillary.platform.network import TOPOLOGIES, upwards

_LINES = ("Ring", "Mesh")
"""Rings and lines, whose links have closed forms; every message of others is followed link by link."""


class Around(NamedTuple):
    """Rounds before the first that uses the fullest link or port, and after the last, with the latency of that.

    Of those between, latencies count as far as rounds are shorter than the longest.
    """

    hops: Fraction
    rounds: Fraction
    volume: Fraction


@dataclass(frozen=True)
class Load:
    """What a collective costs on a dimension, per D.

    `hops`: the links that the farthest message of each round crosses, summed. `volume`: the bytes of each round,
    summed, through whatever is fullest in it, as if it had all of B. `fullest`: the bytes of all rounds through the one
    link or port that carries most, counted alike; at most `volume`. `sent`: the most that a member's port
    moves in one direction in all. `reduced`: the most that a member adds.
    """

    hops: int
    volume: Fraction
    fullest: Fraction
    sent: Fraction
    reduced: Fraction
    step: Fraction = Fraction(0)
    """Of `volume`, the most that one round has."""
    around: Around | None = None
    """The rounds that the fullest link or port waits for; None: it is needed from the first to the last."""


def load(rounds: Rounds, topology: str, size: int, positions: Sequence[int] | None = None) -> Load:
    """Return what `rounds` cost on a dimension, exactly.

    Args:
        rounds: A collective.
        topology: One of `dimension_topologies.TOPOLOGIES`; a Torus of one dimension is a Ring.
        size: NPUs in the dimension.
        positions: Where in it the members are; None: they fill it, in order (a ring on a line: in `line_order`; on
            what is neither, in the better of both).

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
        from armillary.collective.in_switch import ports

        # Segments follow each other, so only a latency up and one down are paid.
        up, down = ports(rounds.operation, rounds.n)
        most = max(up, down)
        return Load(2, most, most, most, down if rounds.operation == "reduce-scatter" else Fraction(0))
    n, where = rounds.n, () if positions is None else tuple(int(p) for p in positions)
    # Two ways to get it wrong: not filling the dimension, or positions that are not n different places.
    if n != size if positions is None else not n == len(where) == len(set(where) & set(range(size))):
        raise ValueError(f"{n} members at positions {where or 'by default'} of {size}")
    if topology in ("FullyConnected", "Switch"):
        where = ()  # all places are alike
    elif topology == "Mesh" and rounds.around and positions is None:
        where = line_order(range(size))
    # Neither ring nor line: both orders are tried.
    elif rounds.around and positions is None and not TOPOLOGIES[topology].loop:
        return placed(rounds, topology, size, tuple(range(size)))[0]
    return _load(rounds, "Ring" if topology == "Torus" else topology, size, where)


def placed(
    rounds: Rounds, topology: str, size: int, positions: tuple[int, ...]
) -> tuple[Load, tuple[int, ...]]:
    """Return what rounds cost among members at these positions, and where each of them is.

    Algorithms that go around a ring may take part of a line in order, or there and back, whichever is faster; on a
    whole line they go there and back, as in `load`: in order, one message of each round would go from end to end.
    """
    ways = [positions]
    if rounds.around and topology == "Mesh" and len(positions) == size:
        ways = [line_order(positions)]
    elif rounds.around and topology not in ("FullyConnected", "Switch"):
        ways.append(line_order(positions))
    found = [(load(rounds, topology, size, way), way) for way in ways]
    # Fewer bytes first, then fewer hops.
    return min(found, key=lambda each: (each[0].volume, each[0].hops))


def line_order(places: Iterable[int]) -> tuple[int, ...]:
    """Return `places` of a line in the order of a ring in which no two neighbours are far apart.

    Every second place on the way there, the others on the way back: the ring needs no link from end to end.
    """
    ordered = sorted(places)
    return (*ordered[::2], *reversed(ordered[1::2]))


@lru_cache(maxsize=2048)
def _load(rounds: Rounds, topology: str, size: int, where: tuple[int, ...]) -> Load:
    """Do it; without `where` the members fill the dimension in order."""
    # A common unit makes all sizes integers; times 2, so that halves stay whole.
    unit = 2 * lcm(*{d for part in rounds.rounds for d in part.base.denominator.tolist()})
    gap = _gap(topology, size, where)
    # Rounds that look the same from every member need the messages of one only.
    all_alike = gap is not None and all(part.rotates for part in rounds.rounds)
    total = _Total(rounds.n, size, np.int64 if all_alike else _width(rounds, unit))
    messages = (
        0
        if all_alike
        else sum(len(part.base.target) * (part.n if part.rotates else 1) for part in rounds.rounds)
    )
    pace = Pace(f"{rounds.operation} of {rounds.n} members", messages, "messages", "fewer members")
    hops, volume, step = 0, Fraction(0), Fraction(0)
    each: list[tuple[int, int, Fraction]] = []
    for part in rounds.rounds:
        if part.rotates and gap is not None:
            far, full = _same_for_all(part, topology, size, gap, where[0] if where else 0, unit, total)
        else:
            far, full = _member_by_member(part, topology, size, where, unit, total, pace)
        hops += part.repeat * far
        volume += part.repeat * full
        step = max(step, Fraction(full))
        each.append((part.repeat, far, Fraction(full) / unit))
    # Units until here; divided once below.
    sent = total.moved + int(max(total.out.max(), total.into.max()))
    fullest, used = total.fullest(topology, sent)
    return Load(
        hops, Fraction(volume) / unit, Fraction(fullest) / unit, Fraction(sent, unit),
        Fraction(total.added + int(total.reduced.max()), unit), step / unit, _around(each, used),
    )  # fmt: skip


def _around(each: Sequence[tuple[int, int, Fraction]], used: Sequence[bool]) -> Around:
    """Return what is before and after the rounds (repeats, hops, volume) that use the fullest link or port."""
    first = used.index(True) if True in used else 0
    last = len(used) - 1 - used[::-1].index(True) if True in used else len(used) - 1
    beside = [one for at, one in enumerate(each) if not first <= at <= last]
    inside = each[first : last + 1]
    count = sum(times for times, _, _ in inside)
    most = max((full for _, _, full in inside), default=Fraction(0))
    mean = sum((times * full for times, _, full in inside), Fraction(0)) / max(count, 1)
    # Short rounds cannot hide the latency of long ones.
    seen = 1 - mean / most if most else Fraction(0)
    hops = sum(times * far for times, far, _ in inside) - (each[last][1] if each else 0)
    return Around(
        sum(times * far for times, far, _ in beside) + (each[last][1] if each else 0) + seen * hops,
        sum(times for times, _, _ in beside) + 1 + seen * max(count - 1, 0),
        sum((times * full for times, _, full in beside), Fraction(0)),
    )


class _Total:
    """Bytes of all rounds: by member and by link, and what is the same for every member."""

    def __init__(self, n: int, size: int, width: type[np.int64] | type[object]) -> None:
        self.size = size
        self.out, self.into, self.reduced = (np.zeros(n, dtype=width) for _ in range(3))
        # Prefix sums of differences: a message over many links costs two additions.
        self.links = np.zeros((2, size + 1), dtype=width)
        """Differences of the loads of links up and down, see `_along`."""
        self.pairs: dict[int, int] = {}
        self.moved = self.added = self.messages = 0
        self.steps: dict[int, int] = {}
        self.ways = [Fraction(0), Fraction(0)]
        self.rounds: list[Callable[[int, int], bool]] = []
        """For each kind of round: whether it uses a port (direction, member), a link up or down a line (direction, its
        lower end) or one between two positions (0, tail * size + head; -1, how many places on)."""

    def fullest(self, topology: str, sent: int) -> tuple[Fraction | int, list[bool]]:
        """Return the bytes through what carries most, as if it had all of a port, and which rounds use it."""
        if topology == "Switch":
            # The fuller direction of the fullest port.
            most: Fraction | int = sent
            way = int(self.into.max() > self.out.max())
            where = way, int(np.argmax((self.out, self.into)[way]))
        elif topology not in _LINES:
            step = max(self.steps.items(), key=lambda item: item[1], default=(0, 0))
            pair = max(self.pairs.items(), key=lambda item: item[1], default=(0, 0))
            # A port is shared by its links: one full link counts as if all were.
            most = (step[1] + pair[1]) * TOPOLOGIES[topology].links(self.size)
            where = (-1, step[0]) if step[1] > pair[1] else (0, pair[0])
        else:
            along = [np.cumsum(links) for links in self.links]
            # A link has half a port.
            loads = [
                Fraction(2 * (ways + int(links.max()))) for ways, links in zip(self.ways, along, strict=True)
            ]
            way = int(loads[1] > loads[0])
            most, where = max(Fraction(sent), loads[way]), (way, int(np.argmax(along[way])))
        return most, [uses(*where) for uses in self.rounds]


def _gap(topology: str, size: int, where: Sequence[int]) -> int | None:
    """Return the distance between neighbours if the members are evenly spaced all around, else None."""
    if topology in ("FullyConnected", "Switch"):
        return 1
    if topology != "Ring":
        return None
    if not where:
        return 1
    gap = (where[1] - where[0]) % size
    # Even spacing must hold across the wrap, too.
    even = all((b - a) % size == gap for a, b in zip(where, (*where[1:], where[0]), strict=True))
    return gap if even else None


def _same_for_all(
    part: Round, topology: str, size: int, gap: int, first: int, unit: int, total: _Total
) -> tuple[int, Fraction | int]:
    """Return (hops, volume) of one round, from the messages of one member, and add its bytes to `total`."""
    base, n = part.base, part.n
    steps = (base.target % n).tolist()
    ratios = zip(base.numerator.tolist(), base.denominator.tolist(), strict=True)
    sizes = [numerator * unit // denominator for numerator, denominator in ratios]
    moved = sum(sizes)
    total.moved += part.repeat * moved
    total.added += part.repeat * sum(
        s for s, reduce in zip(sizes, base.reduce.tolist(), strict=True) if reduce
    )
    if topology == "Switch":
        total.rounds.append(lambda way, member: moved > 0)
        return 2, moved
    if topology == "FullyConnected":
        links: dict[int, int] = {}
        total.rounds.append(lambda way, step: way < 0 and links.get(step, 0) > 0)
        for step, bytes_ in zip(steps, sizes, strict=True):
            links[step] = links.get(step, 0) + bytes_
        for step, bytes_ in links.items():
            total.steps[step] = total.steps.get(step, 0) + part.repeat * bytes_
        return 1, max(links.values()) * (size - 1)
    far, ways = 0, [Fraction(0), Fraction(0)]
    # Half-way messages split between the directions by the parity of their start (`upwards`).
    half = _half_way(n, size, gap, first)
    for step, bytes_ in zip(steps, sizes, strict=True):
        up = step * gap % size
        length = min(up, size - up)
        far = max(far, length)
        if 2 * up == size:
            ways = [way + bytes_ * share for way, share in zip(ways, half, strict=True)]
        else:
            # n members start at even distances, so a link sees length * n / size of them; it has B/2.
            ways[2 * up > size] += Fraction(bytes_ * length * n, size)
    for way in range(2):
        total.ways[way] += part.repeat * ways[way]
    total.rounds.append(lambda way, link: ways[way] > 0)
    return far, 2 * max(ways)


def _half_way(n: int, size: int, gap: int, first: int) -> tuple[Fraction, Fraction]:
    """Return how many messages half-way round go through the fullest link up and down, where each member sends one."""
    if size == 2:
        return Fraction(1, 2), Fraction(1, 2)
    if gap % 2 == 0:
        one_way = Fraction(n, 2)
        return (Fraction(0), one_way) if first % 2 else (one_way, Fraction(0))
    # Every second member, each over half of the links.
    share = Fraction(-(-size // (4 * gap)))
    return share, share


def _member_by_member(
    part: Round, topology: str, size: int, where: Sequence[int], unit: int, total: _Total, pace: Pace
) -> tuple[int, int]:
    """Return (hops, volume) of one round, and add every member's bytes to `total`."""
    width, n = total.out.dtype, part.n
    place = np.array(where if where else range(n))
    out, into = (np.zeros(n, dtype=width) for _ in range(2))
    links = np.zeros((2, size + 1), dtype=width)
    pairs: dict[int, int] = {}
    far = 0
    for moves in part.batches():
        # The unit is a multiple of each denominator.
        sizes = moves.numerator.astype(width) * (unit // moves.denominator).astype(width)
        np.add.at(out, moves.source, sizes)
        np.add.at(into, moves.target, sizes)
        np.add.at(total.reduced, moves.target[moves.reduce], sizes[moves.reduce] * part.repeat)
        if topology in _LINES:
            length = _along(links, topology, size, place[moves.source], place[moves.target], sizes)
            far = max(far, int(length.max(initial=0)))
        elif topology != "Switch":
            length = _link_by_link(pairs, topology, size, place[moves.source], place[moves.target], sizes)
            far = max(far, int(length.max(initial=0)))
        total.messages += len(moves.source)
        pace.at(total.messages)
    total.out += out * part.repeat
    total.into += into * part.repeat
    total.links += links * part.repeat
    for pair, bytes_ in pairs.items():
        total.pairs[pair] = total.pairs.get(pair, 0) + bytes_ * part.repeat
    full = int(max(out.max(), into.max()))
    if topology == "Switch":
        total.rounds.append(lambda way, member: bool((out, into)[way][member]))
        return 2, full
    if topology not in _LINES:
        total.rounds.append(lambda way, pair: way == 0 and pair in pairs)
        return far, max(pairs.values(), default=0) * TOPOLOGIES[topology].links(size)
    along = np.cumsum(links, axis=1)
    total.rounds.append(lambda way, link: bool(along[way, link]))
    return far, max(full, 2 * int(along.max()))


def _along(
    links: IntArray, topology: str, size: int, source: IntArray, target: IntArray, sizes: IntArray
) -> IntArray:
    """Add messages to `links`, the differences of link loads by direction and link; return their lengths.

    Link x of direction 0 goes from x to x+1, of direction 1 from x+1 to x.
    """
    if topology == "Mesh":
        forward = target > source
        length: IntArray = np.abs(target - source)
    else:
        ahead = (target - source) % size
        forward = upwards(source, ahead, size)
        length = np.minimum(ahead, size - ahead)
    # Two NPUs on a ring have two links to each other, and use both.
    both = np.full(len(sizes), topology == "Ring" and size == 2)
    for way, these, start in ((0, forward | both, source), (1, ~forward | both, target)):
        share = np.where(both, sizes // 2, sizes)[these]
        first, last = start[these], start[these] + length[these]
        np.add.at(links[way], first, share)
        np.add.at(links[way], np.where(last > size, last - size, last), -share)
        # A path beyond position 0 is split in two: its end starts again at link 0.
        around = last > size
        links[way, 0] += share[around].sum()
    return length


def _link_by_link(
    pairs: dict[int, int], topology: str, size: int, source: IntArray, target: IntArray, sizes: IntArray
) -> IntArray:
    """Add messages to `pairs`, the loads of links by their ends (tail * size + head); return their lengths."""
    length, at, left = np.zeros(len(source), np.int64), source, np.flatnonzero(source != target)
    # All messages advance one link per pass, until the last has arrived.
    while len(left):
        to = TOPOLOGIES[topology].step(at[left], target[left], size)
        keys, index = np.unique(at[left] * size + to, return_inverse=True)
        sums = np.zeros(len(keys), dtype=sizes.dtype)
        np.add.at(sums, index, sizes[left])
        for key, total in zip(keys.tolist(), sums.tolist(), strict=True):
            pairs[key] = pairs.get(key, 0) + total
        length[left] += 1
        at = at.copy()
        at[left] = to
        left = left[to != target[left]]
    return length


def _width(rounds: Rounds, unit: int) -> type[np.int64] | type[object]:
    """Return int64, or object (Python integers) where the sum of all bytes could pass it."""
    total = 0.0
    for part in rounds.rounds:
        share = part.base.numerator.astype(float) / part.base.denominator
        total += part.repeat * float(share.sum()) * (part.n if part.rotates else 1)
    # A margin for doubled links and repeated sums.
    return np.int64 if 4 * total * unit < 2**62 else object
