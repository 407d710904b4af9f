"""Logs of issues and callbacks."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from armillary.base.errors import InputError
from armillary.report.issue_log import Found, parse_frequency, write_issue_log

GOOD = """\
[info] starting, issue soon
issue,npu_id=0,curr_cycle=0,node_id=1,node_name=COMP_NODE_conv(1, 2)=x
issue,npu_id=1,curr_cycle=1500,node_id=1,node_name=COMM_COLL_NODE_allreduce
callback,npu_id=0,curr_cycle=2250,node_id=1,node_name=COMP_NODE_conv(1, 2)=x
issue,npu_id=0,curr_cycle=2250,node_id=1,node_name=aten::mm
callback,npu_id=1,curr_cycle=1500,node_id=1,node_name=COMM_COLL_NODE_allreduce
callback,npu_id=0,curr_cycle=2251,node_id=1,node_name=aten::mm
issue,npu_id=0,curr_cycle=9,node_id=2,node_name=MEM_LOAD_NODE
"""


def test_cycles_become_micros(tmp_path):
    (tmp_path / "log.csv").write_text(GOOD)
    found = write_issue_log(tmp_path / "log.csv", tmp_path / "t.json", 2, parse_frequency("1.5GHz"))
    assert found == Found(nodes=3, unfinished=1, skipped=1)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert [
        (event["pid"], threads[event["tid"]], event["name"], event["ts"], event["dur"])
        for event in events
        if event["ph"] == "X"
    ] == [
        (1, "compute", "COMP_NODE_conv(1, 2)=x", 0.0, 1.5),
        (1, "other", "aten::mm", 1.5, 0.001),
        (2, "communication", "COMM_COLL_NODE_allreduce", 1.0, 0.0),
    ]
    assert [event["args"]["name"] for event in events if event["name"] == "process_name"] == [
        "npu 0",
        "npu 1",
    ]


def test_memories_have_threads_of_their_own(tmp_path):
    names = ["LOCAL_MEMORY_MEM_LOAD_NODE", "MEM_STORE_NODE_REMOTE_MEMORY", "COMP_NODE"]
    lines = [f"{kind},n=0,c={at},i={i},m={name}" for kind, at in (("issue", 0), ("callback", 5))
             for i, name in enumerate(names)]  # fmt: skip
    (tmp_path / "log.csv").write_text("\n".join(lines))
    write_issue_log(tmp_path / "log.csv", tmp_path / "t.json", 1, Fraction(1))
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert [event["args"]["name"] for event in events if event["name"] == "thread_name"] == [
        "local memory", "remote memory", "compute"]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no node was issued and called back"),
        ("issue,npu_id=0,cycle=1", "line 1: 'npu_id=0,cycle=1' after 'issue', expected a line such as"),
        ("issue,npu_id=x,cycle=1,id=2,name=a", "line 1: npu is 'x', expected a whole number"),
        ("issue,npu_id=0,cycle=-1,id=2,name=a", "line 1: cycle is '-1'"),
        ("issue,npu_id=0,cycle=1,id=,name=a", "line 1: node id is ''"),
        ("issue,npu_id=4,cycle=1,id=2,name=a", "line 1: npu 4, expected one from 0 to 1"),
        (
            "callback,npu_id=0,cycle=1,id=2,name=a",
            "line 1: callback of node 2 of npu 0, expected its issue first",
        ),
        ("issue,n=0,c=1,i=2,m=a\nissue,n=0,c=1,i=2,m=a", "line 2: node 2 of npu 0 is issued again"),
        ("issue,n=0,c=5,i=2,m=a\ncallback,n=0,c=4,i=2,m=a", "line 2: cycle 4, expected at least 5"),
    ],
)
def test_bad_logs(tmp_path, text, message):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(InputError, match=f"log.csv: {message}"):
        write_issue_log(tmp_path / "log.csv", tmp_path / "t.json", 2, Fraction(1))
    assert not (tmp_path / "t.json").exists()


def test_no_log(tmp_path):
    with pytest.raises(InputError, match=r"none\.csv: No such file"):
        write_issue_log(tmp_path / "none.csv", tmp_path / "t.json", 1, Fraction(1))


@pytest.mark.parametrize(
    ("text", "megahertz"), [("1500", 1500), ("1.5GHz", 1500), ("1500 MHz", 1500), ("800khz", Fraction(4, 5))]
)
def test_frequencies(text, megahertz):
    assert parse_frequency(text) == megahertz


@pytest.mark.parametrize("text", ["", "0", "-5", "fast", "5 GB", "1e9", "nan"])
def test_no_frequencies(text):
    with pytest.raises(InputError, match="expected MHz"):
        parse_frequency(text)
