"""What lowering asks of a trace on a platform, whether its ranks are listed or follow from rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from math import ceil

import numpy as np
from numpy.typing import NDArray

from armillary.engine.common.classes import Workload, check_members, read_workload
from armillary.engine.common.communicators import Communicators
from armillary.engine.common.fold import Order, Ring, fold, pairs_of
from armillary.engine.common.items import Channel, View, channels_of, unreceived
from armillary.engine.common.jobs import Job
from armillary.engine.physical import layout as lk
from armillary.engine.physical.classes import lines_of, path_code, special_of
from armillary.engine.physical.courses import Course, course_of
from armillary.engine.physical.fitted import fit_warnings, largest_message
from armillary.engine.physical.memory import OPERATIONS, Groups, refined
from armillary.engine.physical.nodes import lower_nodes
from armillary.engine.physical.splits import join_splits
from armillary.platform.model import Platform
from armillary.trace import Trace

Ints = NDArray[np.int64]
SET = frozenset({Order("set", (), True)})
"""A member of a line deals with all the others alike."""


class PhysicalWorkload(ABC):
    """A trace on a platform: what each rank does and with whom.

    `lower` calls `classify`, and then asks for the ranks that stand for a class, for those that they exchange
    messages with, and for one member of each class in their communicators.
    """

    platform: Platform
    comms: Communicators
    views: list[View]
    """Distinct views; with rules, their jobs and peers are rules too."""
    fluid = True
    """Whether volumes go at the rates of ports; else messages move."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self._courses: dict[Job, Course] = {}

    @abstractmethod
    def view(self, rank: int) -> View:
        """Return what a rank does: the same object for the same rank."""

    @abstractmethod
    def kind(self, rank: int) -> int:
        """Return a number: ranks that share it have the same nodes, and communicators in the same slots."""

    @abstractmethod
    def slots(self, rank: int) -> dict[int, int]:
        """Return the communicators of a rank by number, with their place in order of first use."""

    @abstractmethod
    def channel(self, channel: Channel) -> tuple[list[int], list[int]]:
        """Return the items that send on a channel and those that receive."""

    def names_of_all(self) -> tuple[str, ...]:
        """Return what groups of all ranks are called in the trace, beside nothing."""
        return ()

    def group_names(self, numbers: Iterable[int]) -> dict[int, str]:
        """Return the names of those of these groups that have one."""
        return {}

    @abstractmethod
    def warnings(self) -> list[str]:
        """Return what is odd about the messages."""

    @property
    @abstractmethod
    def jobs(self) -> Sequence[Job]:
        """The jobs of all groups, at least one of those that are alike."""

    @abstractmethod
    def partition(self, special: Ints) -> Ints:
        """Return the class of every rank, by `fold`; ranks whose `special` number differs are never in one."""

    @abstractmethod
    def memory_groups(self) -> Groups:
        """Return the groups that access a memory at once."""

    @property
    @abstractmethod
    def loses_messages(self) -> bool:
        """Whether a message is sent that no rank receives."""

    def classify(self) -> Ints:
        """Return the class of every rank; ranks that may differ by more than whom they deal with are their own."""
        shared = self.platform.memory.kind in ("pool", "per-node") and any(
            (view.nodes.kind == lk.MEMORY).any() for view in self.views
        )
        # A message that nobody receives takes part of a port that its receiver does not know of.
        if shared or self.loses_messages or self.platform.physical.jitter:
            return np.arange(self.platform.npus)
        return refined(self.platform, special_of(self.platform), self.partition, self.memory_groups())

    def course(self, job: Job) -> Course:
        """Return what the chunks of a job do."""
        if job not in self._courses:
            self._courses[job] = course_of(job, self.comms.get(job.comm), self.platform)
        return self._courses[job]

    def largest(self) -> int:
        """Return the most bytes that anything moves through a port."""
        moved = [ceil(p.volume * (job.size + 1)) for job in self.jobs for p in self.course(job).phases]
        for view in self.views:
            alone = (view.peer >= 0) | (view.nodes.kind[view.nodes.items] == lk.TRANSFER)
            moved.append(int(view.size[alone].max(initial=0)))
        if self.platform.physical.fit or self.platform.physical.terms.communication:
            moved.append(largest_message(self.platform, self._message_sizes()))
        return max([1, *moved])

    def _message_sizes(self) -> list[int]:
        sizes = [np.unique(view.size[view.peer >= 0]) for view in self.views]
        found: list[int] = np.unique(np.concatenate(sizes)).tolist() if sizes else []
        return found

    def fit_warnings(self) -> list[str]:
        """Return what a person should know of a fit that times what is communicated."""
        if self.platform.physical.fit is None:
            return []
        jobs = ((job, self.comms.get(job.comm)) for job in self.jobs)
        return fit_warnings(self.platform, jobs, self._message_sizes())


