"""Network models of other packages: what they are told, what becomes of what they say, and of what is wrong."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

import pytest
from click.testing import CliRunner, Result

import armillary
from armillary.base.errors import InputError, StuckError
from armillary.base.extension import ExtensionPoint
from armillary.cli import main
from armillary.engine.transport import Message, NetworkModel
from armillary.platform import Dimension, NetworkChoice, Platform
from armillary.platform.files.native import load_platform
from armillary.platform.topology import Topology
from armillary.trace import GraphBuilder, Trace

CHAIN = "from,to,bandwidth,latency\nnpu 0,sw,10 GB/s,1 us\nnpu 1,sw,10 GB/s,1 us\n"
NODE = Dimension("node", "Switch", 4, 100.0, 500.0)


class Known(NetworkModel):
    """As on links of its own for every message; remembers what it was told."""

    told: list[tuple[float, tuple[Message, ...]]]
    made: tuple[Mapping[str, Any], Topology, Path]
    alive: ClassVar[WeakSet[NetworkModel]] = WeakSet()

    @classmethod
    def create(cls, options: Mapping[str, Any], topology: Topology, folder: Path) -> NetworkModel:
        Known.told, Known.made = [], (options, topology, folder)
        made = cls()
        Known.alive.add(made)
        return made

    def arrivals(self, messages: Sequence[Message], now: float) -> Sequence[Any]:
        Known.told.append((now, tuple(messages)))
        return [self.arrival(message, now) for message in messages]

    def arrival(self, message: Message, now: float) -> Any:
        slowest = min(link.bandwidth for link in message.links)
        return now + message.size / slowest + sum(link.latency for link in message.links)


@pytest.fixture(autouse=True)
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let "mine" be a network model that answers so."""

    def install(kind: Any) -> None:
        class Point:
            name = "mine"

            def load(self) -> Any:
                return kind

        monkeypatch.setattr(ExtensionPoint, "others", lambda point: {"mine": Point()})

    install(Known)
    return install


def says(value: Any) -> type[NetworkModel]:
    class Says(Known):
        def arrivals(self, messages: Sequence[Message], now: float) -> Any:
            return value(messages, now) if callable(value) else value

    return Says


def all_reduce(npus: int = 4, size: int = 4_000_000) -> Trace:
    b = GraphBuilder()
    b.all_reduce("sum", size)
    return Trace.replicate(b.graph(), npus)


def message(after: int = 0, size: int = 100_000) -> Trace:
    a, b = GraphBuilder(rank=0), GraphBuilder(rank=1)
    a.send(1, size, after=[a.compute("wait", duration_micros=after)] if after else [])
    b.recv(0, size)
    return Trace.from_ranks([a.graph(), b.graph()])


def test_a_ring_takes_what_its_rounds_take() -> None:
    ring = Platform((replace(NODE, topology="Ring"),))
    found = armillary.simulate(all_reduce(), ring, network_model="mine")
    # 2 (n - 1) rounds of a quarter, of which half goes each way around.
    assert found.total_ticks == 6 * (500_000 / 100 + 500)
    assert found.network is not None
    assert (found.network.use.size[found.network.use.size > 0] == 6 * 500_000).all()
    assert found.info["network_model"] == "mine"


def test_messages_that_leave_together_come_in_one_call() -> None:
    armillary.simulate(all_reduce(), Platform((NODE,)), network_model="mine")
    times = [now for now, _ in Known.told]
    assert times == sorted(set(times))
    _, first = Known.told[0]
    assert {(each.source, each.target) for each in first} == {(i, i ^ 1) for i in range(4)}
    for each in first:
        assert each.links[0].source == each.source and each.links[-1].target == each.target
        assert [(link.bandwidth, link.latency) for link in each.links] == [(100.0, 500.0)] * 2


def test_what_a_study_says_reaches_the_model(tmp_path: Path) -> None:
    study = tmp_path / "s.yaml"
    network = "network: [{name: node, topology: Switch, size: 4, bandwidth: 100 GB/s, latency: 500 ns}]"
    study.write_text(f"platform:\n  {network}\n  network_model: {{name: mine, options: {{rate: 3}}}}\n")
    machine = load_platform(study)
    assert machine.network_model == NetworkChoice("mine", {"rate": 3})
    assert armillary.simulate(all_reduce(), machine).info["network_model"] == "mine"
    options, topology, folder = Known.made
    assert options == {"rate": 3} and topology.npus == 4 and folder == tmp_path
    other = armillary.simulate(all_reduce(), machine, network_model="flow")
    assert any(
        "network_model.options has no effect in network model flow" in w for w in other.info["warnings"]
    )
    study.write_text(f"platform:\n  {network}\n  network_model: congestion\n")
    assert armillary.simulate(all_reduce(), load_platform(study)).info["network_model"] == "congestion"


def graph(tmp_path: Path, failures: str) -> Platform:
    (tmp_path / "chain.csv").write_text(CHAIN)
    study = tmp_path / "s.yaml"
    study.write_text(f"platform:\n  topology: {{kind: file, file: chain.csv, failures: [{failures}]}}\n")
    return load_platform(study)


