"""The file of a joined trace: what is written is read again; what is damaged is one error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.convert import report
from armillary.convert.front_ends.pytorch import convert, pairs
from armillary.convert.pytorch.job import convert_job
from armillary.convert.pytorch.link_files import link_files, read_linked, write_linked
from armillary.platform.model import recorded_machine
from armillary.trace import encode
from tests.convert.pytorch.recording import SCHEMAS, Recording
from tests.convert.pytorch.test_job import data_parallel, device_step


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_is_written_is_read_again(tmp_path: Path, schema: str) -> None:
    rec = data_parallel(0, schema=schema)
    linked, path = rec.linked(), tmp_path / "linked.json"
    write_linked(path, linked)
    again = read_linked(path)
    assert (again.op_of, again.strategies, again.host.nodes) == (
        linked.op_of,
        linked.strategies,
        linked.host.nodes,
    )
    for name in ("calls", "kernels", "waits", "distributed", "events", "source"):
        assert getattr(again.device, name) == getattr(linked.device, name)
    assert encode(convert_job([again]).trace.graph(0)) == encode(
        convert_job([linked]).trace.graph(0)
    ).replace(b"host_0.json", b"linked.json")


def test_kernels_and_calls_are_kept(tmp_path: Path) -> None:
    rec = device_step()
    rec.stream_wait(40, 7, (100, 200), (300, 400))
    host, device = rec.write(tmp_path, zipped=True)
    facts = link_files(host, device, tmp_path / "linked.json")
    assert (facts["link_rate"], facts["device_ops_linked"]) == (1.0, 9)
    direct = convert_job([rec.linked()])
    converted = convert([tmp_path / "linked.json"])
    assert report(converted)["comm"] == report(direct)["comm"]
    assert armillary.simulate(converted.trace, recorded_machine(1)).finish == (
        armillary.simulate(direct.trace, recorded_machine(1)).finish
    )


def test_nothing_is_written_where_the_traces_are_of_other_runs(tmp_path: Path) -> None:
    host, _ = data_parallel(0).write(tmp_path)
    other = Recording()
    for at in range(20):
        other.op(f"other{at}", 10 * at, 10 * at + 5)
    _, device = other.write(tmp_path, 1)
    with pytest.raises(InputError, match="not of the same steps"):
        link_files(host, device, tmp_path / "linked.json")
    assert not (tmp_path / "linked.json").exists()


def broken(document: dict[str, Any], path: list[Any], value: Any) -> dict[str, Any]:
    """Return a copy with one value replaced."""
    copy = json.loads(json.dumps(document))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copy


BAD: list[tuple[list[Any], Any, str]] = [
    (["op_of"], [0], "the member 'op_of' does not fit"),
    (["op_of"], None, "the member 'op_of' does not fit"),
    (["op_of", 3], 10**9, "the member 'op_of' does not fit"),
    (["op_of", 3], -2, "the member 'op_of' does not fit"),
    (["op_of", 3], True, "the member 'op_of' does not fit"),
    (["strategies"], [], "does not fit"),
    (["strategies"], {"rf_id": "all"}, "does not fit"),
    (["device"], 7, "the member 'device' cannot be read"),
    (["device", "ops"], None, "the member 'device' cannot be read"),
    (["device", "ops", 0], [1], "the member 'device' cannot be read"),
    (["device", "ops", 0, 1], "soon", "start is 'soon', expected int"),
    (["device", "ops", 0, 1], 2**70, "expected int"),
    (["device", "calls", 0, 0], 5, "name is 5, expected str"),
    (["device", "kernels", 0, 3], None, "device is None, expected int"),
    (["device", "distributed"], [], "device.distributed is"),
    (["nodes", 3, "id"], "x", "node 4 of the list"),
    (["nodes", 3, "attrs"], 5, "node 4 of the list"),
    (["schema"], "9.9", "schema is '9.9', expected one of 1.0.1, "),
]


@pytest.mark.parametrize(("where", "value", "message"), BAD)
def test_damaged_members(tmp_path: Path, where: list[Any], value: Any, message: str) -> None:
    path = tmp_path / "linked.json"
    write_linked(path, device_step().linked())
    path.write_text(json.dumps(broken(json.loads(path.read_text()), where, value)))
    with pytest.raises(InputError) as caught:
        read_linked(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_device_trace_alone_and_a_host_trace_alone(tmp_path: Path) -> None:
    host, device = data_parallel(0).write(tmp_path)
    for path in (host, device):
        converted = convert([path])
        assert report(converted)["comm"]["ALL_REDUCE"]["count"] == 1
        armillary.simulate(converted.trace, recorded_machine(1))


def test_a_folder_of_pairs(tmp_path: Path) -> None:
    for rank in (1, 0, 10):
        data_parallel(rank, 3).write(tmp_path, rank, zipped=rank == 1)
    (tmp_path / "notes.txt").write_text("x")
    assert [host.name for host, _ in pairs(tmp_path)] == ["host_0.json", "host_1.json.gz", "host_10.json"]
    assert [one["rank"] for one in report(convert([tmp_path]))["per_rank"]] == [0, 1, 10]


def test_half_a_pair_and_no_pair(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no traces, expected host_<rank>\.json and device_<rank>\.json"):
        convert([tmp_path])
    host, device = data_parallel(0).write(tmp_path)
    device.unlink()
    with pytest.raises(InputError, match=r"host_0\.json has no device trace, expected device_0\.json"):
        convert([tmp_path])
    device.write_text(host.read_text())
    host.unlink()
    with pytest.raises(InputError, match=r"device_0\.json has no host trace, expected host_0\.json"):
        convert([tmp_path])


def test_what_a_run_that_was_killed_left_behind_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no traces"):
        data_parallel(0).write(tmp_path)[0].rename(tmp_path / ".host.4711.part.json")
        (tmp_path / "device_0.json").unlink()
        convert([tmp_path])


def test_files_of_other_names_are_told_apart_by_what_is_in_them(tmp_path: Path) -> None:
    for rank in (0, 1):
        host, device = data_parallel(rank, 2).write(tmp_path, rank)
        host.rename(tmp_path / f"et.{rank}.json")
        device.rename(tmp_path / f"trace-rank{rank}.pt.json")
    (tmp_path / "config.json").write_text("{}")
    assert [(host.name, device.name) for host, device in pairs(tmp_path)] == [
        ("et.0.json", "trace-rank0.pt.json"),
        ("et.1.json", "trace-rank1.pt.json"),
    ]
    assert report(convert([tmp_path]))["link_rate"] == 1
