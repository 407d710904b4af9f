"""The suite for front ends holds for all that are built in, and finds what is wrong with others."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.collective.mscclpp_write import plan_of
from armillary.convert import Converted
from armillary.convert.front_ends import FRONT_ENDS
from armillary.testing.front_end import check_front_end
from armillary.trace import GraphBuilder, Trace

from ..convert.profilers import rocprofv3
from ..convert.profilers.exported import step
from ..convert.pytorch.kineto import Document
from ..convert.xplane import profile

Install = Callable[[Any], None]
HLO = Path(__file__).parents[1] / "convert" / "hlo" / "mlp_dp4_tp2.hlo"
STABLEHLO = Path(__file__).parents[1] / "convert" / "stablehlo" / "sharded.mlir"
TEXT = "DATA\n1\na -1 1000 ALLGATHER 8 2000 ALLREDUCE 16 3000 ALLREDUCE 32 0\n"
FLEXFLOW = """digraph taskgraph {
  node0 [color=red,label="{device_id=0|Dense|Forward|COMP_NODE|simulated_run_time=0.5}",shape=record];
  node0 -> node2;
  node2 [label="{device_id=9|Comm|Comm|COMM_SEND_RECV_NODE|src_device_id=0|dst_device_id=1|comm_size=4096|run_time=1}"];
  node2 -> node1;
  node1 [color=red,label="{device_id=1|Dense|Forward|COMP_NODE|simulated_run_time=0.5}",shape=record];
}"""
MSCCL = """<algo name="swap" nchunksperloop="1" ngpus="2" coll="allgather" inplace="0">
<gpu id="0" i_chunks="1" o_chunks="2" s_chunks="0"><tb id="0" send="1" recv="1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1"/>
<step s="1" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1"/></tb></gpu>
<gpu id="1" i_chunks="1" o_chunks="2" s_chunks="0"><tb id="0" send="0" recv="0" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1"/>
<step s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1"/></tb></gpu></algo>"""


GOAL = "num_ranks 2\nrank 0 {\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from 0\n}\n"
TRIOSIM = """OperatorID,OperatorName,Operator_input,Operator_output,Operator_cudatime,Operator_cudatimenooverlap,\
InputSize,OutputSize,gpuid,stage,tpflag
1,aten::conv2d,[1; 2],[3],30.5,30.5,[12; 6],[24],0,forward,1
2,aten::relu,[3],[4],10,8.25,24,24,0,forward,0
"""
NCCL = [
    {
        "header": {"id": "0x1", "comm_name": "x", "rank": rank, "n_ranks": 2, "nnodes": 1},
        "metadata": {"hostname": "h", "pid": rank},
        "coll_perf": {
            "coll": "AllReduce", "coll_sn": 1, "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": 5.5,
            "coll_algobw_gbs": 190.65,
        },
    }
    for rank in range(2)
]  # fmt: skip


def frame(body: bytes) -> bytes:
    return bytes([len(body)]) + body


def eg(ident: int, kind: int) -> bytes:
    """A node of ASTRA-sim 1.0's own graphs: id, name, type."""
    return frame(bytes([8, ident, 18, 1]) + b"n" + bytes([24, kind]))


def recording() -> str:
    document = Document()
    document.op("aten::mm", 0, 20)
    document.launched("gemm", 5, 30, 60)
    return json.dumps({"schemaVersion": 1, "traceEvents": document.events})


def export() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return step([501, 502]).write(Path(folder) / "a.sqlite").read_bytes()


