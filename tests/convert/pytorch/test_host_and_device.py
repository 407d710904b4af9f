"""What is read of host traces of every schema, and of device traces of every dialect."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from armillary.base.errors import InputError
from armillary.convert.pytorch.device import DeviceTrace, nanoseconds, read_device
from armillary.convert.pytorch.host import HostTrace, host_of, read_host
from tests.convert.pytorch.recording import SCHEMAS, Recording, tensor

T = tensor(4, 8)


def recording(schema: str) -> Recording:
    rec = Recording(schema, groups=[{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2}])
    rec.op(
        "outer",
        0,
        100,
        inputs=(T, 2, [1, 2], "s", True, 0.5),
        outputs=([T],),
        schema="outer(Tensor a) -> Tensor",
    )
    rec.op("inner", 10, 50, inputs=(), extra={"pg_name": "3"} if schema != "1.0.1" else {})
    return rec


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_same_nodes_of_every_schema(tmp_path: Path, schema: str) -> None:
    host = read_host(recording(schema).write(tmp_path)[0])
    assert host.schema == schema
    outer, inner = (node for node in host.nodes if not node.is_structure)
    assert (outer.name, outer.rf_id, outer.tid, outer.op_schema) == (
        "outer",
        1,
        1,
        "outer(Tensor a) -> Tensor",
    )
    assert outer.inputs == [T, 2, [1, 2], "s", True, 0.5]
    assert outer.input_shapes == [[8], [], [], [], [], []]
    assert outer.input_types == ["Tensor(float)", "Int", "GenericList[Int,Int]", "String", "Bool", "Double"]
    assert (outer.outputs, outer.output_shapes) == ([[T]], [[[8]]])
    assert inner.parent == outer.id
    assert inner.extra.get("pg_name") == (None if schema == "1.0.1" else "3")
    assert [node.id for node in host.nodes] == sorted(node.id for node in host.nodes)
    assert [record["id"] for record in host.raw] == [node.id for node in host.nodes]
    assert host.process_groups == [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2}]


def document(**node: Any) -> HostTrace:
    """Return the host trace of one node with some members replaced."""
    made = {
        "id": 7,
        "name": "op",
        "ctrl_deps": 1,
        "inputs": {"values": [], "shapes": [], "types": []},
        "outputs": {"values": [], "shapes": [], "types": []},
        "attrs": [{"name": "rf_id", "type": "uint64", "value": 5}],
    }
    made |= node
    return host_of({"schema": "1.1.1"}, [{k: v for k, v in made.items() if v is not Ellipsis}], "host.json")


def test_lists_in_quotes_and_absent_ones() -> None:
    node = document(inputs={"values": "[1, [2]]", "shapes": "", "types": None}, outputs=None).nodes[0]
    assert (node.inputs, node.input_shapes, node.input_types, node.outputs) == ([1, [2]], [], [], [])


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("id", "7", "id is '7', expected an integer"),
        ("id", True, "id is True, expected an integer"),
        ("id", ..., "has no 'id'"),
        ("ctrl_deps", None, "its parent is None, expected an integer"),
        ("ctrl_deps", ..., "has no 'ctrl_deps'"),
        ("name", ..., "has no 'name'"),
        ("attrs", [{"value": 1}], "has no 'name'"),
        ("attrs", [{"name": "rf_id", "value": 0.5}], "rf_id is 0.5, expected an integer"),
        ("attrs", [{"name": "tid", "value": 2**70}], "expected one of 64 bits"),
        ("inputs", {"values": 5}, "inputs or outputs are 5, expected a list"),
        ("inputs", {"values": "[1,"}, "Expecting value"),
        ("attrs", 5, "not iterable"),
    ],
)
def test_malformed_nodes(member: str, value: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        document(**{member: value})
    assert message in str(caught.value)
    assert str(caught.value).startswith("host.json: node 1 of the list (id ")


@pytest.mark.parametrize("schema", ["2.0.0", "", None, 5, "1.0", "1.1.1chakra"])
def test_other_schemas_are_refused(schema: Any) -> None:
    with pytest.raises(InputError, match=r"host\.json: schema is '.*', expected one of 1\.0\.1, 1\.0\.2"):
        host_of({"schema": schema}, [], "host.json")


@pytest.mark.parametrize("said", ["", "no json", "[1, 2]", "7", "null", "{}"])
def test_odd_process_groups_are_none(said: str) -> None:
    node = {
        "id": 1,
        "name": "## process_group:init ##",
        "ctrl_deps": 0,
        "attrs": [],
        "inputs": {"values": [said]},
    }
    assert host_of({"schema": "1.1.1"}, [node], "x").process_groups == []


Read = Callable[..., DeviceTrace]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads a device trace of the given events."""

    def function(*events: dict[str, Any], **members: Any) -> DeviceTrace:
        path = tmp_path / "device.json"
        path.write_text(json.dumps({"traceEvents": list(events), **members}))
        return read_device(path)

    return function


