"""How tokens get to the ranks of their experts and back: what permutes them, what sends them, what the CPU waits for.

`plain` sends a copy of a token for each of its experts, or for each node of `Shard.domain`. The others are those of
Megatron-core (``token_dispatcher.py``, ``fused_a2a.py``):

- ``alltoall`` permutes copies by experts, gathers how many each expert gets, exchanges copies and their probabilities,
  and sorts what arrives by its own experts, as it comes by ranks.
- ``deepep`` and ``hybridep`` send a token once to each rank that has one of its experts, over one NIC to each node, and
  copy it there for each expert; for the latter every rank first gathers which experts all tokens of the group chose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from armillary.trace import CollectiveType
from armillary.workload.layers.block import Block, Steps
from armillary.workload.layers.expert_load import Load, places
from armillary.workload.layers.layer import Step
from armillary.workload.layers.linear import gather, reduce, scatter
from armillary.workload.layers.shard import Shard
from armillary.workload.models.decoder_parts import Experts

PROBABILITY = 4
"""Bytes of a score of the router."""
COUNT = 8
"""Bytes of the number of an expert's tokens."""
PACES = {"": 650, "inside": 650, "across": 800}
"""Thousandths of the links' bandwidth at which `deepep` and `hybridep` send, in a node and between nodes.

An H100 reaches 62 to 69 % of its NVLink with 4,096 and 16,384 tokens, and 66 to 90 % of its NIC on 2 and 4 nodes
(aiconfigurator, SGLang's DeepEP, 20 and 24 SMs); a B200 63 % with 24 SMs and 71 % with 64 (deepseek-ai/DeepEP,
README). Bytes that leave a rank are counted.
"""


@dataclass(frozen=True)
class _Ways:
    """Steps to the experts and from them, in either direction of a training step.

    Attributes:
        there: To the experts.
        back: From them.
        first: What only the forward pass does before `there`: the backward pass has its results.
        scores: What goes there beside tokens, in a dispatch only.
        at: Place in `there` of the step that the CPU issues once it knows how many tokens go where.
    """

    there: Steps
    back: Steps
    first: Steps = ()
    scores: Steps = ()
    at: int = 0


def exchanges(shard: Shard, own: Experts, loads: Load, hidden: int) -> tuple[Block, Block]:
    """Return ``dispatch`` of tokens to the ranks of their experts, and ``combine``, the reverse.

    Vectors to experts, including gradients of their results, may be in fp8 (`Shard.dispatch`); results are not.

    Args:
        shard: The share of this rank.
        own: The experts.
        loads: How many vectors are sent and received.
        hidden: Elements of a vector.
    """
    make = {None: _plain, "alltoall": _sorted}.get(shard.dispatcher, _once)
    ways = make(shard, own, loads, hidden)
    # Vectors before and after the exchange, then after it and sorted by experts.
    copies = shard.etp if _wide(shard) else 1
    working = max(loads.sent + copies * loads.received, 2 * copies * loads.received) * hidden * shard.element
    # The sizes of what is exchanged, and of the GEMMs, are known on the device only; the backward pass has them.
    at, there = ways.at, ways.there
    # With a capacity all sizes are known before.
    waits = replace(there[at], synchronises=own.capacity_factor is None)
    # Gradients of scores go back with those of tokens.
    scored = tuple(replace(step, name=f"{step.name} back") for step in ways.scores)
    forward = (*ways.first, *there[:at], waits, *ways.scores, *there[at + 1 :])
    return (
        Block("dispatch", forward, (*scored, *ways.back), working=working, back=working),
        Block("combine", ways.back, there, working=working, back=working),
    )


def _wide(shard: Shard) -> bool:
    """Return whether members of etp have tokens of their own, which they gather."""
    return shard.distinct and shard.etp > 1


def _plain(shard: Shard, own: Experts, loads: Load, hidden: int) -> _Ways:
    vector, sent, tokens = hidden * shard.element, hidden * shard.dispatch, shard.own
    move = (tokens + loads.sent) * vector
    if shard.domain and shard.ep > shard.domain:
        there, back = _by_nodes(shard, own, sent, vector)
    else:
        there, back = _copies(shard, loads, sent, vector)
    gathered, scattered = _of_etp(shard, loads.received, sent, vector)
    return _Ways(
        (Step("permute", bytes=move), *there, *gathered),
        (*scattered, *back, Step("unpermute", bytes=move), *_summed(shard, vector)),
        at=min(1, len(there) + len(gathered)),
    )


