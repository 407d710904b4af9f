"""The store of sweeps on a disk that fails: SQLite writes by itself, so that its calls of the C library fail here."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or not shutil.which("cc"), reason="needs a C compiler on Linux"
    ),
]
LAYER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

/* FAULT is CALL:NTH:ERRNO; from its NTH call on, CALL fails on files whose path contains "/kept". */
static char ours[4096];
static int calls;

static int fails(const char *call, int fd) {
    const char *fault = getenv("FAULT");
    size_t length = strlen(call);
    if (!fault || strncmp(fault, call, length) || fault[length] != ':') return 0;
    if (fd >= 0 && (fd >= 4096 || !ours[fd])) return 0;
    char *rest;
    long nth = strtol(fault + length + 1, &rest, 10);
    if (++calls < nth) return 0;
    errno = atoi(rest + 1);
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define OPEN(name)                                                        \
    int name(const char *path, int flags, ...) {                          \
        va_list more;                                                     \
        va_start(more, flags);                                            \
        int mode = va_arg(more, int);                                     \
        va_end(more);                                                     \
        int kept = strstr(path, "/kept") != NULL;                         \
        if (kept && (flags & O_CREAT) && fails("open", -1)) return -1;    \
        int fd = REAL(name)(path, flags, mode);                           \
        if (fd >= 0 && fd < 4096) ours[fd] = (char)kept;                  \
        return fd;                                                        \
    }
OPEN(open)
OPEN(open64)
#define PWRITE(name, offset)                                                              \
    ssize_t name(int fd, const void *data, size_t size, offset at) {                      \
        if (fails("short", fd)) return size > 1 && calls % 2 ? REAL(name)(fd, data, size / 2, at) : -1; \
        return fails("write", fd) ? -1 : REAL(name)(fd, data, size, at);                  \
    }
ssize_t pwrite(int, const void *, size_t, off_t);
ssize_t pwrite64(int, const void *, size_t, off64_t);
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)
ssize_t write(int, const void *, size_t);
ssize_t write(int fd, const void *data, size_t size) { return fails("write", fd) ? -1 : REAL(write)(fd, data, size); }
int fsync(int);
int fsync(int fd) { return fails("fsync", fd) ? -1 : REAL(fsync)(fd); }
int fdatasync(int);
int fdatasync(int fd) { return fails("fsync", fd) ? -1 : REAL(fdatasync)(fd); }
int ftruncate(int, off_t);
int ftruncate(int fd, off_t size) { return fails("truncate", fd) ? -1 : REAL(ftruncate)(fd, size); }
int ftruncate64(int, off64_t);
int ftruncate64(int fd, off64_t size) { return fails("truncate", fd) ? -1 : REAL(ftruncate64)(fd, size); }
"""
# Prints how many rows `add` has taken, one after the other; its own errors are the only ones.
FILL = """
import sys
from armillary.base.errors import ArmillaryError
from armillary.explore.runner import Store
from armillary.explore.runner.identity import Identity
from armillary.explore.sweep import Row

taken = 0
try:
    with Store(sys.argv[1]) as store:
        for number in range(60):
            row = Row(number, {}, "x" * 500, "ok", "", {"step_time": 1.0 + number}, 0.5)
            store.add([(Identity(f"{number:064}", "r" * 300), row)])
            taken += 1
except ArmillaryError as error:
    assert "\\n" not in str(error) and sys.argv[1] in str(error), error
    print(error, file=sys.stderr)
print(taken)
"""
FAULTS = [
    *(f"write:{nth}:{errno.ENOSPC}" for nth in (1, 2, 3, 5, 9, 20, 50)),
    *(f"write:{nth}:{errno.EIO}" for nth in (1, 4, 30)),
    *(f"short:{nth}:{errno.ENOSPC}" for nth in (1, 3, 11, 40)),
    *(f"open:{nth}:{number}" for nth, number in ((1, errno.EROFS), (2, errno.ENOSPC), (3, errno.EACCES))),
    *(f"fsync:{nth}:{errno.EIO}" for nth in (1, 2, 3)),
    *(f"truncate:{nth}:{number}" for nth, number in ((1, errno.EIO), (2, errno.ENOSPC))),
]


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layer")
    (folder / "layer.c").write_text(LAYER)
    command = ["cc", "-shared", "-fPIC", "-o", str(folder / "layer.so"), str(folder / "layer.c"), "-ldl"]
    subprocess.run(command, check=True, timeout=300)
    return folder / "layer.so"


def test_every_row_that_was_taken_is_kept(layer: Path, tmp_path: Path) -> None:
    failed = 0
    for number, fault in enumerate(FAULTS):
        path = tmp_path / str(number) / "kept"
        path.parent.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", FILL, str(path)],
            env=os.environ | {"LD_PRELOAD": str(layer), "FAULT": fault},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, f"{fault}: {done.stderr}"
        taken = int(done.stdout)
        failed += taken < 60
        # As the next run finds it, on a disk that is whole again.
        again = subprocess.run(
            [sys.executable, "-c", FILL.replace("range(60)", "range(60, 62)"), str(path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        assert (again.stdout, again.stderr) == ("2\n", ""), f"{fault}: {again.stderr}"
        with closing(sqlite3.connect(path)) as base:
            assert base.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            keys = [int(key) for (key,) in base.execute("SELECT key FROM work ORDER BY id")]
        assert set(keys) >= {*range(taken), 60, 61} and len(set(keys)) == len(keys), f"{fault}: {keys}"
    assert failed >= 12
