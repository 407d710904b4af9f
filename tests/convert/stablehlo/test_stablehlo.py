"""StableHLO: costs, collectives and loops against closed forms and against the HLO that XLA compiled of it.

`sharded` (shard_map), `global` (GSPMD) and `layers` (convolution, pooling, softmax, sort, gather) are what JAX 0.10
lowers toy programs to.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.convert import Converted, front_end, report
from armillary.trace import check

HERE = Path(__file__).parent


def toy(name: str) -> tuple[Converted, Converted]:
    return (
        front_end("stablehlo").convert([HERE / f"{name}.mlir"]),
        front_end("hlo").convert([HERE / f"{name}.hlo"]),
    )


def of(folder: Path, text: str | bytes, **options: int) -> Converted:
    path = folder / "a.mlir"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return front_end("stablehlo").convert([path], **options)


def main(
    body: str, arguments: str = "%arg0: tensor<8x64xf32>", result: str = "tensor<8x64xf32>", about: str = ""
) -> str:
    return f"module @m {about}{{\n  func.func public @main({arguments}) -> {result} {{\n{body}\n  }}\n}}\n"


def collectives(made: Converted, rank: int) -> Counter[tuple[int, int, str]]:
    graph = made.trace.graph(rank)
    found: Counter[tuple[int, int, str]] = Counter()
    for at in range(graph.n_nodes):
        attrs = {name: value for name, _, value in graph.attrs(at)}
        if "comm_size" in attrs:
            ranks = made.groups.get(int(attrs.get("pg_name", 0)), ())
            peer = f"{attrs.get('comm_src')}-{attrs.get('comm_dst')}"
            found[attrs.get("comm_type", -1), attrs["comm_size"], f"{ranks} {peer}"] += 1
    return found


def moved(made: Converted) -> int:
    return int(sum(graph.ints("tensor_size").sum() for graph in made.trace.graphs))


def test_collectives_are_those_of_the_compiled_program() -> None:
    """Written by shard_map: all-reduces, gather, scatter, all-to-all, and a permute in a loop of five."""
    ours, theirs = toy("sharded")
    assert ours.trace.n_ranks == theirs.trace.n_ranks == 4 and not ours.statements
    assert [collectives(ours, rank) for rank in range(4)] == [collectives(theirs, rank) for rank in range(4)]
    assert report(ours)["comm"] == report(theirs)["comm"] and ours.groups == theirs.groups
    assert report(ours)["flops_per_rank"] == pytest.approx(report(theirs)["flops_per_rank"], rel=0.01)
    assert not [problem for rank in range(4) for problem in check(ours.trace.graph(rank))]


def test_what_is_before_partitioning_is_shared_and_said() -> None:
    ours, theirs = toy("global")
    assert report(ours)["flops_per_rank"] == pytest.approx(report(theirs)["flops_per_rank"], rel=0.01)
    (says,) = ours.statements
    assert (
        "shapes of all 4 partitions" in says and "collectives that the partitioner adds are missing" in says
    )
    assert not report(ours)["comm"] and report(theirs)["comm"]


def test_costs_of_a_convolution_and_what_follows_it(tmp_path: Path) -> None:
    made = front_end("stablehlo").convert([HERE / "layers.mlir"])
    # SAME padding of a 3 x 3 window with stride 2 on 16: the last position has one row or column less.
    pairs = (3 * 8 - 1) ** 2
    convolution = 2 * 4 * 8 * 3 * pairs
    pooled, sort = 3 * 4 * 4 * 4 * 8, 4 * 4 * 4 * 8 * 2
    rest = report(made)["flops_per_rank"] - convolution - pooled
    # Softmax is 5 operations an element; a comparison of the sort is 9 instructions.
    assert 5 * 512 - 4 * 6 <= rest - 9 * sort <= 6 * 512
    generic = (HERE / "layers.mlir").read_text().replace(
        'stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = '
        "[2, 2], pad = [[0, 1], [0, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64",
        '"stablehlo.convolution"(%arg0, %arg1) <{dimension_numbers = #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, '
        "1, f]>, window_strides = array<i64: 2, 2>, padding = dense<[[0, 1], [0, 1]]> : tensor<2x2xi64>, "
        "batch_group_count = 1 : i64, feature_group_count = 1 : i64, x = {",
    ).replace("precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]}", "}", 1)  # fmt: skip
    assert '"stablehlo.convolution"' in generic
    generic = generic.replace("x = {, }", "x = 1 : i64}>")
    assert report(of(tmp_path, generic))["flops_per_rank"] == report(made)["flops_per_rank"]


@pytest.mark.parametrize(
    ("text", "flops"),
    [
        ("%0 = stablehlo.dot_general %arg0, %arg0, batching_dims = [0] x [0], contracting_dims = [1] x [1] : "
         "(tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8xf32>", 2 * 8 * 64),
        ('%0 = "stablehlo.dot_general"(%arg0, %arg0) <{x = #stablehlo.dot<lhs_contracting_dimensions = '
         "[1], rhs_contracting_dimensions = [1]>}> : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x8xf32>",
         2 * 8 * 8 * 64),
        ("%0 = stablehlo.dot %arg0, %arg0 : (tensor<8x64xf32>, tensor<64x8xf32>) -> tensor<8x8xf32>", 2 * 8 * 8 * 64),
        ("%0 = stablehlo.add %arg0, %arg0 : tensor<8x64xf32> loc(#loc1)", 512),
        ("%c = stablehlo.constant dense<0.0> : tensor<f32>\n%0 = stablehlo.reduce(%arg0 init: %c) across dimensions = "
         "[1] : (tensor<8x64xf32>, tensor<f32>) -> tensor<8xf32>\n reducer(%a: tensor<f32>, %b: tensor<f32>)  {\n"
         "%1 = stablehlo.add %a, %b : tensor<f32>\n%2 = stablehlo.multiply %1, %b : tensor<f32>\n"
         "stablehlo.return %2 : tensor<f32>\n}", 2 * 8 * 63),
        ("%0 = stablehlo.fft %arg0, type = FFT, length = [64] : (tensor<8x64xcomplex<f32>>) -> "
         "tensor<8x64xcomplex<f32>>", 5 * 8 * 64 * 6),
    ],
)  # fmt: skip
def test_flops(tmp_path: Path, text: str, flops: int) -> None:
    assert report(of(tmp_path, main(f"{text}\nreturn %0 : tensor<8x64xf32>")))["flops_per_rank"] == flops


def test_element_wise_operations_are_fused(tmp_path: Path) -> None:
    """Of a chain with a constant, what is read and written is the first operand and the last result."""
    body = (
        "%c = stablehlo.constant dense<2.0> : tensor<f32>\n%0 = stablehlo.broadcast_in_dim %c, dims = [] : "
    )
    body += "(tensor<f32>) -> tensor<8x64xf32>\n%1 = stablehlo.multiply %arg0, %0 : tensor<8x64xf32>\n"
    body += "%2 = stablehlo.add %1, %1 : tensor<8x64xf32>\n%3 = stablehlo.tanh %2 : tensor<8x64xf32>\n"
    made = of(tmp_path, main(body + "return %3 : tensor<8x64xf32>"))
    assert (
        report(made)["nodes"] == 1 and report(made)["flops_per_rank"] == 3 * 512 and moved(made) == 2 * 2048
    )
    # What two others take is written, once.
    body += "%4 = stablehlo.transpose %2, dims = [1, 0] : (tensor<8x64xf32>) -> tensor<64x8xf32>\n"
    twice = of(
        tmp_path,
        main(
            body + "return %3, %4 : tensor<8x64xf32>, tensor<64x8xf32>",
            result="(tensor<8x64xf32>, tensor<64x8xf32>)",
        ),
    )
    assert report(twice)["flops_per_rank"] == 3 * 512 and moved(twice) == 6 * 2048


LOOP = """
%c = stablehlo.constant dense<0> : tensor<i32>
%n = stablehlo.constant dense<7> : tensor<i32>
%0:2 = stablehlo.while(%i = %c, %x = %arg0) : tensor<i32>, tensor<8x64xf32>
cond {
  %1 = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %1 : tensor<i1>
} do {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %1 = stablehlo.add %i, %one : tensor<i32>
  %2 = stablehlo.dot %x, %w : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  stablehlo.return %1, %2 : tensor<i32>, tensor<8x64xf32>
}
return %0#1 : tensor<8x64xf32>"""
BOTH = "%arg0: tensor<8x64xf32>, %w: tensor<64x64xf32>"


