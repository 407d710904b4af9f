"""The suite for network models holds for all that are built in, and finds what is wrong with others."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.engine.transport import Message, NetworkModel
from armillary.engine.transport.ns3.library import available
from armillary.platform import NetworkChoice, Packets
from armillary.platform.network import NETWORK_MODELS
from armillary.platform.topology import Topology
from armillary.testing.network import check_network_model, sample_machine

Install = Callable[[Any], None]
CASES = [*((name, "lossless") for name in NETWORK_MODELS.built_in), ("packet", "credit"), ("packet", "tcp")]


class Fixed(NetworkModel):
    """A latency for every link, and a rate that all messages have for themselves."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    @classmethod
    def create(cls, options: Mapping[str, Any], topology: Topology, folder: Path) -> NetworkModel:
        return cls(options.get("rate", 1.0))

    def arrivals(self, messages: Sequence[Message], now: float) -> Sequence[float | None]:
        return [self.arrival(message, now) for message in messages]

    def arrival(self, message: Message, now: float) -> float | None:
        return now + message.size / self.rate + sum(link.latency for link in message.links)


class Loses(Fixed):
    def arrival(self, message: Message, now: float) -> float | None:
        return None if message.source == 3 else super().arrival(message, now)


class Foresees(Fixed):
    def arrival(self, message: Message, now: float) -> float | None:
        return now - 1 if message.size else now


class PrefersLarge(Fixed):
    def arrival(self, message: Message, now: float) -> float | None:
        return now + 10_000_000 - message.size


class Slower(Fixed):
    def arrival(self, message: Message, now: float) -> float | None:
        return now + message.size * (1 + now / 1e6)


class Random(Fixed):
    def arrival(self, message: Message, now: float) -> float | None:
        return now + message.size + (random.random() * 1000 if now else 0)


class Crashes(Fixed):
    def arrival(self, message: Message, now: float) -> float | None:
        raise KeyError(message.urgency)


class Forgets(Fixed):
    def arrivals(self, messages: Sequence[Message], now: float) -> Sequence[float | None]:
        return [now]


@pytest.mark.parametrize(("name", "protocol"), CASES)
def test_every_network_model_that_is_built_in(name: str, protocol: Any) -> None:
    if name == "ns3" and not available():
        pytest.skip("needs ns-3")
    check_network_model(name, replace(sample_machine(), packets=Packets(protocol)))


def test_one_of_another_package(install: Install) -> None:
    install(Fixed)
    check_network_model("mine")
    options = NetworkChoice("mine", {"rate": 7.5})
    check_network_model("mine", replace(sample_machine(), network_model=options))


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Loses, "never arrive"),
        (Foresees, "expected no time before that"),
        (PrefersLarge, "one of fewer bytes at"),
        (Slower, "the network was idle"),
        (Random, "arrive at other times when moved again|the network was idle"),
        (Crashes, "'mine' failed: KeyError: 0"),
        (Forgets, "arrivals returned 1 times, expected"),
    ],
)
def test_what_is_wrong_is_found(kind: type, problem: str, install: Install) -> None:
    install(kind)
    with pytest.raises(AssertionError, match=problem):
        check_network_model("mine")


def test_what_is_none_is_refused(install: Install) -> None:
    install(Path)
    for name, problem in (
        ("mine", "expected a subclass of NetworkModel"),
        ("yours", "no network model 'yours'"),
    ):
        with pytest.raises(InputError, match=problem):
            check_network_model(name)
