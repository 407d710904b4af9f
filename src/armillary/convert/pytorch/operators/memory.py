"""Operators that only move data, and those that touch no data.

A lookup reads the rows that it takes, not the whole table.
"""

from __future__ import annotations

from armillary.convert.pytorch.operators.registry import Operator, Work, rule

FAMILY = "memory"

FREE = """
empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize resize_as set result_type
detach is_pinned record_stream is_same_size stride size can_cast promote_types is_floating_point is_complex
is_nonzero transpose_ t_ squeeze_ unsqueeze_ _unsafe_view _reshape_alias lift_fresh resolve_conj resolve_neg
requires_grad
_has_compatible_shallow_copy_type _use_cudnn_ctc_loss _version output_nr retain_grad is_leaf
_cudnn_init_dropout_state _fused_sdp_choice data alias _local_scalar_dense item scalar_tensor is_contiguous
sym_size sym_numel sym_stride sym_storage_offset numel dim contiguous to reshape flatten reshape_as view_as
ravel expand_as squeeze unsqueeze _nested_tensor_size _conj _neg_view broadcast_tensors meshgrid atleast_1d
atleast_2d atleast_3d _has_same_storage_numel _cudnn_rnn_flatten_weight _assert_async
_functional_assert_async _assert_tensor_metadata _c10d_functional::_wrap_tensor_autograd
unflatten_dense_tensors
"""
FILLS = """
fill zero normal uniform random exponential geometric cauchy log_normal zeros zeros_like ones ones_like full
full_like rand rand_like randn randn_like randint randint_like arange linspace logspace eye new_zeros
new_ones new_full range randperm tril_indices triu_indices hann_window
"""
COPIES = """
clone _to_copy cat concat concatenate stack hstack vstack dstack _chunk_cat repeat repeat_interleave roll
flip rot90 tril triu constant_pad_nd pad reflection_pad1d reflection_pad2d replication_pad1d
replication_pad2d split_copy split_with_sizes_copy view_copy expand_copy permute_copy transpose_copy
unbind_copy slice_copy as_strided_copy diag_embed _pin_memory pin_memory lift flatten_dense_tensors
pixel_shuffle pixel_unshuffle channel_shuffle im2col col2im upsample_nearest2d upsample_nearest2d_backward
upsample_nearest1d upsample_nearest3d _pad_circular tile slice_scatter select_scatter diagonal_scatter
as_strided_scatter slice_backward select_backward diagonal_backward unfold_backward _stack
masked_select_backward reflection_pad2d_backward one_hot quantize_per_tensor dequantize
fake_quantize_per_tensor_affine mkldnn_reorder_conv2d_weight to_mkldnn to_dense _convert_weight_to_int4pack
block_diag _pack_padded_sequence _nested_tensor_from_mask _jagged_to_padded_dense_forward fbgemm::permute_2D_sparse_data
fbgemm::permute_1D_sparse_data fbgemm::bounds_check_indices fbgemm::jagged_to_padded_dense
fsdp::split_with_sizes_copy fsdp::chunk_cat
"""
GATHERS = "index_select index _unsafe_index gather take take_along_dim embedding"
SCATTERS = """
masked_scatter index_put _index_put_impl _unsafe_index_put scatter scatter_add scatter_reduce index_add
index_copy index_fill put index_reduce
"""


@rule(FAMILY, *FREE.split())
def free(op: Operator) -> Work:
    """Return no work: views, allocation, questions. Where one of them copies, ``copy_`` below it does."""
    return Work(0, 0)


@rule(FAMILY, *FILLS.split())
def fill(op: Operator) -> Work:
    """Return the bytes written; what stood there, or serves as an example, is not read."""
    return Work(0, op.traffic[1])


@rule(FAMILY, "copy", "_copy_from", "_copy_from_and_resize")
def copy(op: Operator) -> Work:
    """Return the bytes read from the sources and written; the destinations are not read."""
    if not op.name.endswith("_"):
        return Work(0, op.bytes)
    return Work(0, op.size("src", 1)[1] + op.size("self", 0)[1])


@rule(FAMILY, *COPIES.split())
def move(op: Operator) -> int:
    """Return no FLOPs; all is read and written."""
    return 0


@rule(FAMILY, "fsdp::all_gather_copy_in")
def copy_in(op: Operator) -> Work:
    """Return the bytes of the shards, read and written; of the buffer that they go into, no more is touched."""
    return Work(0, 2 * op.size("all_gather_inputs", 0)[1])


@rule(FAMILY, *GATHERS.split())
def gather(op: Operator) -> Work:
    """Return the bytes of the indices, and of the rows taken twice: read and written."""
    # Recorded traffic counts the whole table as read; its rows are as many bytes as the result.
    table = op.size("weight", op.at("self", 0))[1]
    return Work(0, op.traffic[0] - table + 2 * op.traffic[1])


@rule(FAMILY, *SCATTERS.split())
def scatter(op: Operator) -> Work:
    """Return the bytes of indices and values, and of the rows hit, read and written; one FLOP for each value.

    Where the result is new, the whole tensor is copied too.
    """
    source = next((name for name in ("values", "src", "source") if name in op.schema.position), "")
    elements, values = op.size(source, len(op.inputs.values) - 1)
    table = op.size("self", 0)[1]
    rest = op.traffic[0] - table
    # Read once and written once.
    copied = 0 if op.name.endswith("_") else 2 * table
    return Work(elements, rest + 2 * values + copied)


@rule(FAMILY, "embedding_dense_backward", "embedding_backward", "embedding_sparse_backward")
@rule(FAMILY, "_embedding_bag_backward", "_embedding_bag_dense_backward")
def embedding_backward(op: Operator) -> Work:
    """Return one FLOP for each gradient read, and bytes: gradients, the rows hit again, the table of zeros."""
    elements, gradient = op.size("grad_output", 0)
    return Work(elements, op.bytes + gradient)


@rule(FAMILY, "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(op: Operator) -> Work:
    """Return one FLOP for each element of the rows taken, and bytes: these rows, the indices, the bags."""
    elements, table = op.size("weight", 0)
    rows = op.shape("weight", 0)[0]
    taken = op.size("indices", 1)[0]
    row_elements, row_bytes = (elements // rows, table // rows) if rows else (0, 0)
    return Work(taken * row_elements, op.bytes - table + taken * row_bytes)


@rule(
    FAMILY, *(f"fbgemm::split_embedding_codegen_lookup_{how}_function" for how in ("adagrad", "sgd", "adam"))
)
@rule(FAMILY, "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function")
@rule(FAMILY, "fbgemm::dense_embedding_codegen_lookup_function")
def tables(op: Operator) -> Work:
    """Return as for a bag: many tables at once, the rows being as long as those of the tables on average."""
    # ``D_offsets`` has one entry more than there are tables, and ``total_D`` is the sum of their row lengths.
    width = op.value("total_D", 7) / max(op.size("D_offsets", 6)[0] - 1, 1)
    indices, index_bytes = op.size("indices", 11)
    count, size = op.result_size()
    taken = round(indices * width)
    return Work(taken, index_bytes + taken * (size // count if count else 0) + size)
