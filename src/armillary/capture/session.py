"""Capturing in this process: everything is replaced, then the program runs as one rank."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from armillary.base.errors import InputError
from armillary.base.files import make_folder
from armillary.capture import checkpoints, cluster, processes, torch_cuda, triton_kernels
from armillary.capture.device import DEFAULT, fake_device
from armillary.capture.graphs import Graphs
from armillary.capture.library import Library, library
from armillary.capture.log import COMMUNICATION, OPERATOR, Log
from armillary.capture.microbatches import Microbatches
from armillary.capture.objects import Mail
from armillary.capture.rank_files import write
from armillary.capture.recorder import Recorder
from armillary.capture.steps import Steps
from armillary.convert.torch_import import import_torch, torch_part

OLDEST = (2, 9)
"""Version of PyTorch whose interfaces are replaced here; 2.13 is the one that was tried."""
STEP = 3
"""Step that is recorded by default: optimizers make their state in the first one, DDP its buckets in the second."""
FRAMEWORKS = {
    "torchtitan": "torchtitan", "megatron.core": "megatron-core", "nemo": "nemo", "deepspeed": "deepspeed",
    "llmfoundry": "llm-foundry", "transformers": "transformers",
}  # fmt: skip
"""Module -> training software that a program is written with."""
_sessions: list[Session] = []


class Session:
    """Records one step of a program that runs in this process as one rank of many; see `capturing`.

    Attributes:
        log: What was recorded; complete when the block is left, or earlier where its step has ended.
    """

    def __init__(
        self, folder: Path | None, rank: int, ranks: int, device: str, *, step: int = STEP, script: str = "",
        mail: Path | None = None, alike: Sequence[Sequence[int]] = (), ended: Callable[[], None] | None = None,
        before: Callable[[], None] | None = None, every_microbatch: bool = True, early: bool = True,
        follows: int = -1,
    ) -> None:  # fmt: skip
        """Declare what to record; see `capturing`.

        Args:
            folder: Where the file of the rank goes; None: it is not written.
            rank: Of the program.
            ranks: How many it has.
            device: What `torch.cuda` answers as.
            step: Step to record, from 1; 0: everything.
            script: For messages.
            mail: Folder of messages between the ranks of a run; None: one of its own.
            alike: Sizes of the mesh, and its axes of stages: ranks that differ along the others send equal objects.
            ended: Called when the step has ended, before the program goes on.
            before: Called before the file is written.
            every_microbatch: Run those of a pipeline, too, that do the same as those before them.
            early: See `Microbatches`.
            follows: See `Steps`.
        """
        if not 0 <= rank < ranks:
            raise InputError(f"capture: rank {rank} of {ranks} ranks, expected 0 to {ranks - 1}")
        self.folder, self.mail, self._alike = folder, mail, alike
        self._ended, self._before, self._every, self._early = ended, before, every_microbatch, early
        self._follows = follows
        self.device = fake_device(device)
        self.log = Log(rank, ranks, self.device.name, "", script)
        self._wanted, self._made, self.done = step, 0, False
        self._first: Any = None
        self._last: dict[str, Any] | None = None

    def __enter__(self) -> Session:
        if _sessions:
            raise InputError("capture: this process captures already; expected one capture in a process")
        torch = import_torch("armillary capture")
        if torch.version.cuda and torch.cuda.device_count():
            raise InputError("capture: this process has a GPU, expected none: CUDA_VISIBLE_DEVICES=''")
        if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
            raise InputError(f"armillary capture: PyTorch is {torch.__version__}, expected 2.9 or newer")
        if self.folder is not None:
            make_folder(self.folder)
        found, log = Library(library(torch)), self.log
        log.torch = torch.__version__
        os.environ.update(cluster.environment(log.rank, log.ranks))
        # Not before the recorder is there, which is told of streams from the first one on.
        self._recorder = Recorder(torch, log, found, self.device)
        self._graphs = Graphs(self._recorder, self.step)
        self._steps = Steps(self._recorder, self.mail, self._follows)
        count = int(os.environ["LOCAL_WORLD_SIZE"])
        torch_cuda.install(torch, found, self.device, count, self._recorder, self._graphs)
        triton_kernels.install(self._recorder)
        if not self._every and torch.distributed.is_available():
            Microbatches(torch, self._recorder, self._graphs, early=self._early)
        self._read_tensors(torch)
        _in_threads(self._recorder.mode)
        mail = self.mail or Path(tempfile.mkdtemp(prefix="armillary-"))
        checkpoints.install(torch, log, mail)
        cluster.join(
            torch, self._recorder, log.rank, log.ranks, Mail(mail, self._alike, alone=self.mail is None)
        )
        torch.accelerator.set_device_index(log.rank % count)
        torch_part("optim.optimizer").register_optimizer_step_post_hook(self._stepped)
        _sessions.append(self)
        self._recorder.mode.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.mode.__exit__(kind, error, trace)
        if error is None:
            self.finish()

    def finish(self) -> None:
        """End the recording, if its step has not ended it.

        Raises:
            InputError: nothing ran on the device.
        """
        if not self.done:
            # Its last whole step, or all of a program without an optimizer.
            last = self._last if self._wanted else None
            if last is not None:
                self.log.notes.append(f"the program made {self._made} steps: the last of them was recorded")
                self.log.step = self._made
            self._complete(last)

    def step(self) -> None:
        """End a step, where no optimizer does."""
        if self.done or self._graphs.steps():
            return
        self._made += 1
        if self._made == self._wanted:
            self.log.step = self._wanted
            self._complete()
        elif self._wanted:
            self._last = self._recorder.cut()
            self._steps.ended()
            if self._made == self._wanted - 1 and self._steps.repeats(self._last):
                self.log.step = self._wanted
                self._complete(self._last)

    def _complete(self, step: dict[str, Any] | None = None) -> None:
        self.done = True
        self.log.frameworks = [name for module, name in FRAMEWORKS.items() if module in sys.modules]
        self._steps.ended()
        _check_step(self._recorder.finish(step))
        if step is None:
            self._steps.compare(self._last)
        if self._before:
            self._before()
        if self.folder is not None:
            write(self.folder, self.log)
        self._recorder.where.close()
        if self._ended:
            self._ended()

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        # Of several optimizers (a GAN has two) only the first ends a step, or one step would count as two.
        self._first = self._first or optimizer
        if not any(optimizer is each for each in self._recorder.optimizers):
            self._recorder.optimizers.append(optimizer)
            self._note_host(optimizer)
        if optimizer is self._first:
            self.step()

    def _note_host(self, optimizer: Any) -> None:
        held = [
            getattr(each, "_local_tensor", each)
            for group in optimizer.param_groups
            for each in group["params"]
        ]
        sizes = [each.numel() for each in held if each.device.type == "cpu"]
        if sum(sizes):
            self.log.note(
                f"{type(optimizer).__name__} steps on the CPU, on {sum(sizes):,} parameters of a rank: that takes no "
                "time here"
            )

    def _read_tensors(self, torch: Any) -> None:
        """Give values to who asks for those of whole tensors, or writes one into a text."""
        FakeTensor = torch_part("_subclasses.fake_tensor").FakeTensor

        values, where = self._recorder.values, self._recorder.where
        numpy, tolist = torch.Tensor.numpy, torch.Tensor.tolist
        text = FakeTensor.__format__

        def as_numpy(self: Any, *args: Any, **named: Any) -> Any:
            return numpy(
                values.array(self, where.line()) if isinstance(self, FakeTensor) else self, *args, **named
            )

        def as_list(self: Any) -> Any:
            return tolist(values.array(self, where.line()) if isinstance(self, FakeTensor) else self)

        def as_text(self: Any, form: str) -> str:
            # PyTorch reads the number of plain tensors only: f"{loss:.3f}".
            return str(text(self, form) if self.dim() else format(self.item(), form))

        made, tree_map_only = torch.tensor, torch.utils._pytree.tree_map_only

        def holds(data: Sequence[Any]) -> bool:
            return any(
                holds(each) if isinstance(each, list | tuple) else isinstance(each, FakeTensor)
                for each in data
            )

        def as_tensor(data: Any, *args: Any, **named: Any) -> Any:
            # PyTorch would read tensors in a list where no mode sees it.
            if isinstance(data, list | tuple) and holds(data):
                data = tree_map_only(FakeTensor, lambda each: each.item(), data)
            return made(data, *args, **named)

        torch.tensor = as_tensor
        # TorchScript has a table of what is its own.
        torch_part("jit._builtins")._register_builtin(as_tensor, "aten::tensor")
        torch.Tensor.numpy, torch.Tensor.tolist = as_numpy, as_list
        FakeTensor.tolist, FakeTensor.__format__ = as_list, as_text


def capturing(
    folder: str | os.PathLike[str], *, ranks: int = 1, rank: int = 0, device: str = DEFAULT, step: int = STEP
) -> Session:
    """Return a context manager that runs the PyTorch program in its body as one rank of many, without devices.

    The body is a program for GPUs: tensors of device ``cuda`` have shapes and no memory, and collectives move nothing.
    A step ends when the first optimizer has stepped, or with `Session.step`. The file ``rank_<rank>.json.gz`` is
    written when step `step` has ended; of a body with fewer steps the last one is recorded, and one without steps
    is recorded whole. Enter it before anything is moved to
    ``cuda``; the process cannot use a real GPU afterwards::

        with capturing("cap", ranks=512, device="h100") as captured:
            train()
        print(captured.log.peak_bytes)

    Args:
        folder: Where the file goes; created if absent.
        ranks: Ranks of the program.
        rank: The one to run as.
        device: A GPU whose constants are known: ``h100``, ``a100-sxm-80``, ``gb200``.
        step: Step to record, from 1; 0: everything. The first two differ: optimizers make their state, DDP its
            buckets.

    Raises:
        InputError: PyTorch or a compiler is absent, the device is unknown, another capture was made here, or nothing
            ran on the device.
    """
    return Session(Path(folder), rank, ranks, device, step=step)


def _in_threads(mode: Any) -> None:
    """Let threads of the program record, too: a dispatch mode is for the thread that enters it."""
    start = threading.Thread.start

    def started(self: threading.Thread) -> None:
        run = self.run

        def within() -> None:
            with mode:
                run()

        vars(self)["run"] = within
        start(self)

    threading.Thread.start = started  # type: ignore[method-assign]


def _check_step(log: Log) -> None:
    """Refuse a step in which nothing ran.

    Raises:
        InputError: nothing was recorded.
    """
    if not any(row.kind in (OPERATOR, COMMUNICATION) for row in log.rows):
        wanted = (
            "processes that it starts are not captured: expected that it trains itself, as under torchrun"
            if processes.started()
            else "expected a program that moves its model to cuda"
        )
        raise InputError(f"{log.script}: rank {log.rank} ran nothing on the device; {wanted}")