def test_loops_with_values_from_around_them(tmp_path: Path) -> None:
    """The bound and the weights are captured; the count of iterations follows from constants."""
    made = of(tmp_path, main(LOOP, BOTH))
    gemm = 2 * 8 * 64 * 64
    assert not made.warnings and 7 * gemm <= report(made)["flops_per_rank"] <= 7 * gemm + 8 * 2
    rolled = of(tmp_path, main(LOOP, BOTH), unroll=1)
    assert any("its body stands here once" in text for text in rolled.warnings)
    assert report(rolled)["flops_per_rank"] >= 7 * gemm
    unknown = of(
        tmp_path,
        main(
            LOOP.replace("%n = stablehlo.constant dense<7> : tensor<i32>\n", ""), BOTH + ", %n: tensor<i32>"
        ),
        trips=3,
    )
    assert any("3 is assumed" in text for text in unknown.warnings)


def test_generic_loops_and_branches(tmp_path: Path) -> None:
    branch = """%0 = "stablehlo.if"(%p) ({
  %1 = stablehlo.tanh %arg0 : tensor<8x64xf32>
  stablehlo.return %1 : tensor<8x64xf32>
}, {
  %1 = stablehlo.dot %arg0, %w : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  stablehlo.return %1 : tensor<8x64xf32>
}) : (tensor<i1>) -> tensor<8x64xf32>
return %0 : tensor<8x64xf32>"""
    unknown = of(tmp_path, main(branch, BOTH + ", %p: tensor<i1>"))
    assert report(unknown)["flops_per_rank"] == 2 * 8 * 64 * 64 and len(unknown.warnings) == 1
    known = of(tmp_path, main("%p = stablehlo.constant dense<true> : tensor<i1>\n" + branch, BOTH))
    assert report(known)["flops_per_rank"] == 512 and not known.warnings


