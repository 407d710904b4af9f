"""Networks that fail, or cannot work: one clear error, or who waits for which links; never a hang."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import armillary
from armillary.base.errors import InputError, StuckError
from armillary.engine.common.timeline import Timeline
from armillary.platform.files.native import load_platform
from armillary.trace import GraphBuilder, Trace

MODELS = {
    "congestion": "",
    "flow": "",
    "packet, lossless": "protocol: lossless, mtu: 1 KiB",
    "packet, credit": "protocol: credit, packet: 1 KiB",
    "packet, tcp": "protocol: tcp, jitter: 0 ns",
}
RAILS = "kind: rail-optimised, hosts: 2, npus_per_host: 2, host_bandwidth: 80 GB/s, host_latency: 100 ns"
LINKS = "bandwidth: 10 GB/s, latency: 1 us"
STAR = "from,to,bandwidth,latency\nnpu 0,sw,10 GB/s,1 us\nnpu 1,sw,10 GB/s,1 us\n"
SIZE = 100_000
"""Bytes of a message: 10 us on a link."""

every_model = pytest.mark.parametrize("model", MODELS)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Timeline]:
    """Return a function that lets messages go: (source, target, microseconds at which it leaves)."""

    def simulate(model: str, topology: str, messages: list[tuple[int, int, int]], **files: str) -> Timeline:
        for name, text in files.items():
            (tmp_path / f"{name}.csv").write_text(text)
        study = tmp_path / "study.yaml"
        packets = f"\n  packets: {{{MODELS.get(model, model)}}}" if MODELS.get(model, model) else ""
        study.write_text(f"platform:\n  topology: {{{topology}}}{packets}\n")
        platform = load_platform(study)
        builders = [GraphBuilder(rank=rank) for rank in range(platform.npus)]
        for tag, (source, target, when) in enumerate(messages):
            wait = builders[source].compute("wait", duration_micros=when)
            builders[source].send(target, SIZE, tag=tag, after=[wait])
            builders[target].recv(source, SIZE, tag=tag)
        trace = Trace.from_ranks([builder.graph() for builder in builders])
        name = model.partition(",")[0] if model in MODELS else "packet"
        return armillary.simulate(trace, platform, network_model=name)

    return simulate


@every_model
def test_peers_that_are_not_reached(run: Callable[..., Timeline], model: str) -> None:
    chain = "from,to,bandwidth,latency\nnpu 0,npu 1,10 GB/s,1 us\nnpu 1,npu 2,10 GB/s,1 us\n"
    with pytest.raises(
        InputError, match=r"study.yaml:2: platform.topology: chain: no way from npu 0 to npu 2.*forward: true"
    ):
        run(model, "kind: file, file: chain.csv", [(0, 2, 0)], chain=chain)
    parts = "from,to,bandwidth,latency\nnpu 0,a,10 GB/s,1 us\nnpu 1,a,10 GB/s,1 us\nnpu 2,b,10 GB/s,1 us\n"
    assert run(model, "kind: file, file: parts.csv", [(0, 1, 0)], parts=parts).total_ticks > 0
    with pytest.raises(InputError, match="no way from npu 0 to npu 2: npu 2 is reached from 1 of 4 nodes"):
        run(model, "kind: file, file: parts.csv", [(0, 2, 0)], parts=parts)
    with pytest.raises(InputError, match=r"no way from npu 0 to npu 3.*routing 'rail'"):
        run(model, f"{RAILS}, {LINKS}", [(0, 3, 0)])
    assert run(model, f"{RAILS}, {LINKS}, routing: rail", [(0, 3, 0)]).total_ticks > 0


@every_model
def test_no_bandwidth(run: Callable[..., Timeline], model: str) -> None:
    zero = STAR.replace("10 GB/s", "0 GB/s", 1)
    with pytest.raises(InputError, match=r"zero.csv:2: bandwidth: got '0 GB/s', expected more than 0"):
        run(model, "kind: file, file: zero.csv", [(0, 1, 0)], zero=zero)
    with pytest.raises(
        InputError, match=r"no way from npu 0 to npu 1.*2 of 4 links are down, the first npu 0 → sw"
    ):
        run(model, "kind: file, file: star.csv, failures: [{link: [npu 0, sw]}]", [(0, 1, 0)], star=STAR)


@pytest.mark.parametrize(
    ("packets", "problem"),
    [
        ("protocol: lossless", "expected at least .* bytes of headroom"),
        ("protocol: credit", "expected room for a packet of 4096 bytes"),
        ("protocol: tcp", "expected at least a packet of 1538 bytes"),
    ],
)
def test_buffers_smaller_than_a_packet(run: Callable[..., Timeline], packets: str, problem: str) -> None:
    small = "from,to,bandwidth,latency,buffer\nnpu 0,sw,10 GB/s,1 us,1 KiB\nnpu 1,sw,10 GB/s,1 us,1 KiB\n"
    with pytest.raises(InputError, match=rf"study.yaml:2: platform.topology: small: .*npu 0.*sw.*{problem}"):
        run(packets, "kind: file, file: small.csv", [(0, 1, 0)], small=small)


@every_model
def test_the_only_way_fails(run: Callable[..., Timeline], model: str) -> None:
    topology = "kind: file, file: star.csv, failures: [{link: [npu 0, sw], at: 5 us}]"
    early = run(model, topology.replace("5 us", "90 us"), [(0, 1, 0)], star=STAR)
    assert 12_000 <= early.total_ticks <= 60_000
    for when, why in (
        (
            0,
            "messages wait for npu 0 → sw, which is down from 5 µs on\n(.|\n)*messages keep the way on which",
        ),
        (20, "messages wait for npu 0 → sw, which is down from 5 µs on"),
    ):
        if model == "congestion" and when == 0:
            continue  # it has taken the link, for all of the message
        with pytest.raises(StuckError, match=why):
            run(model, topology, [(0, 1, when)], star=STAR)


@every_model
def test_a_message_waits_for_a_repair(run: Callable[..., Timeline], model: str) -> None:
    topology = "kind: file, file: star.csv, failures: [{link: [npu 1, sw], at: 500 ns%s}]"
    for until, least in ((", until: 100 us", 100_000), ("", 0)):
        if least:
            assert least <= run(model, topology % until, [(0, 1, 0)], star=STAR).total_ticks <= 500_000_000
        else:
            with pytest.raises(
                StuckError,
                match=r"1 message is in flight and never arrives\nmessages wait for .*sw → npu 1, which is down",
            ):
                run(model, topology % until, [(0, 1, 0)], star=STAR)


@every_model
def test_what_leaves_later_takes_the_way_that_is_left(run: Callable[..., Timeline], model: str) -> None:
    both = f"kind: leaf-spine, leaves: 2, spines: 2, npus_per_leaf: 4, {LINKS}, seed: 1"
    messages = [(source, 4 + source, 20) for source in range(4)]
    ticks = [
        run(model, f"{both}, failures: [{{node: spine {spine}, at: 5 us{worse}}}]", messages).total_ticks
        for spine, worse in ((0, ", bandwidth: 100 %"), (0, ""), (1, ""), (0, ", bandwidth: 10 %"))
    ]
    assert ticks[0] < ticks[1] == pytest.approx(ticks[2], rel=0.2)
    assert ticks[0] < ticks[3]


RING = "from,to,bandwidth,latency,buffer\n" + "".join(
    f"npu {i},sw {i},100 GB/s,100 ns,64 KiB\nsw {i},sw {(i + 1) % 4},100 GB/s,100 ns,%s\n" for i in range(4)
)
CLOCKWISE = [
    f"{here},npu {to},{there}"
    for to in range(4)
    for i in range(4)
    for here, there in (
        *(((f"npu {i}", f"sw {i}"),) if i != to else ()),
        (f"sw {i}", f"npu {to}" if i == to else f"sw {(i + 1) % 4}"),
    )
]
TABLE = "\n".join(["node,destination,next", *CLOCKWISE])
ROUND = "kind: file, file: ring.csv, routing: static, table: table.csv"


@pytest.mark.parametrize(
    ("packets", "buffer"),
    [("protocol: credit, vcs: 1", "8 KiB"), ("protocol: lossless", "33 KiB")],
)
def test_a_deadlock_names_its_cycle(run: Callable[..., Timeline], packets: str, buffer: str) -> None:
    messages = [(i, (i + 3) % 4, 0) for i in range(4)]
    with pytest.raises(StuckError) as error:
        run(packets, ROUND, messages, ring=RING.replace("%s", buffer), table=TABLE)
    assert (
        "deadlock: the buffers of 4 links are full and wait for each other, in this order: "
        "sw 0 → sw 1, sw 1 → sw 2, sw 2 → sw 3, sw 3 → sw 0, sw 0 → sw 1" in str(error.value)
    )
    assert run(packets, ROUND, messages, ring=RING.replace("%s", "1 MiB"), table=TABLE).total_ticks > 0


def test_tables_with_a_hole_or_a_circle(run: Callable[..., Timeline]) -> None:
    ring = RING.replace("%s", "1 MiB")
    hole = TABLE.replace("sw 2,npu 3,sw 3\n", "")
    with pytest.raises(
        InputError, match="no way from npu 0 to npu 3: the table has no link that is up from sw 2"
    ):
        run("flow", ROUND, [(0, 3, 0)], ring=ring, table=hole)
    with pytest.raises(InputError, match="the way from npu 0 to npu 3 goes round in a circle"):
        run(
            "flow",
            ROUND,
            [(0, 3, 0)],
            ring=ring,
            table=TABLE.replace("sw 2,npu 3,sw 3\n", "sw 2,npu 3,sw 1\n"),
        )
    for line, problem in (
        ("npu 0,npu 1,sw 3", "expected a neighbour"),
        ("npu 0,npu 1,sww 0", "did you mean 'sw 0'"),
        ("npu 0,npu 1", "2 values, expected 3"),
    ):
        with pytest.raises(InputError, match=rf"platform.topology.table: .*table.csv:2: .*{problem}"):
            run("flow", ROUND, [(0, 1, 0)], ring=ring, table=f"node,destination,next\n{line}\n")


def test_what_has_no_effect_is_said(run: Callable[..., Timeline]) -> None:
    topology = (
        f"kind: leaf-spine, leaves: 2, spines: 1, npus_per_leaf: 1, {LINKS}, buffer: 1 MiB, routing: adaptive"
    )
    said = " ".join(run("flow", topology, [(0, 1, 0)]).info["warnings"])
    assert "buffers have no end in network model flow" in said
    assert "'adaptive' takes the ways of an empty network" in said
    assert "packets" not in said
