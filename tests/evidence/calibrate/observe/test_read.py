"""Files of observations are told by what they hold; what is wrong in them is one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.evidence.calibrate.observe.machine import _decided
from armillary.evidence.calibrate.observe.profile import read_profile
from armillary.evidence.calibrate.observe.read import kind_of, observe
from armillary.evidence.calibrate.observe.steps import MOST_PLANS, read_steps

Put = Callable[[str, str], Path]
MODEL = (
    "{kind: decoder, name: a, layers: 2, hidden: 256, vocabulary: 512, context: 64, tied: false, norm: rms, "
)
MODEL += "activation: swiglu, attention: {heads: 4}, mlp: {size: 512}}"


@pytest.fixture
def put(tmp_path: Path) -> Put:
    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.txt", "# nThread 1 nGpus 2\n# size time\n", "collectives"),
        ("a.csv", "device,op,dtype,gpus,bytes,us\nh100,all_reduce,float,2,8,9\n", "collectives"),
        ("a.csv", "m,n,k,time\n1,2,3,4\n", "GEMMs"),
        ("a.csv", "precision,k,n,m,time\n", "GEMMs"),
        ("a.csv", "model,batch,seconds\n", "steps"),
        ("a.yaml", "steps: []", "steps"),
        ("a.json", '{"traceEvents": []}', "profile"),
        ("a.log", '\n [{"ph": "X"}]', "profile"),
    ],
)
def test_a_file_is_told_by_what_it_holds(put: Put, name: str, text: str, kind: str) -> None:
    assert kind_of(put(name, text)) == kind


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.csv", "m,n,kk,time_ms\n", r"'k' .did you mean 'kk'.., 'time' .did you mean 'time_ms'..; expected a log"),
        ("a.csv", "m;n;k;time\n", "a.csv:1: columns are separated by ';', expected ','"),
        ("a.txt", "hello\n", "a.txt: holds no measurements that are known; expected a log of nccl-tests"),
        ("a.csv", "m,n,k,time\n1,2,3,1e40\n", "a.csv: time of 1x2x3: got 1e\\+43 ns"),
        ("a.csv", "device,op,dtype,gpus,bytes,us\nh100,all_reduce,f,2,9e17,9\n", "expected at most"),
        ("a.yaml", "model: x\n", "a.yaml: missing key 'steps'"),
        ("a.yaml", "steps: 3\n", "a.yaml:1: steps: got 3, expected a list"),
        ("a.yaml", f"steps: [{'1, ' * (MOST_PLANS + 1)}]\n", f"a list of 1 to {MOST_PLANS}"),
        ("a.yaml", "steps:\n  - 3\n", r"a.yaml:2: steps\[0\]: got 3"),
        ("a.yaml", f"model: {MODEL}\nsteps:\n  - {{plan: {{}}, second: 3}}\n", "a.yaml:3: .*unknown key"),
        ("a.yaml", f"model: {MODEL}\nsteps:\n  - {{plan: {{}}, seconds: -3}}\n", "a.yaml:3: .*seconds: got -3"),
        ("a.yaml", f"model: {MODEL}\nsteps:\n  - {{plan: {{}}, seconds: []}}\n", "seconds: got"),
        ("a.yaml", "model: lama-3-8b\nsteps:\n  - {plan: {}, seconds: 3}\n", "a.yaml:1: model: model 'lama-3-8b'"),
        ("a.yaml", "steps:\n  - {plan: {}, seconds: 3}\n", "model: got"),
        ("a.yaml", f"model: {MODEL}\nsteps:\n  - {{plan: {{tp: 2, parallel: {{tp: 2}}}}, seconds: 3}}", "given twice"),
        ("a.csv", "model,seconds,batch\nllama-3-8b,x,8\n", "a.csv:2: seconds: got 'x'"),
        ("a.csv", "model,seconds,batch\n", "a.csv: no rows below the header"),
        ("a.csv", "model,seconds,a,a.b\nllama-3-8b,1,2,3\n", "a.csv:2: column a.b: 'a' has a value of its own"),
        ("a.json", '{"traceEvents": [}', "a.json, line 1"),
        ("a.json", '{"events": []}', "a.json: has no list 'traceEvents'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(put: Put, name: str, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as found:
        observe([put(name, text)])
    assert "\n" not in str(found.value)


def test_rows_of_a_plan_are_its_times(put: Put) -> None:
    table = "model,seconds,ranks,batch,tp,data.sharding,numbers.fused\n"
    table += "llama-3-8b,1.5,8,16,2,fsdp,true\nllama-3-8b,1.7,8,16,2,fsdp,true\nllama-3-8b,3,8,32,2,fsdp,\n"
    one, other = read_steps(put("a.csv", table))
    assert one.seconds == (1.5, 1.7) and one.ranks == 8
    assert one.plan == {
        "batch": 16,
        "parallel": {"tp": 2},
        "data": {"sharding": "fsdp"},
        "numbers": {"fused": True},
    }
    assert other.seconds == (3.0,) and "numbers" not in other.plan


def test_a_profile_of_the_cpu_has_operators_and_gloo(put: Put) -> None:
    def event(category: str, name: str, length: float, dims: list[list[int]]) -> dict[str, object]:
        said = {"Input Dims": dims, "Input type": ["float"] * len(dims), "External id": 1}
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "ts": 1,
            "dur": length,
            "pid": 1,
            "tid": 1,
            "args": said,
        }

    events = [
        event("cpu_op", "aten::mm", 5, [[8, 16], [16, 32]]),
        event("cpu_op", "aten::addmm", 7, [[32], [8, 16], [16, 32]]),
        # Shapes that make no GEMM, or none at all.
        event("cpu_op", "aten::mm", 7, [[8, 16], [8, 32]]),
        event("cpu_op", "aten::mm", 7, []),
        event("user_annotation", "gloo:all_reduce", 90, [[1024]]),
        event("user_annotation", "gloo:all_reduce", 70, [[1024]]),
        event("user_annotation", "gloo:all_gather", 60, [[1024]]),
    ]
    text = json.dumps({"distributedInfo": {"world_size": 4}, "traceEvents": events})
    found = read_profile(put("a.json", text))
    assert found.device == "" and found.gemms == {"fp32": {(8, 32, 16): [7000.0, 5000.0]}}
    assert [(call.operation, call.members, call.size, call.ns) for call in found.calls] == [
        ("all-reduce", 4, 4096, 70_000.0), ("all-gather", 4, 4 * 4096, 60_000.0),
    ]  # fmt: skip


def test_profiles_of_several_ranks_are_one_call(put: Put) -> None:
    def profile(ns: float) -> str:
        said = {"Collective name": "allreduce", "In msg nelems": 1024, "dtype": "Float", "Group size": 16,
                "Process Group Ranks": str(list(range(16)))}  # fmt: skip
        event = {
            "ph": "X",
            "cat": "kernel",
            "name": "ncclDevKernel_AllReduce",
            "ts": 1,
            "dur": ns,
            "pid": 1,
            "tid": 1,
        }
        return json.dumps({"traceEvents": [{**event, "args": said}]})

    found = observe([put("a.json", profile(30)), put("b.json", profile(20))])
    (sample,) = found.collectives(per_node=8)
    assert (sample.per_node, sample.nodes, sample.size, sample.ns) == (8, 2, 4096, 20_000)


def test_one_is_no_several() -> None:
    assert _decided(1, "observed shape", "rate") == "1 observed shape, which decides rate"
    assert (
        _decided(2, "observed case", "no constant", " (x)")
        == "2 observed cases (x), which decide no constant"
    )
