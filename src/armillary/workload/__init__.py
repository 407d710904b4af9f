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
  nodes is a gather of arrays. A task whose like was placed before, in another microbatch or on another pipeline
  rank, is copied whole (`emit.repeats`).

There is one graph per class of ranks, and groups and peers are rules on a grid of ranks, so the cost does not depend
on the number of ranks, and hardly on the number of microbatches.

Three rules give a graph the order of real frameworks. Kernels of a task do not overtake those of the task before.
Calls on one communicator keep program order, as in NCCL. Nothing else waits without need: the gradients of weights
fill the time in which the gradient of the input is communicated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from armillary.platform.files.native import Study
    from armillary.trace import Trace

__all__ = ["study_trace"]


def study_trace(study: Study) -> Trace:
    """Return the workload of a study: its trace files, one collective on all NPUs, or a generated one.

    Raises:
        InputError: the request cannot be read or is impossible; names the file and the line.
    """
    from armillary.trace import CollectiveType, GraphBuilder, Trace

    if study.trace is not None:
        from armillary.base.allowed import SIMULATED
        from armillary.trace import load_trace

        return load_trace(study.trace, bytes_per_node=SIMULATED)
    if study.collective is not None:
        kind, size = study.collective.kind, study.collective.size
        builder = GraphBuilder()
        builder.collective(kind, CollectiveType[kind.upper().replace("-", "_")], size)
        return Trace.replicate(builder.graph(str(study.path)), ranks=study.ranks)
    from armillary.workload.plan.request import requested  # 45 modules that trace files do without

    return requested(study)
