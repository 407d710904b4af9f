"""Files that are complete or absent; symlinks are followed, and pipes and terminals are written directly.

A file is named ``NAME.part`` until it is complete, and is then renamed. An error removes that file. A killed process
cannot remove it, but the next process that writes NAME replaces it. So NAME is intact after a full disk or SIGKILL.
The file is not synced to the disk (12 ms per file here, and a trace has one per rank), so a machine crash may lose
what was written in the last seconds before it.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TextIO

from armillary.base.errors import InputError

StrPath = str | os.PathLike[str]
READER_SECONDS = 1.0
"""How long a pipe that is to be written to may be without a reader; as long as one that is read, without a writer."""
_MOST_LINKS = 40
_kept: list[TextIO] = []


@contextmanager
def replacing(path: StrPath, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary name to write to, which becomes `path` if no error occurs; missing folders are made.

    A regular file is written next to the one that it replaces, takes its permissions, and is renamed; if `path` is a
    symlink, this applies to its target. A pipe, a terminal, ``/dev/null`` and files that this process has open
    (``/dev/stdout``) are not replaced: they get the bytes when all are available.

    Args:
        path: The file.
        private: Nobody else may read it at any time, where it is new.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        descriptor = _descriptor(path)
        target = Path(os.path.realpath(path))
        # The rename is atomic: a reader sees the old file or the new one, and an interrupt leaves the old
        # one.
        if descriptor is None and _replaceable(Path(path)):
            with _renamed(target, 0o600 if private else 0o666) as temporary:
                yield temporary
            return
        with TemporaryDirectory(prefix="armillary-") as folder:
            temporary = Path(folder, Path(path).name)
            yield temporary
            with temporary.open("rb") as source, _stream(path, descriptor) as stream:
                shutil.copyfileobj(source, stream)
    # The reader of a pipe has left, as in `| head`: no error of the user.
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(
            f"{Path(path)}: cannot be written ({error.strerror or error}), expected a path that can be written"
        ) from error


@contextmanager
def kept_standard_output() -> Iterator[None]:
    """Reserve standard output for a file that is written to it: printed text goes to standard error."""
    _kept.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _kept.pop()


@contextmanager
def _stream(path: StrPath, descriptor: int | None) -> Iterator[IO[bytes]]:
    if descriptor == 1:
        # What stands for standard output in this process, a test's buffer for instance, is to get it.
        text = _kept[-1] if _kept else sys.stdout
        text.flush()
        yield text.buffer
        text.flush()
        return
    with os.fdopen(_opened(path) if descriptor is None else os.dup(descriptor), "wb") as stream:
        yield stream


def _opened(path: StrPath) -> int:
    """Return a descriptor for writing; a pipe has to have a reader, as opening it would wait for one."""
    if not stat.S_ISFIFO(Path(path).stat().st_mode):
        return os.open(path, os.O_WRONLY)
    end = time.monotonic() + READER_SECONDS
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > end:
                raise InputError(
                    f"{os.fspath(path)}: is a pipe that nobody reads, expected a file, or a pipe that somebody reads"
                ) from None
            time.sleep(0.02)
            continue
        os.set_blocking(descriptor, True)
        return descriptor


@contextmanager
def _renamed(target: Path, mode: int) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, because a rename does not cross file systems.
    with _own(target.with_name(f"{target.name}.part"), mode) as temporary:
        try:
            yield temporary
            with suppress(FileNotFoundError):
                shutil.copymode(target, temporary)
            temporary.replace(target)
        except BaseException:
            # Not after the rename: the name may be another process's by now.
            temporary.unlink(missing_ok=True)
            raise


@contextmanager
def filling(folder: StrPath) -> Iterator[Path]:
    """Yield a folder to fill, which becomes the new or empty `folder` if no error occurs; folders above are made.

    Raises:
        InputError: it cannot be written.
    """
    target = Path(os.path.realpath(folder))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _own(target.with_name(f"{target.name}.part"), folder=True) as temporary:
            try:
                yield temporary
                _move(temporary, target)
            except BaseException as error:
                shutil.rmtree(temporary, ignore_errors=True)
                if not isinstance(error, InputError):
                    raise
                # About a file that the user knows by its later name.
                raise InputError(str(error).replace(str(temporary), str(folder))) from error
    except OSError as error:
        raise InputError(
            f"{Path(folder)}: cannot be written ({error.strerror or error}), expected a folder that can be written"
        ) from error


def _move(filled: Path, target: Path) -> None:
    if not target.is_dir():
        filled.replace(target)
        return
    # An empty folder stays what it is: somebody may work there, or something be mounted. Rank 0 goes last of the ranks,
    # without which no trace is read.
    for each in sorted(filled.iterdir(), reverse=True):
        each.replace(target / each.name)
    filled.rmdir()


@contextmanager
def _own(name: Path, mode: int = 0o777, *, folder: bool = False) -> Iterator[Path]:
    """Yield `name` for this process alone, empty or not there; or another name, while a living process writes to it."""
    descriptor = _locked(name, mode, folder=folder)
    if descriptor is None:
        name = name.with_name(f"{name.stem}.{os.getpid()}-{threading.get_ident()}.part")
        if not folder:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    try:
        _empty(name, descriptor, folder=folder)
        yield name
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _empty(name: Path, descriptor: int | None, *, folder: bool) -> None:
    """Remove what a killed process left behind; nothing stays if that fails."""
    try:
        if folder and descriptor is not None:
            for each in name.iterdir():
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
        elif folder:
            name.mkdir()
        elif descriptor is not None:
            os.ftruncate(descriptor, 0)
    except OSError:
        (shutil.rmtree(name, ignore_errors=True) if folder else name.unlink(missing_ok=True))
        raise


def _locked(name: Path, mode: int, *, folder: bool) -> int | None:
    """Make a file or a folder and return a descriptor that locks it; None: somebody else does, or nothing can."""
    try:
        import fcntl
    except ImportError:
        # Windows, which knows no such locks.
        return None
    while True:
        if folder:
            name.mkdir(exist_ok=True)
        try:
            # Never through a symlink that somebody put there.
            how = os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, how | (os.O_RDONLY if folder else os.O_WRONLY | os.O_CREAT), mode)
        except FileNotFoundError:
            if folder:
                continue  # its last owner has just renamed it
            raise
        except OSError:
            # Somebody else's, or there is no room: who writes will find out.
            return None
        try:
            # The system gives the lock back when the process ends, however it ends.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.fstat(descriptor)
            if os.path.samestat(there, os.lstat(name)):
                if not stat.S_IMODE(there.st_mode) & ~mode:
                    return descriptor
                # Left behind by a killed process, and perhaps open elsewhere: too open for what comes now.
                name.unlink()
        except FileNotFoundError:
            pass
        except OSError:
            # A living process has it, or the file system has no locks.
            os.close(descriptor)
            return None
        os.close(descriptor)


def write_text(path: StrPath, *pieces: str) -> None:
    """Write a text file in UTF-8, one piece after the other; see `replacing`."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.writelines(pieces)


