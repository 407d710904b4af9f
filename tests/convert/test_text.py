"""ASTRA-sim 1.0 text workloads: order, groups, times and errors of what they become."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.cli import main
from armillary.convert import Converted, front_end, report
from armillary.convert.text.kinds import SCOPES
from armillary.trace import Graph, Node, check, node_at, nodes_of

from .text_workloads import ORDERS, TWO, layers


def order(graph: Graph) -> str:
    """Return compute nodes as F I W and collectives as f i w, each with its layer, in the order of their ids."""
    words = []
    for node in nodes_of(graph):
        layer, phase = node.name.split()[:2]
        if node.type != 1:
            words.append((phase[0].upper() if "compute" in node.name else phase[0]) + layer)
    return " ".join(words)


def waits(graph: Graph) -> dict[str, set[str]]:
    """Return by name what each node waits for; of nodes with one name, the last."""
    names = {int(ident): name for ident, name in zip(graph.ids, graph.names(), strict=True)}
    return {node.name: {names[dep] for dep in node.data_deps} for node in nodes_of(graph)}


def group(converted: Converted, rank: int, name: str) -> tuple[int, ...]:
    """Return the ranks of the group in which `rank` runs node `name`."""
    graph = converted.trace.graph(rank)
    attrs = attributes(node_at(graph, graph.names().index(name)))
    number = int(attrs.get("pg_name", 0))
    return converted.groups[number] if number else tuple(range(converted.trace.n_ranks))


def attributes(node: Node) -> Mapping[str, Any]:
    return {name: value for name, _, value, *_ in node.attrs}


@pytest.mark.parametrize("header", ORDERS)
def test_loop_issues_what_astra_sim_does(text: Any, header: str) -> None:
    expected, count = ORDERS[header]
    converted = text(f"{header}\n{count}\n{layers(count)}", npus=4)
    assert order(converted.trace.graph(0)) == expected


def test_groups_that_no_collective_has_are_said(text: Any) -> None:
    note = "model-parallel groups of 2 have no effect: collectives of DATA span all NPUs"
    assert text(f"DATA\n2\n{TWO}", npus=4, model_parallel=2).warnings[0] == note
    assert text(f"DATA model_parallel_NPU_group: 2\n2\n{TWO}", npus=4).warnings[0] == note


def test_weight_gradients_overlap_and_the_next_pass_waits_for_them(text: Any) -> None:
    graph = text(f"DATA\n2\n{TWO}".replace(" 0\n", " 7000\n"), passes=2).trace.graph(0)
    found = waits(graph)
    assert found["b weight gradient all-reduce"] == {"b weight gradient compute"}
    assert found["b weight gradient update"] == {"b weight gradient all-reduce"}
    assert found["b input gradient compute"] == {"b weight gradient compute"}
    assert found["a forward compute"] == {"a weight gradient compute", "a weight gradient update"}
    assert found["b forward compute"] == {"a forward compute", "b weight gradient update"}


def test_activations_and_input_gradients_block_in_a_transformer(text: Any) -> None:
    found = waits(text(f"HYBRID_TRANSFORMER\n2\n{TWO}").trace.graph(0))
    assert found["b forward compute"] == {"a forward all-gather"}
    assert found["b weight gradient compute"] == {"b input gradient all-reduce"}
    assert found["a input gradient compute"] == {"b weight gradient compute"}


def test_input_gradients_overlap_weight_gradients_in_hybrid_kinds(text: Any) -> None:
    found = waits(text(f"HYBRID_DATA_MODEL\n2\n{TWO}").trace.graph(0))
    assert found["b weight gradient compute"] == {"b input gradient compute"}
    assert found["a input gradient compute"] == {"b weight gradient compute", "b input gradient all-reduce"}


def test_embedding_of_dlrm_is_awaited_at_the_last_bottom_layer(text: Any) -> None:
    content = layers(4).replace("ALLREDUCE", "ALLTOALL")
    plain = waits(text(f"HYBRID_DLRM 1\n4\n{content}").trace.graph(0))
    assert plain["1 forward compute"] == {"0 forward compute"}
    assert plain["2 forward compute"] == {"1 forward compute", "0 forward all-to-all"}
    again = waits(text(f"HYBRID_DLRM 1\n4\n{content}", passes=2).trace.graph(0))
    assert "0 input gradient all-to-all" in again["0 forward compute"]
    enhanced = waits(text(f"HYBRID_DLRM_ENHANCED 1\n4\n{content}", passes=2).trace.graph(0))
    assert "0 input gradient all-to-all" not in enhanced["0 forward compute"]


def test_groups_of_hybrid_kinds(text: Any) -> None:
    inner, outer = (4, 5), (1, 3, 5, 7)
    for kind, model, data in (
        ("HYBRID_DATA_MODEL", inner, outer),
        ("HYBRID_TRANSFORMER", inner, outer),
        ("HYBRID_MODEL_DATA", outer, inner),
    ):
        converted = text(f"{kind}\n2\n{TWO}", model_parallel=len(model))
        assert group(converted, 5, "b forward all-gather") == model, kind
        assert group(converted, 5, "b input gradient all-reduce") == model, kind
        assert group(converted, 5, "b weight gradient all-reduce") == data, kind
        assert not [note for note in converted.warnings if "assumed" in note]


@pytest.mark.parametrize(
    "kind", ["MICRO", "DATA", "DATA_REORDER", "MODEL", "DISTRIBUTED_INFERENCE", "HYBRID_DLRM 0"]
)
def test_kinds_without_groups_span_all_npus_with_one_graph(text: Any, kind: str) -> None:
    converted = text(f"{kind}\n2\n{TWO}")
    assert len(converted.trace.graphs) == 1
    assert not converted.groups
    assert not converted.trace.graphs[0].has("pg_name").any()


def test_each_layer_of_a_customized_workload_has_its_kind(text: Any) -> None:
    rows = "".join(
        f"{kind} -1 5 ALLGATHER 8 5 ALLREDUCE 8 5 ALLREDUCE 8 0 {kind}\n"
        for kind in ("DATA", "MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA")
    )
    converted = text(f"HYBRID_CUSTOMIZED\n4\n{rows}", model_parallel=2)
    names = converted.trace.graph(3).names()
    assert "DATA forward all-gather" not in names
    assert "MODEL weight gradient all-reduce" not in names
    assert group(converted, 3, "DATA weight gradient all-reduce") == tuple(range(8))
    assert group(converted, 3, "MODEL input gradient all-reduce") == tuple(range(8))
    assert group(converted, 3, "HYBRID_DATA_MODEL forward all-gather") == (2, 3)
    assert group(converted, 3, "HYBRID_MODEL_DATA forward all-gather") == (1, 3, 5, 7)
    assert group(converted, 3, "HYBRID_MODEL_DATA weight gradient all-reduce") == (2, 3)


def test_size_of_groups_is_assumed_aloud_else_the_first_dimension(text: Any) -> None:
    converted = text(f"HYBRID_DATA_MODEL\n2\n{TWO}", npus=16)
    assert group(converted, 0, "a forward all-gather") == (0, 1, 2, 3)
    assert "4 of 16 NPUs assumed" in converted.warnings[0]
    converted = text(f"HYBRID_DATA_MODEL\n2\n{TWO}", npus=None, dims="2,4")
    assert not [note for note in converted.warnings if "assumed" in note]


def test_dimensions_are_named_where_the_groups_fill_them(text: Any) -> None:
    converted = text(f"HYBRID_MODEL_DATA\n2\n{TWO}", npus=None, dims="2,4,3")
    codes, masks = converted.trace.graphs[0].bool_lists("involved_dim")
    found = {
        name: masks[code]
        for name, code in zip(converted.trace.graphs[0].names(), codes, strict=True)
        if code >= 0
    }
    assert (len(converted.trace.graphs), converted.trace.n_ranks, converted.groups) == (1, 24, {})
    assert found["b forward all-gather"] == (False, True, True)
    assert found["b weight gradient all-reduce"] == (True, False, False)
    converted = text("HYBRID_TRANSFORMER model_parallel_NPU_group: 4\n2\n" + TWO, npus=None, dims="8,2")
    assert group(converted, 5, "b forward all-gather") == (4, 5, 6, 7)
    assert "INNER, OUTER do not fill whole dimensions" in converted.warnings[0]


SIMAI = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 2 vpp: 1 ga: 1 all_gpus: 16 "
    "checkpoints: 0 checkpoint_initiates: 0 pp_comm 4096\n3\n"
    "x -1 1 ALLGATHER 800 1 REDUCESCATTER 0 1 NONE 0 100\n"
    "y -1 1 ALLTOALL_EP 600 1 NONE 7 1 ALLGATHER_DP_EP 800 100\n"
    "z -1 1 NONE 0 1 NONE 0 1 REDUCESCATTER 800 100\n"
)


def test_simai_header_names_all_groups(text: Any) -> None:
    converted = text(SIMAI, npus=None)
    assert group(converted, 13, "x forward all-gather") == (12, 13)
    assert group(converted, 13, "y forward all-to-all") == (13, 15)
    assert group(converted, 13, "y weight gradient all-gather") == (9, 13)
    assert group(converted, 13, "z weight gradient reduce-scatter") == (9, 11, 13, 15)
    assert "pp 2" in converted.warnings[0]
    comm = report(converted)["comm"]
    # Its all-gathers state the gathered vector, our comm_size is one rank's part of it.
    assert comm["ALL_GATHER"] == {"count": 32, "bytes": 16 * (800 // 2 + 800 // 2)}
    assert comm["REDUCE_SCATTER"] == {"count": 16, "bytes": 16 * 800}
    assert comm["ALL_TO_ALL"] == {"count": 16, "bytes": 16 * 600}


def test_files_without_header_tell_their_kind_by_their_collectives(text: Any) -> None:
    for collective, kind in (("NONE", "DATA"), ("AllToAll", "ALL"), ("allreduce", "HYBRID_TRANSFORMER")):
        converted = text(f"a -1 1.5 {collective} 8 2 NONE 0 2e3 ALLREDUCE 32.0 0\n")
        assert converted.facts["kind"] == kind
        assert f"{kind} assumed" in converted.warnings[0]
    assert text(TWO, kind="MODEL").facts["kind"] == "MODEL"
    assert text(f"2\n{TWO}").facts["layers"] == 2


def test_blanks_line_ends_and_byte_order_mark_do_not_matter(text: Any) -> None:
    plain = text(f"DATA\n2\n{TWO}")
    odd = "\ufeff\n DATA\t\t\n\n2 \t\n" + TWO.replace(" ", "\t \t").rstrip()
    assert nodes_of(text(odd.replace("\n", "\r\n")).trace.graphs[0]) == nodes_of(plain.trace.graphs[0])


def test_times_are_nanoseconds_unless_said(text: Any) -> None:
    row = "a -1 1500 NONE 9 0 NONE 0 499 ALLREDUCE 8 2600\n"
    nodes = {node.name: node for node in nodes_of(text(f"DATA\n1\n{row}").trace.graphs[0])}
    assert list(nodes) == [
        "a forward compute",
        "a weight gradient compute",
        "a weight gradient all-reduce",
        "a weight gradient update",
    ]
    assert [node.duration_micros for node in nodes.values()] == [2, 0, 0, 3]
    assert attributes(nodes["a forward compute"]) == {"is_cpu_op": False, "duration_ns": 1500}
    assert attributes(nodes["a weight gradient update"]) == {"is_cpu_op": True, "duration_ns": 2600}
    node = node_at(text(f"DATA\n1\n{row}", time_unit="us").trace.graphs[0], 0)
    assert (node.duration_micros, attributes(node)["duration_ns"]) == (1500, 1_500_000)


def test_what_is_left_out_is_said(text: Any) -> None:
    assert text(f"MODEL\n2\n{TWO}").warnings == (
        "collectives left out, the loop of MODEL does not issue them: a input gradient, a weight gradient, "
        "b weight gradient",
    )
    converted = text(f"HYBRID_TRANSFORMER\n2\n{TWO}\nc\n", model_parallel=8)
    assert converted.warnings == (
        "the file says 2 layers: lines after them ignored (1)",
        "collectives left out, their groups are single NPUs: a weight gradient, b weight gradient",
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("DATA\n", "ends after 0 layers"),
        ("DAAT\n1\n", "line 1, column 1: the parallelism kind is 'DAAT'.*did you mean 'DATA'"),
        ("DATA\n3\n" + TWO, "ends after 2 layers, expected 3"),
        ("DATA\nmany\n" + TWO, "line 2, column 1: the number of layers is 'many'"),
        (
            "DATA\n1\na -1 5 NONE 0 5",
            "line 3, column 15: word 6 of 6 is '5', expected 12",
        ),
        ("DATA\n1\na -1 x NONE 0 5 NONE 0 5 NONE 0 0", "line 3, column 6: the time is 'x'"),
        (
            "DATA\n1\na -1 5 NONE 0 5 NONE 0 5 ALREDUCE 0 0",
            "column 26: the collective is 'ALREDUCE'.*'ALLREDUCE'",
        ),
        ("DATA\n1\na -1 5 NONE -4 5 NONE 0 5 NONE 0 0", "line 3, column 13: the size is '-4'"),
        ("DATA\n1\na -1 1e999 NONE 4 5 NONE 0 5 NONE 0 0", "the time is '1e999'"),
        ("HYBRID_CUSTOMIZED\n1\na -1 5 NONE 0 5 NONE 0 5 NONE 0 0 DAAT", "the layer's kind is 'DAAT'"),
        ("HYBRID_DLRM\n2\n" + TWO, "line 1, column 1.*expected its last bottom layer after it, from 0 to 1"),
        (
            "HYBRID_TRANSFORMER model_parallel_NPU_group:\n2\n" + TWO,
            "column 20.*expected one number from 0 after it",
        ),
        ("HYBRID_TRANSFORMER 4\n2\n" + TWO, "line 1, column 20: an option is '4', expected a name"),
        ("HYBRID_TRANSFORMER model_parallel_NPU_group: 3\n2\n" + TWO, "8 NPUs, expected a multiple of 3"),
        ("HYBRID_TRANSFORMER_FWD_IN_BCKWD checkpoints: 2 1\n2\n" + TWO, r"found \[2, 1\]"),
        (
            "HYBRID_TRANSFORMER_FWD_IN_BCKWD checkpoints: 1 2\n2\n" + TWO,
            "column 48: the layer is '2', expected 0 to 1",
        ),
        (
            "HYBRID_TRANSFORMER_FWD_IN_BCKWD checkpoint_initiates: 1 1\n2\n" + TWO,
            "expected a checkpoint at or before",
        ),
        ("DATA all_gpus: 9 pp: 99999999\n2\n" + TWO, "8 NPUs, expected a multiple of 99999999"),
        ("MICRO\n1\na -1 5 ALLREDUCE 8 5 NONE 0 5 NONE 0 0", "nothing to run"),
    ],
)
def test_errors_name_the_place(text: Any, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        text(content)


def test_without_a_number_of_npus_one_node_is_assumed(text: Any) -> None:
    found = text("DATA\n1\n" + TWO.splitlines()[0], npus=None)
    assert found.trace.n_ranks == 8
    assert "8 assumed" in found.warnings[0]
    found = text("DATA\n1\n" + TWO.splitlines()[0], npus=None, model_parallel=3)
    assert found.trace.n_ranks == 9


def test_options_are_checked(text: Any, tmp_path: Path) -> None:
    for options, message in (
        ({"npus": 2**21}, "expected 1 to 1048576"),
        ({"npus": 0}, "--ranks is 0"),
        ({"passes": 0}, "--passes is 0"),
        ({"dims": "2,x"}, "--dims is '2,x'"),
        ({"dims": "2,5"}, "--dims 2,5 are 10 NPUs, expected 8"),
        ({"time_unit": "ms"}, "--time-unit is 'ms'"),
        ({"kind": "MODEL"}, "the file says DATA"),
    ):
        with pytest.raises(InputError, match=message):
            text(f"DATA\n2\n{TWO}", **options)
    with pytest.raises(InputError, match="--kind is 'HYBRID_DLRM'"):
        text(TWO, kind="HYBRID_DLRM")
    with pytest.raises(InputError, match="2 files given"):
        front_end("text").convert([tmp_path, tmp_path])
    with pytest.raises(InputError, match="expected a text workload"):
        front_end("text").convert([tmp_path], npus=2)
    (tmp_path / "bad").write_bytes(b"DATA\n\xff")
    with pytest.raises(InputError, match="byte 5 is not UTF-8"):
        front_end("text").convert([tmp_path / "bad"], npus=2)


def test_ranks_differ_in_their_groups_alone(text: Any) -> None:
    """Every rank's graph against one that is built for it alone."""
    converted = text(SIMAI, npus=None, passes=2)
    plain = nodes_of(converted.trace.graph(0))
    axes = {"x forward": (1, 2), "y forward": (2, 2), "y weight": (4, 2), "z weight": (2, 4)}
    numbers = {ranks: number for number, ranks in converted.groups.items()}
    for rank in range(16):
        for node, first in zip(nodes_of(converted.trace.graph(rank)), plain, strict=True):
            expected = list(first.attrs)
            for at, attr in enumerate(expected):
                if attr[0] == "pg_name":
                    stride, size = axes[" ".join(node.name.split()[:2])]
                    leader = rank - rank // stride % size * stride
                    ranks = tuple(leader + stride * member for member in range(size))
                    expected[at] = ("pg_name", "string", str(numbers[ranks]))
            first_like = Node(**{**vars(first), "attrs": expected})
            assert node == first_like


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("work.txt").write_text(f"HYBRID_TRANSFORMER model_parallel_NPU_group: 2\n2\n{TWO}")
    run = CliRunner().invoke(
        main, ["trace", "convert", "--from", "text", "work.txt", "--npus", "4", "-o", "w", "--json", "r.json"]
    )
    assert run.exit_code == 0, run.output
    assert sorted(path.name for path in tmp_path.glob("w.*")) == [
        *(f"w.{rank}.et" for rank in range(4)),
        "w.groups.json",
    ]


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [*(f"{kind} model_parallel_NPU_group: 2" for kind in SCOPES), *SCOPES, "HYBRID_DLRM 0", "1", "2"]
        ),
        st.sampled_from([*TWO.splitlines(), TWO.splitlines()[0] + " DATA", *SIMAI.splitlines()]),
        st.text(max_size=20),
        st.lists(
            st.sampled_from(["a", "-1", "5", "0", "NONE", "ALLREDUCE", "ep:", "checkpoints: 1"]), max_size=13
        ).map(" ".join),
    ),
    max_size=6,
).map("\n".join)