REDUCE = """%0 = "stablehlo.all_reduce"(%arg0) <{{{groups}{more}}}> ({{
^bb0(%a: tensor<f32>, %b: tensor<f32>):
  %1 = stablehlo.add %a, %b : tensor<f32>
  stablehlo.return %1 : tensor<f32>
}}) : (tensor<8x64xf32>) -> tensor<8x64xf32>
return %0 : tensor<8x64xf32>"""
CHANNEL = ", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"


@pytest.mark.parametrize(
    ("groups", "more", "expected"),
    [
        # Ids of replicas in each partition, of both together, of devices: 2 replicas of 2 partitions.
        ("[[0, 1]]> : tensor<1x2xi64>", "", {(0, 2), (1, 3)}),
        ("[[0], [1]]> : tensor<2x1xi64>", CHANNEL, {(0, 1), (2, 3)}),
        ("[[0, 3], [1, 2]]> : tensor<2x2xi64>", CHANNEL + ", use_global_device_ids", {(0, 3), (1, 2)}),
        ("[[0, 1, 2], [3, -1, -1]]> : tensor<2x3xi64>", CHANNEL + ", use_global_device_ids", {(0, 1, 2)}),
        ('"0x00000000000000000200000000000000010000000000000003000000000000\\00"> : tensor<2x2xi64>'.replace("\\", ""),
         CHANNEL + ", use_global_device_ids", {(0, 2), (1, 3)}),
        ("> : tensor<0x0xi64>", CHANNEL + ", use_global_device_ids", set()),
    ],
)  # fmt: skip
def test_groups(tmp_path: Path, groups: str, more: str, expected: set[tuple[int, ...]]) -> None:
    about = "attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 2 : i32} "
    text = REDUCE.format(groups=f"replica_groups = dense<{groups}", more=more)
    made = of(tmp_path, main(text, about=about))
    assert set(made.groups.values()) == expected
    assert report(made)["comm"]["ALL_REDUCE"]["bytes"] == 2048 * (3 if (0, 1, 2) in expected else 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"\xff\xfe", "byte 0 is not text"),
        ("HloModule m\n", "`--from hlo` reads it"),
        ("", "no function in it"),
        ("module {\n}\n", "no function in it"),
        ("{", "a.mlir:1:1: found '{', expected an operation"),
        (main("return %x : tensor<8x64xf32>"), "'%x' has no value here"),
        (main("%0 = stablehlo.tanh %arg0 : tensor<8x64xf32>"), "a region without a return"),
        (main("%0 = call @f(%arg0) : (tensor<8xf32>) -> tensor<8xf32>\nreturn %0 : tensor<8xf32>"), "calls 'f'"),
        (main("%0 = call @main(%arg0) : (tensor<8xf32>) -> tensor<8xf32>\nreturn %0 : tensor<8xf32>"), "calls itself"),
        (main("%0 = stablehlo.tanh %arg0 : tensor<?xf32>\nreturn %0 : tensor<?xf32>"), "a dimension of unknown size"),
        (main("%0 = stablehlo.tanh %arg0 : tensor<8xf99999>\nreturn %0 : tensor<8xf32>"), "'f99999'"),
        (main("%0 = stablehlo.tanh %arg0 : memref<8xf32>\nreturn %0 : tensor<8xf32>"), "the type 'memref<8xf32>'"),
        (main("%0:2 = stablehlo.tanh %arg0 : (tensor<8xf32>) -> tensor<8xf32>\n"), "and 1 types"),
        (main("%0 = stablehlo.tanh (%arg0 : tensor<8xf32>\nreturn %0 : tensor<8xf32>"), "found '}', expected )"),
        (main("^bb1:\nreturn %arg0 : tensor<8xf32>\n^bb2:\nreturn %arg0 : tensor<8xf32>"), "a second block"),
        (main("return %arg0 : tensor<8xf32>").rstrip()[:-1], "the file ends within a region"),
        ("module {\n" * 200, "regions are nested deeper than 100"),
        (main("%0 = stablehlo.tanh " + "(" * 200), "brackets are nested deeper than 100"),
    ],
)  # fmt: skip
def test_what_is_no_program(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(InputError) as error:
        of(tmp_path, text)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_program_that_was_cut(tmp_path: Path) -> None:
    text = (HERE / "sharded.mlir").read_text().rstrip()
    for size in range(0, len(text), 211):
        with pytest.raises(InputError):
            of(tmp_path, text[:size])


def test_groups_along_the_axes_of_a_mesh_are_refused(tmp_path: Path) -> None:
    groups = "replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @m, axes = [#stablehlo.axis_ref<name = 1>]>"
    with pytest.raises(InputError, match="replica_groups=#stablehlo"):
        of(
            tmp_path,
            main(
                REDUCE.format(groups=groups, more=CHANNEL),
                about="attributes {mhlo.num_partitions = 2 : i32} ",
            ),
        )


def test_shapes_of_a_part_of_the_axes(tmp_path: Path) -> None:
    """Of 8 partitions, a region that is manual along 2 of them has shapes that the other 4 share."""
    text = """module @m attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["dp"=2, "tp"=4]>
  func.func public @main(%arg0: tensor<8x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}, {}]>}) -> \
tensor<8x64xf32> {
    %0 = stablehlo.tanh %arg0 : tensor<8x64xf32>
    %1 = sdy.manual_computation(%0) in_shardings=[<@mesh, [{"dp"}, {}]>] out_shardings=[<@mesh, [{"dp"}, {}]>] \
manual_axes={"dp"} (%arg1: tensor<4x64xf32>) {
      %2 = func.call @f(%arg1) : (tensor<4x64xf32>) -> tensor<4x64xf32>
      sdy.return %2 : tensor<4x64xf32>
    } : (tensor<8x64xf32>) -> tensor<8x64xf32>
    return %1 : tensor<8x64xf32>
  }
  func.func private @f(%arg0: tensor<4x64xf32>) -> tensor<4x64xf32> {
    %0 = stablehlo.exponential %arg0 : tensor<4x64xf32>
    return %0 : tensor<4x64xf32>
  }
}
"""
    made = of(tmp_path, text)
    assert report(made)["flops_per_rank"] == 512 // 8 + 256 // 4 and made.trace.n_ranks == 8
    assert made.statements


def test_shards_by_custom_calls(tmp_path: Path) -> None:
    """JAX before Shardy: a custom call before and after a function that has the shapes of one partition."""
    sharding = '{mhlo.sharding = "{devices=[4,1]<=[4]}"}'
    call = "stablehlo.custom_call @SPMD{}Shape(%{}) {{}} : (tensor<{}x64xf32>) -> tensor<{}x64xf32>"
    text = f"""module @m attributes {{mhlo.num_partitions = 4 : i32}} {{
  func.func public @main(%arg0: tensor<8x64xf32> {sharding}) -> tensor<8x64xf32> {{
    %0 = {call.format("FullToShard", "arg0", 8, 2)}
    %1 = call @shmap_body(%0) : (tensor<2x64xf32>) -> tensor<2x64xf32>
    %2 = {call.format("ShardToFull", "1", 2, 8)}
    %3 = stablehlo.tanh %2 : tensor<8x64xf32>
    return %3 : tensor<8x64xf32>
  }}
  func.func private @shmap_body(%arg0: tensor<2x64xf32>) -> tensor<2x64xf32> {{
    %0 = stablehlo.exponential %arg0 : tensor<2x64xf32>
    return %0 : tensor<2x64xf32>
  }}
}}
"""
    made = of(tmp_path, text)
    assert report(made)["flops_per_rank"] == 128 + 128 and not made.warnings
    assert report(made)["nodes"] == 2 * 4


@pytest.mark.parametrize("data", [b"ML\xefR\rStableHLO_v1.15.0\0", b"<\0\0\0" + bytes(90) + b"ML\xefR\x06"])
def test_bytecode_without_jax_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr("armillary.convert.stablehlo.bytecode.find_spec", lambda name: None)
    with pytest.raises(InputError) as error:
        of(tmp_path, data)
    assert "pip install armillary[jax]" in str(error.value) and "\n" not in str(error.value)
    assert "stablehlo-translate --deserialize a.mlir" in str(error.value)


def shapes(made: Converted) -> list[list[object]]:
    """Return what the nodes of every rank are; names have numbers of the text."""
    return [
        [
            (int(graph.types[at]), [row for row in graph.attrs(at) if row[0] != "pg_name"])
            for at in range(graph.n_nodes)
        ]
        for graph in made.trace.graphs
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sharded", "global", "layers"])
def test_a_portable_artifact_is_the_text_that_it_was_made_of(tmp_path: Path, name: str) -> None:
    pytest.importorskip("jax")
    from jax.interpreters import mlir
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    module = ir.Module.parse((HERE / f"{name}.mlir").read_text(), mlir.make_ir_context())
    data = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version(), True)
    assert data.startswith(b"ML\xefR")
    made, text = of(tmp_path, data), of(tmp_path, (HERE / f"{name}.mlir").read_bytes())
    assert shapes(made) == shapes(text) and made.groups == text.groups


@pytest.mark.slow
def test_what_jax_exports(tmp_path: Path) -> None:
    jax = pytest.importorskip("jax")
    pytest.importorskip("flatbuffers")
    from jax import export

    function = jax.jit(lambda x, w: jax.numpy.maximum(x @ w, 0).sum())
    given = [jax.ShapeDtypeStruct(shape, "bfloat16") for shape in ((64, 128), (128, 256))]
    made = of(tmp_path, bytes(export.export(function)(*given).serialize()))
    assert shapes(made) == shapes(of(tmp_path, function.lower(*given).as_text()))
    with pytest.raises(InputError, match="JAX cannot read this bytecode"):
        of(tmp_path, b"ML\xefR\rStableHLO_v1.15.0\0" + bytes(200))
