"""Profiles of XLA: what is read, who waits for whom, recorded against replayed, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.convert import Converted, front_end, report
from armillary.platform.model import recorded_machine
from armillary.trace import check, nodes_of

from .profile import US, Plane, gpu, space, tpu, written


def converted(folder: Path, *files: bytes) -> Converted:
    return front_end("xplane").convert(
        [written(folder, data, f"{at}.xplane.pb") for at, data in enumerate(files)]
    )


def nodes(made: Converted, rank: int = 0) -> dict[str, Any]:
    return {node.name: node for node in nodes_of(made.trace.graph(rank))}


def attrs(node: Any) -> dict[str, Any]:
    return {name: value for name, _, value in node.attrs}


def test_tpus(tmp_path: Path) -> None:
    made = converted(tmp_path, *tpu())
    assert report(made)["comm"] == {
        "ALL_REDUCE": {"count": 2, "bytes": 2 * 4096}, "ALL_GATHER": {"count": 2, "bytes": 2 * 1024},
    }  # fmt: skip
    assert not made.warnings and [fact["recorded_ns"] for fact in made.facts["per_rank"]] == [
        80 * US,
        80 * US,
    ]
    assert all(fact["replayed_ns"] == fact["recorded_ns"] for fact in made.facts["per_rank"])
    assert armillary.simulate(made.trace, recorded_machine(2)).total_ticks == 80 * US
    assert not [problem for rank in range(2) for problem in check(made.trace.graph(rank))]
    found = nodes(made)
    # The loop is what it ran, and its own time between that is a gap.
    assert "while.1" not in found and attrs(found["fusion.1"])["num_ops"] == 5_000_000
    # The -done took what is left of its time when the all-gather had ended.
    done = found["all-gather-done.2"]
    assert attrs(done)["duration_ns"] == US and found["all-gather-start.2"].id in done.data_deps


def test_what_runs_beside_hides(tmp_path: Path) -> None:
    """On a faster network the all-gather ends before the fusion does, and the -done waits for nothing."""
    made = converted(tmp_path, *tpu())
    machine = "network: [{topology: Ring, size: 2, bandwidth: 1000 GB/s, latency: 0 ns}]"
    path = tmp_path / "machine.yaml"
    path.write_text(machine)
    ran = armillary.simulate(made.trace, armillary.load_platform(path))
    # 3 µs late, 22 µs, all-reduce, 1 µs, 10 µs, 1 µs, gap of 2 µs, 8 µs.
    assert 47 * US <= ran.total_ticks < 47.1 * US


def test_tpus_without_a_line_of_what_runs_beside(tmp_path: Path) -> None:
    with_line, without = (converted(tmp_path, *tpu(beside=each)) for each in (True, False))
    assert report(with_line)["comm"] == report(without)["comm"]
    assert all(fact["replayed_ns"] == fact["recorded_ns"] for fact in without.facts["per_rank"])
    # It ran from the -start to the end of the -done.
    assert attrs(nodes(without)["all-gather-done.2"])["duration_ns"] == 0


def test_tpus_without_texts(tmp_path: Path) -> None:
    """Categories name collectives, traffic gives the bytes, and all devices are one group: each is said."""
    made = converted(tmp_path, *tpu(texts=False))
    assert report(made)["comm"]["ALL_REDUCE"] == {"count": 2, "bytes": 2 * 4096}
    assert any("groups of all devices are assumed" in text for text in made.warnings)
    assert any("nothing says the bytes of 1 collectives" in text for text in made.warnings)
    assert attrs(nodes(made)["all-gather-start.2"])["replay_only"]


def test_hosts(tmp_path: Path) -> None:
    files = tpu(2, hosts=2)
    made = converted(tmp_path, *files)
    assert made.trace.n_ranks == 4 and not made.groups and not made.warnings
    (tmp_path / "one").mkdir()
    alone = converted(tmp_path / "one", files[0])
    # Half of the devices: their collectives cannot meet.
    assert not report(alone)["comm"] and any(
        "not in these files" in text or "fit no number" in text for text in alone.warnings
    )
    assert all(fact["replayed_ns"] == fact["recorded_ns"] for fact in alone.facts["per_rank"])


def test_gpus(tmp_path: Path) -> None:
    made = converted(tmp_path, gpu())
    assert report(made)["comm"] == {
        "ALL_REDUCE": {"count": 2, "bytes": 2 * 512 * 512 * 4}, "SEND": {"count": 2, "bytes": 2 * 512 * 512 * 4},
        "RECV": {"count": 2, "bytes": 2 * 512 * 512 * 4},
    }  # fmt: skip
    assert not made.warnings
    assert armillary.simulate(made.trace, recorded_machine(2)).total_ticks == 120 * US
    found = {node.id: node for node in nodes_of(made.trace.graph(0))}
    last = max(found.values(), key=lambda node: attrs(node).get("start_ns", 0))
    # The second GEMM began when the permute had ended, on a stream that had been idle.
    assert {found[at].name for at in last.data_deps} >= {"collective-permute-start.1"}


def test_devices_by_the_table_of_the_module(tmp_path: Path) -> None:
    """Logical device 0 is device 1: pairs of a permute are those of devices, not of numbers."""
    made = converted(tmp_path, gpu((1, 2, 0)))
    sends = [
        node
        for node in nodes_of(made.trace.graph(1))
        if node.name.startswith("collective") and node.type == 5
    ]
    assert [attrs(node)["comm_dst"] for node in sends] == [2]


def test_gpus_without_modules(tmp_path: Path) -> None:
    made = converted(tmp_path, gpu(modules=False))
    assert report(made)["comm"] == {"ALL_REDUCE": {"count": 2, "bytes": 0}}
    assert any("between whom" in text for text in made.warnings)
    assert any("nothing says the bytes" in text for text in made.warnings)


def test_what_only_some_recorded(tmp_path: Path) -> None:
    """A profile that begins in the middle of a step of one device."""
    planes = []
    for number, first in enumerate((0, 1)):
        plane = Plane(f"/device:TPU:{number}")
        kind = plane.kind("%all-reduce.1 = f32[8]{0} all-reduce(f32[8]{0} %p), replica_groups={{0,1}}, channel_id=1, "
                          "use_global_device_ids=true", "all-reduce.1")  # fmt: skip
        plane.line("XLA Ops", [(kind, at * US, (at + 1) * US, {}) for at in range(first, 3)])
        planes.append(plane)
    made = converted(tmp_path, space(planes))
    assert not report(made)["comm"]
    assert any(
        "5 communications: not all of their devices recorded them equally often" in text
        for text in made.warnings
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no plane with a name"),
        (b"{}", "byte 0 of 2: expected fields of an XSpace"),
        (space([Plane("/host:CPU")]), "no device has operations of XLA; it has the planes '/host:CPU'"),
        (gzip.compress(b'{"traceEvents": []}', mtime=0), "byte 0 of 19: expected fields of an XSpace"),
        (space([Plane("/device:TPU:0")]) + b"\x0a\xff", "expected fields of an XSpace"),
    ],
)
def test_what_is_no_profile(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(InputError) as error:
        converted(tmp_path, data)
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        (2**62, 2**62 + 5, "begins at 4611686018427387904000 ps and lasts 5000 ps, expected times"),
        (-5, 5, "begins at -5000 ps"),
        (2**61, 2**61 + 5, "events from 0 to 2305843009213693957 ns, expected less than"),
    ],
)
def test_times_that_are_none(tmp_path: Path, begin: int, end: int, words: str) -> None:
    plane = Plane("/device:TPU:0")
    kind = plane.kind("a")
    plane.line("Async XLA Ops", [(kind, 0, 5, {})])
    plane.line("XLA Ops", [(kind, begin, end, {})], begin)
    with pytest.raises(InputError) as error:
        converted(tmp_path, space([plane]))
    assert words in str(error.value)


def test_folders_and_chrome_traces(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        front_end("xplane").convert([tmp_path])
    with pytest.raises(InputError, match=r"expected HOST\.xplane\.pb"):
        front_end("xplane").convert([tmp_path / "a.trace.json.gz"])


def test_a_file_that_was_cut(tmp_path: Path) -> None:
    data = gpu()
    for size in range(0, len(data), 37):
        try:
            converted(tmp_path, data[:size])
        except InputError as error:
            assert "\n" not in str(error)