PARTS = st.builds(
    "{} {} {}".format,
    st.integers(0, 10**9),
    st.sampled_from(["NONE", "ALLREDUCE", "ALLTOALL_EP", "AllGather", "BROADCAST", "REDUCESCATTER_DP_EP"]),
    st.integers(0, 10**12),
)
ROWS = st.builds("x -1 {0} {1} {2} {3}".format, PARTS, PARTS, PARTS, st.integers(0, 9999))
FILES = st.builds(
    lambda header, rows: f"{header}\n{len(rows)}\n" + "\n".join(rows),
    st.sampled_from([*ORDERS, "HYBRID_TRANSFORMER ep: 2", "HYBRID_DATA_MODEL", SIMAI.splitlines()[0]]),
    st.lists(ROWS, min_size=1, max_size=5),
)


@settings(deadline=None)
@given(content=st.one_of(st.text(), LINES, FILES))
def test_any_text_is_an_error_or_a_valid_trace(text: Any, content: str) -> None:
    try:
        converted = text(content.encode(errors="replace").decode(), npus=8)
    except InputError:
        return
    assert converted.trace.n_ranks == 8
    assert not [
        found for graph in converted.trace.graphs for found in check(graph) if found.severity == "error"
    ]
    known = {str(number) for number in converted.groups}
    assert all(set(graph.strings("pg_name")[1]) <= known for graph in converted.trace.graphs)


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        (lambda content: content.replace("MODEL", "model"), ""),
        (lambda content: content.replace("\n", "\r"), ""),
        (lambda content: f"# by hand\n// again\n{content}# end\n", ""),
        (lambda content: content.replace(" 0\n", " 0 #1\n").replace("MODEL", "MODEL // kind"), ""),
        (
            lambda content: content.replace(" 0\n", " 0 note 7\n"),
            "columns after the first 12 ignored, on 2 lines",
        ),
    ],
    ids=["case", "carriage returns", "comment lines", "comments", "more columns"],
)
def test_ways_to_write_a_file_say_the_same(text: Any, change: Any, warning: str) -> None:
    content = f"MODEL\n2\n{TWO}"
    plain, other = text(content), text(change(content))
    assert list(nodes_of(plain.trace.graph(0))) == list(nodes_of(other.trace.graph(0)))
    assert other.warnings == ((warning,) if warning else ()) + plain.warnings
