"""The smallest traces, against those of chakra_generator of mlcommons/chakra 1.0.0."""

from __future__ import annotations

import pytest

from armillary.base.errors import InputError
from armillary.trace import check, encode, node_at
from armillary.workload.single_nodes import Sizes, families

MESSAGES = ("one_comm_send_node", "one_comm_recv_node")


@pytest.mark.shared
def test_files_are_those_of_the_original(shared):
    """Byte for byte, but for sends and receives, which there have no peer. Ids show that it was run for 8 NPUs."""
    golden = shared / "traces" / "golden_mlcommons_1.0.0" / "generator"
    made = dict(families(8))
    assert {path.name.split(".")[0] for path in golden.iterdir()} == set(made)
    for name, graphs in made.items():
        for rank in range(2):
            original = (golden / f"{name}.{rank}.et").read_bytes()
            assert (encode(graphs[rank]) == original) == (name not in MESSAGES), name


def test_ids_count_on_and_nothing_is_wrong():
    made = dict(families(3, Sizes(7, 11, 13)))
    ids = [ident for graphs in made.values() for graph in graphs for ident in graph.ids.tolist()]
    assert ids == list(range(len(ids))) and len(made) == 14
    for graphs in made.values():
        assert [finding for graph in graphs for finding in check(graph)] == []
    assert made["two_comp_nodes_dependent"][2].duration_micros.tolist() == [7, 7]
    assert made["ALL_GATHER"][0].ints("comm_size").tolist() == [13]
    assert made["one_remote_mem_load_node"][0].ints("tensor_size").tolist() == [11]


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_have_a_partner(name):
    graphs = dict(families(5, Sizes(tensor_bytes=99)))[name]
    names = [graph.name(0) for graph in graphs]
    half = ["COMM_SEND_NODE", "COMM_RECV_NODE"]
    assert names == [*(half if "send" in name else half[::-1]) * 2, "COMP_NODE"]
    for rank in range(0, 4, 2):
        ends = [
            {key: value for key, _, value, *_ in node_at(graph, 0).attrs} for graph in graphs[rank : rank + 2]
        ]
        assert ends[0] == ends[1]
        assert {ends[0]["comm_src"], ends[0]["comm_dst"]} == {rank, rank + 1} and ends[0]["comm_size"] == 99


def test_no_npus():
    with pytest.raises(InputError, match="0 NPUs"):
        list(families(0))
