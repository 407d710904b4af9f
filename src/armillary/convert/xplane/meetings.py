"""Who meets whom: the ranks of every communication of a profile, as far as it tells."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from armillary.base.errors import InputError
from armillary.convert.hlo.groups import Devices
from armillary.convert.hlo.lower import COLLECTIVES, PERMUTE
from armillary.convert.hlo.source import Source
from armillary.convert.xplane.devices import Work
from armillary.convert.xplane.instructions import Modules, communicates, made

Key = tuple[str, str]
"""Module and instruction."""


@dataclass(frozen=True)
class Meeting:
    """What an instruction communicates, in the ranks of the trace.

    Attributes:
        opcode: Of XLA, without -start.
        size: Bytes that a rank gives; None if nothing says them.
        groups: Ranks of each group of a collective.
        pairs: (sender, receiver) of a permute.
    """

    opcode: str
    size: int | None
    groups: tuple[tuple[int, ...], ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()

    def group(self, rank: int) -> tuple[int, ...]:
        """Return the group of a rank; () if it is in none."""
        return next((group for group in self.groups if rank in group), ())


class Meetings:
    """The communications of all ranks, found by their instructions."""

    def __init__(self, ranks: Sequence[Sequence[Work]], modules: Sequence[Modules]) -> None:
        """Find them.

        Args:
            ranks: the work of each rank, in order of start.
            modules: those of each rank's file.
        """
        self.size = len(ranks)
        self.warned: Counter[str] = Counter()
        self.of: dict[Key, Meeting | None] = {}
        times: dict[Key, Counter[int]] = defaultdict(Counter)
        for rank, work in enumerate(ranks):
            for each in work:
                if (key := key_of(each)) is not None:
                    times[key][rank] += 1
                    if key not in self.of:
                        self.of[key] = self._meeting(each, modules[rank])
        for key, meeting in self.of.items():
            if meeting is not None:
                self.of[key] = self._met(meeting, times[key])

    def _meeting(self, work: Work, modules: Modules) -> Meeting | None:
        opcode = base(work.opcode)
        said = work.instruction if work.instruction and work.instruction.operands else None
        everyone = tuple(range(self.size))
        if said is None or base(said.opcode) != opcode:
            if opcode == PERMUTE or not communicates(opcode):
                self._lost("messages, of which nothing says between whom", work)
                return None
            self._note("groups of all devices are assumed: nothing says their groups", work)
            return Meeting(opcode, _by_traffic(opcode, work, self.size), (everyone,))
        size = sum(each.shape.bytes for each in said.operands[: 1 if opcode.startswith("ragged") else None])
        program = next((each for each in work.programs if each in modules.devices), "")
        known = modules.devices.get(program)
        count = known.replicas * known.partitions if known else self.size
        # As logical devices are numbered; the table says which of them each is.
        table = (
            known.devices if known and sorted(known.devices) == list(range(count)) else tuple(range(count))
        )
        replicas, partitions = (known.replicas, known.partitions) if known else (1, self.size)
        alike = made(work.name, opcode, (), said.attributes)
        try:
            devices = Devices(Source("", "the profile"), replicas, partitions)
            if opcode == PERMUTE:
                text = said.attributes.get("source_target_pairs", "{}")
                pairs = tuple((table[a], table[b]) for a, b in devices.pairs(alike, text))
                groups: tuple[tuple[int, ...], ...] = ()
            else:
                pairs, groups = (), tuple(tuple(table[at] for at in each) for each in devices.groups(alike))
        except InputError:
            self._lost("their devices fit no number of devices that the profile has", work)
            return None
        if any(rank >= self.size for each in (*groups, *pairs) for rank in each):
            self._lost("some of their devices are not in these files", work)
            return None
        return Meeting(opcode, size, groups, pairs)

    def _met(self, meeting: Meeting, times: Counter[int]) -> Meeting | None:
        """Return what all its ranks recorded equally often, so that no rank waits for one that never comes."""
        groups = tuple(group for group in meeting.groups if len({times[rank] for rank in group}) == 1)
        if meeting.pairs and any(times[a] != times[b] for a, b in meeting.pairs):
            groups = ()
        elif meeting.pairs or groups == meeting.groups:
            return meeting
        self.warned["not all of their devices recorded them equally often"] += times.total()
        return Meeting(meeting.opcode, meeting.size, groups) if groups else None

    def _lost(self, why: str, work: Work) -> None:
        self._note(f"they take their recorded time on every machine: {why}", work)

    def _note(self, what: str, work: Work) -> None:
        self.warned[f"{what} (such as '{work.name[:60]}')"] += 1


def key_of(work: Work) -> Key | None:
    """Return under which key a work's communication is found; None if it communicates nothing, or is a -done."""
    if not work.opcode or work.opcode.endswith("-done") or not communicates(work.opcode):
        return None
    return work.program, re.sub(r"-start(?=[.\d]*$)", "", work.name)


def base(opcode: str) -> str:
    """Return an opcode without -start."""
    return opcode.removesuffix("-start")


def _by_traffic(opcode: str, work: Work, members: int) -> int | None:
    """Return the bytes that a rank gives, by those that the instruction reads and writes; None without them.

    XLA's ``bytes_accessed`` is operands and results: a gather's result is that of all members, as a scatter's operand.
    """
    moved = work.event.amount("bytes_accessed")
    if not moved:
        return None
    if opcode == "all-gather":
        return moved // (members + 1)
    if opcode == "reduce-scatter":
        return moved * members // (members + 1)
    return moved // 2 if opcode in COLLECTIVES else None
