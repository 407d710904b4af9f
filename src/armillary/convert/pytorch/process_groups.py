"""The process groups that each rank knows, and the likeliest group of a call that names none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from armillary.convert.pytorch.communication import MOST_RANKS, Communication
from armillary.convert.pytorch.link import Linked


def world_size(traces: Iterable[Linked], least: int) -> int:
    """Return how many ranks the job had, at least `least`."""
    found = least
    for linked in traces:
        said = [linked.device.distributed.get("world_size")]
        for group in _told(linked):
            # A group of all ranks is recorded with an empty list and its size only.
            said += [group.get("group_size"), *(rank + 1 for rank in group["ranks"])]
        found = max(found, *(count for count in said if type(count) is int and count <= MOST_RANKS), 0)
    return found


def says_world(traces: Iterable[Linked]) -> bool:
    """Whether a trace gives the number of ranks of the job, or a group."""
    return any(
        linked.device.distributed.get("world_size") is not None or _told(linked) or linked.host.process_groups
        for linked in traces
    )


def _told(linked: Linked) -> list[dict[str, Any]]:
    """Return the groups that a rank records: those of the host trace, then those of the device trace."""
    config = linked.device.distributed.get("pg_config")
    groups = [*linked.host.process_groups, *(config if isinstance(config, list) else ())]
    return [
        group
        for group in groups
        if isinstance(group, dict)
        and isinstance(group.get("ranks"), list)
        and all(type(rank) is int and 0 <= rank < MOST_RANKS for rank in group["ranks"])
    ]


class ProcessGroups:
    """The groups of one rank by name."""

    def __init__(self, linked: Linked, rank: int, world: int) -> None:
        self.rank = rank
        self.world = tuple(range(world))
        self.ranks: dict[str, tuple[int, ...]] = {}
        self.about: dict[str, str] = {}
        for group in _told(linked):
            name = str(group.get("pg_name", ""))
            self.ranks[name] = tuple(group["ranks"]) or self.world
            self.about[name] = str(group.get("pg_desc", "")).lower()
        self.named: set[str] = set()
        self.guessed: dict[str, int] = {}
        self.by_thread: dict[int, str] = {}
        self.chosen: dict[int, str] = {}
        """The group of a call, by its id, that best fits the calls of the other ranks."""

    def learn(self, communications: Iterable[Communication]) -> None:
        """Record the groups that communications name; the other groups are likelier to be the unnamed ones."""
        for one in communications:
            if one.group is not None:
                self.named.add(one.group)
                if one.ranks and one.group not in self.ranks:
                    self.ranks[one.group] = one.ranks

    def learn_threads(self, threads: Iterable[tuple[Communication, int]]) -> None:
        """Learn the group of each gloo thread from its communications, as one thread serves one group."""
        scores: dict[int, dict[str, Score]] = {}
        done = list(threads)
        for one, tid in done:
            own = {name: self._likelihood(name, one) for name in self._candidates(one)}
            # A thread's group must allow all its calls; the call that speaks for it most clearly gives the score.
            known = scores.setdefault(tid, own)
            scores[tid] = {name: tuple(map(max, known[name], own[name])) for name in known if name in own}
        found = groups_of_threads(scores, list(self.ranks))
        self.by_thread = {id(one): found[tid] for one, tid in done if tid in found}

    def of(self, one: Communication) -> tuple[int, ...]:
        """Return the participating ranks; if no node gives them, those of the likeliest group of that size."""
        candidates = self.candidates(one)
        if len({self.ranks[name] for name in candidates}) > 1:
            best = self._best(one, candidates)
            self.guessed[best] = self.guessed.get(best, 0) + 1
        return self.likeliest(one)

    def likeliest(self, one: Communication) -> tuple[int, ...]:
        """Return the same as `of`, without counting it as a guess."""
        if one.group in self.ranks:
            return self.ranks[one.group]
        if one.ranks:
            return one.ranks
        candidates = self.candidates(one)
        return self.ranks[self._best(one, candidates)] if candidates else self.world

    def candidates(self, one: Communication) -> list[str]:
        """Return the groups that a call may belong to; none if a node gives the ranks."""
        if one.group in self.ranks or one.ranks:
            return []
        return list(self._candidates(one))

    def describe(self, name: str) -> str:
        """Return a name of a group that is the same on all ranks: its description, as PyTorch's names may differ."""
        alike = [other for other in self.ranks if self.about.get(other) == self.about.get(name)]
        return f"{self.about.get(name, '')} {alike.index(name)}"

    def choose(self, one: Communication, description: str) -> None:
        """Assign a call to the group with this description, if that is a candidate."""
        found = [name for name in self.candidates(one) if self.describe(name) == description]
        if found:
            self.chosen[id(one)] = found[0]

    def _best(self, one: Communication, candidates: Iterable[str]) -> str:
        found = self.chosen.get(id(one)) or self.by_thread.get(id(one))
        return found or max(candidates, key=lambda name: self._likelihood(name, one))

    def _candidates(self, one: Communication) -> dict[str, tuple[int, ...]]:
        if one.group in self.ranks:
            return {str(one.group): self.ranks[str(one.group)]}
        return {
            name: ranks
            for name, ranks in self.ranks.items()
            if self.rank in ranks and one.group_size in (None, len(ranks))
        }

    def _likelihood(self, name: str, one: Communication) -> tuple[int, ...]:
        sharded = any(around.startswith("FSDP::") for around in one.path)
        # Words in descriptions that PyTorch (``default_pg``), FSDP and device meshes (``mesh_dp``,
        # ``mesh_shard``) give their groups.
        words: tuple[str, ...] = ("dp", "fsdp", "shard", "data") if sharded else ("default",)
        if (
            sharded and one.kind == "ALL_REDUCE"
        ):  # shards are gathered and scattered, replicas are summed (HSDP)
            words = ("rep",)
        said = any(word in self.about.get(name, "") for word in words)
        # Compared in this order: a fitting description, a group that no call has named, and the smallest
        # group; a call of unknown size is taken to be of the world before that.
        known_size = one.group_size is not None
        return (
            said,
            name not in self.named,
            known_size or self.ranks[name] == self.world,
            -len(self.ranks[name]),
        )