def test_messages_wait_for_links_that_are_down(tmp_path: Path) -> None:
    up = armillary.simulate(message(20), graph(tmp_path, ""), network_model="mine").total_ticks
    assert up == 20_000 + 10_000 + 2_000
    back = graph(tmp_path, "{link: [npu 0, sw], at: 5 us, until: 100 us}")
    assert armillary.simulate(message(20), back, network_model="mine").total_ticks == 100_000 + 12_000
    with pytest.raises(
        StuckError, match=r"never arrives\nmessages wait for npu 0 → sw, which is down from 5 µs"
    ):
        armillary.simulate(
            message(20), graph(tmp_path, "{link: [npu 0, sw], at: 5 us}"), network_model="mine"
        )


def test_slower_links_are_told(tmp_path: Path) -> None:
    slow = graph(tmp_path, "{link: [npu 0, sw], at: 5 us, bandwidth: 25 %}")
    found = armillary.simulate(message(20), slow, network_model="mine")
    assert found.total_ticks == 20_000 + 40_000 + 2_000


def test_a_message_that_never_arrives_is_named(answer: Callable[[Any], None]) -> None:
    answer(says(lambda messages, now: [None if each.source == 2 else now + 1 for each in messages]))
    with pytest.raises(StuckError) as stuck:
        armillary.simulate(all_reduce(), Platform((NODE,)), network_model="mine")
    text = str(stuck.value)
    assert "rank" in text and "waits for" in text and "never arrive" in text
    assert "network model 'mine' says that the message of 2000000 bytes from 2 to 3" in text


WRONG = [
    (None, "arrivals returned nothing, expected a list of 4 times"),
    ("soon", "arrivals returned 'soon', expected a list"),
    ([1, 2], "arrivals returned 2 times, expected 4"),
    ([-1.0] * 4, "arrives at -1.0, expected no time before that"),
    (["soon"] * 4, "arrives at 'soon', expected a number of ns or None"),
    ([True] * 4, "expected a number of ns or None"),
    ([float("nan")] * 4, "expected a finite number"),
    ([float("inf")] * 4, "expected a finite number, or None for never"),
    ([10**400] * 4, "expected less than"),
    ([1e300] * 4, "expected less than"),
    (lambda messages, now: 1 / 0, "'mine' failed: ZeroDivisionError"),
]


@pytest.mark.parametrize(("value", "problem"), WRONG)
def test_wrong_answers_are_one_error(value: Any, problem: str, answer: Callable[[Any], None]) -> None:
    answer(says(value))
    with pytest.raises(InputError, match=problem):
        armillary.simulate(all_reduce(), Platform((NODE,)), network_model="mine")


class Unmade(Known):
    @classmethod
    def create(cls, options: Mapping[str, Any], topology: Topology, folder: Path) -> Any:
        return 5


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Path, "is <class 'pathlib.Path'>, expected a subclass of NetworkModel"),
        (Unmade, "create returned 5, expected a NetworkModel"),
        (NetworkModel, "create returned nothing, expected a NetworkModel"),
    ],
)
def test_what_is_no_model_is_one_error(kind: Any, problem: str, answer: Callable[[Any], None]) -> None:
    answer(kind)
    with pytest.raises(InputError, match=problem):
        armillary.simulate(all_reduce(), Platform((NODE,)), network_model="mine")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["run", *words])


def test_on_the_command_line(tmp_path: Path, answer: Callable[[Any], None]) -> None:
    study = tmp_path / "s.yaml"
    study.write_text(
        "workload: {collective: all-reduce, size: 1 MB}\n"
        "platform:\n  network: [{name: node, topology: Switch, size: 4, bandwidth: 100 GB/s, latency: 500 ns}]\n"
    )
    done = run(str(study), "--network-model", "mine")
    assert done.exit_code == 0 and "mine network" in done.output
    assert "|mine]" in CliRunner().invoke(main, ["run", "--help"]).output
    answer(says([None]))
    wrong = run(str(study), "--network-model", "mine")
    assert wrong.exit_code == 2 and wrong.stderr.count("\n") == 1 and "'mine'" in wrong.stderr
    answer(says(lambda messages, now: [None] * len(messages)))
    stuck = run(str(study), "--network-model", "mine")
    assert stuck.exit_code == 3 and "waits for" in stuck.stderr and "Traceback" not in stuck.output
    unknown = run(str(study), "--network-model", "mien")
    assert unknown.exit_code == 2 and "did you mean 'mine'?" in unknown.stderr
    other = run(str(study), "--network-model", "mine", "--profile", "astra-sim")
    assert other.exit_code == 2 and "profile physical has it" in other.stderr


def test_options_are_of_other_packages_only() -> None:
    with pytest.raises(
        InputError, match="options: expected only with loggops, or a network model of another"
    ):
        NetworkChoice("flow", {"rate": 3})
    with pytest.raises(InputError, match=r"name: got 'flwo', expected one of .*did you mean 'flow'"):
        NetworkChoice("flwo")


def test_a_run_leaves_nothing_behind() -> None:
    for _ in range(2):
        armillary.simulate(all_reduce(), Platform((NODE,)), network_model="mine")
    gc.collect()
    assert not Known.alive
