"""All-to-alls of tokens for experts, by what each token chose: schedules in steps, and what none of them can beat.

A token that chose several experts of one rank, or of one node, need go there only once. Counts of pairs of ranks do not
tell that, so an exchange is described token by token:

- ``direct``: from the rank that has the token to every rank that has one of its experts.
- ``two-level``: as DeepEP's kernels for training do (its dispatch over NVLink and RDMA): once to every node, to the
  rank there with the sender's place in its node (so along rails), which passes it on within the node.
- ``balanced``: as ``two-level``, but before, the ranks of a node share out what it sends to another one, so that all
  NICs on both sides carry the same, whoever has the tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.base import portable
from armillary.base.allowed import require
from armillary.base.errors import InputError

Ints = NDArray[np.int64]
MOST_TOKENS = 1 << 24


@dataclass(frozen=True, eq=False)
class Routing:
    """Which experts each token goes to.

    Attributes:
        ranks: Ranks, each with as many experts, in order.
        experts: Experts in all, a multiple of `ranks`.
        source: (tokens) the rank that has it.
        chosen: (tokens, choices) its experts; -1 fills up.
        count: (tokens) how many alike there are.

    Raises:
        InputError: Experts or ranks are out of range.
    """

    ranks: int
    experts: int
    source: Ints
    chosen: Ints
    count: Ints

    def __post_init__(self) -> None:
        if self.ranks < 2 or self.experts < self.ranks or self.experts % self.ranks:
            raise InputError(
                f"experts: got {self.experts} on {self.ranks} ranks, expected a multiple of 2 or more ranks, "
                f"e.g. {max(1, round(self.experts / self.ranks)) * self.ranks}"
            )
        if self.count.size and self.count.min() < 1:
            raise InputError(f"routing: got count {self.count.min()}, expected 1 or more")
        for name, values, most in (("rank", self.source, self.ranks), ("expert", self.chosen, self.experts)):
            wrong = values[(values < (-1 if name == "expert" else 0)) | (values >= most)]
            if wrong.size:
                raise InputError(f"routing: got {name} {wrong.flat[0]}, expected 0 to {most - 1}")

    @property
    def tokens(self) -> int:
        """Tokens of all ranks."""
        return int(self.count.sum())

    def targets(self) -> tuple[Ints, Ints]:
        """Return (pairs) token and rank, each rank that has one of a token's experts once."""
        token, place = np.nonzero(self.chosen >= 0)
        rank = self.chosen[token, place] // (self.experts // self.ranks)
        both = np.unique(token * self.ranks + rank)
        return both // self.ranks, both % self.ranks


def drawn(ranks: int, experts: int, tokens: int, choices: int, skew: float, seed: int = 0) -> Routing:
    """Return tokens whose experts are drawn without repeats, by a Zipf law over experts in a random order.

    Args:
        ranks: Ranks.
        experts: Experts in all.
        tokens: Of each rank.
        choices: Experts of a token.
        skew: Exponent of the law; 0: all experts alike.
        seed: Random seed.

    Raises:
        InputError: There are more choices than experts, or too many tokens.
    """
    _check(ranks * tokens, choices, experts, experts)
    random = np.random.default_rng(seed)
    weight = portable.power(np.arange(1.0, experts + 1), -skew)[random.permutation(experts)]
    # The choices with the least waiting times at rates in proportion to weights are a draw without repeats.
    waits = -portable.log(random.random((ranks * tokens, experts)) + 2.0**-60) / weight
    chosen = np.argsort(waits, axis=1, kind="stable")[:, :choices]
    source = np.repeat(np.arange(ranks), tokens)
    return Routing(ranks, experts, source, chosen.astype(np.int64), np.ones(len(source), np.int64))


def counted(ranks: int, tokens: int, choices: int, counts: Sequence[float], seed: int = 0) -> Routing:
    """Return tokens whose choices fall on experts as counts of a real run do, on every rank alike and to a token.

    Which experts one token chose is not in counts: those of a rank are dealt out to its tokens in a random order.

    Args:
        ranks: Ranks.
        tokens: Of each rank.
        choices: Experts of a token.
        counts: (experts) how often each was chosen.
        seed: Random seed.

    Raises:
        InputError: An expert was chosen more often than once per token, or there are too many tokens.
    """
    experts = len(counts)
    _check(ranks * tokens, choices, experts, 0)
    share = np.asarray(counts, np.float64) / max(sum(counts), 1)
    if share.max() * choices > 1 + 1e-9:
        raise InputError(
            f"counts of experts: expert {int(share.argmax())} has {share.max():.1%} of the choices, expected at most "
            f"{1 / choices:.1%}, as a token makes {choices} choices"
        )
    wanted = np.minimum(share * tokens * choices, tokens)
    often = np.floor(wanted + 1e-9).astype(np.int64)
    # The largest remainders make up what rounding down leaves; whoever has all tokens has none.
    more = np.argsort(-(wanted - often), kind="stable")[: tokens * choices - int(often.sum())]
    often[more] += 1
    random, chosen = np.random.default_rng(seed), np.empty((ranks, tokens, choices), np.int64)
    for rank in range(ranks):
        order = random.permutation(experts)
        # Dealt out row by row: no expert comes round to a token twice, as none has more than all tokens.
        chosen[rank] = np.repeat(order, often[order]).reshape(choices, tokens).T
    source = np.repeat(np.arange(ranks), tokens)
    return Routing(ranks, experts, source, chosen.reshape(-1, choices), np.ones(len(source), np.int64))


