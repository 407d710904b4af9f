"""What rounds cost on a dimension, message by message and link by link: the reference of `collective.load`."""

from __future__ import annotations

from fractions import Fraction

from armillary.collective.rounds import Rounds


def slow_load(
    rounds: Rounds, topology: str, size: int, where: list[int]
) -> tuple[int, Fraction, Fraction, Fraction, Fraction, Fraction]:
    """Return hops, volume, fullest, sent, reduced and the fullest round, see `armillary.collective.load.Load`."""
    hops, volume, most = 0, Fraction(0), Fraction(0)
    whole: dict[tuple[object, ...], Fraction] = {}
    sent, received, added = ([Fraction(0)] * rounds.n for _ in range(3))
    for part in rounds.expanded():
        links: dict[tuple[object, ...], Fraction] = {}
        far = 0
        columns = (part.source, part.target, part.numerator, part.denominator, part.reduce)
        for s, t, over, under, reduce in zip(*(c.tolist() for c in columns), strict=True):
            share, a, b = Fraction(over, under), where[s], where[t]
            sent[s] += share
            received[t] += share
            added[t] += share * reduce
            paths = []
            if topology == "Switch":
                paths = [[(("up", a), 1), (("down", b), 1)]]
            elif topology == "FullyConnected":
                paths = [[((a, b), size - 1)]]
            else:
                for step in (1, -1):
                    path, at = [], a
                    while at != b and not (topology == "Mesh" and not 0 <= at + step < size):
                        path.append((((at, step)), 2))
                        at = (at + step) % size
                    if at == b:
                        paths.append(path)
                least = min(len(path) for path in paths)
                paths = [path for path in paths if len(path) == least]
                if len(paths) == 2 and size > 2:  # half-way round: one way, which depends on where it begins
                    paths = [paths[a % 2]]
            far = max(far, len(paths[0]))
            for path in paths:
                for link, scale in path:
                    links[link] = links.get(link, Fraction(0)) + share * scale / len(paths)
        hops += far
        volume += max(links.values(), default=Fraction(0))
        most = max(most, *links.values(), Fraction(0))
        for link, load_ in links.items():
            whole[link] = whole.get(link, Fraction(0)) + load_
    fullest = max(whole.values(), default=Fraction(0))
    return hops, volume, fullest, max(*sent, *received), max(added), most
