"""The files of the ranks of a trace with a grid, without encoding each of them.

Files of one class differ in the nodes that define groups, and in the numbers of groups and ranks. If these numbers take
equally many bytes, the rest is identical: one file is encoded, and the others are copies with the numbers replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from armillary.base import jit
from armillary.trace._encode import choose_mode, encode_frames
from armillary.trace.expand import Expansion, Form, refuse_outsider
from armillary.trace.trace import Trace

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Stamp:
    """A file to copy.

    Attributes:
        form: The class of ranks.
        body: All but the first frames, in which groups are defined.
        groups: For each axis set of `Form.used`, the positions of its group number, (places, bytes).
        own: Positions of the rank, (places, bytes).
        peers: For each of `Form.routes`, the positions of the peer, (places, bytes).
    """

    form: Form
    body: Bytes
    groups: list[Ints]
    own: Ints
    peers: list[Ints]


class Stamps:
    """Makes the bytes of the files of a trace with a grid."""

    def __init__(self, trace: Trace) -> None:
        """Group the ranks whose files have the same layout.

        Raises:
            InputError: a rank is not in a group that it uses; see `Expansion` for others.
        """
        self.expansion = Expansion(trace)
        self._stamps: dict[tuple[int, int], Stamp] = {}
        self._like = np.zeros(trace.n_ranks, np.int64)
        self.samples: list[int] = []
        """One rank of each layout."""
        nodes = 0
        for number, graph in enumerate(trace.graphs):
            ranks = np.flatnonzero(trace.rank_graph == number)
            if len(ranks):
                _, first, like = np.unique(
                    self._widths(ranks), axis=0, return_index=True, return_inverse=True
                )
                self._like[ranks] = like.ravel()
                self.samples += ranks[first].tolist()
                nodes += len(first) * graph.n_nodes
        self.mode: jit.Mode = choose_mode(nodes)

    def _widths(self, ranks: Ints) -> Ints:
        """Return the bytes of each number in the files of ranks of a class, (ranks, numbers)."""
        form, axis_sets = self.expansion.form(int(ranks[0])), self.expansion.axis_sets
        # Ranks and peers are varints, group numbers decimal text: both grow with the number.
        found = [_varint_size(ranks)]
        for each in form.used:
            axis_set = axis_sets.all[each]
            group = axis_set.group_of[ranks].astype(np.int64)
            if (group < 0).any():
                refuse_outsider(form.graph, axis_sets, each, int(ranks[group < 0][0]))
            found.append(np.char.str_len((axis_set.base + group).astype(str)))
        found += [_varint_size(route.peers(axis_sets.grid, ranks)) for route in form.routes]
        return np.stack(found, axis=1)

    def file(self, rank: int) -> bytes:
        """Return the bytes of the file of a rank."""
        key = int(self.expansion.trace.rank_graph[rank]), int(self._like[rank])
        form, axis_sets = self.expansion.form(rank), self.expansion.axis_sets
        graph = form.fill(rank, axis_sets)
        # The frame that defines groups is a JSON text of any length: encoded for each rank.
        head = encode_frames(graph, 0, 2 if form.used else 1, self.mode)
        if key not in self._stamps:
            self._stamps[key] = self._stamp(rank)
        stamp = self._stamps[key]
        body = stamp.body.copy()
        # `texts` has one more, the definition, which is in the head.
        for places, text in zip(stamp.groups, form.texts(rank, axis_sets), strict=False):
            body[places] = np.frombuffer(text, np.uint8)
        body[stamp.own] = _varint(rank)
        for places, peer in zip(stamp.peers, form.peers(rank, axis_sets.grid).tolist(), strict=True):
            body[places] = _varint(peer)
        return head.tobytes() + body.tobytes()

    def _stamp(self, rank: int) -> Stamp:
        """Encode the file of a rank, and record the positions of its numbers."""
        form, axis_sets = self.expansion.form(rank), self.expansion.axis_sets
        graph = form.fill(rank, axis_sets)
        ends = np.zeros(len(form.columns.attr_name), np.int64)
        body = encode_frames(graph, 2 if form.used else 1, graph.n_nodes + 1, self.mode, ends)

        def places(attributes: Ints, width: int) -> Ints:
            # A value ends where its attribute does, so its bytes are the last `width` ones.
            return ends[attributes][:, None] + np.arange(-width, 0)

        texts = form.texts(rank, axis_sets)[: len(form.used)]
        value = form.columns.attr_value[form.group_at]
        first = int(value.min()) if len(value) else 0
        peers = form.peers(rank, axis_sets.grid).tolist()
        return Stamp(
            form,
            body.copy(),
            [places(form.group_at[value == first + i], len(text)) for i, text in enumerate(texts)],
            places(form.own_at, len(_varint(rank))),
            [places(form.peer_at[form.route == i], len(_varint(peer))) for i, peer in enumerate(peers)],
        )


def _varint(value: int) -> Bytes:
    """Return a number of 0 or more as a varint."""
    found = []
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return np.array([*found, value], np.uint8)


def _varint_size(values: Ints) -> Ints:
    """Return the bytes of each of these varints."""
    return np.searchsorted(1 << np.arange(7, 63, 7), values, side="right") + 1
