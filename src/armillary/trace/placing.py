"""A graph while its templates are placed: one by one, or in blocks that recur."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.trace import columns as c
from armillary.trace.structure import owners
from armillary.trace.templates import PackedGraph, PlacedGraph, Placement, Template, gather

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Placements:
    """Placements in a row, and the dependencies through their ports."""

    templates: list[Template]
    """Of every placement, (placements)."""
    first: Sequence[int]
    """Id of its first node."""
    labels: Mapping[str, Sequence[int]]
    """Values of labels, by name, (placements)."""
    children: Sequence[int]
    """Ids of the nodes that wait, (dependencies)."""
    parents: Sequence[int]
    """Ids of the nodes that they wait for."""


@dataclass(frozen=True, eq=False)
class Block:
    """Placements that recur with other labels, and whose nodes wait for other nodes outside of them.

    Attributes:
        nodes: How many nodes all of them have.
        first: Ids of their first nodes, less that of the block, int64 (placements,).
        labels: Labels by name: values, and whether they count from a number that each occurrence gives, (placements,).
        children: Nodes that wait, as ids less the first id of the block, int64 (dependencies,).
        source: What each waits for: 0, a node of the block; k, the k-th node outside that an occurrence names.
        parents: In the block, the id less the first id of the block; else 0.
        outside: How many nodes outside an occurrence names.
    """

    nodes: int
    first: Ints
    labels: dict[str, tuple[Ints, NDArray[np.bool_]]]
    children: Ints
    source: Ints
    parents: Ints
    outside: int


class GraphOfTemplates:
    """The graph of one rank while templates are placed; the k-th node placed has id k."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.n_nodes = 0
        self._number: dict[int, int] = {}
        self.templates: list[Template] = []
        """What was placed, in the order of first placements; a reference keeps their `id()` from being reused."""
        # Of integers side by side NumPy makes a column ten times faster than of a list.
        self._placed = array("q")
        """Template and first id of every single placement, one after the other."""
        self._labels: dict[str, array[int]] = {}
        self._children = array("q")
        self._parents = array("q")
        self._variants: list[tuple[Block, list[int], Mapping[str, int]]] = []
        """Blocks with the templates of their placements, and from where labels count."""
        self._repeats = array("q")
        """Of every placed block its variant, its first id, and from where the other labels count, in a row."""
        self._outside = array("q")
        """Of every placed block its first id and the nodes outside that it names, one after the other."""

    def _numbered(self, template: Template) -> int:
        # Packed once, in the order of first placements; every placement copies the packed frames.
        number = self._number.setdefault(id(template), len(self.templates))
        if number == len(self.templates):
            self.templates.append(template)
        return number

    def place(self, template: Template, ports: Mapping[str, Sequence[int]], labels: Mapping[str, int]) -> int:
        """Place a template and return the id of its first node.

        Args:
            template: What to place.
            ports: By port, ids of the nodes that its nodes wait for; a port left out waits for nothing.
            labels: Values of the attributes that are `LABEL` in the template; every placement has the same ones.
        """
        base = self.n_nodes
        for port, parents in ports.items():
            # Edges through ports differ between placements, so they are kept apart from the packed ones.
            for node in template.ports.get(port, ()):
                self._children.extend([base + node] * len(parents))
                self._parents.extend(parents)
        self._placed.extend((self._numbered(template), base))
        for name, value in labels.items():
            if name not in self._labels:
                self._labels[name] = array("q")
            self._labels[name].append(value)
        self.n_nodes += len(template.nodes)
        return base

    def mark(self) -> tuple[int, int]:
        """Return where `placed_since` begins."""
        return len(self._placed), len(self._children)

    def placed_since(self, mark: tuple[int, int]) -> Placements:
        """Return what `place` has placed since `mark`."""
        placed, edge = mark
        return Placements(
            [self.templates[number] for number in self._placed[placed::2]],
            self._placed[placed + 1 :: 2],
            {name: values[placed // 2 :] for name, values in self._labels.items()},
            self._children[edge:],
            self._parents[edge:],
        )

    def variant(self, block: Block, templates: Iterable[Template], labels: Mapping[str, int]) -> int:
        """Return the number of a block whose placements are of these templates.

        Args:
            block: The block.
            templates: Of its placements, in order.
            labels: By name, from where labels count; one that is left out counts from what `repeat` says.
        """
        self._variants.append((block, [self._numbered(template) for template in templates], labels))
        return len(self._variants) - 1

    def repeat(self, variant: int, outside: Sequence[int], start: int) -> None:
        """Place a block, as its single placements would be.

        Args:
            variant: See `variant`; between this and its first use no other template is placed.
            outside: Ids of the nodes outside that its nodes wait for, see `Block.source`.
            start: From where the labels count for which `variant` says nothing.
        """
        self._repeats.extend((variant, self.n_nodes, start))
        self._outside.append(self.n_nodes)
        self._outside.extend(outside)
        self.n_nodes += self._variants[variant][0].nodes

    def placements(self) -> tuple[Ints, Ints, dict[str, Ints], Ints, Ints]:
        """Return template, first id and labels of all placements, and children and parents through ports."""
        placed = np.array(self._placed, np.int64).reshape(-1, 2)
        number, base = placed[:, 0], placed[:, 1]
        edges = np.array(self._children, np.int64), np.array(self._parents, np.int64)
        if not self._repeats:
            return number, base, _columns(self._labels), *edges
        blocks = [block for block, _, _ in self._variants]
        variant, at, start = np.array(self._repeats, np.int64).reshape(-1, 3).T
        ptr, which = gather(np.cumsum([0, *(len(block.first) for block in blocks)]), variant)
        repeat = owners(ptr)
        numbers = np.array([number for _, each, _ in self._variants for number in each], np.int64)
        number = np.concatenate([number, numbers[which]])
        base = np.concatenate([base, np.concatenate([block.first for block in blocks])[which] + at[repeat]])
        # Single placements and blocks took turns.
        order = np.argsort(base, kind="stable")
        labels = {}
        for name in blocks[0].labels:
            fixed, counts = (np.concatenate([block.labels[name][i] for block in blocks]) for i in (0, 1))
            given = np.array([each.get(name, -1) for _, _, each in self._variants], np.int64)[variant]
            value = fixed[which] + np.where(counts[which], np.where(given < 0, start, given)[repeat], 0)
            labels[name] = np.concatenate([np.array(self._labels.get(name, ()), np.int64), value])[order]
        ptr, which = gather(np.cumsum([0, *(len(block.children) for block in blocks)]), variant)
        repeat = owners(ptr)
        names = np.array([1 + block.outside for block in blocks], np.int64)[variant]
        source = (
            np.concatenate([block.source for block in blocks])[which] + (np.cumsum(names) - names)[repeat]
        )
        child = np.concatenate([block.children for block in blocks])[which] + at[repeat]
        parent = np.concatenate([block.parents for block in blocks])[which]
        parent += np.array(self._outside, np.int64)[source]
        children, parents = map(np.concatenate, zip(edges, (child, parent), strict=True))
        return number[order], base[order], labels, children, parents


def graphs_of(placed: Sequence[GraphOfTemplates]) -> list[PlacedGraph]:
    """Return the graphs of ranks that share templates: they share the packed nodes of these."""
    number: dict[int, int] = {}
    templates: list[Template] = []
    for each in placed:
        for template in each.templates:
            if number.setdefault(id(template), len(templates)) == len(templates):
                templates.append(template)
    size = np.array([len(template.nodes) for template in templates], np.int64)
    # Frame 0 is the GlobalMetadata; node k is a copy of packed frame `copies[k]` + 1.
    frame = np.cumsum(size) - size + 1
    found, parts = [], []
    for each in placed:
        mine, base, labels, children, parents = each.placements()
        which = np.array([number[id(template)] for template in each.templates], np.int64)[mine]
        rows = np.stack([frame[which], base, size[which]], axis=1)
        copies = np.arange(each.n_nodes) + np.repeat(rows[:, 0] - base, rows[:, 2]) - 1
        found.append((copies, rows, (children, parents), labels))
        parts.append((each.source, copies))
    packed = PackedGraph(templates, parts)
    inside = packed.columns.rows[c.DATA_AT], packed.columns.data
    return [
        PlacedGraph(packed, Placement(*mine, inside), each.source)
        for each, mine in zip(placed, found, strict=True)
    ]


def _columns(labels: Mapping[str, Sequence[int]]) -> dict[str, Ints]:
    return {name: np.array(values, np.int64) for name, values in labels.items()}
