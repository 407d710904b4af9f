"""Reader of FlexFlow task graphs.

A node is a task. Its label is a record: ``{device_id=0|Dense_100|Forward|COMP_NODE|simulated_run_time=0.02}`` for a
compute task, ``{device_id=8|Comm from Barrier to Update|Comm|COMM_SEND_RECV_NODE|src_device_id=2|dst_device_id=0|
comm_size=4096|run_time=4e-06}`` for a transfer (whose ``device_id`` numbers a link). Times are milliseconds, as
everywhere in FlexFlow's simulator. Nodes are listed in the order in which that simulator ran them.
"""

from __future__ import annotations

import heapq
import re
from dataclasses import dataclass, field

from armillary.base.errors import InputError

# Possessive quantifiers (`*+`) throughout: a damaged file fails at once instead of backtracking for minutes.
_QUOTED = r'"(?:[^"\\]|\\.)*+"'
_STATEMENT = re.compile(
    rf"""\s*+(?:
        (?P<head>(?:strict\s++)?digraph\b\s*+(?:\w++|{_QUOTED})?+\s*+\{{)
      | (?P<parent>\w++)\s*+->\s*+(?P<child>\w++)\s*+(?:\[[^\]]*+\])?+
      | (?P<node>\w++)\s*+\[(?P<attributes>(?:[^\]"]|{_QUOTED})*+)\]
      | (?P<end>\}})
    )\s*+;?+""",
    re.VERBOSE,
)
_LABEL = re.compile(r'\blabel\s*=\s*"\{([^"]*)\}"')
_BLANK = re.compile(r"\s*")
_COUNT = re.compile(r"[0-9]{1,18}")
_TIME = re.compile(r"[0-9]{1,15}(?:\.[0-9]{0,40})?(?:[eE][+-]?[0-9]{1,2})?")
_LONGEST = 1e12
"""Milliseconds; their nanoseconds still fit into int64."""
COMPUTE = ("device_id", "", "", "", "simulated_run_time")
TRANSFER = ("device_id", "", "", "", "src_device_id", "dst_device_id", "comm_size", "run_time")
FIELDS = {"COMP_NODE": COMPUTE, "COMM_SEND_RECV_NODE": TRANSFER}


@dataclass(slots=True)
class Task:
    """A compute task on device `target`, or a transfer of `size` bytes from device `source` to `target`."""

    name: str
    phase: str
    source: int | None
    """None for a compute task."""
    target: int
    size: int
    nanoseconds: int
    parents: list[int] = field(default_factory=list)
    """Indices of the tasks it waits for."""


def read_tasks(text: str, source: str) -> list[Task]:
    """Return the tasks of a graph, each after its parents and otherwise in file order.

    Raises:
        InputError: not such a graph; names the line.
    """
    return _Reader(text, source).tasks()


