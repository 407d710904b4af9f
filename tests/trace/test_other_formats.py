"""A file of another format, where a trace or a study is expected, is called by its name."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.convert import names
from armillary.platform import load_study
from armillary.trace import GraphBuilder, Trace, write_trace
from armillary.trace.files import read_graph
from armillary.trace.other_formats import FORMATS, other_format

TEXTS = {
    "goal": "/* a\n schedule */ // of two\nnum_ranks 2\nrank 0 {\nl1: calc 1\n}\n",
    "hlo": "// made by XLA\nHloModule jit_step, is_scheduled=true\n",
    "stablehlo": "#loc = loc(unknown)\nmodule @jit_f attributes {mhlo.num_partitions = 1 : i32} {\n",
    "msccl": '<?xml version="1.0"?><!-- a --><!-- b --><algo name="ring" ngpus="8">\n',
    "flexflow": 'digraph taskgraph {  node0 [color=red,label="{device_id=0}"];\n',
    "text": "HYBRID_TRANSFORMER model_parallel_NPU_group: 8\n2\nlayer0 -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 65536 5\n",
    "triosim": "OperatorID,OperatorName,Operator_input,Operator_output\n1,conv,a,b\n",
    "rocprof": '{"rocprofiler-sdk-tool": [{"metadata": {"pid": 7}}]}',
    "mscclpp": '{"name": "r", "collective": "allreduce", "protocol": "LL", "inplace": true, "gpus": []}',
    "nccl": '{"header": {"id": "0x1"}, "coll_perf": {"coll": "AllReduce", "coll_msg_size_bytes": 8}}',
    "pytorch": '\n{"schemaVersion": 1, "deviceProperties": [], "traceEvents": []}',
}
HOST = '{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": []}'


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_format_is_known_by_how_it_begins(
    name: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(pack(TEXTS[name].encode()))
    for read, expected in ((load_study, "a study file"), (read_graph, "a Chakra trace")):
        with pytest.raises(InputError, match=f"expected {expected}; .*--from {name} "):
            read(tmp_path / "file")


def test_every_format_has_a_front_end_and_an_example(tmp_path: Path) -> None:
    assert {each.name for each in FORMATS} == {*TEXTS, "nsight"} <= set(names())
    with sqlite3.connect(tmp_path / "a.sqlite") as database:
        database.execute("create table a (b)")
    database.close()
    (tmp_path / "host.json").write_text(HOST)
    assert [other_format(tmp_path / each).name for each in ("a.sqlite", "host.json")] == ["nsight", "pytorch"]  # type: ignore[union-attr]


def test_chakra_traces_and_studies_are_none_of_them(tmp_path: Path) -> None:
    builder = GraphBuilder(rank=0)
    builder.all_reduce("num_ranks 2", 100)
    write_trace(tmp_path / "t", Trace.from_ranks([builder.graph()]))
    for file in (tmp_path / "t.0.et", *Path("examples").rglob("*.yaml")):
        assert other_format(file) is None
    for path in ("t", "t.0.et"):
        with pytest.raises(
            InputError, match=r"a Chakra trace, expected a study file; .*--workload .*/t --machine"
        ):
            load_study(tmp_path / path)


@given(
    st.sampled_from([each.begins.pattern for each in FORMATS]), st.binary(max_size=60), st.integers(1, 3000)
)
def test_no_file_keeps_the_search_busy(pattern: bytes, part: bytes, times: int) -> None:
    found = next(each for each in FORMATS if each.begins.pattern == pattern)
    # Parts that begin as the pattern does, over and over, are what a search may split in many ways.
    for unit in (part, b"<!-- a -->", b"/* a */", b"//\n", b"#\n", b" \n", b'{"collective": ', b"MICRO\n"):
        found.begins.match(unit * times)
