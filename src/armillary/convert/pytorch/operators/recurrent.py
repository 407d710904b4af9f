"""Recurrent layers in one operator: each weight matrix meets each time step of each sequence."""

from __future__ import annotations

from math import prod

from armillary.convert.pytorch.operators.registry import Operator, rule

FAMILY = "recurrent"


@rule(FAMILY, "_cudnn_rnn", "miopen_rnn")
def layers(op: Operator) -> int:
    """Return the FLOPs of all layers and directions: their matrices [gates · hidden, in] times the steps."""
    # Biases are vectors in the same list and are not counted.
    weights = op.inputs.shapes[op.at("weight", 1)]
    matrices: int = sum(prod(shape) for shape in weights if len(shape) == 2)
    return 2 * prod(op.shape("input", 0)[:-1]) * matrices


@rule(FAMILY, "_cudnn_rnn_backward", "miopen_rnn_backward")
def layers_backward(op: Operator) -> int:
    """Return twice the FLOPs of the forward pass: gradients of input and of weights."""
    return 2 * layers(op)


@rule(FAMILY, "mkldnn_rnn_layer")
def one_layer(op: Operator) -> int:
    """Return the FLOPs of one layer in one direction: weights of input and of hidden state."""
    return 2 * prod(op.shape("input", 0)[:-1]) * (prod(op.shape("weight0", 1)) + prod(op.shape("weight1", 2)))


@rule(FAMILY, "mkldnn_rnn_layer_backward")
def one_layer_backward(op: Operator) -> int:
    """Return twice the FLOPs of the forward pass."""
    return 2 * one_layer(op)


@rule(FAMILY, "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")
def cell(op: Operator) -> int:
    """Return 3 FLOPs for each gate's element: add, function, multiply."""
    return 3 * op.size("input_gates", 0)[0]


@rule(FAMILY, "_thnn_fused_lstm_cell_backward_impl", "_thnn_fused_gru_cell_backward")
def cell_backward(op: Operator) -> int:
    """Return 6 FLOPs for each gate's element, whose gradient is the first result."""
    return 6 * op.result_size()[0]