def _check(tokens: int, choices: int, experts: int, drawn: int) -> None:
    """Refuse choices that are not possible, or too many; each of `drawn` experts gets numbers for every token."""
    if not 1 <= choices <= experts or not 1 <= tokens <= MOST_TOKENS:
        raise InputError(
            f"got {choices} of {experts} experts for {tokens:,} tokens, expected at most all experts and "
            f"{MOST_TOKENS:,} tokens"
        )
    # Four arrays of those numbers, and five of the choices.
    what = f"{tokens:,} tokens, each of which chooses {choices} of {experts:,} experts,"
    require(8 * tokens * (4 * drawn + 5 * choices), what, "fewer tokens or experts")


Step = Ints
"""(ranks, ranks) tokens from each rank to each."""


def direct(routing: Routing, node: int) -> list[Step]:
    """Return the one step of ``direct``; `node` is the number of ranks of a node."""
    token, rank = routing.targets()
    return [_tokens(routing, routing.source[token], rank, token)]


def two_level(routing: Routing, node: int) -> list[Step]:
    """Return the two steps of ``two-level``: between nodes along rails, then within them."""
    token, rank, first = _to_nodes(routing, node)
    source = routing.source[token]
    relay = rank // node * node + source % node
    return [
        _tokens(routing, source[first], relay[first], token[first]),
        _tokens(routing, relay, rank, token),
    ]


def balanced(routing: Routing, node: int) -> list[Step]:
    """Return the three steps of ``balanced``: within nodes, between them along rails, within them."""
    token, rank, first = _to_nodes(routing, node)
    source, to = routing.source[token], rank // node
    key = source // node * (routing.ranks // node) + to
    # Each token to a node has a place in the queue of its pair of nodes; rails share the queue evenly. In order of the
    # source, so that most tokens stay with the rail that they are on.
    place = np.zeros(len(token), np.int64)
    firsts = np.flatnonzero(first)
    for pair in np.unique(key[firsts]).tolist():
        mine = firsts[key[firsts] == pair]
        mine = mine[np.argsort(source[mine], kind="stable")]
        weight = routing.count[token[mine]]
        before = np.cumsum(weight) - weight
        place[mine] = before * node // max(1, int(weight.sum()))
    # All that go to a node with one token take its rail.
    place = place[firsts[np.cumsum(first) - 1]]
    inside = source // node == to
    place = np.where(inside, source % node, place)
    out, into = source // node * node + place, to * node + place
    return [
        _tokens(routing, source[first], out[first], token[first]),
        _tokens(routing, out[first], into[first], token[first]),
        _tokens(routing, into, rank, token),
    ]


SCHEDULES: dict[str, Callable[[Routing, int], list[Step]]] = {
    "direct": direct,
    "two-level": two_level,
    "balanced": balanced,
}


def least_time(routing: Routing, node: int, inside: float, outside: float, size: int) -> tuple[float, str]:
    """Return what no schedule beats, in ns without latencies, and what binds.

    Args:
        routing: What goes where.
        node: Ranks of a node.
        inside: Bytes per ns of a rank within its node.
        outside: Bytes per ns of a rank to other nodes.
        size: Bytes of a token.
    """
    token, rank = routing.targets()
    source, weight = routing.source[token], routing.count[token] * size
    away = rank != source
    into = np.bincount(rank[away], weight[away], routing.ranks)
    # Others may pass copies on, so a token need leave its rank only once.
    once = np.unique(token[away])
    out = np.bincount(routing.source[once], routing.count[once] * size, routing.ranks)
    nodes = routing.ranks // node
    found = {
        f"what rank {int(into.argmax())} receives": float(into.max()) / (inside + outside),
        f"what rank {int(out.argmax())} sends": float(out.max()) / (inside + outside),
    }
    token, rank, first = _to_nodes(routing, node)
    between = first & (rank // node != routing.source[token] // node)
    token, rank = token[between], rank[between]
    for what, at in (("receives", rank // node), ("sends", routing.source[token] // node)):
        of_nodes = np.bincount(at, routing.count[token] * size, nodes)
        found[f"what node {int(of_nodes.argmax())} {what}"] = float(of_nodes.max()) / (outside * node)
    binds = max(found, key=lambda name: found[name])
    return found[binds], binds


def _to_nodes(routing: Routing, node: int) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Return (pairs) token and rank, and whether it is the first pair of the token to that node."""
    if routing.ranks % node:
        raise InputError(f"{routing.ranks} ranks are not a multiple of the {node} of a node")
    token, rank = routing.targets()
    key = token * routing.ranks + rank // node
    # Pairs are sorted by token, then rank, so that pairs to one node are neighbours.
    return token, rank, np.append(True, key[1:] != key[:-1])[: len(key)]


def _tokens(routing: Routing, source: Ints, target: Ints, token: Ints) -> Step:
    step = np.zeros((routing.ranks, routing.ranks), np.int64)
    np.add.at(step, (source, target), routing.count[token])
    # What stays costs nothing.
    np.fill_diagonal(step, 0)
    return step
