"""One writer at a time: a lock that the system lets go when its process ends, however that ends."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from pathlib import Path

from armillary.base.errors import InputError


class WriterLock:
    """Holds FILE.lock until it is closed; the file says who does."""

    def __init__(self, path: Path) -> None:
        """Take the lock of the store at `path`.

        Raises:
            InputError: another process writes to it (or this one, by another `Store`), or the folder cannot be written.
        """
        self._name = path.with_name(f"{path.name}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                self._file = os.open(self._name, os.O_RDWR | os.O_CREAT, 0o644)
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    owner = os.pread(self._file, 1000, 0).decode(errors="replace").strip()
                    os.close(self._file)
                    raise InputError(
                        f"{path}: {owner or 'another process'} is writing to it, expected one writer at a time: "
                        "wait until it is done, stop it, or name another store"
                    ) from None
                if self._still_there():
                    break
                os.close(self._file)  # its last owner removed it between our two calls
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from error
        command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200]
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"process {os.getpid()} on {socket.gethostname()} ({command})".encode(), 0)

    def _still_there(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file), self._name.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Let go; the file is removed while it is still held."""
        self._name.unlink(missing_ok=True)
        os.close(self._file)
