"""Collect the host and the device trace of steps of a PyTorch program, one pair of files for each rank.

PyTorch records the operators of a rank with their inputs and parents (``ExecutionTraceObserver``) and,
with Kineto, when they and the kernels of the GPU ran; both over the same steps.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from armillary.base.errors import InputError
from armillary.base.files import replacing
from armillary.base.units import whole
from armillary.convert.collected import CollectedRank, ProcessGroup, write_collected
from armillary.convert.group_notes import GroupNotes
from armillary.convert.torch_import import import_torch

_active: list[Collector] = []
"""The collector of this process that is recording, if any."""


def collect(
    folder: str | os.PathLike[str], *, warmup: int = 0, steps: int = 1, compress: bool = False
) -> Collector:
    """Return a context manager that records steps of the PyTorch program in its body.

    The body is one step, or calls ``step()`` after each::

        with armillary.collect("traces", warmup=2, steps=1) as collector:
            for batch in loader:
                train_step(batch)
                collector.step()

    Each rank writes ``host_<rank>.json``, ``device_<rank>.json`` and ``collected_<rank>.json`` as soon as
    its last step is done; they are complete or not there. The rank is that of torch.distributed, else the
    environment's ``RANK``, else 0.

    Args:
        folder: Where the files are written; created if absent.
        warmup: Steps that run before anything is recorded.
        steps: Steps to record.
        compress: Write ``.json.gz``.

    Raises:
        InputError: PyTorch is absent, the folder cannot be written, or the body ended before its last step.
    """
    return Collector(Path(folder), warmup, steps, compress)


class Collector:
    """Records a window of steps; see `collect`."""

    def __init__(
        self, folder: Path, warmup: int = 0, steps: int = 1, compress: bool = False, *, yields: bool = False
    ) -> None:
        """Declare what to record.

        Args:
            folder: Where the files are written.
            warmup: Steps before the recorded ones.
            steps: Recorded steps.
            compress: Write ``.json.gz``.
            yields: Yield to a collector that the program itself enters; that one then writes to `folder`.
        """
        for name, value, least in (("warmup", warmup, 0), ("steps", steps, 1)):
            if not isinstance(value, int) or value < least:
                raise InputError(f"collect: {name} is {value!r}, expected a number of {least} or more")
        self.folder, self.warmup, self.steps = folder, warmup, steps
        self.yields = yields
        self.made = 0
        self.done = False
        self._suffix = ".json.gz" if compress else ".json"
        self._groups: list[dict[str, Any]] = []
        self._backend = ""
        self._noted = 0

    def __enter__(self) -> Collector:
        self._torch = import_torch("armillary.collect")
        self._world = _number("RANK", 0), _number("WORLD_SIZE", 1)
        # A collector of `armillary trace collect` is entered around the whole script: one that the script enters
        # itself replaces it and inherits its folder. Two that the program entered would both want the
        # profiler.
        for other in _active[:]:
            if not other.yields:
                raise InputError(f"collect: {other.folder} is being collected; expected one at a time")
            self.folder = other.folder
            other.discard()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Hidden, and named by process: ranks that share the folder do not collide, and readers skip
            # names with a dot.
            self._parts = [self.folder / f".{name}.{os.getpid()}.part.json" for name in ("host", "device")]
            # A folder that cannot be written to is refused here, not after the run.
            self._parts[0].touch()
        except OSError as error:
            raise InputError(f"{self.folder}: {error.strerror}, expected a folder to write to") from error
        _active.append(self)
        self._notes = GroupNotes(self._torch)
        try:
            self._start()
        except BaseException:
            # Another profiler may be running. `__exit__` is not called, and the next `collect` must not find this one.
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.done:
            return
        # A body that never calls step() is the one step to record.
        if error is None and (self.made, self.warmup, self.steps) == (0, 0, 1):
            self.step()
            return
        self.discard()
        if error is None:
            raise InputError(
                f"nothing was collected: {self.made} steps ended, expected "
                f"{self.warmup + self.steps} ({self.warmup} to warm up, {self.steps} to record)"
            )

    def step(self) -> None:
        """Mark the end of a step; the last one writes the files, and further calls do nothing."""
        if self.done:
            return
        self.made += 1
        self._go(self._profile.step if self.made < self.warmup + self.steps else self._finish)

    def note_groups(self) -> None:
        """Record the current process groups; called at each step and before groups are destroyed."""
        distributed = self._torch.distributed
        if self.done or not distributed.is_available() or not distributed.is_initialized():
            return
        groups = distributed.distributed_c10d._world.pg_config_info
        # The program has destroyed groups since the last call; the trace still holds their collectives.
        if len(groups) < len(self._groups):
            return
        self._backend = distributed.get_backend()
        self._world = distributed.get_rank(), distributed.get_world_size()
        self._groups = groups
        # The observer notes the groups when it starts; those that are made later would be missing.
        if self._observer.is_running() and len(groups) > self._noted:
            self._observer._record_pg_config()
            self._noted = len(groups)

    def discard(self) -> None:
        """Stop and write nothing."""
        # PyTorch raises these if the profiler is not running.
        with contextlib.suppress(RuntimeError, AssertionError):
            self._profile.stop()
        self._close()

    def _close(self) -> None:
        _active.remove(self)
        self.done = True
        self._notes.remove()
        self._observer.unregister_callback()
        for part in self._parts:
            part.unlink(missing_ok=True)

    def _start(self) -> None:
        profiler = self._torch.profiler
        self._observer = profiler.ExecutionTraceObserver()
        self._observer.register_callback(str(self._parts[0]))
        kinds = [profiler.ProfilerActivity.CPU]
        extra = {}
        if self._torch.cuda.is_available():
            kinds.append(profiler.ProfilerActivity.CUDA)
            # Events and stream waits, without which dependencies between streams are guesses.
            options = self._torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
            extra = {"experimental_config": options}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a missing warm-up, which the caller chose
            # Without repeat=1 the observer starts again after the window, into the same file.
            # Kineto records and drops one step before those to keep; earlier warm-up steps run without it.
            plan = profiler.schedule(
                wait=max(self.warmup - 1, 0), warmup=min(self.warmup, 1), active=self.steps, repeat=1
            )
            self._profile = profiler.profile(
                activities=kinds,
                schedule=plan,
                record_shapes=True,
                execution_trace_observer=self._observer,
                **extra,
            )
        self._go(self._profile.start)

    def _go(self, on: Callable[[], None]) -> None:
        self.note_groups()
        before = self._observer.is_running()
        on()
        # A call that starts the observer makes it note the groups that there are.
        if not before:
            self._noted = len(self._groups)

    def _finish(self) -> None:
        try:
            self._profile.stop()
            # Closes the observer's file, which is moved below.
            self._observer.unregister_callback()
            self._profile.export_chrome_trace(str(self._parts[1]))
            rank, world_size = self._world
            names = [f"{name}_{rank}{self._suffix}" for name in ("host", "device")]
            for part, name in zip(self._parts, names, strict=True):
                with replacing(self.folder / name) as temporary:
                    _move(part, temporary, compress=name.endswith(".gz"))
                # An earlier run may have left the same trace in the other form; readers would take one of the two.
                other = name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"
                (self.folder / other).unlink(missing_ok=True)
            # Last, since whoever finds this file takes the traces beside it for complete.
            write_collected(self.folder, self._about(rank, world_size, *names))
        finally:
            self._close()

    def _about(self, rank: int, world_size: int, host: str, device: str) -> CollectedRank:
        gpu = self._torch.cuda.get_device_name() if self._torch.cuda.is_available() else ""
        groups = tuple(
            ProcessGroup(
                str(group["pg_name"]),
                str(group["pg_desc"]),
                str(group["backend_config"]),
                tuple(group["ranks"] or range(world_size)),  # none listed: all ranks
            )
            for group in self._groups
        )
        return CollectedRank(
            rank, world_size, host, device, self._backend, gpu, self._torch.__version__, self.warmup,
            self.steps, groups,
        )  # fmt: skip


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable, str(default))
    if (number := whole(text)) is None:
        raise InputError(f"collect: the environment's {variable} is {text!r}, expected a number")
    return number


def _move(source: Path, target: Path, *, compress: bool) -> None:
    if not compress:
        source.replace(target)
        return
    with source.open("rb") as plain, gzip.open(target, "wb", compresslevel=6) as packed:
        shutil.copyfileobj(plain, packed)
