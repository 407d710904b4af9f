"""FLOPs and bytes against closed forms and slow references."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.convert.hlo.costs import Costs
from armillary.convert.hlo.parse import parse
from armillary.convert.hlo.source import Source
from armillary.convert.hlo.traffic import Traffic
from armillary.convert.hlo.window import Window

SUM = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n"
ARGUMENTS = "  x = f32[8,16] parameter(0)\n  y = f32[16,4] parameter(1)\n  i = s32[] parameter(2)\n"


def costs(line: str, before: str = "") -> tuple[int, int]:
    """Return FLOPs and bytes of an instruction on x (8, 16), y (16, 4) and the scalar i."""
    text = f"HloModule m\n{SUM}{before}\nENTRY main {{\n{ARGUMENTS}  ROOT r = {line}\n}}\n"
    module = parse(Source(text, "m"))
    return Costs(module).flops(module.entry.result), Traffic(module).bytes(module.entry.result)


X, Y, N = 8 * 16 * 4, 16 * 4 * 4, 4


@pytest.mark.parametrize(
    ("line", "flops", "size"),
    [
        ("f32[8,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 2 * 8 * 4 * 16, X + Y + 128),
        ("f32[8,16,16,4] dot(x, y), lhs_contracting_dims={}", 2 * 8 * 16 * 16 * 4, X + Y + 8 * 16 * 16 * 16),
        ("f32[8,16] add(x, x)", 128, 2 * X),
        ("f32[8,16] tanh(x)", 128, 2 * X),
        ("pred[8,16] compare(x, x), direction=LT", 128, X + 128),
        ("f32[8,16] copy(x)", 0, 2 * X),
        ("f32[16,8] transpose(x), dimensions={1,0}", 0, 2 * X),
        ("f32[8] reduce(x, i), dimensions={1}, to_apply=sum", 128 - 8, X + N + 32),
        ("f32[4,4] reduce-window(x, i), window={size=2x4 stride=2x4}, to_apply=sum", 16 * 7, X + N + 64),
        ("f32[8,16] sort(x), dimensions={1}, to_apply=sum", 128 * 4, 2 * X),
        ("f32[2,16] dynamic-slice(x, i, i), dynamic_slice_sizes={2,16}", 0, 2 * 128 + 2 * N),
        ("f32[16,4] dynamic-update-slice(y, x, i, i)", 0, 2 * X + 2 * N),
        ("f32[8,16] scatter(x, i, y), to_apply=sum", 64, N + 3 * Y),
        ("(f32[8,4], s8[99]) custom-call(x, y), custom_call_target=\"__cublas$gemm\", backend_config="
         '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}',
         2 * 8 * 4 * 16, X + Y + 128 + 99),
        ('f32[8,4] custom-call(x, y), custom_call_target="__onednn$matmul", backend_config='
         '{"onednn_matmul_config":{}}', 2 * 8 * 4 * 16, X + Y + 128),
    ],
)  # fmt: skip
def test_costs_of_one_instruction(line: str, flops: int, size: int) -> None:
    assert costs(line) == (flops, size)


FUSED = """fused {
  p = f32[8,16] parameter(0)
  q = f32[16,4] parameter(1)
  n = s32[] parameter(2)
  m = f32[8,16] multiply(p, p)
  e = f32[8,16] exponential(m)
  ROOT d = f32[8,4] dot(e, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
SLICED = """fused {
  p = f32[8,16] parameter(0)
  n = s32[] parameter(1)
  s = f32[1,16] dynamic-slice(p, n, n), dynamic_slice_sizes={1,16}
  ROOT b = f32[16] bitcast(s)
}
"""
UPDATED = """fused {
  p = f32[8,16] parameter(0)
  n = s32[] parameter(1)
  c = f32[1,16] constant({...})
  ROOT u = f32[8,16] dynamic-update-slice(p, c, n, n)
}
"""


def test_a_fusion_is_the_sum_of_its_operations_and_moves_what_crosses_its_boundary() -> None:
    assert costs("f32[8,4] fusion(x, y, i), calls=fused", FUSED) == (2 * 128 + 2 * 8 * 4 * 16, X + Y + 128)


def test_a_fusion_that_slices_reads_the_slice_and_one_that_updates_writes_the_update() -> None:
    assert costs("f32[16] fusion(x, i), calls=fused", SLICED) == (0, 64 + N + 64)
    assert costs("f32[8,16] fusion(x, i), calls=fused", UPDATED) == (0, N + 64)


TWICE = """fused {
  p = f32[8,16] parameter(0)
  q = f32[8,16] parameter(1)
  s = f32[8,4] slice(q), slice={[0:8], [0:4]}
  ROOT m = f32[8,16] multiply(p, p)
}
"""


def test_an_operand_that_stands_twice_is_read_once() -> None:
    assert costs("f32[8,16] fusion(x, x), calls=fused", TWICE)[1] == 2 * X


def of_two(line: str, lhs: str, kernel: str) -> int:
    text = f"HloModule m\nENTRY main {{\n  x = {lhs} parameter(0)\n  k = {kernel} parameter(1)\n  ROOT r = {line}\n}}\n"
    module = parse(Source(text, "m"))
    return Costs(module).flops(module.entry.result)


ATTENTION = (
    'custom_call_target="__cudnn$fmhaSoftmax{}", backend_config={{"cudnn_fmha_backend_config":'
    '{{"bmm1_dot_dimension_numbers":{{"rhs_contracting_dimensions":["3"],"rhs_batch_dimensions":["0","2"]}}}}}}'
)


@pytest.mark.parametrize(("suffix", "products"), [("", 2), ("Backward", 5)])
def test_attention_is_two_products_and_five_backward(suffix: str, products: int) -> None:
    line = f"(f32[2,10,4,8], u8[0]) custom-call(x, k, k), {ATTENTION.format(suffix)}"
    assert of_two(line, "f32[2,10,4,8]", "f32[2,6,4,8]") == products * 2 * 2 * 4 * 10 * 6 * 8


def test_convolutions() -> None:
    same = "window={size=3x3 stride=2x2 pad=0_1x0_1}, dim_labels=b01f_01io->b01f"
    pairs = (3 * 8 - 1) ** 2  # 8 outputs of 3 in each dimension, of which one stands in the padding
    flops = 2 * 4 * 16 * 8 * pairs
    assert of_two(f"f32[4,8,8,16] convolution(x, k), {same}", "f32[4,16,16,8]", "f32[3,3,8,16]") == flops
    # The gradient for the kernel meets the same elements, with batch and features in other roles.
    back = "window={size=8x8 pad=0_1x0_1 rhs_dilate=2x2}, dim_labels=f01b_i01o->01bf"
    assert of_two(f"f32[3,3,8,16] convolution(x, k), {back}", "f32[4,16,16,8]", "f32[4,8,8,16]") == flops
    forward = f'(f32[4,8,8,16], u8[9]) custom-call(x, k), custom_call_target="__cudnn$convForward", {same}'
    dense = 2 * 4 * 16 * 8 * 24**2
    assert of_two(forward, "f32[4,16,16,8]", "f32[3,3,8,16]") == dense
    filters = (
        f'(f32[3,3,8,16], u8[9]) custom-call(x, k), custom_call_target="__cudnn$convBackwardFilter", {same}'
    )
    assert of_two(filters, "f32[4,16,16,8]", "f32[4,8,8,16]") == dense
    inputs = (
        f'(f32[4,16,16,8], u8[9]) custom-call(x, k), custom_call_target="__cudnn$convBackwardInput", {same}'
    )
    assert of_two(inputs, "f32[4,8,8,16]", "f32[3,3,8,16]") == dense


def test_feature_groups_convolve_fewer_inputs() -> None:
    line = "f32[1,4,16] convolution(x, k), window={size=1}, dim_labels=b0f_0io->b0f, feature_group_count=4"
    assert of_two(line, "f32[1,4,8]", "f32[1,2,16]") == 2 * 4 * 16 * 2


@given(
    st.integers(0, 6), st.integers(1, 4), st.integers(-4, 4), st.integers(1, 4), st.integers(1, 4),
    st.integers(0, 9), st.integers(0, 9),
)  # fmt: skip
def test_pairs_of_a_window_are_those_that_meet_an_element(
    size: int, stride: int, pad: int, apart: int, dilation: int, outputs: int, inputs: int
) -> None:
    elements = {i * apart for i in range(inputs)}
    meet = sum(o * stride + k * dilation - pad in elements for o, k in product(range(outputs), range(size)))
    assert Window(size, stride, pad, apart, dilation).pairs(outputs, inputs) == meet


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "f32[8,4] dot(x, y), lhs_contracting_dims={2}",
            "contracts dimensions \\[2\\] of an operand that has 2",
        ),
        ("f32[8,4] convolution(x, y), window={size=3}", "without dim_labels"),
        ("f32[8,4] convolution(x, y), window={size=3}, dim_labels=bf_io->bf", "does not fit"),
        ("f32[8,4] convolution(x, y), window={size=3 pad=1}, dim_labels=0bf_0io->0bf", "window has pad=1"),
        ("f32[8,4] reduce(x, i)", "'reduce' names no computation, expected to_apply="),
        ("f32[8,4] fusion(x)", "'fusion' names no computation"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(line: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        costs(line)
