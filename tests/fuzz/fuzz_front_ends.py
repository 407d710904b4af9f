"""Seeds of the front ends: small files as other tests write them, or as they stand here."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from fuzz_recorded import TESTS

from armillary.collective.mscclpp_write import plan_of
from armillary.convert.goal.schedule import read_schedule


def nccl_seeds() -> list[bytes]:
    """Return records of one rank of the inspector, and a trace of the profiler."""
    header = {"id": "0x1", "comm_name": "x", "rank": 0, "n_ranks": 2, "nnodes": 1}
    calls = [("AllReduce", 1 << 20), ("AllGather", 4096), ("ReduceScatter", 4096), ("Other", 1)]
    records = [
        {"header": header, "metadata": {"hostname": "h", "pid": 7}, "coll_perf": {
            "coll": name, "coll_sn": at, "coll_msg_size_bytes": size, "coll_exec_time_us": 5.5, "coll_algobw_gbs": 2.5,
            "event_trace_ts": {"coll_start_ts": 10.0 * at, "coll_stop_ts": 10.0 * at + 5.5}}}
        for at, (name, size) in enumerate(calls)
    ]  # fmt: skip
    events = [
        {"name": "AllReduce", "cat": "COLL", "ph": phase, "ts": at * 9.5, "id": 1, "pid": 1, "args": {
            "SeqNum": 0, "CommHash": 5, "Rank": 0, "Count": "16", "Datatype": "ncclBfloat16"}}
        for at, phase in enumerate("be")
    ]  # fmt: skip
    return [json.dumps(records).encode(), json.dumps({"traceEvents": events}).encode()]


def nccl_lines() -> list[bytes]:
    """Return the same records one after the other."""
    return [b"\n".join(json.dumps(each).encode() for each in json.loads(nccl_seeds()[0]))]


TRIOSIM = b"""OperatorID,OperatorName,Operator_input,Operator_output,Operator_cudatime,Operator_cudatimenooverlap,\
InputSize,OutputSize,gpuid,stage,tpflag
1,conv,[1; 2],[3],30.5,30.5,[12; 6],[24],0,forward,1
2,relu,[3],[4],10,8.25,24,24,1,backward,0
3,add,[2; 4],[2],5,5,[6; 6],[6],0,optimizer,0
"""

GOAL = b"""num_ranks 3
rank 0 {
a: recv 4b from -1 tag -1
b: recv 99999b from 1 tag 3 cpu 1 nic 1
b irequires a
}
rank 1 {
a: calc 900 cpu 1
b: send 99999b to 0 tag 3
b requires a
}
rank 2 {
send 4b to 0 // a comment
}
"""


def goal_binary() -> list[bytes]:
    """Return a binary schedule: `GOAL`, as LogGOPSim's txt2bin writes it."""
    sys.path.insert(0, str(TESTS))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.goal"
        path.write_bytes(GOAL)
        return [importlib.import_module("convert.goal.packed").packed(read_schedule(path))]


@cache
def nsight_seeds() -> list[bytes]:
    """Return files of Nsight Systems, of tables with all columns and with those of old versions."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.sqlite"
        return [exported().step([501, 502], old=old).write(path).read_bytes() for old in (False, True)]


def exported(name: str = "exported") -> Any:
    """Return the module that writes such files."""
    sys.path.insert(0, str(TESTS))
    return importlib.import_module(f"convert.profilers.{name}")


def rocprof_seeds() -> list[bytes]:
    """Return a file of rocprofv3."""
    return [json.dumps(exported("rocprofv3").step([501, 502])).encode()]


def xplane_seeds() -> list[bytes]:
    """Return profiles of TPUs and GPUs, with all that tells of collectives and without."""
    sys.path.insert(0, str(TESTS))
    made = importlib.import_module("convert.xplane.profile")
    return [made.tpu()[0], made.tpu(texts=False, beside=False)[0], made.gpu()]


def nsight_rows() -> list[bytes]:
    """Return the rows of such a file as JSON."""
    made = exported().step([501, 502])
    return [json.dumps({"rows": made.rows, "texts": made.texts}).encode()]


@cache
def mscclpp_seeds() -> list[bytes]:
    """Return plans of both protocols, and one with barriers, semaphores, reads and a thread-block group."""
    made: list[Any] = [plan_of("ring", "all-reduce", 2, "Simple"), plan_of("direct", "all-gather", 3, "LL")]
    blocks = made[0]["gpus"][0]["threadblocks"]
    blocks.append({"id": 1, "ops": [
        {"name": "barrier", "barrier_id": 0, "num_threadblocks": 1}, {"name": "sem_release", "semaphore_ids": [0]},
        {"name": "sem_acquire", "semaphore_ids": [0]}, {"name": "flush", "channel_type": "port", "channel_ids": []},
        {"name": "pipeline", "iter_context": {"unit_size": 4096, "num_chunks": 1}, "ops": [
            {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
             "dst_buff": [{"type": "i", "index": 0, "size": 1}], "tbg_info": {"tb_id": 0, "tbg_size": 2}}]},
    ]})  # fmt: skip
    made[0]["gpus"][0]["semaphores"] = [{"init_value": 1}]
    return [json.dumps(each).encode() for each in made]
