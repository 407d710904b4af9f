"""Bruck's all-to-all: few rounds, of many blocks each (Bruck et al., IEEE TPDS 8 (11), 1997)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from armillary.collective.algorithm import ListedAlgorithm, Message


class Bruck(ListedAlgorithm):
    """In round k a member passes on, 2^k members ahead, what has to go a distance with that bit set."""

    operations = ("all-to-all",)

    def cut(self, operation: str, n: int) -> int:
        """Return the blocks of a member: one for each."""
        return n

    def steps(self, operation: str, n: int, root: int) -> Iterator[Sequence[Message]]:
        """See `ListedAlgorithm`; block ``origin * n + target`` has come as far as the lower bits say."""
        for bit in range((n - 1).bit_length()):
            ahead = 1 << bit
            far = [distance for distance in range(n) if distance & ahead]
            messages = []
            for member in range(n):
                origins = [(member - distance % ahead) % n for distance in far]
                blocks = tuple(o * n + (o + distance) % n for o, distance in zip(origins, far, strict=True))
                messages.append(Message(member, (member + ahead) % n, blocks))
            yield messages
