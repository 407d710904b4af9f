"""TrioSim's traces: operators and tensors, several GPUs, and gradients of copies of one."""

from __future__ import annotations

from pathlib import Path

import pytest

import armillary
from armillary.base.errors import InputError
from armillary.convert import front_end
from armillary.convert.triosim import OPERATORS
from armillary.platform.model import Platform, recorded_machine
from armillary.platform.network import Dimension
from armillary.trace import check, nodes_of

HEAD = ",".join(OPERATORS)
ROWS = [
    "1,aten::conv2d,[1; 2],[3],30.5,30.5,[12; 6],[24],0,forward,1",
    "2,aten::relu,[3],[4],10,8.25,24,24,0,forward,0",
    "3,aten::convolution_backward,[4; 2],[5],60,60,[24; 6],[6],0,backward,1",
    "4,aten::add_,[2; 5],[2],5,5,[6; 6],[6],0,optimizer,0",
]
TENSORS = """Index,TensorID,TensorShape,TensorNumElement,TensorEachByte,TensorType,TensorStorgeid,gpuid
0,1,[3; 4],12,2,input,0,0
1,2,[6],6,2,weight,1,0
2,3,[24],24,2,output,2,0
3,4,[24],24,2,output,3,0
4,5,[6],6,2,gradient,4,0
"""


def written(folder: Path, rows: list[str] = ROWS, tensors: str = TENSORS) -> list[Path]:
    paths = [folder / "trace.csv", folder / "tensor.csv"]
    paths[0].write_text("\n".join([HEAD, *rows]) + "\n")
    paths[1].write_text(tensors)
    return paths


def run(paths: list[Path], **options: int):
    return front_end("triosim").convert(paths, **options)


def test_operators_follow_each_other_with_their_times(tmp_path: Path) -> None:
    made = run(written(tmp_path))
    nodes = nodes_of(made.trace.graphs[0])
    assert [node.name for node in nodes] == [
        "aten::conv2d",
        "aten::relu",
        "aten::convolution_backward",
        "aten::add_",
    ]
    assert [list(node.data_deps) for node in nodes] == [[], [0], [1], [2]]
    attrs = [{name: value for name, _, value, *_ in node.attrs} for node in nodes]
    assert [each["duration_ns"] for each in attrs] == [30_500, 8_250, 60_000, 5_000]
    # Of two bytes each; those of a convolution would time it as a copy.
    assert [each.get("tensor_size") for each in attrs] == [None, 96, None, 36]
    assert made.facts["recorded_ns"] == 103_750 and made.facts["recorded_with_overlaps_ns"] == 105_500
    assert armillary.simulate(made.trace, recorded_machine(1)).total_ticks == 103_750


def test_without_tensors_elements_have_four_bytes(tmp_path: Path) -> None:
    made = run(written(tmp_path)[:1])
    assert made.trace.graphs[0].ints("tensor_size").tolist() == [0, 192, 0, 72]
    assert "taken to have 4 bytes" in made.warnings[0]


def test_several_gpus_send_what_others_read(tmp_path: Path) -> None:
    rows = [
        ROWS[0],
        ROWS[1].replace(",0,forward", ",1,forward"),
        ROWS[2].replace(",0,backward", ",1,backward"),
        ROWS[3],
    ]
    made = run(written(tmp_path, rows))
    first, second = made.trace.graphs
    assert [node.name for node in nodes_of(first)] == ["aten::conv2d", "send 3", "recv 5", "aten::add_"]
    assert [node.name for node in nodes_of(second)] == [
        "recv 3", "aten::relu", "aten::convolution_backward", "send 5",
    ]  # fmt: skip
    assert first.ints("comm_size").tolist() == [0, 48, 12, 0]
    assert not [each for graph in made.trace.graphs for each in check(graph) if each.severity == "error"]
    machine = Platform((Dimension("a", "Switch", 2, 1.0, 100.0),))
    # One operator after the other, and between GPUs 48 and 12 bytes at 1 byte per ns, over two links each.
    assert armillary.simulate(made.trace, machine).total_ticks == 103_750 + 48 + 12 + 4 * 100


def test_copies_add_up_their_gradients(tmp_path: Path) -> None:
    made = run(written(tmp_path), npus=4)
    nodes = nodes_of(made.trace.graphs[0])
    assert made.trace.n_ranks == 4 and nodes[3].name == "gradients" and list(nodes[4].data_deps) == [3]
    assert made.trace.graphs[0].ints("comm_size").tolist() == [0, 0, 0, 12, 0]
    assert "4 GPUs add up 12 B of gradients" in made.statements[0]
    with pytest.raises(InputError, match=r"expected tensor\.csv too"):
        run(written(tmp_path)[:1], npus=4)


def test_a_folder_and_any_order(tmp_path: Path) -> None:
    paths = written(tmp_path)
    assert run([tmp_path]).trace.graphs[0].n_nodes == run(paths[::-1]).trace.graphs[0].n_nodes == 4


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("forward,1", "forwards,1", "trace.csv:2: stage: got 'forwards'"),
        ("30.5,30.5", "30.5,-1", "trace.csv:2: Operator_cudatimenooverlap: got '-1', expected a time in µs"),
        ("30.5,30.5", "nan,1", "trace.csv:2: Operator_cudatime: got 'nan'"),
        (",0,forward,1", ",x,forward,1", "trace.csv:2: gpuid: got 'x'"),
        (",0,forward,1", ",99999999,forward,1", "trace.csv:2: gpuid: got '99999999'"),
        ("OperatorName", "OperatorNam", "trace.csv:1: got columns"),
        ("gpuid", "gpu", r"trace.csv:1: missing column 'gpuid' \(did you mean 'gpu'"),
        ("[12; 6]", "[999999999999999999; 999999999999999999]", "expected less than"),
    ],
)
def test_wrong_values_name_their_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = written(tmp_path)[0]
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=words):
        run([path])


def test_wrong_tensors(tmp_path: Path) -> None:
    for old, new, words in (
        ("12,2,input", "many,2,input", "tensor.csv:2: TensorNumElement: got 'many'"),
        ("0,1,[3", "0,a,[3", "tensor.csv:2: TensorID: got 'a'"),
        ("12,2,input", "999999999999999999,64,input", "tensor.csv:2: got .* bytes, expected less"),
    ):
        with pytest.raises(InputError, match=words):
            run(written(tmp_path, tensors=TENSORS.replace(old, new, 1)))
    with pytest.raises(InputError, match="no operators"):
        run(written(tmp_path, rows=[])[:1])
    with pytest.raises(InputError, match="3 files"):
        run([*written(tmp_path), tmp_path / "more.csv"])
