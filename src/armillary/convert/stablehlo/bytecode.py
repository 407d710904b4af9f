"""StableHLO as bytes: portable artifacts, MLIR's bytecode, and what `jax.export` serializes; JAX makes text of them.

JAX's parser is native code, and such files come from strangers: it runs in a process of its own, which this module is,
too (``python -m``), with a limit of memory and of time. That also keeps JAX out of the process that converts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from armillary.base.errors import InputError
from armillary.base.reading import MOST_TEXT

MAGIC = b"ML\xefR"
"""How bytecode of MLIR begins; what `jax.export` serializes has it inside."""
# Importing JAX takes 2 s, and a program of 100,000 operations as long again.
_SECONDS = 300
_MEMORY = 8 << 30


def is_bytecode(data: bytes) -> bool:
    """Return whether a file is one that `text_of` reads."""
    if data.startswith(MAGIC):
        return True
    # The buffer of jax.export begins with an offset: text has no such bytes.
    return b"\0" in data[:64] and MAGIC in data


def text_of(data: bytes, path: Path) -> str:
    """Return the text of a program, as JAX prints it.

    Raises:
        InputError: JAX is not installed, or cannot read it.
    """
    text = f"expected text, of `jax.jit(f).lower(…).as_text()` or `stablehlo-translate --deserialize {path.name}`"
    if find_spec("jax") is None:
        raise InputError(
            f"{path}: is bytecode of MLIR, which needs JAX: pip install armillary[jax]; or {text}"
        )
    # -P: what lies in the current folder is no module of Python.
    command = [sys.executable, "-P", "-m", __name__]
    try:
        # One thread for what is parsed, and no accelerator.
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=_SECONDS, check=False,
            env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InputError(f"{path}: JAX took more than {_SECONDS} s to read this bytecode, {text}") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [
            f"it ended with {done.returncode}"
        ]
        raise InputError(f"{path}: JAX cannot read this bytecode ({said[-1][:200]}), {text}")
    if len(done.stdout) > MOST_TEXT:
        raise InputError(f"{path}: is more than {MOST_TEXT >> 20} MiB as text, expected less")
    return done.stdout.decode()


def _printed(data: bytes) -> str:
    """Return the text of a program; needs JAX."""
    from jax.interpreters import mlir
    from jaxlib.mlir.dialects import stablehlo

    if not data.startswith(MAGIC):
        from jax import export

        data = export.deserialize(bytearray(data)).mlir_module_serialized
    # It reads plain bytecode of MLIR, too.
    module = stablehlo.deserialize_portable_artifact(mlir.make_ir_context(), data)
    return str(module)


def _main() -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    data = sys.stdin.buffer.read()
    try:
        text = _printed(data)
    # Whatever native code and its bindings raise.
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split()) or 'no reason given'}")
    sys.stdout.buffer.write(text.encode())


if __name__ == "__main__":
    _main()
