"""Element-wise operators: FLOPs for each element written, a function such as exp or tanh counting one.

Composed functions count their arithmetic: gelu is x · ½ (1 + erf(x / √2)), so 5; its approximation by tanh 9;
addcmul is self + value · a · b, so 3. Comparisons and selections count one, as they use the same units.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.convert.pytorch.operators.registry import Operator, rule

FAMILY = "elementwise"

# Names cover in-place (``add_``) and list forms (``_foreach_add``) too, see `registry.rule_of`.
ONE = """
__and__ __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__ __or__ __rshift__ __xor__ abs absolute
acos acosh angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh
bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor ceil clamp_max
clamp_min conj_physical copysign cos cosh deg2rad digamma div divide eq erf erfc erfinv exp exp2 expm1 fix
float_power floor floor_divide fmax fmin fmod frac ge greater greater_equal gt heaviside hypot igamma
igammac isfinite isinf isnan isneginf isposinf le less less_equal lgamma log log10 log1p log2 logical_and
logical_not logical_or logical_xor lt masked_fill maximum minimum mul multiply ne neg negative nextafter
not_equal polygamma positive pow rad2deg reciprocal relu remainder round rsqrt sgn sigmoid sign signbit sin
sinc sinh special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_ndtri sqrt square tan
tanh threshold threshold_backward true_divide trunc where i0 gcd lcm polar complex bernoulli outer ger
hardshrink_backward softshrink_backward _amp_update_scale
"""
MORE = {
    2: """
    clamp clip hardtanh hardtanh_backward relu6 leaky_relu leaky_relu_backward nan_to_num silu
    native_dropout native_dropout_backward _masked_scale dropout feature_dropout prelu _prelu_kernel
    _prelu_kernel_backward ldexp xlogy special_xlog1py hardshrink softshrink special_entr rrelu
    """,
    3: """
    addcmul addcdiv lerp elu celu selu sigmoid_backward tanh_backward logit softplus hardsigmoid log_sigmoid
    log_sigmoid_forward hardsigmoid_backward elu_backward softplus_backward logit_backward glu
    mse_loss_backward _fused_dropout addr logaddexp logaddexp2 log_sigmoid_backward
    """,
    4: """
    hardswish mish smooth_l1_loss_backward huber_loss_backward
    """,
    5: """
    silu_backward binary_cross_entropy_backward glu_backward hardswish_backward
    """,
    6: """
    mish_backward
    """,
}


def weighted(weight: int) -> Callable[[Operator], int]:
    """Return the rule of `weight` FLOPs for each element written."""
    return lambda op: weight * op.elements


rule(FAMILY, *ONE.split())(weighted(1))
for _weight, _names in MORE.items():
    rule(FAMILY, *_names.split())(weighted(_weight))


@rule(FAMILY, "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy")
@rule(FAMILY, "binary_cross_entropy_with_logits", "soft_margin_loss")
def loss(op: Operator) -> int:
    """Return 4 FLOPs for each element read, one of them for the sum."""
    return 4 * op.size("self", 0)[0]


@rule(FAMILY, "add", "sub", "subtract", "rsub")
def add(op: Operator) -> int:
    """Return one FLOP for each element, two where the other side is scaled by ``alpha``."""
    alpha = op.schema.position.get("alpha")
    # ``alpha`` is recorded even where the caller did not pass it: 1 is the default and multiplies nothing.
    scaled = alpha is not None and alpha < len(op.inputs.values) and op.inputs.values[alpha] != 1
    return (2 if scaled else 1) * op.elements


@rule(FAMILY, "gelu")
def gelu(op: Operator) -> int:
    """Return the FLOPs of gelu by erf, or its approximation by tanh."""
    return (9 if _by_tanh(op) else 5) * op.elements


@rule(FAMILY, "gelu_backward")
def gelu_backward(op: Operator) -> int:
    """Return the FLOPs of grad · (Φ(x) + x · φ(x)): Φ costs 4, φ 4, the rest 3; by tanh 18 in all."""
    return (18 if _by_tanh(op) else 11) * op.elements


def _by_tanh(op: Operator) -> bool:
    at = op.schema.position.get("approximate")
    return at is not None and at < len(op.inputs.values) and op.inputs.values[at] == "tanh"


@rule(FAMILY, "_softmax", "softmax", "_log_softmax", "log_softmax", "_safe_softmax", "_masked_softmax")
def softmax(op: Operator) -> int:
    """Return 5 FLOPs for each element: greatest, subtract, exp, sum, divide (of the logarithm: subtract)."""
    return 5 * op.elements


@rule(FAMILY, "_softmax_backward_data", "_log_softmax_backward_data", "_masked_softmax_backward")
def softmax_backward(op: Operator) -> int:
    """Return 4 FLOPs for each element: multiply, sum, subtract, multiply (of the logarithm: exp for one)."""
    return 4 * op.elements
