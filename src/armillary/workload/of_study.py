"""The workload of a study: its trace files, one collective, or a generated trace."""

from __future__ import annotations

from armillary.platform.files.native import Study
from armillary.trace import CollectiveType, GraphBuilder, Trace


def study_trace(study: Study) -> Trace:
    """Return the workload of a study: its trace files, one collective on all NPUs, or a generated one.

    Raises:
        InputError: the request cannot be read or is impossible; names the file and the line.
    """
    if study.trace is not None:
        from armillary.trace import load_trace

        return load_trace(study.trace)
    if study.collective is not None:
        kind, size = study.collective.kind, study.collective.size
        builder = GraphBuilder()
        builder.collective(kind, CollectiveType[kind.upper().replace("-", "_")], size)
        return Trace.replicate(builder.graph(str(study.path)), ranks=study.ranks)
    from armillary.workload.plan.request import requested  # 45 modules that trace files do without

    return requested(study)
