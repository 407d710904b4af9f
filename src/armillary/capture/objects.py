"""Python objects that ranks send each other: each is a file in the folder of the run.

What one rank sends to others, these wait for, as real ones do. Of what all would gather, each rank is given its own.
"""

from __future__ import annotations

import io
import pickle
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from armillary.base.errors import ArmillaryError, InputError
from armillary.base.files import replacing, write_text
from armillary.base.reading import read_plain
from armillary.capture.recorder import Recorder
from armillary.convert.torch_import import import_torch, torch_part

WAITING = "waiting_"
"""Prefix of the file by which a rank says that it waits for a message of another one."""
ENDED = "ended_"
"""Prefix of the file that says that a rank has ended, and sends no more."""
PATIENCE_SECONDS = 600.0
POLL_SECONDS = 0.05


def number_in(path: Path) -> int:
    """Return the number that a file of the run holds; -1: it is not there."""
    try:
        return int(read_plain(path) or b"-1")
    except (OSError, ValueError, InputError):
        return -1


class Mail:
    """Messages of Python objects between ranks, each a file.

    Attributes:
        folder: Where they are.
        alone: Whether no other rank is run that could send any.
    """

    def __init__(self, folder: Path, alike: Sequence[Sequence[int]] = (), *, alone: bool = False) -> None:
        """Begin; `alike` are sizes of a mesh, innermost first, and those of its axes along which ranks differ."""
        self.folder, self.alone = folder, alone
        self._alike = alike
        self._sent: Counter[tuple[int, int]] = Counter()

    def next(self, source: int, target: int) -> list[Path]:
        """Return the file of the next message, and that of the same one between ranks that do the same."""
        number = self._sent[source, target]
        self._sent[source, target] += 1
        pairs = dict.fromkeys([(source, target), (self._like(source), self._like(target))])
        return [self.folder / f"{first}_{second}_{number}" for first, second in pairs]

    def next_to_all(self, source: int, size: int) -> list[Path]:
        """Return the same of what a rank sends to all of a group of `size`: one file for all of them."""
        number = self._sent[source, -size]
        self._sent[source, -size] += 1
        return [
            self.folder / f"{each}_all{size}_{number}" for each in dict.fromkeys([source, self._like(source)])
        ]

    def write(self, path: Path, objects: Any, line: str) -> None:
        """Write what a rank sends; tensors of the device arrive as shapes.

        Args:
            path: Where to.
            objects: That it sends.
            line: Of the program, which does.

        Raises:
            InputError: nobody can send these.
        """
        content = io.BytesIO()
        try:
            _Pickler(content).dump(objects)
        except Exception as error:  # of a stranger's class, or a function within another
            raise InputError(
                f"{line}: objects that cannot be pickled ({type(error).__name__}: {str(error)[:200]}); expected those "
                "that ranks can send each other"
            ) from error
        with replacing(path) as temporary:
            temporary.write_bytes(content.getvalue())

    def read(self, rank: int, source: int, paths: Sequence[Path]) -> Any:
        """Return what `rank` gets from `source`, as soon as one of these files is there.

        Raises:
            ArmillaryError: `source` has ended, or sends nothing.
        """
        waiting, until = self.folder / f"{WAITING}{rank}", time.monotonic() + PATIENCE_SECONDS
        while not (found := [path for path in paths if path.exists()]):
            ended = (self.folder / f"{ENDED}{source}").exists() and not any(path.exists() for path in paths)
            if ended or time.monotonic() > until:
                raise ArmillaryError(f"rank {rank} waits for an object of rank {source}, which sends none")
            if not waiting.exists():
                # Whoever starts processes reads from this whom to start next.
                write_text(waiting, str(source))
            time.sleep(POLL_SECONDS)
        waiting.unlink(missing_ok=True)
        # Written by a rank of this run, into a folder of its own.
        return pickle.loads(found[0].read_bytes())

    def _like(self, rank: int) -> int:
        found, stride = 0, 1
        if not self._alike:
            return rank
        sizes, stages = self._alike
        for at, size in enumerate(sizes):
            found += rank // stride % size * stride * (at in stages)
            stride *= size
        return found


class _Pickler(pickle.Pickler):
    """Writes tensors without memory as what makes them again."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how to make a tensor of the device; others are written as usual."""
        if not isinstance(obj, torch_part("_subclasses.fake_tensor").FakeTensor):
            return NotImplemented
        return _made, (tuple(obj.shape), tuple(obj.stride()), obj.dtype, obj.device.type)


def _made(shape: tuple[int, ...], stride: tuple[int, ...], dtype: Any, device: str) -> Any:
    return import_torch("armillary capture").empty_strided(shape, stride, dtype=dtype, device=device)


def replacements(core: Any, recorder: Recorder, rank: int, mail: Mail) -> dict[str, Callable[..., Any]]:
    """Return what moves objects, by the names that `torch.distributed` has for it."""

    def end(given: int | None, of_group: int | None, group: Any) -> int:
        if given is not None:
            return given
        return int(core.get_global_rank(group, of_group) if group is not None else of_group or 0)

    def send(
        objects: Any, dst: int | None = None, group: Any = None, device: Any = None, group_dst: int | None = None,
        **_: Any,
    ) -> None:  # fmt: skip
        mail.write(mail.next(rank, end(dst, group_dst, group))[0], objects, recorder.where.line())

    def recv(
        objects: Any, src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None,
        **_: Any,
    ) -> int:  # fmt: skip
        source = end(src, group_src, group)
        objects[:] = mail.read(rank, source, mail.next(source, rank))
        return source

    def alike(name: str) -> None:
        recorder.log.note(f"{recorder.where.line()}: {name} gives what this rank has, for each rank")

    def all_gather(objects: Any, mine: Any, group: Any = None) -> None:
        alike("all_gather_object")
        objects[:] = [mine] * len(objects)

    def gather(mine: Any, objects: Any = None, dst: Any = None, group: Any = None, **_: Any) -> None:
        if objects:
            alike("gather_object")
            objects[:] = [mine] * len(objects)

    def from_one(given: Any, source: int, group: Any, name: str) -> Any:
        """Return what one rank of a group has; None: no other rank is run that could tell."""
        paths = mail.next_to_all(source, core.get_world_size(group))
        if source == rank:
            mail.write(paths[0], given, recorder.where.line())
            return given
        if mail.alone:
            alike(name)
            return None
        return mail.read(rank, source, paths)

    def broadcast(
        objects: Any, src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None,
        **_: Any,
    ) -> None:  # fmt: skip
        if core._rank_not_in_group(group):
            return
        found = from_one(objects, end(src, group_src, group), group, "broadcast_object_list")
        objects[:] = objects if found is None else found

    def scatter(
        results: Any, objects: Any = None, src: int | None = None, group: Any = None, group_src: int | None = None,
        **_: Any,
    ) -> None:  # fmt: skip
        if core._rank_not_in_group(group):
            return
        found = from_one(objects, end(src, group_src, group), group, "scatter_object_list")
        if found is not None:
            results[0] = found[core.get_group_rank(group or core.GroupMember.WORLD, rank)]

    return {
        "send_object_list": send,
        "recv_object_list": recv,
        "all_gather_object": all_gather,
        "gather_object": gather,
        "scatter_object_list": scatter,
        "broadcast_object_list": broadcast,
    }
