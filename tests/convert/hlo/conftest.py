"""Convert HLO text; small modules are written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary import Timeline
from armillary.convert import Converted, front_end

Convert = Callable[..., Converted]

SUM = """
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}
"""


@pytest.fixture
def convert(tmp_path: Path) -> Convert:
    def run(text: str, **options: Any) -> Converted:
        path = tmp_path / "m.hlo"
        path.write_text(text)
        return front_end("hlo").convert([path], **options)

    return run


@pytest.fixture
def lines(convert: Convert) -> Convert:
    """Convert an entry computation of these lines, on `partitions` and `replicas`, after `before`."""

    def run(
        *body: str, before: str = "", partitions: int = 1, replicas: int = 1, **options: Any
    ) -> Converted:
        head = f"HloModule m, is_scheduled=true, replica_count={replicas}, num_partitions={partitions}\n"
        entry = "\n".join(f"  {line}" for line in body)
        return convert(f"{head}{SUM}{before}\nENTRY %main {{\n{entry}\n}}\n", **options)

    return run


@pytest.fixture
def nodes() -> Callable[..., dict[str, dict[str, Any]]]:
    """Give a function from what was converted to the attributes of a rank's nodes by name.

    Also their ``type`` and the names of what they wait for, ``after`` and ``ctrl``; a second node of a name has its
    type after the name.
    """

    def attributes(converted: Converted, rank: int = 0) -> dict[str, dict[str, Any]]:
        graph = converted.trace.graph(rank)
        name_of = dict(zip(graph.ids.tolist(), graph.names(), strict=True))
        found: dict[str, dict[str, Any]] = {}
        for at, name in enumerate(graph.names()):
            attrs: dict[str, Any] = {key: value for key, _, value in graph.attrs(at)}
            for key, ptr, deps in (
                ("after", graph.data_ptr, graph.data_deps),
                ("ctrl", graph.ctrl_ptr, graph.ctrl_deps),
            ):
                attrs[key] = [name_of[i] for i in deps[ptr[at] : ptr[at + 1]].tolist()]
            kind = int(graph.types[at])
            found[name if name not in found else f"{name} {kind}"] = {**attrs, "type": kind}
        return found

    return attributes


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Timeline]:
    """Simulate what was converted on a ring of NPUs of 100 TFLOP/s and 2 TB/s, timed by the roofline model."""

    def simulate(converted: Converted, profile: str) -> Timeline:
        study = tmp_path / "platform.yaml"
        network = f"{{topology: Ring, size: {converted.trace.n_ranks}, bandwidth: 50 GB/s, latency: 500 ns}}"
        npu = "{peak: 100 TFLOP/s, memory: {bandwidth: 2 TB/s}}"
        study.write_text(
            f"profile: {profile}\nplatform:\n  network: [{network}]\n  npu: {npu}\n  compute: {{roofline: true}}\n"
        )
        return armillary.simulate(converted.trace, armillary.load_platform(study), profile=profile)

    return simulate
