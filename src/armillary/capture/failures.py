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
            or (isinstance(error, NotImplementedError) and "'CUDA' backend" in str(error))
        ),
        "an operator has no rule for tensors without memory; expected torch.library.register_fake for it",
    ),
    (
        lambda error: "CUDA_HOME" in str(error) or "nvcc" in str(error),
        "kernels in CUDA cannot be built here; expected an installed extension, or a way without it",
    ),
    (
        lambda error: isinstance(error, RuntimeError) and "driver" in str(error),
        "a kernel of the program's own wants a driver; expected torch.library.register_fake, or a way without it",
    ),
)


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
    text = (str(error).strip().splitlines() or [""])[0][:300]
    hint = next((hint for applies, hint in HINTS if applies(error)), "")
    hint = hint or "; ".join(notes)
    return f"{place}: {type(error).__name__}: {text}" + (f" ({hint})" if hint else "")
