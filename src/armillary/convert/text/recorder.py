"""Turns the steps of a training loop into nodes."""

from __future__ import annotations

from armillary.convert.text.kinds import DLRM, SCOPES, Phase, Scope
from armillary.convert.text.layout import Layout
from armillary.convert.text.reader import Workload
from armillary.trace import CollectiveType, GraphBuilder, NodeType
from armillary.trace.node import Attribute


class Recorder:
    """The nodes of one rank; `scopes` holds the participants of its collectives, to be resolved for each rank."""

    def __init__(self, workload: Workload, layout: Layout) -> None:
        self.workload = workload
        self.layout = layout
        self.layers = range(len(workload.layers))
        self.builder = GraphBuilder(first_id=1)
        self.scopes: list[Scope] = []
        """Scope of each collective with a ``pg_name``, in node order."""
        self.front: list[int] = []
        """Nodes that the next step waits for."""
        self._running: dict[tuple[int, Phase], int] = {}
        self._issued: set[tuple[int, Phase]] = set()
        self._alone: set[tuple[int, Phase]] = set()

    def compute(self, layer: int, phase: Phase) -> None:
        """Compute; the next step waits for it."""
        ns = self.workload.layers[layer].parts[phase].ns
        if ns:
            self.front = [self._timed(f"{self._name(layer, phase)} compute", ns, self.front, cpu=False)]

    def communicate(self, layer: int, phase: Phase) -> None:
        """Communicate if the layer does in this phase; the next step waits for it."""
        self.start(layer, phase)
        done = self._running.pop((layer, phase), None)
        if done is not None:
            self.front = [done]

    def start(self, layer: int, phase: Phase, *, first: bool = False) -> None:
        """Communicate, if the layer does in this phase, beside the next steps; `first`: before other collectives."""
        part = self.workload.layers[layer].parts[phase]
        scope = self._scope(layer, phase)
        if part.collective is None or not part.size or scope is None:
            return
        npus = self.layout.size(scope)
        if npus == 1:
            self._alone.add((layer, phase))
            return
        self._issued.add((layer, phase))
        # SimAI states the gathered bytes; comm_size is one rank's part, rounded up.
        gathered = self.workload.simai and part.collective == CollectiveType.ALL_GATHER
        attrs: list[Attribute] = [
            ("is_cpu_op", "bool", False),
            ("comm_type", "int64", int(part.collective)),
            ("comm_size", "int64", -(-part.size // npus) if gathered else part.size),
        ]
        dims = self.layout.mask(scope)
        if dims is not None:
            attrs.append(("involved_dim", "bool_list", dims))
        elif npus < self.layout.npus:
            # A placeholder: each rank gets the number of its group in `ranks.trace_of`. All NPUs need no name.
            attrs.append(("pg_name", "string", ""))
            self.scopes.append(scope)
        if first:
            attrs.append(("comm_priority", "int64", 1))
        name = f"{self._name(layer, phase)} {part.collective.name.lower().replace('_', '-')}"
        done = self.builder.add(name, NodeType.COMM_COLL_NODE, attrs, after=self.front)
        update = self.workload.layers[layer].update_ns
        if update:
            # On the CPU: the update delays what waits for the collective, but not the compute beside it.
            done = self._timed(f"{self._name(layer, phase)} update", update, [done], cpu=True)
        self._running[layer, phase] = done

    def wait(self, layer: int, phase: Phase) -> None:
        """Let the next step wait for a collective that `start` began."""
        done = self._running.pop((layer, phase), None)
        if done is not None:
            self.front = [*self.front, done]

    def left_out(self) -> list[str]:
        """Return which collectives of the file are not in the trace, and why."""
        stated = {
            (layer, phase)
            for layer in self.layers
            for phase in Phase
            if self.workload.layers[layer].parts[phase].collective is not None
            and self.workload.layers[layer].parts[phase].size
        }
        reasons = {
            f"the loop of {self.workload.kind} does not issue them": stated - self._issued - self._alone,
            "their groups are single NPUs": self._alone,
        }
        return [
            f"collectives left out, {reason}: {_few([self._name(*at) for at in sorted(which)])}"
            for reason, which in reasons.items()
            if which
        ]

    def _scope(self, layer: int, phase: Phase) -> Scope | None:
        kind = self.workload.layers[layer].kind or self.workload.kind
        # The embedding tables are spread over all NPUs in every phase.
        if kind in DLRM and layer == 0:
            kind = "ALL"
        return self.workload.layers[layer].parts[phase].scope or SCOPES[kind][phase]

    def _name(self, layer: int, phase: Phase) -> str:
        return f"{self.workload.layers[layer].name} {phase.name.lower().replace('_', ' ')}"

    def _timed(self, name: str, ns: int, after: list[int], *, cpu: bool) -> int:
        attrs: list[Attribute] = [("is_cpu_op", "bool", cpu), ("duration_ns", "int64", ns)]
        return self.builder.add(
            name, NodeType.COMP_NODE, attrs, after=after, duration_micros=(ns + 500) // 1000
        )


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f", … ({len(names)} in all)" if len(names) > 3 else "")
