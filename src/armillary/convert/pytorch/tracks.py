"""Kernels of device streams in the order in which they ran."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable

from armillary.base.errors import InputError
from armillary.convert.pytorch.device import DeviceOp
from armillary.convert.pytorch.steps import Step

StreamKey = tuple[int, int]
"""Device and stream as the trace numbers them."""

EARLY = 20_000
"""A kernel can begin this much (ns) before the one ahead of it on its stream ends, and still follow it.

Starts are rounded (1 ns on H100), and programmatic launches begin while the one before drains. What overlaps for
longer, or ends first, ran beside it: parts of a graph, or streams that ROCm's tracer writes as one.
"""


MOST_TRACKS = 256
"""Kernels of one stream that may overlap. A GPU of NVIDIA runs up to 128 at once (CUDA C++ Programming Guide)."""


class Track:
    """Kernels of one stream that ran one after another, in that order."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.steps: list[Step] = []
        self.ends: list[int] = []
        self.launched: list[int] = []
        """Latest possible launch time of each, once the track is closed."""

    def add(self, step: Step) -> None:
        """Append the next kernel; none ends before the one ahead of it."""
        self.steps.append(step)
        self.ends.append(step.end)

    def close(self) -> None:
        """Prepare for `before`: a kernel was launched no later than those behind it, whatever thread launched them."""
        keys, least = [], None
        # A suffix minimum makes launch times ascend, so that `before` can bisect.
        for step in reversed(self.steps):
            least = step.key if least is None else min(least, step.key)
            keys.append(least)
        self.launched = keys[::-1]

    def before(self, launched: int) -> Step | None:
        """Return the last kernel that was launched before a time."""
        at = bisect_left(self.launched, launched)
        return self.steps[at - 1] if at else None

    def running(self, time: int) -> Step | None:
        """Return the kernel that was running at a time."""
        at = bisect_right(self.ends, time)
        found = self.steps[at] if at < len(self.steps) else None
        return found if found and found.begin < time else None

    def ended(self, time: int) -> Step | None:
        """Return the last kernel that had ended by a time."""
        at = bisect_right(self.ends, time)
        return self.steps[at - 1] if at else None


class Streams:
    """All streams of a rank: each is one track, or several if its kernels overlapped."""

    def __init__(self) -> None:
        self.of: dict[StreamKey, list[Track]] = defaultdict(list)
        self._taken: set[int] = set()

    def add(self, step: Step, kernel: DeviceOp) -> None:
        """Put a kernel behind those of its stream that had (nearly) ended at its start; call in order of start."""
        tracks = self.of[kernel.device, kernel.stream]
        behind = [
            track
            for track in tracks
            if track.ends[-1] <= kernel.end and track.ends[-1] - kernel.start <= EARLY
        ]
        if behind:
            # The track that ended last, as its kernel is the likeliest one ahead.
            mine = max(behind, key=lambda track: (track.ends[-1], -track.number))
        elif len(tracks) == MOST_TRACKS:
            raise InputError(
                f"stream {kernel.stream} of device {kernel.device}: more than {MOST_TRACKS} kernels overlap at "
                f"{kernel.start} ns, as on no device; expected kernels that end"
            )
        else:
            mine = Track(self._number(kernel.stream))
            tracks.append(mine)
        step.waits += [track.steps[-1] for track in behind if track is mine or track.ends[-1] <= kernel.start]
        step.track = mine.number
        mine.add(step)

    def tracks(self, device: int | None = None) -> Iterable[Track]:
        """Return all tracks, or those of a device."""
        for stream, tracks in self.of.items():
            if device is None or stream[0] == device:
                yield from tracks

    def before(self, stream: StreamKey, launched: int) -> list[Step]:
        """Return the last kernels of a stream that were launched before a time."""
        found = (track.before(launched) for track in self.of.get(stream, ()))
        return [step for step in found if step]

    def _number(self, stream: int) -> int:
        """Return the number of a new track: its stream's, unless another device or track has that."""
        if stream < 0 or stream in self._taken:
            stream = max(self._taken, default=0) + 1
        self._taken.add(stream)
        return stream
