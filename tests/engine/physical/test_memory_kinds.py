"""Kinds of memory of other packages: what serves their accesses, how long these take, and what is wrong with some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import armillary
from armillary.base.errors import InputError
from armillary.base.extension import ExtensionPoint
from armillary.cli import main
from armillary.engine.common.timeline import Timeline
from armillary.platform import MemoryModel, RemoteMemory, load_platform
from armillary.trace import GraphBuilder, Trace, write_trace

NETWORK = "network: [{name: node, topology: Switch, size: 4, bandwidth: 100 GB/s, latency: 500 ns}]"
Install = Callable[[Any], None]


class Slots(MemoryModel):
    """100 ns, and a ns for 10 bytes, for 5 of a store."""

    made: tuple[Mapping[str, Any], int, Path]

    def __init__(self, per: Any) -> None:
        self.per = per

    @classmethod
    def create(cls, options: Mapping[str, Any], npus: int, folder: Path) -> MemoryModel:
        Slots.made = options, npus, folder
        return cls(options.get("per", "npu"))

    def durations(self, size: NDArray[np.int64], store: NDArray[np.bool_]) -> Any:
        return 100 + size / np.where(store, 5, 10)


@pytest.fixture(autouse=True)
def answer(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Let "mine" be a kind of memory."""

    def install(kind: Any) -> None:
        class Point:
            name = "mine"

            def load(self) -> Any:
                return kind

        monkeypatch.setattr(ExtensionPoint, "others", lambda point: {"mine": Point()})

    install(Slots)
    return install


def accesses(local: bool = False) -> Trace:
    b = GraphBuilder()
    load = b.memory_load("load", 10_001, local=local)
    b.memory_store("store", 10_001, local=local, after=[load])
    return Trace.replicate(b.graph(), 4)


def run(tmp_path: Path, keys: str, local: bool = False, **how: Any) -> Timeline:
    study = tmp_path / "s.yaml"
    study.write_text(f"platform:\n  {NETWORK}\n  {keys}\n")
    return armillary.simulate(accesses(local), load_platform(study), **how)


@pytest.mark.parametrize("model", ["analytical", "flow"])
@pytest.mark.parametrize(
    ("per", "more", "times"), [("npu", "", 1), ("node", ", npus_per_node: 2", 2), ("machine", "", 4)]
)
def test_what_serves_accesses(tmp_path: Path, per: str, more: str, times: int, model: str) -> None:
    keys = f"remote_memory: {{kind: mine, options: {{per: {per}}}{more}}}"
    found = run(tmp_path, keys, network_model=model)
    # Rounded up: 100 + 10,001 / 10, then 100 + 10,001 / 5; loads of all ranks come first, then their stores.
    assert found.total_ticks == times * (1_101 + 2_101)
    assert run(tmp_path, keys, network_model=model, fold=False).total_ticks == found.total_ticks
    assert Slots.made == ({"per": per}, 4, tmp_path)


def test_local_memory(tmp_path: Path) -> None:
    own = "npu: {memory: {bandwidth: 1 TB/s, kind: mine, options: {per: npu}}}"
    assert run(tmp_path, own, local=True).total_ticks == 1_101 + 2_101
    assert run(tmp_path, "npu: {memory: {bandwidth: 1 TB/s}}", local=True).total_ticks == 11 + 11


def returns(value: Any) -> type[MemoryModel]:
    class Returns(Slots):
        def durations(self, size: NDArray[np.int64], store: NDArray[np.bool_]) -> Any:
            return value(size) if callable(value) else value

    return Returns


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (Path, "memory kind 'mine' is <class 'pathlib.Path'>, expected a subclass of MemoryModel"),
        (MemoryModel, "create returned nothing, expected a MemoryModel"),
        (returns(None), "durations returned nothing, expected an array of 2 times in ns"),
        (returns(np.zeros(1)), r"durations returned float64 of shape \(1,\), expected an array of 2"),
        (returns(np.array(["a", "b"])), "durations returned <U1"),
        (returns(lambda size: size * -1.0), "a load of 10001 bytes takes -10001 ns, expected 0 or more"),
        (returns(lambda size: size * np.nan), "takes nan ns"),
        (returns(lambda size: size * 1e300), "takes longer than can be counted"),
        (returns(lambda size: {}["x"]), "memory kind 'mine' failed: KeyError: 'x'"),
    ],
)
def test_what_is_wrong_is_one_error(tmp_path: Path, answer: Install, kind: Any, problem: str) -> None:
    answer(kind)
    for local, keys in (
        (False, "remote_memory: {kind: mine}"),
        (True, "npu: {memory: {bandwidth: 1 TB/s, kind: mine}}"),
    ):
        with pytest.raises(InputError, match=problem):
            run(tmp_path, keys, local)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            "remote_memory: {kind: mien}",
            "expected one of per-npu, per-node, pool, hierarchical, mine .did you mean 'mine'",
        ),
        (
            "remote_memory: {kind: mine, bandwidth: 1 GB/s}",
            "expected no bandwidth with kind mine, but options",
        ),
        (
            "remote_memory: {kind: mine, npus_per_node: 2}",
            "serves each npu: expected no npus_per_node with it",
        ),
        (
            "remote_memory: {kind: mine, options: {per: node}}",
            "serves each node: expected npus_per_node with it",
        ),
        (
            "remote_memory: {kind: mine, options: {per: rack}}",
            "per: got 'rack', expected one of npu, node, machine",
        ),
        (
            "remote_memory: {kind: pool, bandwidth: 1 GB/s, latency: 1 ns, options: {a: 1}}",
            "expected options only with a kind of another package",
        ),
        ("npu: {memory: {bandwidth: 1 TB/s, kind: pool}}", "kind: got 'pool', expected one of mine"),
        (
            "npu: {memory: {bandwidth: 1 TB/s, kind: mine, latency: 1 ns}}",
            "expected no latency, read and write",
        ),
        ("npu: {memory: {bandwidth: 1 TB/s, options: {a: 1}}}", "expected options only with a kind"),
    ],
)
def test_wrong_keys_are_refused(tmp_path: Path, keys: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        run(tmp_path, keys)


def test_on_the_command_line(tmp_path: Path, answer: Install) -> None:
    write_trace(tmp_path / "work", accesses())
    study = tmp_path / "s.yaml"
    study.write_text(
        f"workload: {{trace: work}}\nplatform:\n  {NETWORK}\n  remote_memory: {{kind: mine, options: {{a: [1]}}}}\n"
    )
    done = CliRunner().invoke(main, ["run", str(study)])
    assert done.exit_code == 0 and "3,202 ticks" in done.output
    shown = CliRunner().invoke(main, ["machine", "show", str(study), "--json", "-"])
    assert shown.exit_code == 0 and '"options"' in shown.stdout
    astra = CliRunner().invoke(main, ["run", str(study), "--profile", "astra-sim"])
    assert astra.exit_code == 2 and "remote_memory.kind: got 'mine'" in astra.stderr
    answer(returns(None))
    wrong = CliRunner().invoke(main, ["run", str(study)])
    assert wrong.exit_code == 2 and wrong.stderr.count("\n") == 1
    assert "remote_memory: memory kind 'mine': durations returned nothing" in wrong.stderr


def test_values_say_the_same() -> None:
    for wrong, problem in (
        ({"kind": "mine", "latency": 3}, "expected no latency and bandwidth with kind mine"),
        ({"kind": "pool", "options": {"a": 1}}, "expected only with a kind of another package"),
    ):
        with pytest.raises(InputError, match=problem):
            RemoteMemory(**wrong)
