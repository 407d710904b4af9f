"""Why a script could not be captured: one line with the place in it, and what to do."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
"""Of this package; a program may well lie in another folder of the same name."""
FLASH = ("flash_attn", "flash_attn_interface", "xformers")
LAUNCHERS = ("SLURM_", "OMPI_", "PMI_", "PMIX_", "MV2_", "JSM_", "PALS_")
"""What variables of other launchers begin with."""
BACKENDS = ("CUDA", "Meta")
"""That operators on tensors without memory would have kernels of."""
HINTS: tuple[tuple[Callable[[BaseException], bool], str], ...] = (
    (
        lambda error: isinstance(error, ImportError) and str(error.name).partition(".")[0] in FLASH,
        "it is built for CUDA only; expected torch.nn.functional.scaled_dot_product_attention, which has the same "
        "kernel (in transformers: attn_implementation='sdpa')",
    ),
    (
        lambda error: isinstance(error, ImportError),
        "install it here; without packages that are built for CUDA only (flash-attn, transformer-engine, apex) the "
        "program needs a way of its own",
    ),
    (
        lambda error: isinstance(error, FileNotFoundError) and "nvidia-smi" in str(error.filename),
        "there is no GPU for it; torch.cuda answers as the device of --device",
    ),
    (
        lambda error: isinstance(error, KeyError) and str(error.args[0]).startswith(LAUNCHERS),
        "ranks have the variables of torchrun: RANK, LOCAL_RANK, WORLD_SIZE; expected these, or the others set for the "
        "command",
    ),
    (
        lambda error: "SymmetricMemory" in str(error),
        "memory that ranks share is not captured; expected collectives of torch.distributed",
    ),
    (
        lambda error: isinstance(error, EOFError) and "Ran out of input" in str(error),
        "what was saved without torch.save is not there: weights have no values; expected torch.save to a file, or to "
        "io.BytesIO",
    ),
    (
        lambda error: isinstance(error, EOFError),
        "ranks have no standard input; expected arguments of the script, or a file",
    ),
    (
        lambda error: type(error).__name__ in ("DynamicOutputShapeException", "DataDependentOutputException"),
        "what follows depends on values of tensors, which a capture does not have; expected a size that is known, such "
        "as a capacity instead of a mask",
    ),
    (
        lambda error: "SparseTensorImpl" in str(error) or "to_sparse" in str(error.__context__),
        "tensors of a sparse layout are not captured; expected dense ones, such as Embedding(sparse=False)",
    ),
    (
        lambda error: (
            isinstance(error, AssertionError)
            and any(words in str(error) for words in ("shape_env", "FakeTensorMode is active"))
        ),
        "nested tensors have sizes that are not known; expected padded ones",
    ),
    (
        lambda error: (
            type(error).__name__ in ("UnsupportedOperatorException", "UnsupportedFakeTensorException")
            or "register_fake" in str(error)
            # Of RuntimeError where an operator has no kernel, and NotImplementedError where PyTorch knows why.
            or (
                isinstance(error, RuntimeError)
                and any(f"'{name}' backend" in str(error) for name in BACKENDS)
            )
        ),
        "an operator has no rule for tensors without memory; expected torch.library.register_fake for it",
    ),
    (
        lambda error: any(words in str(error) for words in ("CUDA_HOME", "nvcc", "-lcudart")),
        "kernels in CUDA cannot be built here; expected an installed extension, or a way without it",
    ),
    (
        lambda error: type(error).__name__ == "OutOfMemoryError",
        "one tensor is larger than the memory of the device; expected smaller ones, or another --device",
    ),
    (
        lambda error: "_optim_utils.py" in _files_of(error),
        "FSDP puts the state of an optimizer together from all ranks, of which one runs here; expected it to be saved "
        "after the recorded step (--step), or fully_shard, of whose state each rank has its own part",
    ),
    (
        lambda error: isinstance(error, RuntimeError) and "driver" in str(error),
        "a kernel of the program's own wants a driver; expected torch.library.register_fake, or a way without it",
    ),
)


def _shards(error: BaseException) -> bool:
    """Return whether shards of several ranks, which are all those of one, do not make a tensor."""
    return (
        isinstance(error, ValueError) and str(error).startswith("Shards ") and str(error).endswith("overlap")
    )


INSTEAD: tuple[tuple[Callable[[BaseException], bool], str], ...] = (
    (
        lambda error: _shards(error) and "_state_dict_utils.py" in _files_of(error),
        "FSDP's LOCAL_STATE_DICT asks all ranks for their shards, of which one runs here; expected "
        "StateDictType.SHARDED_STATE_DICT or FULL_STATE_DICT, which are captured, or fully_shard",
    ),
    (
        _shards,
        "ShardedTensor asks all ranks for their shards, of which one runs here; expected DTensor",
    ),
)
"""What is said in place of an error whose own words tell nothing."""


def reason(error: BaseException, script: str, notes: Sequence[str] = ()) -> str:
    """Return one line that says where a script ended, why, and what to do.

    Args:
        error: That ended it.
        script: That ran.
        notes: What differs from a real run so far, and may be why.
    """
    # The innermost line outside of installed packages.
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename and "/lib/python" not in frame.filename
        and not frame.filename.startswith(("<", _PACKAGE))
    ]  # fmt: skip
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else script
    for applies, words in INSTEAD:
        if applies(error):
            return f"{place}: {words}"
    text = _line_of(error)
    causes = _causes(error)
    if len(causes) > 1:
        # Pipelines say of what they ran that it failed, and not why.
        text += f" because of {type(causes[-1]).__name__}: {_line_of(causes[-1])}"
    hint = next((hint for each in reversed(causes) for applies, hint in HINTS if applies(each)), "")
    hint = hint or "; ".join(notes)
    return f"{place}: {type(error).__name__}: {text}" + (f" ({hint})" if hint else "")


def _line_of(error: BaseException) -> str:
    text = f"{error}: {told}" if (told := _of_arguments(error)) else str(error)
    return (text.strip().splitlines() or [""])[0][:300]


def _of_arguments(error: BaseException) -> str:
    """Return what `argparse` has against the arguments of a script, which it prints and does not raise; "": nothing."""
    for frame, _ in traceback.walk_tb(error.__traceback__ if isinstance(error, SystemExit) else None):
        if Path(frame.f_code.co_filename).name == "argparse.py" and frame.f_code.co_name == "error":
            return str(frame.f_locals.get("message", ""))
    return ""


def _causes(error: BaseException) -> list[BaseException]:
    """Return an error, and those that it was raised from."""
    found = [error]
    while (cause := found[-1].__cause__) is not None and cause not in found:
        found.append(cause)
    return found


def _files_of(error: BaseException) -> set[str]:
    """Return the names of the files that an error went through."""
    return {Path(frame.filename).name for frame in traceback.extract_tb(error.__traceback__)}
