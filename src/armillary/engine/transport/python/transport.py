"""Network models of other packages as a transport: the times that a `NetworkModel` returns become events.

Whole messages move, in whatever way the model decides; the engine only delivers each at the time returned. Ignored,
unless the model computes it: everything about sharing and queues. An answer is final, so a model cannot revise an
arrival when later messages compete. It costs two events per message and the model's own Python, about 0.1 ms for a
message with a model of 20 lines, and the whole engine runs interpreted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from armillary.base.errors import InputError
from armillary.base.hints import show
from armillary.engine.transport import layout as lk
from armillary.engine.transport.network_model import Link, Message, NetworkModel
from armillary.engine.transport.transport import Ints, Transport
from armillary.platform.network import NETWORK_MODELS
from armillary.platform.topology.graph import Topology


class PythonTransport(Transport):
    """Asks a `NetworkModel` when messages arrive; interpreted only.

    Args:
        model: The class that the entry point names.
        named: Its name.
        options: ``platform.network_model.options`` of the study.
        folder: The folder of the study.
        source: The file, line and key that name it, or empty.
    """

    name = "python"
    kernel = "armillary.engine.transport.python.python_kernel"
    in_python = True
    burst = message = 1

    def __init__(
        self,
        model: type[NetworkModel],
        named: str,
        options: Mapping[str, Any],
        folder: Path,
        source: str = "",
    ) -> None:
        self._class, self._named, self._options = model, named, options
        self._folder, self._source = folder, source
        self._run: PythonRun | None = None

    def state(self, topology: Topology) -> list[Ints]:
        """See `Transport.state`; each call begins a run of its own."""
        try:
            make = partial(self._class.create, self._options, topology, self._folder)
            model = NETWORK_MODELS.create(self._named, make, NetworkModel)
        except InputError as error:
            raise InputError(f"{self._source}: {error}" if self._source else str(error)) from error
        self._run = PythonRun(model, self._named)
        return [np.array([self._run.number])]

    def blocked(self, net: Ints, pool: Ints, table: Ints, topology: Topology) -> list[int]:
        """See `Transport.blocked`."""
        run = self._run
        return run.down(table.tolist(), int(net[lk.N_STAGE])) if run else []

    def abandoned(self, net: Ints, topology: Topology) -> list[str]:
        """See `Transport.abandoned`."""
        return self._run.lost if self._run else []


class PythonRun:
    """One simulation with a network model of another package.

    Attributes:
        number: Number by which its kernel finds it: kernels know numbers only.
        waiting: (row, route, bytes, urgency) of messages on whose routes a link is down.
        lost: Lines on messages that never arrive, the first few.
    """

    def __init__(self, model: NetworkModel, named: str) -> None:
        self._model, self._named = model, named
        self._leaving: dict[int, tuple[int, int, int]] = {}
        self._links: dict[tuple[int, int], tuple[Link, ...]] = {}
        self.waiting: list[int] = []
        self.lost: list[str] = []
        self._lost = 0
        self.number = next(_numbers)
        _runs[self.number] = self

    def leave(self, row: int, route: int, size: int, urgency: int) -> None:
        """Remember a message that is about to leave."""
        self._leaving[row] = route, size, urgency

    def again(self) -> list[int]:
        """Return the rows of the messages that wait for links, which the network's next stage may have up."""
        rows, self.waiting = self.waiting, []
        return rows

    def depart(
        self, rows: Sequence[int], table: Sequence[int], stage: int, now: int
    ) -> list[tuple[int, int]]:
        """Return (row, ps) of the messages among `rows` whose arrival is known."""
        going: list[int] = []
        messages: list[Message] = []
        for row in rows:
            route, size, urgency = self._leaving[row]
            # Stages have other bandwidths, so links are those of this stage.
            links = self.links(table, stage, route)
            if any(not link.bandwidth for link in links):
                self.waiting.append(row)
                continue
            going.append(row)
            messages.append(Message(links[0].source, links[-1].target, size, links, urgency))
        if not going:
            return []
        with NETWORK_MODELS.guard(self._named):
            times = self._model.arrivals(tuple(messages), now / lk.PS)
        if not isinstance(times, (Sequence, np.ndarray)) or isinstance(times, (str, bytes)):
            raise self._wrong(f"arrivals returned {show(times)}, expected a list of {len(going)} times")
        if len(times) != len(going):
            raise self._wrong(f"arrivals returned {len(times)} times, expected {len(going)}, one per message")
        found = []
        for row, message, time in zip(going, messages, times, strict=True):
            if time is None:
                # It stays in `_leaving`, and never arrives.
                self._lose(message, now)
                continue
            found.append((row, self._ps(time, message, now)))
            del self._leaving[row]
        return found

    def links(self, table: Sequence[int], stage: int, route: int) -> tuple[Link, ...]:
        """Return the links of a route, as they are in a stage."""
        # Routes repeat in every round of a collective: their `Link` objects are made once per stage.
        if (stage, route) not in self._links:
            first = table[lk.T_ROUTE_FIRST] + route
            at = table[lk.T_ROUTE_LINK]
            numbers = table[at + table[first] : at + table[first + 1]]
            self._links[stage, route] = tuple(_link(table, stage, int(number)) for number in numbers)
        return self._links[stage, route]

    def route(self, row: int) -> tuple[int, int]:
        """Return (route, bytes) of a message that has not left."""
        return self._leaving[row][:2]

    def down(self, table: Sequence[int], stage: int) -> list[int]:
        """Return the links that are down and that messages wait for, in ascending order."""
        routes = {self._leaving[row][0] for row in self.waiting}
        links = {link for route in routes for link in self.links(table, stage, route)}
        return sorted(link.number for link in links if not link.bandwidth)

    def _ps(self, time: Any, message: Message, now: int) -> int:
        what = f"says that {_name(message)}, which leaves at {now / lk.PS:g} ns, arrives at {show(time)}"
        # bool is an int in Python: True would be a time of 1 ns.
        if isinstance(time, bool) or not isinstance(time, (int, float, np.integer, np.floating)):
            raise self._wrong(f"{what}, expected a number of ns or None")
        if isinstance(time, (float, np.floating)) and not math.isfinite(time):
            raise self._wrong(f"{what}, expected a finite number, or None for never")
        # Whole numbers of ns stay exact; others are a ps off at most, which is less than a tick.
        ps = int(time) * lk.PS if time == int(time) else round(float(time) * lk.PS)
        if ps < now:
            raise self._wrong(f"{what}, expected no time before that")
        if ps >= lk.FOREVER:
            raise self._wrong(f"{what}, expected less than {lk.FOREVER // lk.PS} ns")
        return ps

    def _lose(self, message: Message, now: int) -> None:
        self._lost += 1
        # One line for the first and one for the number of the others: a model may lose every message.
        if self._lost == 1:
            self.lost.append(
                f"network model '{self._named}' says that {_name(message)}, which left at {now / lk.PS:g} ns, "
                "never arrives"
            )
        else:
            self.lost[1:] = [f"and {self._lost - 1} more"]

    def _wrong(self, problem: str) -> InputError:
        return InputError(f"network model '{self._named}': {problem}")


def _name(message: Message) -> str:
    return f"the message of {message.size} bytes from {message.source} to {message.target}"


def _link(table: Sequence[int], stage: int, number: int) -> Link:
    at = table[lk.T_LINK] + (stage * table[lk.T_LINKS] + number) * lk.L_COLUMNS
    slow, fast = table[at + lk.L_SLOW], table[at + lk.L_FAST]
    return Link(
        number, table[at + lk.L_TAIL], table[at + lk.L_HEAD], lk.PS * fast / slow if slow else 0.0,
        table[at + lk.L_LATENCY] / lk.PS, table[at + lk.L_BUFFER],
    )  # fmt: skip


# A process can run several simulations, one after the other or interleaved.
_numbers = count()
_runs: WeakValueDictionary[int, PythonRun] = WeakValueDictionary()
"""Those of this process that go on: each is kept by its transport."""


def run_of(number: int) -> PythonRun:
    """Return a run by its number."""
    return _runs[number]
