"""The trace that a study file asks for."""

from __future__ import annotations

from armillary.platform.native import Study
from armillary.trace import CollectiveType, GraphBuilder, Trace, load_trace


def trace_of(study: Study) -> Trace:
    """Return the workload of a study: its trace files, one collective on all NPUs, or a generated one."""
    if study.trace is not None:
        return load_trace(study.trace)
    if study.generate is not None:
        from armillary.workload.plan.request import study_trace

        return study_trace(study)
    assert study.collective is not None  # a study has one or the other
    kind, size = study.collective.kind, study.collective.size
    builder = GraphBuilder()
    builder.collective(kind, CollectiveType[kind.upper().replace("-", "_")], size)
    return Trace.replicate(builder.graph(str(study.path)), ranks=study.ranks)
