"""Which dimensions of what an operator reads and writes are the same, for PyTorch's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from armillary.convert.pytorch.flops import family
from armillary.lab.extrapolation.recorded.dimensions import Dim, product, regroup, same

if TYPE_CHECKING:
    from armillary.lab.extrapolation.recorded.tensors import Call, Tensor

Rule = Callable[["Call"], None]
RULES: dict[str, Rule] = {}
ALIKE = ("elementwise", "optimizer")
"""Families whose operators work on elements at the same place."""


def apply_rule(call: Call) -> bool:
    """Unify dimensions by the rule of an operator; return False where it has none."""
    found = RULES.get(call.name)
    if found is None:
        # `_foreach_add_` follows the rule of `add`; names that end in "__", such as `__and__`, are not
        # in-place.
        base = call.name.replace("::_foreach_", "::", 1)
        base = base[:-1] if base.endswith("_") and not base.endswith("__") else base
        found = RULES.get(base)
        if found is None and family(call.name) in ALIKE:
            found = _alike
    if found is None:
        return False
    found(call)
    return True


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name if "::" in name else f"aten::{name}"] = function
        return function

    return register


def _all(dims: Sequence[Dim], others: Sequence[Dim]) -> None:
    for a, b in zip(dims, others, strict=False):
        same(a, b)


def spelled(call: Call, inputs: dict[str, str], *outputs: str) -> None:
    """Unify dimensions with the same letter, as in einsum; ``*`` stands for all leading dimensions.

    Args:
        call: The call.
        inputs: Name of an argument -> letters of its dimensions; the order is that of positions.
        outputs: Letters of the dimensions of the results.
    """
    known: dict[str, Dim] = {}
    leading: list[Dim] | None = None
    results = [(call.result(at), text) for at, text in enumerate(outputs)]
    for at, (name, text) in enumerate(inputs.items()):
        results.insert(at, (call.tensor(name, at), text))
    # A tensor of another rank than the rule expects is skipped: no rule is better than a wrong one.
    for tensor, text in results:
        letters = text.replace("*", "")
        if tensor is None or not text or len(tensor.dims) < len(letters):
            continue
        if "*" not in text and len(tensor.dims) != len(letters):
            continue
        rest, own = (
            list(tensor.dims[: len(tensor.dims) - len(letters)]),
            tensor.dims[len(tensor.dims) - len(letters) :],
        )
        if "*" in text:
            if leading is None:
                leading = rest
            elif len(leading) == len(rest):
                _all(leading, rest)
            else:
                regroup(leading, rest)
        for letter, dim in zip(letters, own, strict=True):
            same(known.setdefault(letter, dim), dim)


def _spell(names: str, inputs: dict[str, str], *outputs: str) -> None:
    _rule(*names.split())(lambda call: spelled(call, inputs, *outputs))


_spell("mm", {"self": "ik", "mat2": "kj"}, "ij")
_spell("bmm", {"self": "bik", "mat2": "bkj"}, "bij")
_spell("baddbmm", {"self": "", "batch1": "bik", "batch2": "bkj"}, "bij")
_spell("linear", {"input": "*k", "weight": "nk", "bias": "n"}, "*n")
_spell("embedding", {"weight": "vh", "indices": "*"}, "*h")
_spell("embedding_dense_backward", {"grad_output": "*h", "indices": "*"}, "vh")
_spell("nll_loss_forward", {"self": "*c", "target": "*"})
_spell("nll_loss_backward", {"grad_output": "", "self": "*c", "target": "*"}, "*c")


@_rule("addmm")
def _addmm(call: Call) -> None:
    spelled(call, {"self": "", "mat1": "ik", "mat2": "kj"}, "ij")
    bias, out = call.tensor("self", 0), call.result()
    if bias is not None and out is not None:
        broadcast(bias, out)


def broadcast(tensor: Tensor, result: Tensor) -> None:
    """Unify dimensions of a tensor and of its broadcast; those of size 1 have no counterpart."""
    for a, b in zip(reversed(tensor.dims), reversed(result.dims), strict=False):
        if a.size == b.size > 1:
            same(a, b)


@_rule(
    "clone", "contiguous", "_to_copy", "to", "detach", "alias", "copy", "lift_fresh", "empty_like", "zeros_like",
    "ones_like", "full_like", "rand_like", "randn_like", "_softmax", "_log_softmax", "softmax", "log_softmax",
    "_softmax_backward_data", "_log_softmax_backward_data", "_safe_softmax", "tril", "triu", "flip", "roll",
    "masked_fill", "where", "cumsum", "sort", "resolve_conj", "resolve_neg", "fill", "zero", "view_as",
    "expand_as", "logsumexp", "_pin_memory", "pin_memory", "mse_loss", "l1_loss", "norm", "linalg_vector_norm",
    "_foreach_norm", "normal", "uniform", "random", "bernoulli", "exponential", "one_hot", "native_dropout",
    "native_dropout_backward", "_c10d_functional::all_reduce", "_c10d_functional::wait_tensor",
    "c10d::allreduce_", "c10d::broadcast_", "max_pool2d", "add",
    "binary_cross_entropy_with_logits", "nan_to_num", "_foreach_zero",
)  # fmt: skip
def _alike(call: Call) -> None:
    """Elements at the same place, tensors broadcast to the largest; lists go item by item."""
    lists = [each for each in (*call.inputs, *call.outputs) if isinstance(each, list)]
    # Lists of other lengths, such as one of scalars, are no partners.
    if lists:
        for row in zip(*(each for each in lists if len(each) == len(lists[0])), strict=True):
            _together([each for each in row if each is not None and not isinstance(each, list)])
        return
    results = [each for each in call.outputs if each is not None]
    own = [each for each in call.inputs if each is not None]
    _together([each for each in (*results, *own) if not isinstance(each, list)])


def _together(tensors: list[Any]) -> None:
    if not tensors:
        return
    first: Tensor = tensors[0]
    full: Tensor | None = None
    for each in tensors[1:]:
        broadcast(each, first)
        # A dimension of 1 is that of the first operand: others may have theirs to be broadcast.
        if full is None and each.shape == first.shape:
            full = each
            _all(first.dims, each.dims)


@_rule(
    "view",
    "_unsafe_view",
    "reshape",
    "_reshape_alias",
    "flatten",
    "unflatten",
    "squeeze",
    "unsqueeze",
    "ravel",
)
def _view(call: Call) -> None:
    source, out = call.tensor("self", 0), call.result()
    if source is not None and out is not None:
        regroup(source.dims, out.dims)


def _dim(value: Any, rank: int) -> int:
    return value % rank if type(value) is int and rank else 0


@_rule("transpose", "t", "swapaxes", "numpy_T", "mT")
def _transpose(call: Call) -> None:
    source, out = call.tensor("self", 0), call.result()
    if source is None or out is None or len(source.dims) < 2:
        return
    named = "dim0" in call.schema.position
    a = _dim(call.value("dim0", 1), len(source.dims)) if named else len(source.dims) - 2
    b = _dim(call.value("dim1", 2), len(source.dims)) if named else len(source.dims) - 1
    dims = list(source.dims)
    dims[a], dims[b] = dims[b], dims[a]
    _all(dims, out.dims)


@_rule("permute", "movedim")
def _permute(call: Call) -> None:
    source, out, order = call.tensor("self", 0), call.result(), call.value("dims", 1)
    if source is not None and out is not None and isinstance(order, list) and len(order) == len(source.dims):
        _all([source.dims[_dim(each, len(order))] for each in order], out.dims)


@_rule("expand")
def _expand(call: Call) -> None:
    source, out = call.tensor("self", 0), call.result()
    if source is not None and out is not None:
        broadcast(source, out)
        if source.shape == out.shape:
            _all(source.dims, out.dims)


@_rule("select", "unbind")
def _select(call: Call) -> None:
    source = call.tensor("self", 0)
    made = call.outputs[0] if call.outputs else None
    if source is None:
        return
    gone = _dim(call.value("dim", 1), len(source.dims))
    rest = [dim for at, dim in enumerate(source.dims) if at != gone]
    # As many results as entries: the trace has that many nodes, so the dimension cannot change.
    for leaf in source.dims[gone].leaves() if isinstance(made, list) else ():
        leaf.whole = True
    for out in made if isinstance(made, list) else [made]:
        if out is not None and len(out.dims) == len(rest):
            _all(rest, out.dims)


@_rule("slice", "narrow")
def _slice(call: Call) -> None:
    source, out = call.tensor("self", 0), call.result()
    if source is None or out is None or len(source.dims) != len(out.dims):
        return
    for a, b in zip(source.dims, out.dims, strict=True):
        # A slice that cuts a dimension makes a new one, whose relation to the old one is not known.
        if a.size == b.size:
            same(a, b)


@_rule("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk")
def _split(call: Call) -> None:
    source = call.tensor("self", 0)
    made = call.outputs[0] if call.outputs else None
    if source is None or not isinstance(made, list) or not made:
        return
    parts = [each for each in made if each is not None]
    cut = _dim(call.value("dim", 2), len(source.dims))
    _parts(source, parts, cut)


def _parts(whole: Tensor, parts: list[Any], cut: int) -> None:
    """Unify dimensions of a tensor and of the parts that it is split into or concatenated from."""
    for part in parts:
        if len(part.dims) != len(whole.dims):
            return
        _all([dim for at, dim in enumerate(whole.dims) if at != cut],
             [dim for at, dim in enumerate(part.dims) if at != cut])  # fmt: skip
    sizes = {part.dims[cut].size for part in parts}
    if len(sizes) == 1 and sizes.pop() * len(parts) == whole.dims[cut].size:
        # Equal parts: the whole is count x part, and the count stays since each part has nodes of its own.
        count = Dim(len(parts), whole=True)
        if len(parts) == 1:
            same(whole.dims[cut], parts[0].dims[cut])
            return
        for a, b in pairwise(part.dims[cut] for part in parts):
            same(a, b)
        same(whole.dims[cut], product([count, parts[0].dims[cut]]))


@_rule("cat", "concat", "concatenate")
def _cat(call: Call) -> None:
    parts, out = call.argument("tensors", 0), call.result()
    if isinstance(parts, list) and out is not None:
        _parts(out, [each for each in parts if each is not None], _dim(call.value("dim", 1), len(out.dims)))


@_rule("stack")
def _stack(call: Call) -> None:
    parts, out = call.argument("tensors", 0), call.result()
    if isinstance(parts, list) and out is not None:
        new = _dim(call.value("dim", 1), len(out.dims))
        for part in parts:
            _all([dim for at, dim in enumerate(out.dims) if at != new], part.dims)


@_rule("index_select")
def _index_select(call: Call) -> None:
    source, index, out = call.tensor("self", 0), call.tensor("index", 2), call.result()
    if source is None or index is None or out is None or len(out.dims) != len(source.dims):
        return
    cut = _dim(call.value("dim", 1), len(source.dims))
    for at, (a, b) in enumerate(zip(source.dims, out.dims, strict=True)):
        # All but the indexed dimension are the source's; that one counts the indices.
        if at != cut:
            same(a, b)
        elif index.dims:
            same(index.dims[0], b)


@_rule("gather", "scatter", "scatter_add", "take_along_dim")
def _gather(call: Call) -> None:
    index, out, source = call.tensor("index", 2), call.result(), call.tensor("self", 0)
    if index is not None and out is not None and call.name.endswith("gather"):
        _all(index.dims, out.dims)
    for other in (source, out):
        if index is not None and other is not None and len(index.dims) == len(other.dims):
            broadcast(index, other)


@_rule("sum", "mean", "amax", "amin", "max", "min", "argmax", "any", "all", "prod", "std", "var")
def _reduce(call: Call) -> None:
    source, out, dims = call.tensor("self", 0), call.result(), call.value("dim", 1)
    if source is None or out is None or not out.dims:
        return
    gone = {_dim(each, len(source.dims)) for each in (dims if isinstance(dims, list) else [dims])}
    if len(out.dims) == len(source.dims):
        for at, (a, b) in enumerate(zip(source.dims, out.dims, strict=True)):
            if at not in gone:
                same(a, b)
    else:
        _all([dim for at, dim in enumerate(source.dims) if at not in gone], out.dims)


@_rule("layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm")
def _norm(call: Call) -> None:
    source = call.tensor("input", 0)
    _normalised(call, source, [call.tensor("weight", 2), call.tensor("bias", 3)], call.outputs)


@_rule("native_layer_norm_backward", "_fused_rms_norm_backward")
def _norm_backward(call: Call) -> None:
    source, out = call.tensor("input", 1), call.tensor("grad_out", 0)
    weights = [call.tensor("weight", -1), call.tensor("bias", -1), *call.outputs[1:]]
    statistics = [call.tensor("mean", -1), call.tensor("rstd", -1)]
    _normalised(call, source, weights, [out, call.result(), *statistics])


def _normalised(call: Call, source: Tensor | None, weights: Sequence[Any], others: Sequence[Any]) -> None:
    shape = call.value("normalized_shape", 1)
    if source is None or not isinstance(shape, list):
        return
    inner = source.dims[len(source.dims) - len(shape) :]
    for each in weights:
        if each is not None and not isinstance(each, list) and len(each.dims) == len(inner):
            _all(inner, each.dims)
    for each in others:
        if each is not None and not isinstance(each, list):
            if each.shape == source.shape:
                _all(source.dims, each.dims)
            else:  # a number of every row, with or without dimensions of 1
                regroup(source.dims[: len(source.dims) - len(inner)], each.dims)


ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_flash_attention_for_cpu",
    "scaled_dot_product_attention",
)


@_rule(*ATTENTION, *(name + "_backward" for name in ATTENTION))
def _attention(call: Call) -> None:
    """Take query, key and value as [batch, heads, length, depth]; several heads may share one of key and value."""
    backward = call.name.endswith("_backward")
    query, key, value = (
        call.tensor(name, at + backward) for at, name in enumerate(("query", "key", "value"))
    )
    if (
        query is None
        or key is None
        or value is None
        or any(len(each.dims) != 4 for each in (query, key, value))
    ):
        return
    batch, heads, length, depth = query.dims
    for of in (key, value):
        same(batch, of.dims[0])
        if of.dims[1].size == heads.size:
            same(heads, of.dims[1])
        elif heads.size % of.dims[1].size == 0:
            same(heads, product([of.dims[1], Dim(heads.size // of.dims[1].size, whole=True)]))
    _all(key.dims[1:3], value.dims[1:3])
    same(depth, key.dims[3])
    # The result has the queries' length and the values' depth.
    wide = (batch, heads, length, value.dims[3])
    # The depth of a head is never divided: tensor parallelism divides heads.
    for leaf in (*depth.leaves(), *value.dims[3].leaves()):
        leaf.whole = True
    if backward:
        for gradient, source in zip(call.outputs[:3], (query, key, value), strict=False):
            if gradient is not None and not isinstance(gradient, list):
                _all(source.dims, gradient.dims)
        others = [call.tensor(name, -1) for name in ("grad_out", "out")]
        sums = call.tensor("logsumexp", -1)
    else:
        others, sums = [call.result()], call.result(1)
    for each in others:
        if each is not None and len(each.dims) == 4:
            _all(wide, each.dims)
    if sums is not None:
        # Backends disagree about the order of the statistics; sizes decide.
        for order in ((batch, heads, length), (batch, length, heads)):
            if tuple(dim.size for dim in order) == sums.shape:
                _all(order, sums.dims)
                break


@_rule(
    "convolution",
    "_convolution",
    "conv2d",
    "convolution_overrideable",
    "mkldnn_convolution",
    "cudnn_convolution",
)
def _convolution(call: Call) -> None:
    source, weight, out = call.tensor("input", 0), call.tensor("weight", 1), call.result()
    if source is None or weight is None or out is None:
        return
    same(source.dims[0], out.dims[0])
    same(weight.dims[0], out.dims[1])
    same(source.dims[1], weight.dims[1])
    bias = call.tensor("bias", 2)
    if bias is not None and bias.dims:
        same(bias.dims[0], weight.dims[0])


@_rule("convolution_backward")
def _convolution_backward(call: Call) -> None:
    gradient, source, weight = (
        call.tensor(name, at) for at, name in enumerate(("grad_output", "input", "weight"))
    )
    if gradient is None or source is None or weight is None:
        return
    same(gradient.dims[0], source.dims[0])
    same(gradient.dims[1], weight.dims[0])
    for made, of in zip(call.outputs, (source, weight), strict=False):
        if made is not None and not isinstance(made, list):
            _all(of.dims, made.dims)


@_rule("cudnn_batch_norm", "cudnn_batch_norm_backward", "miopen_batch_norm", "miopen_batch_norm_backward",
       "_native_batch_norm_legit", "native_batch_norm", "native_batch_norm_backward",
       "max_pool2d_with_indices", "max_pool2d_with_indices_backward",
       "avg_pool2d", "avg_pool2d_backward", "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward",
       "mkldnn_max_pool2d", "upsample_nearest2d", "native_group_norm", "native_group_norm_backward")  # fmt: skip
def _images(call: Call) -> None:
    """Samples and channels come first."""
    tensors = [
        each for each in (*call.inputs, *call.outputs) if each is not None and not isinstance(each, list)
    ]
    first = next((each for each in tensors if len(each.dims) > 2), None)
    for each in tensors:
        if first is None:
            break
        if len(each.dims) == 1 and each.dims[0].size == first.dims[1].size:
            same(each.dims[0], first.dims[1])
        elif len(each.dims) == len(first.dims):
            for a, b in zip(each.dims, first.dims, strict=True):
                if a.size == b.size > 1:
                    same(a, b)


@_rule("empty", "empty_strided", "zeros", "ones", "full", "arange", "rand", "randn", "randint", "new_empty",
       "new_zeros", "new_ones", "new_full", "new_empty_strided", "scalar_tensor", "randperm", "resize", "set",
       "as_strided", "empty_permuted", "item", "_local_scalar_dense", "eye", "range", "linspace",
       "c10d::_allgather_base_", "c10d::_reduce_scatter_base_", "c10d::allgather_", "c10d::reduce_scatter_",
       "c10d::send", "c10d::recv_",
       "_c10d_functional::all_gather_into_tensor", "_c10d_functional::reduce_scatter_tensor",
       "fsdp::all_gather_copy_in", "fsdp::split_with_sizes_copy", "fsdp::chunk_cat", "_chunk_cat",
       "split_with_sizes_copy")  # fmt: skip
def _nothing(call: Call) -> None:
    """Unify nothing: results have dimensions of their own until another operator writes into them."""