def _sorted(shard: Shard, own: Experts, loads: Load, hidden: int) -> _Ways:
    vector, sent = hidden * shard.element, hidden * shard.dispatch
    move = (shard.own + loads.sent) * vector
    exchange, back = _copies(shard, loads, sent, vector)
    gathered, scattered = _of_etp(shard, loads.received, sent, vector)
    # What comes from each rank is by experts; a rank with several has to bring those of one together.
    several = shard.ep > 1 and own.count // shard.ep > 1
    again = 2 * loads.received * (shard.etp if _wide(shard) else 1) * vector
    sort = (Step("sort", bytes=again),) if several else ()
    counted = shard.ep > 1 and own.capacity_factor is None
    scores = tuple(each * PROBABILITY for each in loads.splits)
    there = (Step("permute", bytes=move), *exchange, *gathered, *sort)
    unsort = tuple(replace(step, name="sort back") for step in sort)
    return _Ways(
        there,
        (*unsort, *scattered, *back, Step("unpermute", bytes=move), *_summed(shard, vector)),
        (gather("count", "ep", own.count * COUNT),) if counted else (),
        (_all_to_all("scores", loads.sent * PROBABILITY, scores),) if shard.ep > 1 else (),
        min(1, len(there) - 1),
    )


def _once(shard: Shard, own: Experts, loads: Load, hidden: int) -> _Ways:
    vector, sent, tokens = hidden * shard.element, hidden * shard.dispatch, shard.own
    visits = _visits(shard, own, loads)
    if shard.domain and shard.ep > shard.domain:
        there, back = map(_paced, _by_nodes(shard, own, sent, vector))
    else:
        there, back = map(_paced, _copies(shard, visits, sent, vector))
    gathered, scattered = _of_etp(shard, visits.received, sent, vector)
    copies = shard.etp if _wide(shard) else 1
    move = copies * (visits.received + loads.received) * vector
    first: Steps = ()
    if shard.dispatcher == "hybridep" and shard.ep > 1:
        # A byte for each token and expert, of all tokens of the group.
        chosen = tokens * own.count
        first = (gather("chosen", "ep", chosen), Step("scan", bytes=shard.ep * chosen))
    return _Ways(
        (*there, *gathered, Step("copies", bytes=move)),
        (Step("sums", bytes=move), *scattered, *back, *_summed(shard, vector)),
        first,
    )


def _paced(steps: Steps) -> Steps:
    """Return exchanges that kernels of their own send."""
    return tuple(replace(step, pace=PACES[step.axes.partition(".")[2]]) for step in steps)


def _visits(shard: Shard, own: Experts, loads: Load) -> Load:
    """Return the vectors that are exchanged if a token goes once to each rank that has one of its experts."""
    if loads.splits:
        # All tokens of a rank go to a member at most once; all ranks choose alike.
        splits = tuple(min(each, shard.own) for each in loads.splits)
        return Load(sum(splits), shard.ep * splits[shard.expert_rank], splits)
    count = min(loads.sent, round(shard.own * places(own, shard.ep)))
    return Load(count, count)


def _copies(shard: Shard, loads: Load, sent: int, vector: int) -> tuple[Steps, Steps]:
    """Return the exchange over ep of so many vectors, to experts and back."""
    if shard.ep == 1:
        return (), ()
    # On the way back this rank returns what each member sent it: equally much, if all choose alike.
    alike = (loads.received // shard.ep * vector,) * shard.ep if loads.splits else ()
    return (
        (_all_to_all("", loads.sent * sent, tuple(each * sent for each in loads.splits)),),
        (_all_to_all("", loads.received * vector, alike),),
    )


def _by_nodes(shard: Shard, own: Experts, sent: int, vector: int) -> tuple[Steps, Steps]:
    """Return an exchange by nodes: one copy to the rank of the same place in each, which passes it on to the ranks."""
    assert shard.domain
    across = round(shard.own * places(own, shard.ep // shard.domain))
    inside = round(shard.own * places(own, shard.ep))
    return (
        (_part("across", across * sent), _part("inside", inside * sent)),
        (_part("inside", inside * vector), _part("across", across * vector)),
    )


def _of_etp(shard: Shard, received: int, sent: int, vector: int) -> tuple[Steps, Steps]:
    """Return what members of etp gather and scatter of the vectors that each has received."""
    if not _wide(shard):
        return (), ()
    return (
        (gather("gather", "etp", received * sent),),
        (scatter("scatter", "etp", shard.etp * received * vector),),
    )


def _summed(shard: Shard, vector: int) -> Steps:
    return () if shard.distinct else (reduce("reduce", "tp", shard.own * vector),)


def _all_to_all(what: str, size: int, splits: tuple[int, ...] = ()) -> Step:
    name = f"exchange {what}" if what else "exchange"
    return Step(name, collective=CollectiveType.ALL_TO_ALL, axes="ep", size=size, splits=splits)


def _part(part: str, size: int) -> Step:
    """Return an exchange over a part of ep: ``inside`` nodes, or ``across`` them."""
    return Step(f"exchange {part}", collective=CollectiveType.ALL_TO_ALL, axes=f"ep.{part}", size=size)
