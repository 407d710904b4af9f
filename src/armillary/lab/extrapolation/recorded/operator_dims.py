"""Which dimensions of what an operator reads and writes are the same, for PyTorch's operators."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from armillary.convert.pytorch.flops import family
from armillary.lab.extrapolation.recorded import layer_dims  # noqa: F401, it registers rules of its own
from armillary.lab.extrapolation.recorded.calls import Call, Tensor
from armillary.lab.extrapolation.recorded.dim_rules import RULES, broadcast, rule, same_all, spelled
from armillary.lab.extrapolation.recorded.dimensions import Dim, product, regroup, same

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


def _spell(names: str, inputs: dict[str, str], *outputs: str) -> None:
    rule(*names.split())(lambda call: spelled(call, inputs, *outputs))


_spell("mm", {"self": "ik", "mat2": "kj"}, "ij")
_spell("bmm", {"self": "bik", "mat2": "bkj"}, "bij")
_spell("baddbmm", {"self": "", "batch1": "bik", "batch2": "bkj"}, "bij")
_spell("linear", {"input": "*k", "weight": "nk", "bias": "n"}, "*n")
_spell("embedding", {"weight": "vh", "indices": "*"}, "*h")
_spell("embedding_dense_backward", {"grad_output": "*h", "indices": "*"}, "vh")
_spell("nll_loss_forward", {"self": "*c", "target": "*"})
_spell("nll_loss_backward", {"grad_output": "", "self": "*c", "target": "*"}, "*c")


@rule("addmm")
def _addmm(call: Call) -> None:
    spelled(call, {"self": "", "mat1": "ik", "mat2": "kj"}, "ij")
    bias, out = call.tensor("self", 0), call.result()
    if bias is not None and out is not None:
        broadcast(bias, out)


@rule(
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
            same_all(first.dims, each.dims)


@rule(
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


@rule("transpose", "t", "swapaxes", "numpy_T", "mT")
def _transpose(call: Call) -> None:
    source, out = call.tensor("self", 0), call.result()
    if source is None or out is None or len(source.dims) < 2:
        return
    named = "dim0" in call.schema.position
    a = _dim(call.value("dim0", 1), len(source.dims)) if named else len(source.dims) - 2
    b = _dim(call.value("dim1", 2), len(source.dims)) if named else len(source.dims) - 1
    dims = list(source.dims)
    dims[a], dims[b] = dims[b], dims[a]
    same_all(dims, out.dims)


@rule("permute", "movedim")
def _permute(call: Call) -> None:
    source, out, order = call.tensor("self", 0), call.result(), call.value("dims", 1)
    if source is not None and out is not None and isinstance(order, list) and len(order) == len(source.dims):
        same_all([source.dims[_dim(each, len(order))] for each in order], out.dims)


@rule("expand")
def _expand(call: Call) -> None:
    source, out = call.tensor("self", 0), call.result()
    if source is not None and out is not None:
        broadcast(source, out)
        if source.shape == out.shape:
            same_all(source.dims, out.dims)


@rule("select", "unbind")
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
            same_all(rest, out.dims)


@rule("slice", "narrow")
def _slice(call: Call) -> None:
    source, out = call.tensor("self", 0), call.result()
    if source is None or out is None or len(source.dims) != len(out.dims):
        return
    for a, b in zip(source.dims, out.dims, strict=True):
        # A slice that cuts a dimension makes a new one, whose relation to the old one is not known.
        if a.size == b.size:
            same(a, b)


@rule("split", "split_with_sizes", "chunk", "tensor_split", "unsafe_split", "unsafe_chunk")
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
        same_all([dim for at, dim in enumerate(whole.dims) if at != cut],
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


@rule("cat", "concat", "concatenate")
def _cat(call: Call) -> None:
    parts, out = call.argument("tensors", 0), call.result()
    if isinstance(parts, list) and out is not None:
        _parts(out, [each for each in parts if each is not None], _dim(call.value("dim", 1), len(out.dims)))


@rule("stack")
def _stack(call: Call) -> None:
    parts, out = call.argument("tensors", 0), call.result()
    if isinstance(parts, list) and out is not None:
        new = _dim(call.value("dim", 1), len(out.dims))
        for part in parts:
            same_all([dim for at, dim in enumerate(out.dims) if at != new], part.dims)


@rule("index_select")
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


@rule("gather", "scatter", "scatter_add", "take_along_dim")
def _gather(call: Call) -> None:
    index, out, source = call.tensor("index", 2), call.result(), call.tensor("self", 0)
    if index is not None and out is not None and call.name.endswith("gather"):
        same_all(index.dims, out.dims)
    for other in (source, out):
        if index is not None and other is not None and len(index.dims) == len(other.dims):
            broadcast(index, other)


@rule("sum", "mean", "amax", "amin", "max", "min", "argmax", "any", "all", "prod", "std", "var")
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
        same_all([dim for at, dim in enumerate(source.dims) if at not in gone], out.dims)


@rule("empty", "empty_strided", "zeros", "ones", "full", "arange", "rand", "randn", "randint", "new_empty",
       "new_zeros", "new_ones", "new_full", "new_empty_strided", "scalar_tensor", "randperm", "resize", "set",
       "as_strided", "empty_permuted", "item", "_local_scalar_dense", "eye", "range", "linspace",
       "c10d::_allgather_base_", "c10d::_reduce_scatter_base_", "c10d::allgather_", "c10d::reduce_scatter_",
       "c10d::send", "c10d::recv_",
       "_c10d_functional::all_gather_into_tensor", "_c10d_functional::reduce_scatter_tensor",
       "fsdp::all_gather_copy_in", "fsdp::split_with_sizes_copy", "fsdp::chunk_cat", "_chunk_cat",
       "split_with_sizes_copy")  # fmt: skip
def _nothing(call: Call) -> None:
    """Unify nothing: results have dimensions of their own until another operator writes into them."""