EACH = 2
"""Threads that gloo starts per group."""

Score = tuple[int, ...]


def groups_of_threads(scores: Mapping[int, Mapping[str, Score]], order: Sequence[str]) -> dict[int, str]:
    """Return the group of each thread in the assignment of greatest total likelihood; empty if none fits.

    Args:
        scores: for every thread the groups that its collectives allow, and the likelihood of each.
        order: the groups in the order of their creation.
    """
    place = {name: at for at, name in enumerate(order)}
    # Dynamic programming over threads by id: thread ids grow as groups are made, so groups stay in order. A
    # state is the last group and how many of its threads are used; its value the best score and names so far.
    best: dict[tuple[int, int], tuple[Score, tuple[str, ...]]] = {(-1, EACH): ((), ())}
    before = None
    for tid in sorted(scores):
        found: dict[tuple[int, int], tuple[Score, tuple[str, ...]]] = {}
        gap = 0 if before is None else tid - before
        before = tid
        for (last, used), (score, names) in best.items():
            for name, more in scores[tid].items():
                at = place.get(name, -1)
                if at < last or (at == last and used == EACH):
                    continue
                together = (gap == 1) == (at == last)  # threads of one group are started one after the other
                both = (int(together), *more)
                total = tuple(map(sum, zip(score, both, strict=True))) if score else both
                key = at, used + 1 if at == last else 1
                if key not in found or found[key][0] < total:
                    found[key] = total, (*names, name)
        best = found
    _, names = max(best.values(), default=((), ()))
    return dict(zip(sorted(scores), names, strict=True)) if names else {}
