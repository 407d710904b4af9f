"""Recorded PyTorch traces: the dimensions of tensors, and where they come from.

Recorded operators name their tensors, so laws are about dimensions. `tensors` reads a graph as a program in
which a tensor is identified by number and memory, from the operator that made it on. `operator_dims` says for
each operator which dimensions of its tensors are the same, and `dimensions` unifies them, products included.
`seeds` names those that an axis changes: dimensions of token ids, those that GEMMs sum over before a
reduction, those of shares of weights. `costs` gets the work of all operators at the new sizes from the
converter's rules. `replicas` adds what a recorded run without dp lacks: gradients are what autograd
accumulated and the optimizer reads, and DDP is put around them after all other axes are scaled.
"""
