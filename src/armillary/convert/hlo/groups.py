"""Participants of a collective: replica groups in all their forms, as ranks.

Rank = replica · partitions + partition, XLA's flattened id. The meaning of the ids in a group follows from
``channel_id`` and ``use_global_device_ids`` (https://openxla.org/xla/operation_semantics and XLA's collective group
modes).
"""

from __future__ import annotations

import re
from itertools import pairwise
from math import prod
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from armillary.convert.hlo.module import Instruction, numbers
from armillary.convert.hlo.source import Source

Group = tuple[int, ...]

_LISTS = re.compile(r"\{\s*+(?:\{[\d,\s]*+\}\s*+,?\s*+)*+\}")
_LIST = re.compile(r"\{([\d,\s]*)\}")
_IOTA = re.compile(r"\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?)?")
_MESH = re.compile(r"@?mesh[\[<]([^\]>]*)[\]>](?:, ?device_ids=\((.*)\))? ?(?:\{([^{}]*)\})?")
_AXIS = re.compile(r"'?([\w.\-]+)'?(?:=(\d{1,18})|:\((\d{1,18})\)(\d{1,18}))?")
_SELF_EXPLAINED = ("all-reduce", "all-gather", "reduce-scatter")
"""Collectives with the attribute ``use_global_device_ids``, whose absence then means false."""


