"""Any damage to a host or device trace gives one error, or a trace that can be checked, written and simulated."""

from __future__ import annotations

import json
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import armillary
from armillary.base.errors import ArmillaryError, InputError
from armillary.convert import report
from armillary.convert.front_ends.pytorch import convert
from armillary.platform.model import recorded_machine
from armillary.trace import write_trace
from armillary.trace.check_ranks import check_trace
from tests.convert.pytorch.recording import Recording, tensor
from tests.convert.pytorch.test_job import data_parallel, device_step

ODD = st.sampled_from(
    [
        None, True, 0, -1, 1, 2, 7, 2**31, 2**63, -(2**63), 2**64, 2**70, 10**400, 0.5, -3e300,
        float("inf"), float("nan"),
        "", "0", "x", "7", "\ud800", "\0", "<None>", "c10d::send", "nccl:send 0->99999999", "ncclKernel",
        [], [[]], [0] * 6, {},
        {"a": 1}, [1, 2, 3, 4, 5, "cpu"], [[1, 2, 0, 2**60, 8, "cpu"]], "[1, 2", '[{"ranks": [5]}]',
    ]
)  # fmt: skip


EXAMPLES = 250
"""Also ran with 5,000."""


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values inside one."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            found += places(inner, (*path, key))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            found += places(inner, (*path, at))
    return found


def recordings() -> dict[str, Recording]:
    full = device_step()
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0], "group_size": 1}]
    full.groups = groups
    full.stream_wait(40, 7, (100, 200), (300, 400))
    said = {
        "collective_name": "allreduce",
        "pg_name": "0",
        "pg_size": 1,
        "global_rank_start": 0,
        "dtype": "Float",
    }
    full.ops[-1].extra = {**said, "global_rank_stride": 1, "in_msg_nelems": 4}
    full.op(
        "c10d::alltoall_base_", 935_000, 936_000, inputs=(tensor(1, 4), tensor(2, 4), "<Object>", [2], [2])
    )
    full.op("c10d::send", 937_000, 938_000, inputs=([tensor(2, 4)], "<Object>", 0, 4))
    return {"device": full, "cpu": data_parallel(0, 1), "old": data_parallel(0, 1, schema="1.0.1")}


DOCUMENTS = {name: {"host": rec.host(), "device": rec.device()} for name, rec in recordings().items()}


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.data())
def test_damaged_values(data: st.DataObject) -> None:
    documents = json.loads(json.dumps(DOCUMENTS[data.draw(st.sampled_from(sorted(DOCUMENTS)))]))
    for _ in range(data.draw(st.integers(1, 4))):
        path = data.draw(st.sampled_from([path for path in places(documents) if len(path) > 1]))
        at: Any = documents
        for key in path[:-1]:
            at = at[key]
        if isinstance(at, dict) and data.draw(st.integers(0, 5)) == 0:
            del at[path[-1]]
        elif isinstance(at, list) and data.draw(st.integers(0, 5)) == 0:
            at.insert(path[-1], deepcopy(at[data.draw(st.integers(0, len(at) - 1))]))
        else:
            at[path[-1]] = deepcopy(data.draw(ODD))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side, document in documents.items():
            (folder / f"{side}_0.json").write_text(json.dumps(document))
        inputs = data.draw(st.sampled_from([[folder], [folder / "host_0.json"], [folder / "device_0.json"]]))
        try:
            converted = convert(inputs)
        except InputError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 2000
            return
        json.dumps(report(converted))
        check_trace(converted.trace)
        try:
            write_trace(str(folder / "out"), converted.trace)
            armillary.simulate(converted.trace, recorded_machine(converted.trace.n_ranks))
        except ArmillaryError as error:
            assert "\n" not in str(error)
