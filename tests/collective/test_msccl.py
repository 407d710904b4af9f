"""MSCCL XML: every step type, the shipped file to the tick, and errors that name the line."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.collective.load import load
from armillary.collective.msccl import parse_msccl, read_msccl, to_graphs, to_rounds
from armillary.collective.msccl_check import check_result
from armillary.trace import Graph, node_at, read_graph, write_graph


def step(
    number: int, kind: str, src: str = "i0", dst: str = "i0", count: int = 1, wait: str = "-1 -1"
) -> str:
    on, at = wait.split()
    return (
        f'<step s="{number}" type="{kind}" srcbuf="{src[0]}" srcoff="{src[1:]}" dstbuf="{dst[0]}" '
        f'dstoff="{dst[1:]}" cnt="{count}" depid="{on}" deps="{at}" hasdep="0"/>'
    )


def block(number: int, send: int, recv: int, *steps: str, chan: int = 0) -> str:
    body = "\n".join(steps)
    return f'<tb id="{number}" send="{send}" recv="{recv}" chan="{chan}">\n{body}\n</tb>'


def algo(coll: str, chunks: int, *gpus: str, sizes: str = "2 2 2", inplace: int = 0) -> str:
    i, o, s = sizes.split()
    bodies = "\n".join(
        f'<gpu id="{g}" i_chunks="{i}" o_chunks="{o}" s_chunks="{s}">\n{body}\n</gpu>'
        for g, body in enumerate(gpus)
    )
    return (
        f'<algo name="x" nchunksperloop="{chunks}" ngpus="{len(gpus)}" coll="{coll}" inplace="{inplace}">\n'
        f"{bodies}\n</algo>"
    )


def pair(*first: str, second: tuple[str, ...]) -> tuple[str, str]:
    return block(0, 1, 1, *first), block(0, 0, 0, *second)


SCRATCH = algo(  # send all, receive into scratch, add, copy out; the second block waits for the first
    "allreduce",
    2,
    *(
        block(
            0,
            1 - g,
            1 - g,
            step(0, "s", "i0", "s0", 2),
            step(1, "r", "i0", "s0", 2),
            step(2, "re", "s0", "i0", 2),
        )
        + block(1, -1, -1, step(0, "nop", wait="0 2"), step(1, "cpy", "i0", "o0", 2))
        for g in (0, 1)
    ),
)
CHAIN = algo(  # round a triangle and back: every fused step
    "allreduce",
    1,
    block(0, 1, 2, step(0, "s", "i0"), step(1, "rcs", dst="o0")),
    block(0, 2, 0, step(0, "rrs", "i0"), step(1, "r", dst="o0")),
    block(0, 0, 1, step(0, "rrcs", "i0", "o0")),
    sizes="1 1 0",
)
GATHER = algo(
    "allgather",
    2,
    *pair(step(0, "s", "i0"), step(1, "r", dst="o1"), second=(step(0, "s", "i0"), step(1, "r", dst="o0"))),
    sizes="1 2 0",
    inplace=1,
)


@pytest.mark.parametrize("text", [SCRATCH, CHAIN, GATHER, SCRATCH.replace("\n", "")])
def test_moves_the_right_numbers(text: str) -> None:
    check_result(parse_msccl(text))


def test_scatter_and_all_to_all() -> None:
    scatter = pair(
        step(0, "s", "i1"),
        step(1, "rrc", "i0", "o0"),
        second=(step(0, "s", "i0"), step(1, "rrc", "i1", "o0")),
    )
    check_result(parse_msccl(algo("reducescatter", 2, *scatter, sizes="2 1 0")))
    swap = pair(
        step(0, "s", "i1"), step(1, "r", dst="o1"), step(2, "cpy", "i0", "o0"),
        second=(step(0, "s", "i0"), step(1, "r", dst="o0"), step(2, "cpy", "i1", "o1")),
    )  # fmt: skip
    check_result(parse_msccl(algo("alltoall", 2, *swap)))


def test_rounds_of_a_chain_and_of_an_all_gather() -> None:
    rounds = to_rounds(parse_msccl(CHAIN))
    assert [(r.source.tolist(), r.target.tolist(), r.reduce.tolist()) for r in rounds.rounds] == [
        ([0], [1], [True]),
        ([1], [2], [True]),
        ([2], [0], [False]),
        ([0], [1], [False]),
    ]
    gather = to_rounds(parse_msccl(GATHER))
    assert gather.operation == "all-gather"
    assert load(gather, "Switch", 2).volume == 1


def test_graphs_wait_through_a_nop() -> None:
    graph = to_graphs(parse_msccl(SCRATCH), 1000)[0]
    nodes = [node_at(graph, k) for k in range(graph.n_nodes)]
    assert [n.name for n in nodes] == [
        "COMM_SEND_NODE_tb0_step0", "COMM_RECV_NODE_tb0_step1", "COMP_NODE_tb0_step2", "COMP_NODE_tb1_step1",
    ]  # fmt: skip
    assert [list(n.data_deps) for n in nodes] == [[], [0], [1], [2]]
    with pytest.raises(InputError, match="1 bytes in 2 chunks"):
        to_graphs(parse_msccl(SCRATCH), 1)
    with pytest.raises(InputError, match="memory bandwidth 0"):
        to_graphs(parse_msccl(SCRATCH), 1000, 0)


SEND, TAKE = step(0, "s"), step(0, "r")
PAIR = algo("allreduce", 1, *pair(SEND, second=(TAKE,)))
BAD = [
    (PAIR.replace("<algo", "<algo proto='Simpel'"), "proto='Simpel': .*did you mean 'Simple'"),
    (PAIR.replace("inplace", "inplce"), "'inplce' .did you mean 'inplace'"),
    (algo("allreduce", 1, *pair(SEND, second=(TAKE,))).replace("</algo>", ""), r"line 12: not XML"),
    ("<algo ngpus='2' coll='allreduce' nchunksperloop='1'><gpus/></algo>", r"line 1: <gpus> inside <algo>: .*'gpu'"),
    (algo("allreduces", 1, *pair(SEND, second=(TAKE,))), r"line 1: <algo> coll='allreduces': .*'allreduce'"),
    (algo("allreduce", 0, *pair(SEND, second=(TAKE,))), "nchunksperloop='0': expected a whole number of at least 1"),
    (algo("allreduce", 1, *pair(SEND, second=(TAKE,))).replace('ngpus="2"', 'ngpus="3"'), "gpu 2 is missing"),
    (algo("allreduce", 1, *pair(SEND, second=(TAKE,))).replace('gpu id="1"', 'gpu id="0"'), "line 7: .*twice"),
    (algo("allreduce", 1, *pair(SEND, second=(step(0, "rr"),))), r"line 9: <step> type='rr': expected one of s, r,"),
    (algo("allreduce", 1, *pair(SEND, second=(step(0, "r", dst="i2"),))), "line 9: .*buffer i of this gpu has 2"),
    (algo("allreduce", 1, *pair(SEND, second=(step(0, "r", dst="x0"),))), "dstbuf='x': expected one of i, o, s"),
    (algo("allreduce", 1, *pair(SEND, second=(step(1, "r"),))), "s='1': expected 0"),
    (algo("allreduce", 1, *pair(SEND, second=(step(0, "r", count=2),))), "line 9: receives cnt='2', but line 4"),
    (algo("allreduce", 1, *pair(SEND, second=(SEND,))), "1 sends but 0 receives from gpu 0 to gpu 1 on channel 0"),
    (algo("allreduce", 1, *pair(SEND, second=(step(0, "r", wait="7 0"),))), "depid='7' deps='0': gpu 1 has no"),
    (algo("allreduce", 1, block(0, -1, 1, SEND), block(0, 0, 0, TAKE)), "line 4: .*has send='-1'"),
    (algo("allreduce", 1, block(0, 1, 1, SEND) * 2, block(0, 0, 0, TAKE)), "id='0' is there twice in gpu 0"),
    (
        algo("allreduce", 1, block(0, 1, -1, SEND) + block(1, 1, -1, SEND), block(0, 0, 0, TAKE, step(1, "r"))),
        "two thread blocks have messages from gpu 0 to gpu 1 on channel 0",
    ),
    (
        algo("allreduce", 1, *pair(TAKE, step(1, "s"), second=(TAKE, step(1, "s")))),
        "line 4: step 0 of thread block 0 of gpu 0 never runs",
    ),
    (SCRATCH.replace('depid="0" deps="2"', 'depid="1" deps="1"'), "never runs"),
    (SCRATCH.replace(' cnt="2"', ""), "has no attribute 'cnt'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD)
def test_errors_name_the_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_msccl(text, "a.xml")


def test_tells_what_is_no_such_collective(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 4: gpu 0 reads chunk 0 of buffer s, which nothing has filled"):
        check_result(parse_msccl(algo("allreduce", 1, *pair(step(0, "s", "s0"), second=(TAKE,)), inplace=1)))
    with pytest.raises(InputError, match="is no all-reduce: chunk 0 of the output of gpu 0 ends wrong"):
        check_result(parse_msccl(algo("allreduce", 1, *pair(SEND, second=(TAKE,)), inplace=1)))
    with pytest.raises(InputError, match="cannot check a broadcast"):
        check_result(parse_msccl(algo("broadcast", 1, *pair(SEND, second=(TAKE,)))))
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_msccl(tmp_path / "none.xml")


@pytest.fixture
def shipped(shared: Path) -> Path:
    return shared / "traces/msccl/custom_ring_allreduce_8npus_1MB/custom_allreduce"


def essence(graph: Graph) -> list[tuple[object, ...]]:
    """Return of every node what decides the time, without attributes that say it twice."""
    found = []
    for k in range(graph.n_nodes):
        node = node_at(graph, k)
        keys = ("comm_size", "comm_tag", "comm_dst" if node.type == 5 else "comm_src")
        attrs = {name: value for name, _, value in node.attrs if name in keys}
        found.append((node.id, node.name, node.type, node.duration_micros, list(node.data_deps), attrs))
    return found


@pytest.mark.shared
def test_the_shipped_ring(shipped: Path, shared: Path, tmp_path: Path) -> None:
    ring = read_msccl(f"{shipped}.xml")
    check_result(ring)
    found = load(to_rounds(ring), "Ring", 8)
    assert (found.hops, found.volume, found.sent) == (
        14,
        Fraction(7, 2),
        Fraction(7, 4),
    )  # one direction only
    for rank, graph in enumerate(to_graphs(ring, 1 << 20)):
        assert essence(graph) == essence(read_graph(f"{shipped}.{rank}.et"))
        write_graph(tmp_path / f"custom.{rank}.et", graph)

    from armillary import astra_sim

    examples = shared / "traces/astra_examples"
    system = json.loads((shared / "traces/msccl/custom_collective.json").read_text())
    system["all-reduce-implementation-custom"] = [str(tmp_path / "custom")]
    workload = examples / "all_reduce/8npus_1MB/all_reduce"
    timeline = astra_sim.simulate(workload, system, examples / "config/Ring_8npus.yml")
    assert set(timeline.finish_ticks.tolist()) == {90_174}
