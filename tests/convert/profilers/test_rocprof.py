"""Files of rocprofv3: what is read, who waits for whom, recorded against replayed, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.convert import Converted, front_end
from armillary.platform.model import recorded_machine
from armillary.trace import CollectiveType, nodes_of

from .rocprofv3 import GEMM, Tool, step


def converted(tmp_path: Path, document: Any) -> Converted:
    path = tmp_path / "results.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return front_end("rocprof").convert([path])


def test_recorded_against_replayed(tmp_path: Path) -> None:
    made = converted(tmp_path, step([501, 502]))
    assert made.trace.n_ranks == 2
    assert all(rank["recorded_ns"] == rank["replayed_ns"] == 330_000 for rank in made.facts["per_rank"])
    assert armillary.simulate(made.trace, recorded_machine(2)).total_ticks == 330_000


def test_what_waits_for_what(tmp_path: Path) -> None:
    nodes = nodes_of(converted(tmp_path, step([501])).trace.graph(0))
    by = {node.id: node.name for node in nodes}
    gemms = [node for node in nodes if node.name == "Cijk_Ailk_Bljk"]
    gathered = next(node for node in nodes if node.name.startswith("ncclDevKernel"))
    # RCCL's kernel has no kind in its name: the call around its launch has.
    assert {name: value for name, _, value in gathered.attrs}["comm_type"] == CollectiveType.ALL_GATHER
    assert gemms[0].id in gathered.data_deps
    waited = next(node for node in nodes if node.name == "hipDeviceSynchronize")
    assert {by[at] for at in waited.data_deps} >= {gathered.name, "Cijk_Ailk_Bljk"}


def test_one_process_alone_and_other_names_of_keys(tmp_path: Path) -> None:
    """Early versions have an object in place of the list, and numbers in place of handles."""
    document = step([501])
    (tool,) = document["rocprofiler-sdk-tool"]
    tool["buffer_records"]["kernel_dispatch_trace"] = tool["buffer_records"].pop("kernel_dispatch")
    for each in tool["buffer_records"]["kernel_dispatch_trace"]:
        each["dispatch_info"]["queue_id"] = each["dispatch_info"]["queue_id"]["handle"]
    made = converted(tmp_path, {"rocprofiler-sdk-tool": tool})
    assert nodes_of(made.trace.graph(0)) == nodes_of(converted(tmp_path, step([501])).trace.graph(0))


def test_copies_and_what_is_left_out(tmp_path: Path) -> None:
    tool = Tool(7)
    call = tool.add("hip_api", 1, 3, 1000, 2000)
    agents = {"src_agent_id": {"handle": 1}, "dst_agent_id": {"handle": 70}}
    tool.add("memory_copy", 2, 1, 3000, 9000, call, bytes=4096, **agents)
    tool.kernel(GEMM, (9100, 9200), 10_000, 11_000)
    tool.kernel(GEMM, (9300, 9400), 0, 0)
    tool.range("anywhere", 1000, 5000, operation=2)
    tool.add("hsa_api", 1, 1, 1000, 2000)
    made = converted(tmp_path, {"rocprofiler-sdk-tool": [tool.document()]})
    assert "Memcpy host to device" in {node.name for node in nodes_of(made.trace.graph(0))}
    for words in (
        "records of hsa_api (1)",
        "ranges that begin and end anywhere",
        "without an end after their start",
    ):
        assert any(words in text for text in made.warnings)


def changed(**values: Any) -> Callable[[], Any]:
    def make() -> Any:
        document = step([501])
        document["rocprofiler-sdk-tool"][0]["buffer_records"]["kernel_dispatch"][1] |= values
        return document

    return make


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: "{", "not valid JSON"),
        (lambda: "[" * 100_000, "nested too deeply"),
        (lambda: {"traceEvents": []}, "is a trace for Chrome"),
        (lambda: {"rocprofiler-sdk-tool": [5]}, "has no list rocprofiler-sdk-tool"),
        (lambda: {"rocprofiler-sdk-tool": [{}]}, "has no work of a GPU"),
        (changed(start_timestamp="soon"), "kernel_dispatch, record 2: start_timestamp: got 'soon'"),
        (changed(end_timestamp=2**63), "end_timestamp: got"),
        (changed(correlation_id={"internal": -1}), "internal: got -1"),
    ],
)
def test_what_is_refused(make: Callable[[], Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words) as raised:
        converted(tmp_path, make())
    assert "\n" not in str(raised.value)
