"""Optimisers that update all parameters in one operator: FLOPs for each element of the parameters.

Adam: decay 2, the two moments 3 + 4, root, two corrections and a sum 4, step 2: 15, with the greatest second moment
(``amsgrad``) one more. SGD: decay 2, momentum 2, step 2. Adagrad: decay 2, sum 2, root, sum and quotient 3, step 1.
"""

from __future__ import annotations

from armillary.convert.pytorch.operators.registry import Operator, Work, rule

FAMILY = "optimizer"


def traffic(op: Operator) -> int:
    """Return the bytes: of gradients, which schemas say are written, only scaled ones are."""
    at = op.at("grads", 1)
    said = op.schema.arguments[at].written if at < len(op.schema.arguments) else False
    scaled = "grad_scale" in op.schema.position and op.size("grad_scale", 0)[0]
    return op.bytes - (op.size("grads", 1)[1] if said and not scaled else 0)


@rule(FAMILY, "_fused_adam", "_fused_adamw")
def adam(op: Operator) -> Work:
    """Return the FLOPs of Adam, decay coupled or not."""
    # The first argument is the list of parameters; all other lists are as long.
    return Work((16 if op.value("amsgrad", 11) is True else 15) * op.size("self", 0)[0], traffic(op))


@rule(FAMILY, "_fused_sgd")
def sgd(op: Operator) -> Work:
    """Return the FLOPs of SGD."""
    momentum = 2 if op.size("momentum_buffer_list", 2)[0] else 0
    decay = 2 if op.value("weight_decay", 3) else 0
    return Work((2 + momentum + decay) * op.size("self", 0)[0], traffic(op))


@rule(FAMILY, "_fused_adagrad")
def adagrad(op: Operator) -> Work:
    """Return the FLOPs of Adagrad."""
    return Work(8 * op.size("self", 0)[0], traffic(op))
