"""FLOPs and bytes against closed forms; the shapes are those of well-known layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.convert.pytorch.arguments import kind_of
from armillary.convert.pytorch.flops import Arguments, Work, exclusive, family, gemm, work
from armillary.trace.gemm import Gemm

NONE = Work(0, 0)
SIZES = {"float": 4, "c10::BFloat16": 2, "long int": 8, "bool": 1, "unsigned char": 1}


def side(*arguments: Any) -> Arguments:
    """Return recorded arguments: (dtype, sizes) is a tensor, a list of such a list of tensors, the rest values."""
    values, shapes, types = [], [], []
    for argument in arguments:
        value, shape, text = _one(argument)
        values.append(value)
        shapes.append(shape)
        types.append(text)
    return Arguments(values, shapes, types)


def _one(argument: Any) -> tuple[Any, Any, str]:
    if isinstance(argument, tuple):
        dtype, sizes = argument
        count = 1
        for size in sizes:
            count *= size
        return [1, 2, 0, count, SIZES[dtype], "cpu"], list(sizes), f"Tensor({dtype})"
    if isinstance(argument, list):
        parts = [_one(part) for part in argument]
        text = f"GenericList[{','.join(part[2] for part in parts)}]"
        return [part[0] for part in parts], [part[1] for part in parts], text
    if argument is None:
        return "<None>", [], "None"
    return argument, [], {bool: "Bool", int: "Int", float: "Double", str: "String"}[type(argument)]


def f(*sizes: int) -> tuple[str, tuple[int, ...]]:
    return "float", sizes


def h(*sizes: int) -> tuple[str, tuple[int, ...]]:
    return "c10::BFloat16", sizes


CONVOLUTION = (
    "aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, "
    "SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor"
)
BACKWARD = (
    "aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, "
    "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, "
    "bool[3] output_mask) -> (Tensor, Tensor, Tensor)"
)
FOREACH = "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()"
ADAMW = (
    "aten::_fused_adamw_(Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] exp_avgs, Tensor(d!)[] exp_avg_sqs, "
    "Tensor(e!)[] max_exp_avg_sqs, Tensor[] state_steps, *, float lr, float beta1, float beta2, float weight_decay, "
    "float eps, bool amsgrad, bool maximize, Tensor? grad_scale=None, Tensor? found_inf=None) -> ()"
)
SDPA = "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False)"


@pytest.mark.parametrize(
    ("schema", "inputs", "outputs", "flops", "size"),
    [
        ("aten::mm(Tensor self, Tensor mat2) -> Tensor", [h(3, 5), h(5, 7)], [h(3, 7)], 210, 2 * 71),
        (
            "aten::bmm(Tensor self, Tensor mat2) -> Tensor",
            [f(2, 3, 5), f(2, 5, 7)],
            [f(2, 3, 7)],
            420,
            4 * 142,
        ),
        (
            "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
            [f(7), f(3, 5), f(5, 7), 1, 1],
            [f(3, 7)],
            210,
            4 * (7 + 15 + 35 + 21),
        ),
        (
            "aten::addmm.out(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1, "
            "Tensor(a!) out) -> Tensor(a!)",
            [f(7), f(3, 5), f(5, 7), 1, 1, f(3, 7)],
            [f(3, 7)],
            210,
            4 * (7 + 15 + 35 + 21),
        ),
        (
            "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
            [f(4, 3, 5), f(7, 5), None],
            [f(4, 3, 7)],
            2 * 12 * 35,
            4 * (60 + 35 + 84),
        ),
        (
            "aten::matmul(Tensor self, Tensor other) -> Tensor",
            [f(4, 1, 3, 5), f(6, 5, 7)],
            [f(4, 6, 3, 7)],
            2 * 24 * 105,
            4 * (60 + 210 + 504),
        ),
        (
            "aten::_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None) -> Tensor",
            [h(64, 16), h(4, 16, 8), None],
            [h(64, 8)],
            2 * 64 * 16 * 8,
            2 * (1024 + 512 + 512),
        ),
        # ResNet's first layer, batch 32: 2 · 32 · 112² · 64 · 3 · 7²
        (
            CONVOLUTION,
            [f(32, 3, 224, 224), f(64, 3, 7, 7), None, [2, 2], [3, 3], [1, 1], False, [0, 0], 1],
            [f(32, 64, 112, 112)],
            2 * 32 * 112**2 * 64 * 147,
            4 * (32 * 3 * 224**2 + 64 * 147 + 32 * 64 * 112**2),
        ),
        # Depth-wise: each channel meets its own window alone.
        (
            CONVOLUTION,
            [f(1, 8, 6, 6), f(8, 1, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 8],
            [f(1, 8, 6, 6)],
            2 * 8 * 36 * 9,
            4 * (288 + 72 + 288),
        ),
        # Transposed: weight [in, out], used at each point of the input.
        (
            CONVOLUTION,
            [f(2, 4, 5, 5), f(4, 6, 3, 3), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 1],
            [f(2, 6, 11, 11)],
            2 * 2 * 25 * 4 * 6 * 9,
            4 * (200 + 216 + 1452),
        ),
        (
            BACKWARD,
            [
                *(f(2, 6, 5, 5), f(2, 4, 7, 7), f(6, 4, 3, 3)),
                *([6], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False]),
            ],
            [f(2, 4, 7, 7), f(6, 4, 3, 3)],
            2 * (2 * 2 * 25 * 6 * 4 * 9),
            4 * (300 + 392 + 216 + 392 + 216),
        ),
        (
            BACKWARD,
            [
                *(f(2, 6, 5, 5), f(2, 4, 7, 7), f(6, 4, 3, 3)),
                *([6], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False]),
            ],
            [f(6, 4, 3, 3)],
            2 * 2 * 25 * 6 * 4 * 9,
            4 * (300 + 392 + 216 + 216),
        ),
        (
            f"aten::scaled_dot_product_attention{SDPA} -> Tensor",
            [h(2, 8, 64, 16), h(2, 8, 96, 16), h(2, 8, 96, 32), None, 0.0, True],
            [h(2, 8, 64, 32)],
            2 * 16 * 64 * 96 * (16 + 32),
            2 * 16 * (64 * 16 + 96 * 48 + 64 * 32),
        ),
        (
            "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
            [f(4, 1), f(1, 6), 1],
            [f(4, 6)],
            24,
            4 * (4 + 6 + 24),
        ),
        (
            "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)",
            [f(4, 6), f(4, 6), -0.1],
            [f(4, 6)],
            48,
            4 * 3 * 24,
        ),
        (FOREACH, [[f(3), f(5)], [f(3), f(5)], 1], [], 8, 4 * 3 * 8),
        (
            ADAMW,
            [*[[f(3), f(5)]] * 4, [], [f(), f()], 0.1, 0.9, 0.99, 0.0, 1e-8, False, False, None, None],
            [],
            15 * 8,
            4 * (7 * 8 + 2),
        ),
        ('aten::gelu(Tensor self, *, str approximate="none") -> Tensor', [f(10), "none"], [f(10)], 50, 80),
        ('aten::gelu(Tensor self, *, str approximate="none") -> Tensor', [f(10), "tanh"], [f(10)], 90, 80),
        (
            "aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor",
            [f(4, 6), 1, False],
            [f(4, 6)],
            120,
            192,
        ),
        (
            "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float "
            "eps) -> (Tensor, Tensor, Tensor)",
            [f(4, 6), [6], f(6), f(6), 1e-5],
            [f(4, 6), f(4, 1), f(4, 1)],
            8 * 24,
            4 * (24 + 12 + 24 + 8),
        ),
        (
            "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, "
            "bool sparse=False) -> Tensor",
            [f(1024, 128), ("long int", (4, 64)), -1, False, False],
            [f(4, 64, 128)],
            0,
            256 * 8 + 2 * 256 * 128 * 4,
        ),
        (
            "aten::_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, "
            "int mode=0) -> (Tensor, Tensor, Tensor, Tensor)",
            [f(1000, 16), ("long int", (50,)), ("long int", (10,)), False, 0],
            [f(10, 16)],
            50 * 16,
            50 * 64 + 60 * 8 + 640,
        ),
        (
            "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
            [h(9), f(9), False],
            [h(9)],
            0,
            54,
        ),
        ("aten::zero_(Tensor(a!) self) -> Tensor(a!)", [f(9)], [f(9)], 0, 36),
        ("aten::cat(Tensor[] tensors, int dim=0) -> Tensor", [[f(3), f(4)], 0], [f(7)], 0, 56),
        (
            "aten::max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, "
            "int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
            [f(1, 2, 8, 8), [3], [2], [1], [1], False],
            [f(1, 2, 4, 4), ("long int", (1, 2, 4, 4))],
            32 * 9,
            4 * 128 + 12 * 32,
        ),
        ("aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor", [f(9, 9), None], [f()], 81, 4 * 82),
        ("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", [f(9), [3, 3]], [f(3, 3)], 0, 0),
        ("mine::peek(Tensor(a) self) -> Tensor(a)", [f(9)], [f(3, 3)], 0, 0),
        ("aten::empty_like(Tensor self) -> Tensor", [f(9)], [f(9)], 0, 0),
    ],
    ids=lambda value: value.partition("(")[0] if isinstance(value, str) else "",
)
def test_closed_forms(schema: str, inputs: list[Any], outputs: list[Any], flops: int, size: int) -> None:
    name = schema.partition("(")[0].partition(".")[0]
    assert work(name, schema, side(*inputs), side(*outputs)) == Work(flops, size)


@pytest.mark.parametrize("inputs", [[h(2, 8, 64, 16), h(2, 8, 64, 16), h(2, 8, 64, 16), h(2, 8, 64, 16)]])
def test_attention_costs_two_and_a_half_times_as_much_backward(inputs: list[Any]) -> None:
    name = "aten::_scaled_dot_product_flash_attention"
    text = "(Tensor grad_out, Tensor query, Tensor key, Tensor value) -> (Tensor, Tensor, Tensor)"
    backward = work(name + "_backward", name + "_backward" + text, side(*inputs), side(*inputs[1:]))
    forward = work(
        name, f"{name}(Tensor query, Tensor key, Tensor value) -> Tensor", side(*inputs[1:]), side(inputs[1])
    )
    assert forward and backward and forward.flops == 4 * 16 * 64 * 64 * 16
    assert 2 * backward.flops == 5 * forward.flops


def test_packed_sequences_are_taken_to_be_equally_long() -> None:
    schema = (
        "aten::_flash_attention_forward(Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q, "
        "Tensor? cum_seq_k) -> Tensor"
    )
    packed, offsets = h(4 * 32, 8, 16), ("long int", (5,))
    result = work(
        "aten::_flash_attention_forward", schema, side(packed, packed, packed, offsets, offsets), side(packed)
    )
    assert result and result.flops == 4 * (4 * 8 * 32 * 32 * 16)


def test_without_a_schema_arguments_are_taken_by_position() -> None:
    assert work("aten::addmm", "", side(f(7), f(3, 5), f(5, 7)), side(f(3, 7))) == Work(210, 4 * 78)
    assert work("aten::mul_", "", side(f(7), f(7)), side(f(7))) == Work(7, 84)


def test_what_is_not_known() -> None:
    assert work("aten::no_such_thing", "", side(f(2)), side(f(2))) is None
    assert (
        work(
            "c10d::allreduce_", "c10d::allreduce_(Tensor[] tensors) -> (Tensor[])", side([f(2)]), side([f(2)])
        )
        is None
    )
    assert (
        family("aten::_foreach_mul_") == "elementwise"
        and family("aten::mm") == "matmul"
        and family("x") is None
    )


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=12,
)
TYPE = (
    st.sampled_from(
        ["Tensor(float)", "Tensor(x)", "Tensor", "GenericList[Tensor(float),None]", "GenericList[", "Int"]
    )
    | ANY
)
SIDE = st.builds(Arguments, *[st.lists(ANY, max_size=5)] * 2, st.lists(TYPE, max_size=5))
NAMES = [
    "mm",
    "convolution",
    "_softmax",
    "_foreach_add_",
    "embedding",
    "max_pool2d",
    "_cudnn_rnn",
    "index_put_",
    "linear",
]


@given(
    st.sampled_from(NAMES),
    st.sampled_from([CONVOLUTION, BACKWARD, FOREACH, "", "(", "aten::x(", "a::b(*, Tensor(a!) c)"]) | ANY,
    SIDE,
    SIDE,
)
def test_whatever_stands_there_gives_an_answer(
    name: str, schema: Any, inputs: Arguments, outputs: Arguments
) -> None:
    result = work(f"aten::{name}", schema, inputs, outputs)
    assert result is None or (result.flops >= 0 and result.bytes >= 0)


@pytest.mark.parametrize(
    "shape", [[-1, 4], ["3", 4], [2.0, 4], [True, 4], None, "ab", [[3, 4]], [1 << 40, 1 << 40]]
)
def test_malformed_shapes_are_not_known(shape: Any) -> None:
    good = side(f(3, 4), f(4, 5))
    bad = Arguments(good.values, [shape, [4, 5]], good.types)
    assert work("aten::mm", "aten::mm(Tensor self, Tensor mat2) -> Tensor", bad, side(f(3, 5))) is None
    assert work("aten::relu", "aten::relu(Tensor self) -> Tensor", bad, side(f(3, 5))) is None


def test_types() -> None:
    assert kind_of("GenericList[Tensor(float),None,GenericList[Tensor(c10::complex<float>)]]") == (
        4,
        None,
        (8,),
    )
    assert kind_of("GenericList[Int,Int]") is None
    strange = Arguments([[1, 2, 0, 6, 3, "cpu"]], [[6]], ["Tensor(c10::Float24)"])
    assert work("aten::relu", "aten::relu(Tensor self) -> Tensor", strange, strange) == Work(6, 36)


def test_gemms_name_their_shapes() -> None:
    """They are those whose operations are counted, so that models by shape and by operations see the same work."""
    cases = {
        "aten::mm": (side(h(8, 64), h(64, 32)), Gemm(8, 32, 64)),
        "aten::bmm": (side(h(5, 8, 64), h(5, 64, 32)), Gemm(8, 32, 64, 5)),
        "aten::addmm": (side(h(32), h(8, 64), h(64, 32)), Gemm(8, 32, 64)),
        "aten::linear": (side(h(2, 4, 64), h(32, 64), h(32)), Gemm(8, 32, 64)),
        "aten::add": (side(h(8), h(8)), None),
        "aten::mm ": (side(h(8, 64), h(64, 32)), None),
    }
    for name, (inputs, expected) in cases.items():
        found = gemm(name, "", inputs, side(h(8, 32)))
        assert found == expected
        cost = work(name, "", inputs, side(h(8, 32)))
        assert expected is None or (cost is not None and cost.flops == expected.operations)
    assert gemm("aten::mm", "", side(h(8, 64), h(63, 32)), side(h(8, 32))) is None


def test_work_grows_with_the_number_of_calls(lines: Callable[[Callable[[], object]], int]) -> None:
    schema = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    inputs, outputs = side(f(4, 1), f(1, 6), 1), side(f(4, 6))

    def many(calls: int) -> None:
        works = [work("aten::add", schema, inputs, outputs) for _ in range(calls)]
        exclusive(works, [-1] * calls, ["aten::add"] * calls)

    many(1)
    assert lines(lambda: many(10_000)) < 2.5 * lines(lambda: many(5_000))
