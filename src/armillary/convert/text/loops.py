"""The training loops of ASTRA-sim 1.0: the order in which layers compute, communicate and wait.

Source: the ``iterate_*`` functions of its ``Workload.cc``, and for DATA_REORDER the patch of its ASPLOS 2022 tutorial.
"""

from __future__ import annotations

from collections.abc import Callable

from armillary.base.errors import InputError
from armillary.convert.text.kinds import Phase
from armillary.convert.text.recorder import Recorder

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = Phase


def record_pass(run: Recorder) -> None:
    """Add one pass over all layers to `run`.

    Raises:
        InputError: a recomputation has no checkpoint to start from.
    """
    LOOPS[run.workload.kind](run)


def _forward(run: Recorder, layers: range | None = None) -> None:
    for layer in layers if layers is not None else run.layers:
        # The gradients of the pass before: a layer's weights must be final before they are used.
        run.wait(layer, WEIGHT_GRADIENT)
        run.compute(layer, FORWARD)
        run.communicate(layer, FORWARD)


def _micro(run: Recorder) -> None:
    for layer in run.layers:
        # All at once; ASTRA-sim itself stops after the first layer.
        run.start(layer, WEIGHT_GRADIENT)


def _data(run: Recorder) -> None:
    _forward(run)
    for layer in reversed(run.layers):
        run.compute(layer, WEIGHT_GRADIENT)
        run.start(layer, WEIGHT_GRADIENT)
        # Layer 0 has no layer below that would need the gradient of its input.
        if layer:
            run.compute(layer, INPUT_GRADIENT)


def _data_reorder(run: Recorder) -> None:
    _forward(run)
    for layer in reversed(run.layers):
        if layer:
            run.compute(layer, INPUT_GRADIENT)
        run.compute(layer, WEIGHT_GRADIENT)
        run.start(layer, WEIGHT_GRADIENT)


def _model(run: Recorder) -> None:
    _forward(run)
    for layer in reversed(run.layers):
        run.compute(layer, INPUT_GRADIENT)
        if layer:
            run.start(layer, INPUT_GRADIENT)
        run.compute(layer, WEIGHT_GRADIENT)
        run.start(layer, WEIGHT_GRADIENT)
        run.wait(layer, INPUT_GRADIENT)


def _transformer(run: Recorder) -> None:
    _forward(run)
    for layer in reversed(run.layers):
        # Activations were dropped: the layers from the checkpoint on run forward again before this one's
        # backward pass.
        if layer in run.workload.initiates:
            _forward(run, range(_checkpoint(run, layer), layer))
        run.compute(layer, INPUT_GRADIENT)
        # Blocking, unlike in `_model`: the layer below needs the summed gradient.
        run.communicate(layer, INPUT_GRADIENT)
        run.compute(layer, WEIGHT_GRADIENT)
        run.start(layer, WEIGHT_GRADIENT)


def _checkpoint(run: Recorder, layer: int) -> int:
    """Return the last checkpoint up to `layer`, from which its activations are recomputed."""
    before = [checkpoint for checkpoint in run.workload.checkpoints if checkpoint <= layer]
    if not before:
        raise InputError(
            f"{run.workload.path}: checkpoint_initiates names layer {layer}, expected a checkpoint at or before it, "
            f"found {list(run.workload.checkpoints)}"
        )
    return max(before)


def _dlrm(run: Recorder) -> None:
    last_bottom = run.workload.options["DLRM_LAST_BOTTOM_LAYER"]
    for layer in run.layers:
        run.wait(layer, WEIGHT_GRADIENT)
        run.compute(layer, FORWARD)
        # Layer 0 is the embedding tables: their all-to-all runs beside the bottom MLP, before other
        # collectives, and the top MLP, from the layer after the last bottom one, needs its result.
        run.start(layer, FORWARD, first=True)
        if layer == last_bottom:
            run.wait(0, FORWARD)
    for layer in reversed(run.layers):
        run.compute(layer, WEIGHT_GRADIENT)
        run.start(layer, WEIGHT_GRADIENT)
        # HYBRID_DLRM_ENHANCED does not wait for the embedding gradients here.
        if layer == 0 and run.workload.kind == "HYBRID_DLRM":
            run.wait(0, INPUT_GRADIENT)
        if layer:
            run.compute(layer, INPUT_GRADIENT)
        # The top MLP is done: the gradients of the embeddings can be exchanged.
        if layer == last_bottom + 1:
            run.start(0, INPUT_GRADIENT, first=True)


LOOPS: dict[str, Callable[[Recorder], None]] = {
    "MICRO": _micro,
    "DATA": _data,
    "DATA_REORDER": _data_reorder,
    "MODEL": _model,
    "DISTRIBUTED_INFERENCE": _forward,
    "HYBRID_DATA_MODEL": _model,
    "HYBRID_MODEL_DATA": _model,
    "HYBRID_CUSTOMIZED": _model,
    "HYBRID_DLRM": _dlrm,
    "HYBRID_DLRM_ENHANCED": _dlrm,
    "HYBRID_TRANSFORMER": _transformer,
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": _transformer,
    "ALL": _transformer,
}
