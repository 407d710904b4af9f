"""Workloads that are generated rather than recorded.

A training step of a large model is a few things, repeated many times. Generation therefore goes in steps, and
each gives a value that can be inspected:

- A model (`models`, data files) and a plan (`plan`) give layers (`layers`): what one layer does on one rank
  for one microbatch, as steps whose operations, bytes and collectives are already divided among ranks.
  Parameters and activations come from the same values, so memory and time agree.
- A schedule (`pipeline`) orders the tasks of a stage. A task is the forward or backward pass of a microbatch.
- A strategy (`emit.replicas`) sees every use of weights and every gradient, and places what replicas
  communicate.
- The nodes of a layer are packed once as a template, and templates are copied into place: a graph of 15,000
  nodes is a gather of arrays.

There is one graph per class of ranks, and groups and peers are rules on a grid of ranks. So the number of
ranks costs nothing, and the number of microbatches almost nothing.

Three rules give a graph the order that real frameworks have. Kernels of a task do not overtake those of the
task before. Calls on one communicator keep the order of the program, as in NCCL. What need not wait does not:
the gradients of weights fill the time in which the gradient of the input is communicated.
"""
