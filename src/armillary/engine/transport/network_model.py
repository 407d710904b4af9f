"""The protocol of network models in Python: what another package implements to say when messages arrive.

The engine moves every message of every collective; it asks a network model of another package when each arrives. The
built-in models are kernels instead (`armillary.engine.transport.transport`): 64,512 messages of an all-to-all took 6 s
with a model of 20 lines, and 0.12 s in `congestion`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from armillary.platform.topology.graph import Topology


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link, as it is now: a failure or repair gives messages that leave later another `Link`.

    Attributes:
        number: Its place among the links of the topology.
        source: The node that it leaves; NPUs are the nodes from 0 on.
        target: The node that it leads to.
        bandwidth: Bytes per ns.
        latency: ns.
        buffer: Bytes that fit the buffer at its end; very large where it has no end.
    """

    number: int
    source: int
    target: int
    bandwidth: float
    latency: float
    buffer: int


@dataclass(frozen=True, slots=True)
class Message:
    """A message that leaves its NPU.

    Attributes:
        source: NPU (or switch that reduces) that sends it.
        target: The same that receives it.
        size: Bytes, 0 or more.
        links: Its route, from the source on; at least one link, and none of them is down.
        urgency: Its place in the order of urgency (`scheduling`): the lowest is first.
    """

    source: int
    target: int
    size: int
    links: tuple[Link, ...]
    urgency: int


class NetworkModel(ABC):
    """Says when messages arrive.

    A simulation calls `create` once and then `arrivals` whenever messages leave, in the order of time. An answer is
    final: a message arrives at the time that `arrivals` returned for it. The same calls must give the same times.

    The engine does the rest: it runs the rounds of collectives, finds routes, lets messages wait while a link of their
    route is down, and counts what links carry. A message within one node arrives at once, without a call.

    A package adds a model by an entry point of the group ``armillary.transport`` that names the class;
    `armillary.testing.network` checks that a model keeps to this.
    """

    @classmethod
    @abstractmethod
    def create(cls, options: Mapping[str, Any], topology: Topology, folder: Path) -> NetworkModel:
        """Return the model.

        Args:
            options: ``platform.network_model.options`` of the study, as YAML gives them.
            topology: The network: numbers of its NPUs, nodes and links, and names of links (`Topology.link_name`).
            folder: That of the study: what paths in the options are relative to.

        Raises:
            InputError: an option is wrong: say which, its value, and what was expected.
        """

    @abstractmethod
    def arrivals(self, messages: Sequence[Message], now: float) -> Sequence[float | None]:
        """Return when each of some messages arrives, with its last byte.

        Args:
            messages: All that leave at this time, at least one, in the order in which they were sent.
            now: When they leave, ns from the begin of the simulation; never before that of an earlier call.

        Returns:
            (messages) ns from the begin of the simulation, at least `now`; what it says is rounded to a ps, and the
            receiver sees it at the end of that ns. None: it never arrives, and the simulation ends in a table of who
            waits for whom.

        Raises:
            InputError: a message cannot be moved.
        """
