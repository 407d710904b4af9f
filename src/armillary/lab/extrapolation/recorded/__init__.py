"""Recorded PyTorch traces: dimensions of tensors, and where they come from.

Recorded operators name their tensors, so laws are about dimensions. `tensors` reads a graph as a program in
which a tensor is known by number and memory from the operator that made it on. `operator_dims` says for each
operator which dimensions of its tensors are the same, and `dimensions` makes them one, GEMMs of dimensions
included. `seeds` names those that an axis changes: of token ids, of what GEMMs sum over before a reduction,
of shares of weights. `costs` asks the converter's rules for the work of all operators with the new sizes.
`replicas` adds what a recorded run without dp does not have: gradients are what autograd accumulated and the
optimizer reads, and DDP is put around them after all other axes are scaled.
"""
