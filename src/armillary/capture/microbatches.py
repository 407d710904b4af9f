"""Microbatches of a pipeline that do what those before them did: recorded once more, and not run.

In `torch.distributed.pipelining`, a stage calls its module and its gradients for each microbatch. What two
microbatches in a row did, to the last row and change of memory, those after them are taken to do. The first and the
last one of a step always run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary.capture.blocks import Block, Blocks, UnlikeError
from armillary.capture.graphs import Graphs
from armillary.capture.leaves import leaves_of
from armillary.capture.recorder import Recorder
from armillary.convert.torch_import import torch_part

NOTE = (
    "microbatches of a pipeline that did the same as those before them were not run one by one: "
    "--every-microbatch runs all"
)
LAST = ("full", "weight")
"""Backward passes that are the last of a microbatch."""
BACKWARD = ("input", *LAST)
"""All of them."""
Key = tuple[Any, ...]


class NotAlike(BaseException):
    """A microbatch does not do what those before it did: the rank has to run all of them. Programs do not catch it."""


class Microbatches:
    """Stands between the stages of a pipeline and their modules."""

    def __init__(self, torch: Any, recorder: Recorder, graphs: Graphs, *, early: bool = True) -> None:
        """Replace what runs microbatches.

        Args:
            torch: PyTorch.
            recorder: Of the program.
            graphs: CUDA graphs of the program.
            early: Do not run forward passes that repeat, either, when no backward pass of their stage has run: a stage
                begins with as many as there are stages after it. Backward passes then have to repeat, too.
        """
        self._torch, self._recorder, self._graphs, self._early = torch, recorder, graphs, early
        self._blocks, self._leaves = Blocks(torch, recorder), leaves_of(torch)
        # By stage, phase, shapes, and where its weights are: what was done last, and what was done twice.
        self._done: dict[Key, Block | None] = {}
        self._twice: set[Key] = set()
        self._latest: dict[tuple[int, str], Key] = {}
        # Phases of a whole microbatch of a stage, and those of microbatches that run.
        self._phases: dict[int, set[str]] = {}
        self._runs: dict[tuple[int, int], set[str]] = {}
        self._now = (0, 0)
        self._install()

    def _install(self) -> None:
        stage = torch_part("distributed.pipelining.stage")._PipelineStageBase
        schedule = torch_part("distributed.pipelining.schedules")._PipelineSchedule
        forward, backward = stage.forward_maybe_with_nosync, stage.backward_maybe_with_nosync
        loss, clear = schedule._compute_loss, stage.clear_runtime_states
        microbatches = self

        def ran(self: Any, *given: Any, **named: Any) -> Any:
            return microbatches._phase(
                self, "forward", (given, named), lambda: forward(self, *given, **named)
            )

        def went_back(self: Any, kind: str, given: dict[str, Any], *rest: Any, **named: Any) -> Any:
            return microbatches._phase(
                self, kind, given.get("output_grads"), lambda: backward(self, kind, given, *rest, **named)
            )

        def lost(self: Any, output: Any, target: Any, *rest: Any) -> Any:
            return microbatches._phase(
                None, "loss", (output, target), lambda: loss(self, output, target, *rest)
            )

        def cleared(self: Any, *given: Any) -> Any:
            microbatches._begin(self.stage_index)
            return clear(self, *given)

        stage.forward_maybe_with_nosync, stage.backward_maybe_with_nosync = ran, went_back
        schedule._compute_loss, stage.clear_runtime_states = lost, cleared
        for name in ("forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"):
            setattr(stage, name, self._numbered(getattr(stage, name)))

    def _numbered(self, call: Any) -> Any:
        def called(stage: Any, number: int, *given: Any, **named: Any) -> Any:
            self._now = stage.stage_index, number
            return call(stage, number, *given, **named)

        return called

    def _begin(self, stage: int) -> None:
        self._blocks.forget(stage)
        self._runs = {key: phases for key, phases in self._runs.items() if key[0] != stage}

    def _phase(self, stage: Any, phase: str, inputs: Any, run: Callable[[], Any]) -> Any:
        recorder, (place, number) = self._recorder, self._now
        if self._graphs.captures or recorder.paused:
            return run()
        part = self._blocks.begin(place, number, phase, inputs)
        # The first one makes the memory of gradients.
        shapes = [tuple(each.shape) for each in self._leaves(inputs) if isinstance(each, self._torch.Tensor)]
        key = place, phase, number == 0, tuple(shapes), self._weights(stage)
        block = self._done.get(key)
        if phase == "forward" and (key not in self._twice or not self._repeats(stage, number)):
            self._runs[place, number] = set()
        phases = self._runs.get((place, number))
        if phases is None:
            if block is None or key not in self._twice:
                raise NotAlike
            try:
                found = self._blocks.write(part, block)
            except UnlikeError:
                raise NotAlike from None
            recorder.log.note(NOTE)
            return found
        out, new = self._blocks.read(part, run)
        if new is not None and new == block:
            self._twice.add(key)
        elif key in self._twice:
            raise NotAlike
        self._done[key] = new
        if number:
            self._latest[place, phase] = key
        phases.add(phase)
        if phase in LAST:
            self._phases[place] = phases
        return out

    def _repeats(self, stage: Any, number: int) -> bool:
        """Return whether a microbatch, neither the first nor the last one, repeats in all phases that are known."""
        place = stage.stage_index
        if not 0 < number < len(stage.args_recv_info) - 1:
            return False
        known = self._phases.get(place)
        if known is None:
            return self._early
        # Those between the first backward pass and the second one of its kind, too.
        return all(
            self._latest.get((place, phase)) in self._twice or (self._early and phase in BACKWARD)
            for phase in known
        )

    def _weights(self, stage: Any) -> Key:
        """Return which tensors the weights of a stage are and what memory they have: gathered, or a rank's own part."""
        if stage is None:
            return ()
        return tuple(
            (id(each), getattr(each, "_local_tensor", each).untyped_storage().nbytes(), each.grad is None)
            for module in stage.submod.modules()
            for each in module._parameters.values()
            if each is not None
        )
