"""Schedules and plans against ASTRA-sim: one chunk of one collective, in the slowest obvious simulator."""

from __future__ import annotations

import gzip
import heapq
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from armillary.engine.astra_sim.collective import Phase, Schedule, next_size, plan, schedule_for
from armillary.platform.collectives import Algorithm

OPERATIONS = {0: "all-reduce", 2: "all-gather", 6: "all-to-all", 7: "reduce-scatter"}
MOST_NPUS = 32


def cases(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the runs of one chunk of one collective over the whole machine."""
    for path in sorted((folder / "oracle").glob("*.jsonl.gz")):
        if path.name.startswith("themis"):
            continue
        with gzip.open(path) as lines:
            for line in lines:
                if b'"preferred-dataset-splits":1,' not in line or b'"unaware"' not in line:
                    continue
                case = json.loads(line)
                nodes = case["workload"].get("all", [])
                if (
                    case["outcome"] == "ok"
                    and not case["comm_groups"]
                    and not case["system"].get("model-shared-bus")
                    and not any("rendezvous" in flag for flag in case["cli"])
                    and [node["type"] for node in nodes] == ["COMM_COLL_NODE"]
                    and sum(count for _, count in case["finish"]) <= MOST_NPUS
                ):
                    yield case


def phases_of(case: dict[str, Any]) -> tuple[str, int, tuple[Phase, ...]]:
    """Return operation, bytes and phases of the collective of `case`."""
    attrs = {name: value for name, _, value in case["workload"]["all"][0]["attrs"]}
    operation, size = OPERATIONS[attrs["comm_type"]], attrs["comm_size"]
    algorithms = []
    for text in case["system"][operation + "-implementation"]:
        name, window = re.fullmatch(r"([A-Za-z]+)(\d*)", text).groups()
        algorithms.append(Algorithm(name, int(window) if window else None))
    sizes = case["network"]["npus_count"]
    npus = sum(count for _, count in case["finish"])
    if operation != "all-gather":
        size = max(size, npus)
    return operation, size, plan(operation, algorithms, sizes, case["system"]["collective-optimization"])


class Machine:
    """One stream of every NPU, event by event, on a network without contention."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.network, system = case["network"], case["system"]
        self.sizes = self.network["npus_count"]
        self.endpoint = int(system.get("endpoint-delay", 10))
        self.memory = system.get("local-mem-bw", 0) * 1e9
        _, size, self.phases = phases_of(case)
        self.schedules: list[tuple[Schedule, int]] = []
        trees: Counter[int] = Counter()
        for phase in self.phases:
            schedule = schedule_for(
                phase.algorithm, phase.operation, phase.size, window=phase.window, index=trees[phase.level]
            )
            trees[phase.level] += 1
            self.schedules.append((schedule, size))
            size = next_size(phase.operation, size, phase.size, phase.algorithm)
        self.events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.order = itertools.count()
        self.waiting: defaultdict[tuple[int, int, int], list[int]] = defaultdict(lambda: [0, 0])
        npus = range(sum(count for _, count in case["finish"]))
        self.phase, self.finish = [-1 for _ in npus], [0 for _ in npus]
        self.done, self.received, self.inserted = ([0 for _ in npus] for _ in range(3))
        self.cursor = [[0, 0] for _ in npus]
        for npu in npus:
            self.enter(npu, 0)
        while self.events:
            time, _, action, arguments = heapq.heappop(self.events)
            action(*arguments, time)

    def at(self, time: int, action: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self.events, (time, next(self.order), action, arguments))

    def enter(self, npu: int, time: int) -> None:
        self.phase[npu] += 1
        self.finish[npu] = time
        self.done[npu] = self.received[npu] = self.inserted[npu] = 0
        self.cursor[npu] = [0, 0]
        if self.phase[npu] < len(self.phases):
            for _ in range(self.role(npu).initial):
                self.insert(npu, time)
            self.post(npu, time)

    def stride(self, npu: int) -> tuple[int, int]:
        """Return (NPUs between neighbours, index in the group) for the phase of `npu`."""
        phase, stride = self.phases[self.phase[npu]], 1
        for size in self.sizes[: max(phase.dim, 0)]:
            stride *= size
        return stride, npu // stride % phase.size

    def role(self, npu: int) -> Any:
        return self.schedules[self.phase[npu]][0].role(self.stride(npu)[1])

    def insert(self, npu: int, time: int) -> None:
        charge = self.role(npu).charges[self.inserted[npu]]
        self.inserted[npu] += 1
        size = self.schedules[self.phase[npu]][1] // charge.divide * charge.multiply
        reduction = 3 * int(size / self.memory * 1e9) if charge.reduce and self.memory else 0
        self.at(time + self.endpoint + reduction, self.complete, npu)

    def complete(self, npu: int, time: int) -> None:
        self.done[npu] += 1
        self.post(npu, time)
        if self.done[npu] == len(self.role(npu).charges):
            self.enter(npu, time)

    def post(self, npu: int, time: int) -> None:
        schedule, phase_bytes = self.schedules[self.phase[npu]]
        stride, index = self.stride(npu)
        role, cursor = schedule.role(index), self.cursor[npu]
        for side, transfers in enumerate((role.sends, role.receives)):
            while cursor[side] < len(transfers):
                transfer = transfers[cursor[side]]
                if transfer.after_done > self.done[npu] or transfer.after_received > self.received[npu]:
                    break
                cursor[side] += 1
                peer = npu + (schedule.peer(index, transfer) - index) * stride
                size = phase_bytes // transfer.divide * transfer.multiply
                if side == 0:
                    self.at(time + self.delay(npu, peer, size), self.arrive, npu, peer, size)
                elif self.waiting[peer, npu, size][0]:
                    self.waiting[peer, npu, size][0] -= 1
                    self.at(time, self.receive, npu)
                else:
                    self.waiting[peer, npu, size][1] += 1

    def arrive(self, source: int, target: int, size: int, time: int) -> None:
        waiting = self.waiting[source, target, size]
        if waiting[1]:
            waiting[1] -= 1
            self.receive(target, time)
        else:
            waiting[0] += 1

    def receive(self, npu: int, time: int) -> None:
        self.received[npu] += 1
        self.insert(npu, time)

    def delay(self, source: int, target: int, size: int) -> int:
        for dim, n in enumerate(self.sizes):
            distance = abs(source % n - target % n)
            if distance:
                topology = self.network["topology"][dim]
                hops = {"Ring": min(distance, n - distance), "FullyConnected": 1, "Switch": 2}[topology]
                rate = self.network["bandwidth"][dim] * 2**30 / 10**9
                return int(hops * self.network["latency"][dim] + size / rate)
            source, target = source // n, target // n
        raise AssertionError("a message to oneself")


@pytest.mark.shared
def test_finish_ticks_of_single_chunks(shared: Path) -> None:
    wrong, seen = [], Counter()
    for case in cases(shared):
        operation, _, phases = phases_of(case)
        seen[operation, len(phases) > 1] += 1
        expected = [tick for tick, count in case["finish"] for _ in range(count)]
        if Machine(case).finish != expected:
            wrong.append(case["id"])
    assert not wrong, f"{len(wrong)} of {seen.total()} differ"
    assert len(seen) == 8
    assert seen.total() > 500
