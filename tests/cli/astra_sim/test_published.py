"""Ticks of ASTRA-sim's manual, examples and tutorials, from the files that those use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from armillary.trace import GraphBuilder, Trace, write_trace

KINDS = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
PROGRAMS = ("analytical", "congestion")


@pytest.fixture
def ticks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Any) -> Callable[..., set[int]]:
    monkeypatch.chdir(tmp_path)

    def run(kind: str, npus: int, program: str, system: dict[str, Any], **network: Any) -> set[int]:
        """Return the ticks of all ranks for 1 MiB of a collective."""
        builder = GraphBuilder(first_id=1)
        getattr(builder, kind)(kind, size="1 MiB")
        write_trace("w", Trace.replicate(builder.graph(), ranks=npus))
        columns = {"topology": "Ring", "bandwidth": 50.0, "latency": 500.0} | network | {"npus_count": npus}
        Path("network.yml").write_text(json.dumps({key: [value] for key, value in columns.items()}))
        Path("system.json").write_text(json.dumps(system))
        result = call(
            f"astra-sim --terse --network-model={program} --workload-configuration=w "
            "--system-configuration=system.json --network-configuration=network.yml"
        )
        assert result.exit_code == 0, result.output
        lines = result.stdout.splitlines()
        assert len(lines) == npus
        return {int(line.split()[2]) for line in lines}

    return run


def common(bandwidth: float, splits: int = 4, active: int = 1) -> dict[str, Any]:
    return {
        "scheduling-policy": "LIFO", "endpoint-delay": 10, "collective-optimization": "localBWAware",
        "preferred-dataset-splits": splits, "active-chunks-per-dimension": active, "local-mem-bw": bandwidth,
        **{f"{kind.replace('_', '-')}-implementation": ["ring"] for kind in KINDS},
    }  # fmt: skip


def test_upstreams_regression_test(ticks) -> None:
    assert ticks("all_reduce", 8, "congestion", common(50)) == {117780}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("all_gather", (64744, 151016, 323560)), ("all_reduce", (43000, 64440, 99640)),
        ("all_to_all", (41560, 125480, 391240)), ("reduce_scatter", (22240, 33080, 50740)),
    ],
)  # fmt: skip
def test_examples_on_rings(ticks, program: str, kind: str, expected: tuple[int, ...]) -> None:
    for npus, each in zip((4, 8, 16), expected, strict=True):
        assert ticks(kind, npus, program, common(1600)) == {each}


@pytest.mark.parametrize(("program", "expected"), [("congestion", 57426), ("analytical", 55222)])
def test_the_validated_server(ticks, program: str, expected: int) -> None:
    switch = {"topology": "Switch", "bandwidth": 400.0, "latency": 936.25}
    assert ticks("all_reduce", 8, program, common(3350, active=2), **switch) == {expected}


def ring(ranks: int = 8) -> str:
    """Return MSCCL's ring all-reduce: seven chunks are summed, then seven copied; each but the last is passed on."""

    def gpu(rank: int) -> str:
        chunks = [(rank - step) % ranks for step in (*range(1, ranks), *range(ranks - 1))]
        steps = [("s", rank)]
        for at, chunk in enumerate(chunks):
            steps += [("rrc" if at < ranks - 1 else "r", chunk), ("s", chunk)]
        lines = "".join(
            f'<step s="{at}" type="{kind}" srcbuf="i" srcoff="{chunk}" dstbuf="i" dstoff="{chunk}" cnt="1" '
            'depid="-1" deps="-1" hasdep="0"/>'
            for at, (kind, chunk) in enumerate(steps[:-1])
        )
        ends = f'send="{(rank + 1) % ranks}" recv="{(rank - 1) % ranks}"'
        return f'<gpu id="{rank}" i_chunks="8" o_chunks="0" s_chunks="0"><tb id="0" {ends} chan="0">{lines}</tb></gpu>'

    head = f'nchannels="1" nchunksperloop="{ranks}" ngpus="{ranks}" coll="allreduce" inplace="1"'
    return f'<algo name="ring" proto="Simple" {head}>{"".join(map(gpu, range(ranks)))}</algo>'


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_custom_collective_by_a_relative_prefix(ticks, call, program: str) -> None:
    Path("ring.xml").write_text(ring())
    made = call("trace convert --from msccl ring.xml --size 1MiB -o custom/ring")
    assert made.exit_code == 0, made.output
    own = {"all-reduce-implementation-custom": ["custom/ring"], "local-mem-bw": 50}
    own |= {"scheduling-policy": "FIFO", "preferred-dataset-splits": 1}
    assert ticks("all_reduce", 8, program, own) == {90174}