def append(path: Path, data: bytes) -> None:
    """Add to the end of a file, which an error leaves as it was; a process that is killed may leave a part of `data`.

    Raises:
        OSError: the file cannot be written.
    """
    old = path.stat().st_size if path.exists() else None
    try:
        with path.open("ab", buffering=0) as stream:
            left = memoryview(data)
            while left:
                left = left[stream.write(left) :]
    except BaseException:
        # Nothing is lost where the file cannot be opened either.
        with suppress(OSError):
            if old is None:
                path.unlink()
            else:
                os.truncate(path, old)
        raise


def make_folder(folder: StrPath) -> None:
    """Make a folder that several files are written to, and those above it, where they are missing.

    Raises:
        InputError: it cannot be made.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{Path(folder)}: cannot be made ({error.strerror or error}), expected a folder that can be written"
        ) from error


def check_writable(option: str, path: StrPath, *, stream: bool = True) -> None:
    """Refuse, before any work is done, a path of `option` that `replacing` could not write.

    Raises:
        InputError: it is a folder or a disk, or its folder is not there and cannot be made, or cannot be written;
            without `stream` also a pipe, a terminal and the like.
    """
    target = Path(path)
    if target.is_dir():
        raise InputError(f"{option} {target}: is a folder, expected a file name")
    open_already = _descriptor(target) is not None
    if not stream and (open_already or not _replaceable(target)):
        raise InputError(f"{option} {target}: expected a file, not a pipe or a device")
    if open_already:
        return
    with suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISBLK(target.stat().st_mode):
            raise InputError(f"{option} {target}: is a disk, expected a file, a pipe or a terminal")
    if _replaceable(target):
        check_folder(option, Path(os.path.realpath(target)).parent, of=target)


def check_folder(option: str, folder: StrPath, of: StrPath | None = None) -> None:
    """Refuse, before any work is done, a folder of `option` in which nothing could be written.

    Raises:
        InputError: it, or what should hold it, is a file or cannot be written; `of` is the path to name.
    """
    # Folders that are missing will be made, so the nearest one that exists decides.
    first = Path(folder)
    there = next(each for each in (first.absolute(), *first.absolute().parents) if os.path.lexists(each))
    what = f"{option} {first if of is None else of}"
    if not there.is_dir():
        raise InputError(f"{what}: '{there}' is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{what}: nothing can be written in the folder '{there}' (permission denied)")


def check_prefix(option: str, prefix: StrPath) -> None:
    """Refuse a prefix of `option` that is no beginning of file names.

    Raises:
        InputError: it is standard output, or something else that is open already.
    """
    if os.fspath(prefix) == "-" or _descriptor(prefix) is not None:
        raise InputError(
            f"{option} {prefix}: several files are written, expected what their names begin with"
        )


def is_standard_output(path: StrPath) -> bool:
    """Tell whether a path such as ``/dev/stdout`` is the standard output of this process."""
    return _descriptor(path) == 1


def _replaceable(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True


def _descriptor(path: StrPath) -> int | None:
    """Return N for ``/dev/fd/N``, ``/proc/self/fd/N`` and symlinks to them, such as ``/dev/stdout``."""
    name = Path(path).absolute()
    for _ in range(_MOST_LINKS):
        folder = name.parent.resolve()
        open_ones = {Path("/dev/fd"), Path(f"/proc/{os.getpid()}/fd")}
        if name.name.isdecimal() and {name.parent, folder} & open_ones:
            return int(name.name)
        try:
            name = folder / name.readlink()
        except OSError:
            return None
    return None
