"""Workloads that are generated rather than recorded.

A training step of a large model repeats a few things many times. Generation therefore takes several steps, each with
a result that can be inspected:

- A model (`models`, data files) and a plan (`plan`) give layers (`layers`): what one layer does on one rank
  for one microbatch, as steps whose operations, bytes and collectives are already divided among ranks.
  Parameters and activations come from the same values, so memory and time agree.
- A schedule (`pipeline`) orders the tasks of a stage. A task is the forward or backward pass of a microbatch.
- A strategy (`emit.replicas`) sees every use of weights and every gradient, and places the communication of
  replicas.
- The nodes of a layer are packed once as a template, and templates are copied into place: a graph of 15,000
  nodes is a gather of arrays.

There is one graph per class of ranks, and groups and peers are rules on a grid of ranks, so the cost does not depend
on the number of ranks, and hardly on the number of microbatches.

Three rules give a graph the order of real frameworks. Kernels of a task do not overtake those of the task before.
Calls on one communicator keep program order, as in NCCL. Nothing else waits without need: the gradients of weights
fill the time in which the gradient of the input is communicated.
"""
