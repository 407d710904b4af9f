"""The library that stands for CUDA: compiled on first use, once for each version of PyTorch.

PyTorch's wheel brings its headers; a C++ compiler is all that is needed beside it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from armillary.base.errors import ArmillaryError, InputError
from armillary.base.files import replacing
from armillary.base.kernel_files import cache_home, is_own_file, make_own
from armillary.base.reading import read_plain

SOURCE = Path(__file__).with_name("fake_cuda.cc")
COMPILERS = ("c++", "g++", "clang++")
RECORD, WAIT, STREAM, EVENT, DEVICE = range(5)
"""Kinds of notes: a stream records an event; a stream waits for one; the host waits for a stream, an event, all."""
Noted = Callable[[int, int, int], None]


class Library:
    """CUDA, as far as autograd and streams see it. Nothing takes it out of a process again."""

    def __init__(self, path: Path) -> None:
        """Load it.

        Raises:
            ArmillaryError: this PyTorch does not take it.
        """
        try:
            self._library = ctypes.CDLL(str(path))
            # It is asked for each operator, and takes less time than to let other threads run meanwhile.
            self._quick = ctypes.PyDLL(str(path))
        except OSError as error:
            raise ArmillaryError(
                f"{path}: cannot be loaded ({error}); expected the PyTorch that it was built for"
            ) from error
        self._quick.armillary_stream.restype = ctypes.c_int64
        self._noted: Any = None

    def install(self, devices: int, noted: Noted) -> None:
        """Let PyTorch have so many devices; `noted` gets (kind, event, stream).

        Raises:
            ArmillaryError: this PyTorch does not take it.
        """
        # Kept: PyTorch calls it as long as the process lives.
        self._noted = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)(noted)
        if not self._library.armillary_install(devices, self._noted):
            raise ArmillaryError(
                "armillary capture: this PyTorch has other hooks than those that it was compiled with"
            )

    def stream(self) -> int:
        """Return the number of the current stream of this thread."""
        return int(self._quick.armillary_stream())


def library(torch: Any) -> Path:
    """Return the compiled library of this PyTorch, compiling it if it is not in the cache.

    Raises:
        InputError: there is no C++ compiler.
        ArmillaryError: it does not compile.
    """
    key = hashlib.sha256(read_plain(SOURCE) + f"{torch.__version__} {torch.__file__}".encode()).hexdigest()[
        :16
    ]
    folder = cache_home() / f"capture-{torch.__version__}-{key}"
    target = folder / "library.so"
    # What is loaded is run.
    if is_own_file(target, folder):
        return target
    compiler = next(
        (found for name in (os.environ.get("CXX", ""), *COMPILERS) if name and (found := shutil.which(name))),
        "",
    )
    if not compiler:
        raise InputError(
            "armillary capture needs a C++ compiler, once for each version of PyTorch, expected one of "
            f"{', '.join(COMPILERS)} on the PATH (`apt-get install g++`, `dnf install gcc-c++`) or in CXX"
        )
    headers, libraries = Path(torch.__file__).parent / "include", Path(torch.__file__).parent / "lib"
    try:
        make_own(folder, folder)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be made ({error.strerror or error}), expected a cache that only you can write to; "
            "XDG_CACHE_HOME says where it is"
        ) from error
    # Each process writes a file of its own; the last rename wins, and all are equal.
    with replacing(target, private=True) as part:
        words = [compiler, "-O1", "-std=c++20", "-shared", "-fPIC", f"-I{headers}"]
        words += [f"-I{headers / 'torch/csrc/api/include'}", "-x", "c++", str(SOURCE), "-o", str(part)]
        words += [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lc10", "-ltorch_cpu"]
        if torch._C._GLIBCXX_USE_CXX11_ABI is False:
            words.append("-D_GLIBCXX_USE_CXX11_ABI=0")
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-300:])
            raise ArmillaryError(
                f"armillary capture: {SOURCE.name} does not compile for PyTorch {torch.__version__} "
                f"(Python {sys.version_info.major}.{sys.version_info.minor}): {reason.strip()}"
            )
    return target