class _Reader:
    def __init__(self, text: str, source: str) -> None:
        self.text, self.source = text, source

    def error(self, at: int, message: str) -> InputError:
        return InputError(f"{self.source}, line {self.text.count(chr(10), 0, at) + 1}: {message}")

    def tasks(self) -> list[Task]:
        found: list[Task] = []
        index: dict[str, int] = {}
        # An edge may stand before the labels of its tasks, so edges are resolved after all nodes are read.
        edges: list[re.Match[str]] = []
        places: list[int] = []
        for match in self.statements():
            if match["parent"]:
                edges.append(match)
            elif match["node"] in index:
                raise self.error(match.start("node"), f"{match['node']} is defined twice, expected once")
            else:
                index[match["node"]] = len(found)
                found.append(self.task(match))
                places.append(match.start("node"))
        if not found:
            raise self.error(len(self.text), "the graph has no tasks, expected at least one")
        for edge in edges:
            for end in (edge["parent"], edge["child"]):
                if end not in index:
                    raise self.error(edge.start("parent"), f"{end} has no label, expected that of a task")
            found[index[edge["child"]]].parents.append(index[edge["parent"]])
        return self.sorted(found, list(index), places)

    def statements(self) -> list[re.Match[str]]:
        """Return the nodes and edges; the rest of the file must be one digraph around them."""
        found: list[re.Match[str]] = []
        at, stage = 0, "head"
        while match := _STATEMENT.match(self.text, at):
            # One head, then nodes and edges, then one end: `stage` is the part of the file that was read last.
            inside = "head" if match["head"] else "end" if match["end"] else "body"
            if (stage == "head") != (inside == "head") or stage == "end":
                break
            if inside == "body":
                found.append(match)
            stage = inside if inside != "head" else "body"
            at = match.end()
        blank = _BLANK.match(self.text, at)
        at = blank.end() if blank else at
        rest = self.text[at : at + 60].split("\n", maxsplit=1)[0]
        if rest or stage != "end":
            wanted = {
                "head": "'digraph NAME {'",
                "body": "'NODE [label=\"{…}\"];', 'NODE -> NODE;' or '}'",
                "end": "nothing after the closing '}'",
            }[stage]
            raise self.error(
                at, f"found {rest!r}, expected {wanted}" if rest else f"cut off, expected {wanted}"
            )
        return found

    def task(self, match: re.Match[str]) -> Task:
        where, at = match["node"], match.start("node")
        label = _LABEL.search(match["attributes"])
        if not label:
            raise self.error(at, f'{where} has no label="{{…}}", expected that of a task')
        parts = [part.strip() for part in label[1].split("|")]
        keys = FIELDS.get(parts[3]) if len(parts) > 3 else None
        if keys is None or len(keys) != len(parts):
            expected = " or ".join(
                "{"
                + "|".join(f"{key}=…" if key else kind if k == 3 else "…" for k, key in enumerate(keys))
                + "}"
                for kind, keys in FIELDS.items()
            )
            raise self.error(at, f"{where} has label '{{{label[1][:200]}}}', expected {expected}")
        values = []
        for key, part in zip(keys, parts, strict=True):
            name, _, value = part.partition("=")
            pattern, what = (_TIME, "milliseconds") if key.endswith("time") else (_COUNT, "a whole number")
            if key and (name != key or not pattern.fullmatch(value)):
                raise self.error(at, f"{where} has '{part[:80]}', expected {key}= and {what}")
            values.append(value)
        time = float(values[-1])
        if time > _LONGEST:
            raise self.error(at, f"{where} has '{parts[-1]}', expected at most {_LONGEST:g} milliseconds")
        ns = round(time * 1e6)
        if keys is COMPUTE:
            return Task(parts[1], parts[2], None, int(values[0]), 0, ns)
        return Task(parts[1], parts[2], int(values[4]), int(values[5]), int(values[6]), ns)

    def sorted(self, tasks: list[Task], names: list[str], places: list[int]) -> list[Task]:
        """Return `tasks` with parents first, and their `parents` renumbered."""
        # Kahn's topological sort; the heap takes the ready task that stands first in the file, so that
        # FlexFlow's order is kept wherever dependencies allow.
        waits = [len(task.parents) for task in tasks]
        children: list[list[int]] = [[] for _ in tasks]
        for at, task in enumerate(tasks):
            for parent in task.parents:
                children[parent].append(at)
        ready = [at for at, count in enumerate(waits) if not count]
        place: dict[int, int] = {}
        while ready:
            at = heapq.heappop(ready)
            place[at] = len(place)
            for child in children[at]:
                waits[child] -= 1
                if not waits[child]:
                    heapq.heappush(ready, child)
        if len(place) < len(tasks):
            stuck = next(at for at, count in enumerate(waits) if count)
            raise self.error(places[stuck], f"{names[stuck]} waits for itself, or for a cycle of tasks")
        for task in tasks:
            task.parents = sorted({place[parent] for parent in task.parents})  # an edge may stand twice
        return [tasks[at] for at in place]
