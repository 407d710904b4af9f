"""Split the tasks of all devices into one graph per device: transfers become matched sends and receives."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from armillary.convert.flexflow.task_graph import Task
from armillary.convert.groups import Groups
from armillary.trace import Graph, GraphBuilder, Trace


class Split:
    """The tasks of `devices`, ascending, which become ranks 0, 1, ….

    A send waits for the parents of its transfer, a receive for nothing. Tags distinguish the messages between two
    ranks. A task that waits for a task of another rank without a transfer between them gets a message of 1 byte.
    """

    def __init__(self, tasks: Sequence[Task], all_reduce: bool) -> None:
        """Split `tasks`, each after its parents; see `updates` for `all_reduce`."""
        self.tasks = tasks
        # A device may only send: then no task has it as its target.
        ends = {task.target for task in tasks} | {t.source for t in tasks if t.source is not None}
        self.devices = sorted(ends)
        self.rank = {device: rank for rank, device in enumerate(self.devices)}
        self.builders = [GraphBuilder(rank=rank) for rank in range(len(self.devices))]
        self.groups = Groups(len(self.devices))
        self.nodes: list[dict[int, int]] = [{} for _ in tasks]
        """For each task, by rank: the node whose end shows that rank that the task is done."""
        self.empty = 0
        """Transfers of no bytes, which become 1 byte."""
        self.bare = 0
        """Dependencies between devices without a transfer."""
        self.updates = updates(tasks) if all_reduce else {}
        self._tags: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._last: dict[int, int] = {}
        # Transfers that an all-reduce replaces; `_all_reduce` gives those that others wait for their node.
        absorbed = {transfer for parts in self.updates.values() for transfer in (*parts[0], *parts[1])}
        for index, task in enumerate(tasks):
            if index in self.updates:
                self._all_reduce(index, *self.updates[index])
            elif index in absorbed:
                continue
            elif task.source is None or task.source == task.target:
                # A transfer within a device uses no network and keeps its time.
                rank = self.rank[task.target]
                self.nodes[index] = {rank: self._timed(rank, task, self._after(task.parents, rank))}
            else:
                source, target = self.rank[task.source], self.rank[task.target]
                after = self._after(task.parents, source)
                self.nodes[index] = self._message(source, target, max(task.size, 1), task.name, after)
                self.empty += not task.size

    def trace(self, source: str) -> Trace:
        """Return the graphs, one object for ranks that do the same."""
        shared: dict[object, Graph] = {}
        graphs = []
        for rank, builder in enumerate(self.builders):
            self.groups.metadata(builder)
            # Everything of a node but its id, which follows from its place.
            key = tuple(
                (n.name, n.type, tuple(n.ctrl_deps), tuple(n.data_deps), n.inputs, tuple(n.attrs))
                for n in builder.nodes
            )
            if key not in shared:
                shared[key] = builder.graph(f"{source}: rank {rank}")
            graphs.append(shared[key])
        return Trace.from_ranks(graphs)

    def _after(self, tasks: Sequence[int], rank: int) -> list[int]:
        """Return the nodes of `rank` whose end shows that `tasks` are done."""
        return list(dict.fromkeys(self._seen(task, rank) for task in tasks))

    def _seen(self, index: int, rank: int) -> int:
        nodes = self.nodes[index]
        if rank not in nodes:
            task = self.tasks[index]
            # A message of 1 byte carries the news; entered below, it serves all that wait for the task on this rank.
            home = self.rank[task.target]
            self.bare += 1
            nodes[rank] = self._message(home, rank, 1, f"{task.name} {task.phase} done", [nodes[home]])[rank]
        return nodes[rank]

    def _message(
        self, source: int, target: int, size: int, name: str, after: Sequence[int]
    ) -> dict[int, int]:
        # Numbered by pair of ranks, so that messages match whatever order the two sides reach them in.
        tag = self._tags[source, target]
        self._tags[source, target] += 1
        return {
            source: self.builders[source].send(target, size, tag, name=name, after=after),
            target: self.builders[target].recv(source, size, tag, name=name),
        }

    def _timed(self, rank: int, task: Task, after: Sequence[int]) -> int:
        builder = self.builders[rank]
        name = task.name if task.name == task.phase else f"{task.name} {task.phase}"
        node = builder.compute(name, duration_micros=(task.nanoseconds + 500) // 1000, after=after)
        builder.nodes[-1].attrs.append(("duration_ns", "int64", task.nanoseconds))
        return node

    def _all_reduce(self, index: int, gathered: Sequence[int], spread: Sequence[int]) -> None:
        """Put one collective on every device of an update, and the update itself after that of its own device.

        Those of a rank run one after the other, as on one stream of NCCL: every rank has them in the same order.
        """
        task, size = self.tasks[index], self.tasks[gathered[0]].size
        root = self.rank[task.target]
        # By rank: what its part of the all-reduce waits for. (A transfer has a source; `or 0` is for the types.)
        waits = {
            self.rank[self.tasks[transfer].source or 0]: self.tasks[transfer].parents for transfer in gathered
        }
        waits[root] = [parent for parent in task.parents if parent not in gathered]
        ranks = sorted(waits)
        number = self.groups.number(ranks)
        nodes = {}
        for rank in ranks:
            last = (self._last[rank],) if rank in self._last else ()
            after = self._after(waits[rank], rank)
            nodes[rank] = self._last[rank] = self.builders[rank].all_reduce(
                task.name, max(size, 1), group=number or None, after=after, ctrl_after=last
            )
        for transfer in spread:
            target = self.rank[self.tasks[transfer].target]
            self.nodes[transfer] = {target: nodes[target]}
        self.nodes[index] = {root: self._timed(root, task, [nodes[root]])}


def updates(tasks: Sequence[Task]) -> dict[int, tuple[list[int], list[int]]]:
    """Return, by index, the updates that are an all-reduce in disguise: (transfers to the update, transfers from it).

    FlexFlow's simulator sends the gradients of all replicas to the device of the first and the new weights
    back. Both directions have one size and the same devices, and nothing but the update comes between them.
    """
    children: list[list[int]] = [[] for _ in tasks]
    for index, task in enumerate(tasks):
        for parent in task.parents:
            children[parent].append(index)
    found = {}
    for index, task in enumerate(tasks):
        if task.phase != "Update" or task.source is not None:
            continue
        gathered = [p for p in task.parents if tasks[p].source is not None]
        spread = [c for c in children[index] if tasks[c].source is not None]
        sources = [tasks[transfer].source for transfer in gathered]
        # An all-reduce in disguise: every replica but the first sends once, the same devices receive, all
        # the same size; only the update waits for the gradients, and the new weights wait for the update
        # alone.
        if (
            sources
            and len({*sources, task.target}) == len(sources) + 1
            and sorted(map(repr, sources)) == sorted(repr(tasks[transfer].target) for transfer in spread)
            and len({tasks[transfer].size for transfer in (*gathered, *spread)}) == 1
            and all(children[t] == [index] and tasks[t].target == task.target for t in gathered)
            and all(tasks[t].parents == [index] and tasks[t].source == task.target for t in spread)
        ):
            found[index] = (gathered, spread)
    return found
