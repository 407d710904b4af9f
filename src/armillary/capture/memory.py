"""Memory that tensors would take on the device: what is alive, the most of it at a time, and whose it is then."""

from __future__ import annotations

import os
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from armillary.base.units import format_bytes
from armillary.capture.allocator import BLOCK, Allocator, library_bytes, options_of
from armillary.capture.device import FakeDevice

Change = tuple[int, int, int]
"""Number of a storage, the bytes that it has from now on, and the stream that they are for."""
Owner = tuple[str, str]
"""What a tensor is, ``weights``, ``gradients``, ``optimizer`` or ``tensors``, and its module, or else its line."""


class Memory:
    """Follows storages from their first use to their end.

    A storage has a number of its own: PyTorch gives the key of one that has ended to another.

    Attributes:
        now: Bytes alive.
        peak: Most at a time since `restart`.
        asked_peak: Most at a time since the program began it anew.
        count: Storages so far, which is the number of the last one.
    """

    def __init__(
        self, torch: Any, gone: Callable[[int], object], stream: Callable[[], int], device: FakeDevice
    ) -> None:
        """Begin.

        Args:
            torch: PyTorch.
            gone: Gets the key of each storage that ends, which another may have after it.
            stream: Returns the one that a tensor is made on.
            device: That has the memory.
        """
        self._tell, self._stream = gone, stream
        self._allocator, self._workspace = Allocator(device.memory), library_bytes(device.capability)
        self._device, self._full = device, getattr(torch, "OutOfMemoryError", MemoryError)
        self._unknown: list[str] = []
        self.now = self.peak = self.asked_peak = 0
        self._sizes: dict[int, int] = {}
        self._watched: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._made: dict[int, str] = {}
        self.count = 0
        # What was alive when the step began, and every change since: number, and bytes that it has then.
        self._before: dict[int, int] = {}
        self._changes: list[Change] = []
        # The step before: what was alive when it began, and the changes that the allocator was told of.
        self._earlier: dict[int, int] = {}
        self._told: list[Change] = []
        self._blocks: dict[int, Any] = {}
        self._libraries: set[tuple[int, bool]] = set()
        storage = torch.UntypedStorage
        resize = storage.resize_
        memory = self

        def resized(self: Any, size: int) -> Any:
            """FSDP frees weights by making their storage empty, and has them again by making it as large as it was."""
            found = resize(self, size)
            if self._cdata in memory._sizes:
                memory._set(self._cdata, size)
            return found

        storage.resize_ = resized

    def restart(self) -> None:
        """Let the peak begin anew."""
        self.peak = self.now
        self._earlier = self._before
        self._before = {self._numbers[key]: size for key, size in self._sizes.items()}
        self._made = {number: self._made[number] for number in self._before}
        self._changes = []

    @property
    def full(self) -> int:
        """How often the device was full, until the last peak that was asked for."""
        return self._allocator.full

    def ask_anew(self) -> None:
        """Let the peak that the program asks for begin anew."""
        self.asked_peak = self.now

    def mark(self) -> int:
        """Return what `hold` takes."""
        return len(self._changes)

    def since(self, mark: int) -> list[Change]:
        """Return the changes since `mark`."""
        return self._changes[mark:]

    def made(self, first: int) -> list[str]:
        """Return where the storages from number `first` on were made."""
        return [self._made.get(number, "") for number in range(first, self.count + 1)]

    def follow(self, changes: Iterable[Change], made: Sequence[str]) -> None:
        """Let changes happen to storages that no tensor has.

        Args:
            changes: See `Change`.
            made: Where those that are new are from, whose numbers are the next ones.
        """
        first = self.count + 1
        self.count += len(made)
        keys = {number: key for key, number in self._numbers.items()}
        for number, size, stream in changes:
            if number >= first and number not in keys:
                keys[number] = -number
                self._numbers[-number], self._made[number] = number, made[number - first]
            key = keys.get(number)
            if key is None or key not in self._numbers or (not size and key in self._watched):
                continue  # a tensor has it now, and its end is seen
            self._change(key, size, stream)
            if not size and key < 0:
                del self._sizes[key], self._numbers[key]

    def adopt(self, tensor: Any, number: int) -> bool:
        """Let a tensor have a storage that none had; return whether it is alive."""
        if -number not in self._sizes:
            return False
        storage = tensor.untyped_storage()
        key = storage._cdata
        self._numbers[key], self._sizes[key] = self._numbers.pop(-number), self._sizes.pop(-number)
        self._watched[key] = weakref.ref(storage, lambda _, key=key: self._gone(key))  # type: ignore[misc]
        return True

    def hold(self, mark: int, place: str) -> int:
        """Keep what was alive at the peak since `mark` and is no longer, as a CUDA graph does; return its key."""
        alive = {**self._before}
        alive.update((number, size) for number, size, _ in self._changes[:mark])
        now = most = sum(alive.values())
        for number, size, _ in self._changes[mark:]:
            now += size - alive.get(number, 0)
            alive[number] = size
            most = max(most, now)
        return self._alone(place, most - now)

    def release(self, key: int) -> None:
        """Let go of what `hold` has kept."""
        if key in self._sizes:
            self._gone(key)

    def see(self, tensor: Any, place: Callable[[], str]) -> None:
        """Count the storage of a tensor, once; `place` says where it was made."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._sizes:
            return
        if storage.nbytes() > self._device.memory:
            # As PyTorch does, so that who looks for the largest batch can catch it.
            raise self._full(
                f"CUDA out of memory. Tried to allocate {format_bytes(storage.nbytes())} for one tensor. GPU 0 has a "
                f"total capacity of {format_bytes(self._device.memory)}"
            )
        self.count += 1
        self._numbers[key], self._made[self.count] = self.count, place()
        self._set(key, storage.nbytes())
        self._watched[key] = weakref.ref(storage, lambda _, key=key: self._gone(key))  # type: ignore[misc]

    def library(self, stream: int, backward: bool) -> None:
        """Count what cuBLAS works in, once for each stream and each thread that calls it: gradients have their own."""
        if (stream, backward) not in self._libraries:
            self._libraries.add((stream, backward))
            self._alone("cuBLAS", self._workspace)

    def notes(self) -> list[str]:
        """Return what a person should know of the allocator."""
        found = [f"the allocator's option {name} is not followed" for name in self._unknown]
        if self._allocator.full:
            found.append(
                f"the device was full {self._allocator.full} times, when what was free went back to it"
            )
        return found

    def number(self, tensor: Any) -> int:
        """Return the number of the storage of a tensor; 0: it is not known."""
        return self._numbers.get(tensor.untyped_storage()._cdata, 0)

    def alive(self) -> set[int]:
        """Return the numbers of storages that are there."""
        return set(self._numbers.values())

    def at_peak(
        self,
        owners: Mapping[int, Owner],
        gone: Collection[int] = (),
        kept: Mapping[int, int] | None = None,
        early: Mapping[int, int] | None = None,
    ) -> tuple[list[tuple[str, str, int]], int]:
        """Return (what, whose, bytes) of all that was alive at the peak, most first, and the most that was reserved.

        To be asked once of each step: the allocator keeps what it has reserved.

        Args:
            owners: Key of a storage that is alive now -> what it is; others are tensors of where they were made.
            gone: Numbers of storages that are never there.
            kept: Number of a storage -> that of another one, as long as which it is kept.
            early: Number of a storage -> changes after which it ends, if that is earlier than where it does.
        """
        changes = self._kept(kept or {}, early or {})
        alive, now = dict(self._before), sum(self._before.values())
        most, held = now, dict(alive)
        at = 0
        if not self._allocator.reserved:
            # The program may have set the variables itself, before its first tensor.
            self._allocator.options, self._unknown = options_of(os.environ)
        self._allocator.restart()
        self._told = [each for each in changes if each[0] not in gone] if gone else changes
        for end, (number, size, stream) in enumerate(self._told, 1):
            self._hold(number, size, stream)
            now += size - alive.get(number, 0)
            alive[number] = size
            if now > most:
                most, at = now, end
        held.update((number, size) for number, size, _ in self._told[:at])
        named = {self._numbers[key]: owner for key, owner in owners.items() if key in self._numbers}
        total: Counter[Owner] = Counter()
        for number, size in held.items():
            total[named.get(number, ("tensors", self._made[number]))] += size
        most_first = sorted(total.items(), key=lambda each: (-each[1], each[0]))
        return [(*owner, size) for owner, size in most_first if size], self._allocator.peak

    def reserved_again(self) -> int | None:
        """Return the most that is reserved in a step that does what the last one did, which may find other free blocks.

        None: that is not known, as such a step does not end as it began.
        """
        earlier, before = self._earlier, self._before
        ended = [number for number in earlier if number not in before]
        made = [number for number in before if number not in earlier]
        ends, news = (
            sorted((size[number], self._made.get(number, ""), number) for number in numbers)
            for size, numbers in ((earlier, ended), (before, made))
        )
        if [each[0] for each in ends] != [each[0] for each in news]:
            return None
        # What ended was of the step before; now that of this step does. What is made has numbers of its own.
        name = dict(zip((each[2] for each in ends), (each[2] for each in news), strict=True))
        self._allocator.restart()
        for number, size, stream in self._told:
            self._hold(name.get(number, number if number in earlier else -number), size, stream)
        return self._allocator.peak

    def _hold(self, number: int, size: int, stream: int) -> None:
        block = self._blocks.pop(number, None)
        if block is not None:
            self._allocator.give(block)
        if size:
            self._blocks[number] = self._allocator.take(size, stream)

    def _kept(self, kept: Mapping[int, int], early: Mapping[int, int]) -> list[Change]:
        """Return the changes, with the ends of some storages put off to those of others, and of some before theirs."""
        if not kept and not early:
            return self._changes
        ends = {number: at for at, (number, size, _) in enumerate(self._changes) if not size}
        times = Counter(number for number, *_ in self._changes)
        moved = {
            number: ends[other]
            for number, other in kept.items()
            if number in ends and ends[number] < ends.get(other, -1)
        }
        # Of those that are made and end, once each.
        moved |= {
            number: mark - 1
            for number, mark in early.items()
            if 0 < mark <= ends.get(number, -1) and times[number] == 2
        }
        there: dict[int, list[int]] = {}
        for number, at in moved.items():
            there.setdefault(at, []).append(number)
        found = []
        for at, (number, size, stream) in enumerate(self._changes):
            if not (number in moved and ends[number] == at):
                found.append((number, size, stream))
            found += [(other, 0, 0) for other in there.get(at, ())]
        return found

    def _alone(self, place: str, size: int) -> int:
        """Make a storage that no tensor has; return its key."""
        self.count += 1
        key = -self.count
        self._numbers[key], self._made[self.count] = self.count, place
        self._set(key, size)
        return key

    def _set(self, key: int, size: int) -> None:
        new = -(-size // BLOCK) * BLOCK
        self._change(key, new, self._stream())

    def _change(self, key: int, size: int, stream: int) -> None:
        now = self.now = self.now + size - self._sizes.get(key, 0)
        self._sizes[key] = size
        self._changes.append((self._numbers[key], size, stream))
        if size:  # what ends makes no peak
            self.peak, self.asked_peak = max(self.peak, now), max(self.asked_peak, now)

    def _gone(self, key: int) -> None:
        self.now -= self._sizes.pop(key, 0)
        self._watched.pop(key, None)
        self._changes.append((self._numbers.pop(key), 0, 0))
        self._tell(key)