def event(cat: str, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": "n", "pid": 1, "tid": 2, "ts": 5.25, "dur": 1, "args": {}} | more


@pytest.mark.parametrize(
    ("cats", "field"),
    [
        (("cpu_op", "Operator", "operator", "user_annotation", "UserAnnotation"), "ops"),
        (("cuda_runtime", "cuda_driver", "Runtime", "hip_runtime", "mtia_runtime", "xpu_runtime"), "calls"),
        (("kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset", "mtia_ccp_events"), "kernels"),
        (("cuda_sync", "Sync"), "waits"),
        (("python_function", "Trace", "gpu_user_annotation", "ac2g", None), None),
    ],
)
def test_categories_of_all_dialects(read: Read, cats: tuple[str, ...], field: str | None) -> None:
    trace = read(*(event(cat) for cat in cats))
    counts = {name: len(getattr(trace, name)) for name in ("ops", "calls", "kernels", "waits")}
    assert counts == {name: len(cats) if name == field else 0 for name in counts}
    assert trace.events == len(cats)


def test_a_kernel(read: Read) -> None:
    args = {"device": 3, "stream": 7, "correlation": 42, "External id": 9}
    (kernel,) = read(event("kernel", args=args)).kernels
    assert (kernel.device, kernel.stream, kernel.correlation, kernel.external) == (3, 7, 42, 9)
    assert (kernel.start, kernel.end) == (5250, 6250)
    (old,) = read(event("Kernel", pid=1, tid=20, args={"external id": "9"})).kernels
    assert (old.device, old.stream, old.correlation, old.external) == (1, 20, 0, 9)


def test_threads_of_two_processes_are_two(read: Read) -> None:
    pids = [(1, 5), (2, 5), (1, 5), (1, -549452224), (1, "main"), (1, "5")]
    tids = [
        op.tid for op in read(*(event("cpu_op", pid=p, tid=t, ts=at) for at, (p, t) in enumerate(pids))).ops
    ]
    assert tids[0] == tids[2] == 5
    assert len(set(tids)) == 4
    assert tids[5] == tids[0]
    assert min(tids) >= 0


def test_parents_come_before_children_that_start_with_them(read: Read) -> None:
    ops = read(event("cpu_op", name="inner", dur=1), event("cpu_op", name="outer", dur=5)).ops
    assert [op.name for op in ops] == ["outer", "inner"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ts": None}, "ts is None, expected a number of microseconds"),
        ({"ts": "soon"}, "could not convert string to float"),
        ({"ts": 1e300}, "expected a number of microseconds that fits 64 bits as ns"),
        ({"dur": [1]}, "dur is [1], expected a number of microseconds"),
        ({"dur": float("nan")}, "NaN"),
        ({"ts": float("inf")}, "infinity"),
    ],
)
def test_malformed_events(read: Read, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(event("cpu_op"), event("kernel", name="gemm") | change)
    assert message in str(caught.value)
    assert "device.json: event 2 of traceEvents ('gemm') " in str(caught.value)


def test_an_event_without_time_or_name(read: Read) -> None:
    for key in ("ts", "name"):
        broken = {k: v for k, v in event("cpu_op").items() if k != key}
        with pytest.raises(InputError, match=f"event 1 of traceEvents .* has no '{key}'"):
            read(broken)
    assert read({k: v for k, v in event("cpu_op").items() if k not in ("dur", "args")}).ops[0].end == 5250
    assert read(event("cpu_op", dur=-3)).ops[0].end == 5250


@pytest.mark.parametrize(
    "args", [None, 5, [], {"correlation": "x"}, {"correlation": 2**80}, {"correlation": [1]}]
)
def test_odd_arguments_name_nothing(read: Read, args: Any) -> None:
    trace = read(event("cuda_runtime", args=args))
    assert trace.calls[0].correlation in (0, -1)
    assert trace.call_of() == {}


def test_nanoseconds_are_exact() -> None:
    assert nanoseconds(4458676522690.655, "ts") == 4458676522690655
    assert nanoseconds(4458676522690, "ts") == 4458676522690000
    assert nanoseconds("17.5", "ts") == 17500


def test_what_is_said_of_the_job(read: Read) -> None:
    assert read(distributedInfo={"rank": 3, "world_size": 8}).distributed == {"rank": 3, "world_size": 8}
    assert read(distributedInfo=None).distributed == {}