class Devices:
    """The replicas and partitions that a module runs on."""

    def __init__(self, source: Source, replicas: int, partitions: int) -> None:
        self.source = source
        self.replicas = replicas
        self.partitions = partitions
        self.ranks: NDArray[np.int64] = np.arange(replicas * partitions).reshape(replicas, partitions)

    def groups(self, collective: Instruction) -> list[Group]:
        """Return the ranks of every group of a collective.

        Raises:
            InputError: the groups cannot be read, or are not of these devices.
        """
        mode = self._mode(collective)
        ids = self._ids(collective, collective.attributes.get("replica_groups", "{}"))
        space, what = {
            "replica": (self.replicas, "replicas"),
            "both": (self.replicas, "replicas"),
            "partition": (self.partitions, "partitions"),
            "device": (self.ranks.size, "devices"),
        }[mode]
        # replica_groups={} is one group of all.
        if not any(ids):
            ids = [tuple(range(space))]
        flat = [one for group in ids for one in group]
        self._check(collective, flat, space, "replica_groups", what)
        # A broadcast alone may leave devices out; they get zeros.
        if len(flat) < space and not collective.opcode.startswith("collective-broadcast"):
            missing = min(set(range(space)) - set(flat))
            self._refuse(collective, f"replica_groups has no {missing}, expected each of 0 to {space - 1}")
        return self._ranks(ids, mode)

    def pairs(self, permute: Instruction, text: str) -> list[tuple[int, int]]:
        """Return (sending rank, receiving rank) of every pair of ``{{source,target},…}``.

        Raises:
            InputError: it is no list of pairs, or a device sends or receives twice.
        """
        # A text that is no list of lists becomes one empty pair, which fails below.
        listed = _LIST.findall(text) if _LISTS.fullmatch(text) else [""] if text else []
        found = [numbers(pair) for pair in listed]
        if any(len(pair) != 2 for pair in found):
            self._refuse(permute, f"source_target_pairs={text[:60]}, expected {{{{source,target}},…}}")
        mode = "partition" if "channel_id" in permute.attributes else "replica"
        if permute.attributes.get("use_global_device_ids") == "true":
            mode = "device"
        space = {"replica": self.replicas, "partition": self.partitions}.get(mode, self.ranks.size)
        # A device may send and receive, but each only once.
        for end in (0, 1):
            ids = [pair[end] for pair in found]
            self._check(permute, ids, space, "source_target_pairs", "devices")
        # Pairs of replicas hold in every partition, and the reverse: one pair of ids gives several of ranks.
        return [
            (a, b) for pair in found for a, b in zip(*self._each([pair[:1], pair[1:]], mode), strict=True)
        ]

    def _each(self, ids: list[Group], mode: str) -> list[list[int]]:
        return [[rank for group in self._ranks([one], mode) for rank in group] for one in ids]

    def _mode(self, collective: Instruction) -> str:
        opcode = collective.opcode.removesuffix("-start")
        given = collective.attributes.get("use_global_device_ids")
        # XLA's GetCollectiveOpGroupMode: without a channel replicas communicate within each partition, with
        # one partitions within each replica, or, where ids are said not to be global, both together.
        if "channel_id" not in collective.attributes:
            return "device" if given == "true" else "replica"
        if given == "true":
            return "device"
        return "both" if opcode in _SELF_EXPLAINED or given else "partition"

    def _ranks(self, ids: list[Group], mode: str) -> list[Group]:
        if mode == "device":
            return ids
        # Ids of replicas, each of which takes part with all its partitions.
        if mode == "both":
            return [tuple(self.ranks[list(group)].ravel().tolist()) for group in ids]
        # Ids along one axis: the same group once for every place on the other.
        table = self.ranks if mode == "partition" else self.ranks.T
        return [tuple(row) for group in ids for row in table[:, list(group)].tolist()]

    def _ids(self, collective: Instruction, text: str) -> list[Group]:
        if _LISTS.fullmatch(text):
            return [group for group in map(numbers, _LIST.findall(text)) if group]
        iota = _IOTA.fullmatch(text)
        if iota:
            table = self._iota(collective, text, *iota.groups())
            return [tuple(row) for row in table.reshape(-1, table.shape[-1]).tolist()]
        mesh = _MESH.fullmatch(text)
        if not mesh:
            self._refuse(
                collective,
                f"replica_groups={text[:60]}, expected {{{{0,1}},…}}, [2,4]<=[8] or mesh['x'=2,…] {{'x'}}",
            )
        return self._mesh(collective, text, mesh)

    def _iota(
        self, collective: Instruction, text: str, shape: str, source: str | None, order: str | None
    ) -> NDArray[Any]:
        """Return ``[shape]<=[source]T(order)``: 0, 1, … in the source's shape, transposed, reshaped."""
        dims = numbers(shape)
        steps = numbers(source) if source else (prod(dims),)
        axes = numbers(order) if order else tuple(range(len(steps)))
        fits = prod(dims) == prod(steps) and sorted(axes) == list(range(len(steps))) and len(steps) <= 32
        if not fits or not 0 < prod(dims) <= self.ranks.size or len(dims) > 32:
            self._refuse(
                collective, f"{text[:60]}: shapes do not fit each other or the {self.ranks.size} devices"
            )
        table: NDArray[Any] = np.arange(prod(dims)).reshape(steps).transpose(axes).reshape(dims)
        return table

    def _mesh(self, collective: Instruction, text: str, mesh: re.Match[str]) -> list[Group]:
        """Return the groups along axes of a mesh: ``mesh['a'=2,'b'=4] {'b'}``; ``'b':(1)2`` is a part of an axis."""
        # 1. The axes of the mesh with their sizes, and those that a group spans; without a list, all of them.
        axes = [_AXIS.fullmatch(axis.strip()) for axis in mesh[1].split(",")]
        wanted = [_AXIS.fullmatch(axis.strip()) for axis in (mesh[3] or "").split(",")] if mesh[3] else axes
        if not all(axis and axis[2] and len(axis[2]) < 10 for axis in axes) or not all(wanted):
            self._refuse(collective, f"replica_groups={text[:60]}, expected mesh['x'=2,…] {{'x'}}")
        sizes = {axis[1]: int(axis[2]) for axis in axes if axis}
        table = self._devices(collective, text, tuple(sizes.values()), mesh[2])
        # 2. Where each axis is cut, as products of sizes from the major end. Shardy's sub-axis 'b':(m)k is the part of
        # size k after parts of m in all, so m and m·k are cuts.
        splits: dict[str, set[int]] = {name: {1, size} for name, size in sizes.items()}
        for axis in wanted:
            if axis is None or axis[1] not in sizes:
                self._refuse(collective, f"{text[:60]}: a group along an axis that the mesh does not have")
            if axis[3]:
                splits[axis[1]] |= {int(axis[3]), int(axis[3]) * int(axis[4])}
        # 3. Every part becomes a dimension of its own, the major one first; each cut must divide the next for that.
        shape: list[int] = []
        place: dict[tuple[str, int], int] = {}
        for name, size in sizes.items():
            bounds = sorted(splits[name])
            if 0 in bounds or bounds[-1] != size or any(b % a for a, b in pairwise(bounds)):
                self._refuse(collective, f"{text[:60]}: axis '{name}' cannot be split like this")
            for first, after in pairwise(bounds):
                place[name, first] = len(shape)
                shape.append(after // first)
        # 4. The dimensions that a group spans move to the end, so that a row of the table is a group.
        inner: list[int] = []
        for axis in wanted:
            if axis:
                low, high = (int(axis[3]), int(axis[3]) * int(axis[4])) if axis[3] else (1, sizes[axis[1]])
                inner += [
                    at for (name, first), at in place.items() if name == axis[1] and low <= first < high
                ]
        outer = [at for at in range(len(shape)) if at not in inner]
        # 32 is NumPy's limit of dimensions (before 2.0).
        if len(set(inner)) < len(inner) or len(shape) > 32:
            self._refuse(collective, f"{text[:60]}: an axis stands twice")
        table = table.reshape(shape).transpose([*outer, *inner])
        return [tuple(row) for row in table.reshape(-1, prod(shape[at] for at in inner)).tolist()]

    def _devices(self, collective: Instruction, text: str, shape: Group, listed: str | None) -> NDArray[Any]:
        """Return the devices of a mesh: in order, ``8,3,…`` or ``[4,16]T(1,0)``."""
        count = prod(shape)
        ids: NDArray[Any]
        if listed and "[" in listed:
            source, _, order = listed.partition("]")
            ids = self._iota(
                collective, text, str(count), source, order.strip("T()") if order.strip() else None
            )
        elif listed:
            ids = np.array(numbers(listed), np.int64)
        else:
            # A mesh of more devices than there are fails below; it must not be allocated first.
            ids = np.arange(min(count, self.ranks.size))
        if len(ids) != count or not count:
            self._refuse(
                collective, f"{text[:60]}: a mesh of {count} devices, expected one of {self.ranks.size}"
            )
        return ids

    def _check(self, collective: Instruction, ids: list[int], space: int, name: str, what: str) -> None:
        if len(set(ids)) < len(ids):
            self._refuse(collective, f"{name} has a device twice, expected each once")
        if ids and max(ids) >= space:
            self._refuse(
                collective,
                f"{name} has {max(ids)}, but the module runs on {space} {what}; expected at most {space - 1} "
                "(--ranks gives another number of devices)",
            )

    def _refuse(self, collective: Instruction, message: str) -> NoReturn:
        self.source.fail(collective.at, f"'{collective.name}': {message}")