class ListedWorkload(PhysicalWorkload):
    """A trace that lists groups and peers rank by rank."""

    def __init__(self, trace: Trace, platform: Platform) -> None:
        """Read a trace.

        Raises:
            InputError: it does not fit the platform, or something in it cannot be simulated.
        """
        super().__init__(platform)
        views, view_of, self.comms, self.structure = read_workload(trace, platform, lower_nodes, fill=True)
        self.views, view_of = join_splits(trace, views, view_of, self.comms)
        channels = channels_of(self.views, view_of)
        self.read = Workload(trace, platform, self.comms, self.views, view_of, channels)
        check_members(self.read)

    def view(self, rank: int) -> View:
        """See `PhysicalWorkload`."""
        return self.views[self.kind(rank)]

    def kind(self, rank: int) -> int:
        """See `PhysicalWorkload`."""
        return int(self.read.view_of[rank])

    def slots(self, rank: int) -> dict[int, int]:
        """See `PhysicalWorkload`."""
        return self.read.slots(rank)

    def channel(self, channel: Channel) -> tuple[list[int], list[int]]:
        """See `PhysicalWorkload`."""
        return self.read.channel(channel)

    def warnings(self) -> list[str]:
        """See `PhysicalWorkload`."""
        return unreceived(self.read.channels)

    @property
    def loses_messages(self) -> bool:
        """See `PhysicalWorkload`."""
        return any(len(sends) > len(receives) for sends, receives in self.read.channels.values())

    def memory_groups(self) -> Groups:
        """See `PhysicalWorkload`."""
        numbers = dict.fromkeys(job.comm for job in self.jobs if job.operation in OPERATIONS)
        members = ((number, self.comms.get(number).members) for number in numbers)
        return [
            (ranks, np.array([self.slots(rank).get(number, -1) for rank in ranks.tolist()]))
            for number, ranks in members
        ]

    @cached_property
    def jobs(self) -> list[Job]:
        """The distinct jobs of all views."""
        return list(dict.fromkeys(job for view in self.views for job in view.jobs))

    def partition(self, special: Ints) -> Ints:
        """See `PhysicalWorkload`."""
        read = self.read
        patterns: dict[tuple[bytes, bytes], int] = {}
        costs: dict[Course, int] = {}
        keys = ((view.pattern(), self._costs(view, costs)) for view in self.views)
        pattern = np.array([patterns.setdefault(key, len(patterns)) for key in keys])
        colour = self.structure.astype(np.int64) * len(patterns) + pattern[read.view_of]
        colour = colour * (int(special.max()) + 1) + special
        rings = []
        # A collective that moves nothing has no phases, but its members still meet.
        for number, dim in dict.fromkeys((job.comm, d) for job in self.jobs for d in self.course(job).dims):
            lines = lines_of(self.platform, self.comms.get(number), dim)
            rings.append(Ring(dim, lines, SET, read.slots_in(number, lines)))
        pairs = pairs_of(self.views, read.view_of, read.channels, self.platform, path_code)
        return fold(colour, rings, pairs, self.platform.dimensions)

    def _costs(self, view: View, known: dict[Course, int]) -> bytes:
        """Return what the collectives of a view cost, as a key: groups of other ranks may have another shape."""
        found = [known.setdefault(self.course(job).stripped(), len(known)) for job in view.jobs]
        return np.array(found, np.int64)[view.job[view.job >= 0]].tobytes()