SAMPLES: dict[str, tuple[str, str | bytes, dict[str, Any]]] = {
    "eg": ("a.0.eg", eg(1, 3) + eg(2, 3), {}),
    "flexflow": ("a.dot", FLEXFLOW, {}),
    "goal": ("a.goal", GOAL, {}),
    "nccl": ("a.log", "\n".join(map(json.dumps, NCCL)), {}),
    "rocprof": ("a.json", json.dumps(rocprofv3.step([501, 502])), {}),
    "nsight": ("a.sqlite", export(), {}),
    "stablehlo": ("a.mlir", STABLEHLO.read_text(), {}),
    "triosim": ("trace.csv", TRIOSIM, {}),
    "xplane": ("a.xplane.pb", profile.gpu(), {}),
    "hlo": ("a.hlo", HLO.read_text(), {}),
    "msccl": ("a.xml", MSCCL, {"size": "1 MiB"}),
    "mscclpp": ("a.json", json.dumps(plan_of("ring", "all-reduce", 2)), {"size": "1 MiB"}),
    "pytorch": ("rank0.json", recording(), {}),
    "text": ("a.txt", TEXT, {"npus": 4}),
}


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "a.work"
    path.write_text("4 1000")
    return path


@pytest.mark.parametrize("name", FRONT_ENDS.built_in)
def test_every_front_end_that_is_built_in(name: str, tmp_path: Path) -> None:
    file, content, options = SAMPLES[name]
    path = tmp_path / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    check_front_end(name, [tmp_path / "a" if name == "eg" else path], **options)


def good(inputs: Sequence[Path], *, times: int = 1) -> Converted:
    """Convert "ranks microseconds".

    Args:
        inputs: One file.
        times: How often.
    """
    try:
        ranks, micros = map(int, Path(inputs[0]).read_text().split())
    except ValueError as error:
        raise InputError(f"{inputs[0]}: expected two whole numbers: {error}") from None
    b = GraphBuilder()
    for number in range(times):
        b.compute(f"work {number}", duration_micros=micros)
    return Converted(Trace.replicate(b.graph(), ranks))


def careless(inputs: Sequence[Path]) -> Converted:
    assert len([int(word) for word in Path(inputs[0]).read_text().split()]) == 2
    return good(inputs)


def untold(inputs: Sequence[Path], *, times: int = 1) -> Converted:
    return good(inputs, times=times)


def greedy(inputs: Sequence[Path]) -> Converted:
    shutil.copy(inputs[0], inputs[0].with_suffix(".kept"))
    return good(inputs)


def wrong_groups(inputs: Sequence[Path]) -> Converted:
    return Converted(good(inputs).trace, groups={1: (0, 9)})


def lonely(inputs: Sequence[Path]) -> Converted:
    good(inputs)
    b = GraphBuilder(rank=0)
    b.send(1, 100)
    return Converted(Trace.from_ranks([b.graph(), GraphBuilder(rank=1).graph()]))


def bare(inputs: Sequence[Path]) -> Any:
    return good(inputs).trace


calls = iter(range(1, 1000))


def fickle(inputs: Sequence[Path]) -> Converted:
    return good(inputs, times=next(calls))


def lenient(inputs: Sequence[Path]) -> Converted:
    try:
        return good(inputs)
    except InputError:
        b = GraphBuilder()
        b.compute("nothing", duration_micros=1)
        return Converted(Trace.replicate(b.graph(), 1))


def test_one_of_another_package(install: Install, sample: Path) -> None:
    install(good)
    check_front_end("mine", [sample])
    check_front_end("mine", [sample], times=3)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (careless, "raises (Value|Assertion|UnicodeDecode)Error.*expected an InputError"),
        (untold, "option times has no help"),
        (greedy, "changes its inputs, or puts files beside them"),
        (wrong_groups, r"group 1 has rank \[9\], expected ranks 0 to 3"),
        (lonely, "mine: .*"),
        (bare, "expected a Converted with a Trace"),
        (fickle, "another trace when asked again"),
        (lenient, "converts nothing, expected an InputError"),
    ],
)
def test_what_is_wrong_is_found(function: Any, problem: str, install: Install, sample: Path) -> None:
    install(function)
    with pytest.raises(AssertionError, match=problem):
        check_front_end("mine", [sample])


def test_what_is_none_is_refused(install: Install, sample: Path) -> None:
    install(Path)
    with pytest.raises(InputError, match="expected a function convert"):
        check_front_end("mine", [sample])
    with pytest.raises(InputError, match="no front end 'yours'"):
        check_front_end("yours", [sample])
