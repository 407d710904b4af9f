"""Files of compiled kernels that are complete or absent: Numba's own files, but with a checksum and one per signature.

Numba keeps an index per function, and numbers its files. A damaged index causes a traceback until somebody deletes it;
damaged machine code crashes the process. If two processes add to one index at the same time, one may find the other's
code under its number. Here the name of a file identifies its code, and its first bytes are a hash of the rest: a file
that does not match is deleted, and the kernel is compiled again. A hash does not tell who wrote a file, and code is
run: see `own_files`.
"""

from __future__ import annotations

import hashlib
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.base.files import replacing
from armillary.base.own_files import make_own, read_own

SUFFIX = ".code"
"""Of files of machine code that runs without Numba, see `machine_code`; those of Numba end in ``.nbc``."""
_SEAL = hashlib.sha256().digest_size


class KernelFiles:
    """Stands for Numba's ``IndexDataCacheFile``: the machine code of a function, by signature and processor."""

    def __init__(
        self, folder: Path, name: str, version: str, suffix: str = ".nbc", root: Path | None = None
    ) -> None:
        """Keep the code of function `name`, made by `version` of Numba, in files of `folder` that end in `suffix`.

        Nobody else may be able to write to the folders from `root` on; without it, to `folder`.
        """
        self._folder = folder
        self._root = root or folder
        self._name = name
        self._version = version
        self._suffix = suffix
        self.problem: OSError | None = None
        """Why the last `save` kept nothing."""

    def _about(self, key: object) -> tuple[str, Path]:
        # Types have names that tell them apart; pickles of them may differ from process to process.
        known = repr((self._name, self._version, key))
        return (
            known,
            self._folder / f"{self._name}.{hashlib.sha256(known.encode()).hexdigest()[:24]}{self._suffix}",
        )

    def save(self, key: object, data: object) -> None:
        """Keep the code of a signature; where that fails, nothing is kept, and `problem` says why."""
        from numba.core.serialize import dumps

        known, path = self._about(key)
        content: bytes = dumps((known, data))  # type: ignore[no-untyped-call]
        self.problem = None
        try:
            make_own(self._folder, self._root)
            with replacing(path, private=True) as temporary:
                temporary.write_bytes(hashlib.sha256(content).digest() + content)
        except OSError as error:
            self.problem = error
        except InputError as error:
            cause = error.__cause__
            self.problem = cause if isinstance(cause, OSError) else OSError(str(error))

    def load(self, key: object) -> Any:
        """Return the code of a signature; None: there is none, or it was damaged and is thrown away."""
        known, path = self._about(key)
        content = read_own(path, self._root)
        if content is None:
            return None
        if hashlib.sha256(content[_SEAL:]).digest() == content[:_SEAL]:
            # Only sealed bytes are unpickled. A class that they name may be gone all the same.
            with suppress(Exception):
                written, data = pickle.loads(content[_SEAL:])
                if written == known:
                    return data
        with suppress(OSError):
            path.unlink()
        return None

    def flush(self) -> None:
        """Forget all code of the function."""
        for path in self._folder.glob(f"{self._name}.*{self._suffix}"):
            path.unlink(missing_ok=True)
