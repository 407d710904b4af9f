"""Break inputs of every reader for a while: nothing but an ArmillaryError may come out, soon, in bounded memory.

Usage: python tests/fuzz/run.py [--minutes N | --each N] [--reader NAME]... [--first SEED] [--guided] [--keep]
       python tests/fuzz/run.py --guided --cases N
       python tests/fuzz/run.py --again NAME:SEED   (keeps the broken file, and shows the traceback)
       python tests/fuzz/run.py --again NAME:FILE

Prints a JSON line for each reader: cases, how many of them were read and how many refused, cases per second, the
slowest case, and the seeds that failed. Exits with 1 if any did. Each reader runs in a process of its own, so that
a crash, or a loop in compiled code, is found too. A case depends on the reader and its seed alone.

With --guided, what reaches lines of Armillary that nothing before it did is broken further, and so are the files of
`corpus/NAME`; what fails is kept in `out/fuzz/NAME`, because its seed alone no longer gives it. --keep writes a small
choice of what reached the most lines back to the corpus, of seeds of this tree only. Before Python 3.12 lines are
looked at in one case of eight, as that takes several times as long as the case.

--cases N ends each reader after so many cases, and programs of the engines after a third of it: they take longer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import fuzz_recorded
from fuzz_coverage import Coverage, Line
from fuzz_mutations import mutated
from fuzz_readers import Reader, readers

from armillary.base import yaml_text
from armillary.base.errors import ArmillaryError

CASE_SECONDS = 5
"""Of processor time: a busy machine is no reader's fault."""
MESSAGE = 1500
"""Characters that a message may have."""
SLOW_CASE_SECONDS = 120
TRACED = 6
"""Times slower, where each line is looked at."""
WATCHED = 1 if hasattr(sys, "monitoring") else 8
"""Of so many cases the lines of one are looked at."""
SLOW_SHARE = 3
"""One of so many cases is for programs of the engines: they take 15 to 30 ms, files 1 to 10."""
PLAIN = 8
"""One of so many YAML files is read by PyYAML, whatever its size. libyaml, for large ones, is 8 times as fast."""
POOLED = 1 << 15
"""Bytes of a file that is broken further: small ones find as much, and more of them fit in a minute."""
ROOM = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Where cases are: to write a file to a disk may take 50 times as long as to read it."""
LOOK_SECONDS = 0.2
STILL_SECONDS = 60
"""Of a process that neither computes nor waits for a processor: starved by others it is not stuck."""
STUCK_CPU_SECONDS = 300
"""Of processor time in one case: compiled code cannot be interrupted as Python is."""
MEMORY_BYTES = 6 << 30
SHOWN_FAILURES = 20
CORPUS = Path(__file__).parent / "corpus"
ANY = 1 << 40
FAST_FROM = yaml_text.FAST_FROM
KEPT_FILE, KEPT_BYTES = 3000, 14_000
"""Bytes of one file of the corpus, and of all of a reader."""
FINDS = Path("out/fuzz")


class TooSlowError(BaseException):
    """A case took longer than `CASE_SECONDS`; no reader catches this one."""


def corpus(reader: Reader) -> list[bytes]:
    """Return the files that earlier runs kept for a reader."""
    return [path.read_bytes() for path in sorted((CORPUS / reader.name).glob("*"))]


def case(reader: Reader, seed: int) -> bytes:
    """Return the broken file number `seed`."""
    return mutated(reader.seeds(), reader.mutations, Random(f"{reader.name}:{seed}"))


def attempt(reader: Reader, data: bytes, folder: Path, patience: int = 1) -> str:
    """Return "read", "refused", or what came out instead."""
    path = folder / reader.file
    path.write_bytes(data)
    # Which library reads YAML depends on its bytes, so that the file alone gives the case again.
    yaml_text.FAST_FROM = FAST_FROM if zlib.crc32(data) % PLAIN == 0 else 0
    limit = patience * (SLOW_CASE_SECONDS if reader.slow else CASE_SECONDS)

    def late(number: int, frame: FrameType | None) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        reader.read(path)
    except ArmillaryError as error:
        text = str(error)
        return (
            "refused"
            if text and "\n" not in text and len(text) < MESSAGE
            else f"a message of {text.count(chr(10)) + 1} lines, {len(text)} characters"
        )
    except TooSlowError:
        return f"more than {limit} s" + where(sys.exc_info()[2])
    except Exception as error:  # the point of it all
        return f"{type(error).__name__}: {str(error)[:200]}" + where(error.__traceback__)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        yaml_text.FAST_FROM = FAST_FROM
    return "read"


WARMING = 10
"""Times the seconds of a case that the first reading of a file may take."""


def warm(reader: Reader, folder: Path) -> None:
    """Read the unbroken files, so that no case has to wait for imports and compiled code."""
    for data in reader.seeds()[:8]:
        # What goes wrong a case will say, with its seed.
        attempt(reader, data, folder, WARMING)


def where(trace: Any) -> str:
    frames = [frame for frame in traceback.extract_tb(trace) if "armillary" in frame.filename]
    return f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def share(reader: Reader, cases: int) -> int:
    """Return how many cases a reader gets, of which one of files gets `cases`."""
    return max(cases // SLOW_SHARE, 1) if reader.slow else cases


def fuzz(
    reader: Reader,
    first: int,
    *,
    seconds: float = 1e9,
    cases: int = ANY,
    progress: Any = None,
    folder: str | None = None,
) -> dict[str, Any]:
    """Run cases from seed `first` on, and return what a line of output holds."""
    counts: dict[str, int] = {"read": 0, "refused": 0}
    failures: list[dict[str, Any]] = []
    places: set[str] = set()
    with room(folder) as name:
        warm(reader, Path(name))
        slowest, start, done = (0.0, first), time.monotonic(), 0
        while done < cases and time.monotonic() - start < seconds:
            seed = first + done
            if progress is not None:
                progress[:8] = seed.to_bytes(8, "little")
            begin = time.monotonic()
            outcome = attempt(reader, case(reader, seed), Path(name))
            slowest = max(slowest, (time.monotonic() - begin, seed))
            done += 1
            if outcome in counts:
                counts[outcome] += 1
                continue
            counts["failed"] = counts.get("failed", 0) + 1
            place = outcome.rpartition(" at ")[2]
            if place not in places and len(failures) < SHOWN_FAILURES:  # one of each kind
                places.add(place)
                failures.append({"seed": seed, "error": outcome})
    spent = time.monotonic() - start
    return {
        "reader": reader.name,
        "cases": done,
        **counts,
        "seconds": round(spent, 1),
        "per_second": round(done / max(spent, 1e-9)),
        "slowest_seconds": round(slowest[0], 3),
        "slowest_seed": slowest[1],
        "failures": failures,
    }


@contextmanager
def room(folder: str | None) -> Iterator[str]:
    """Yield a folder for cases: that one, or one that is gone afterwards."""
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(dir=ROOM) as name:
        yield name


def guided(
    reader: Reader,
    first: int,
    seconds: float = 1e9,
    *,
    cases: int = ANY,
    keep: bool = False,
    progress: Any = None,
    folder: str | None = None,
) -> dict[str, Any]:
    """Fuzz towards new lines for so long, or so many cases, and return what a line of output holds."""
    coverage, rng = Coverage(), Random(f"{reader.name}:{first}")
    pool: list[bytes] = []
    reached: list[tuple[bytes, set[Line]]] = []
    counts = {"read": 0, "refused": 0, "failed": 0}
    failures: dict[str, str] = {}
    slowest = 0.0
    start, done = time.monotonic(), 0
    with room(folder) as name:
        warm(reader, Path(name))
        given = [*reader.seeds(), *corpus(reader)]
        while done < cases and time.monotonic() - start < seconds:
            # What is given comes first as it is; then the newest finds more often than old ones.
            if done < len(given):
                data = given[done]
            else:
                # What was broken often is refused early: a third are whole files, broken once.
                recent = pool[-(1 << rng.randrange(6)) :] if rng.random() < 0.67 else given
                data = mutated(recent or given, reader.mutations, rng)
            if progress is not None:
                progress[:8] = (first + done).to_bytes(8, "little")
            begin = time.monotonic()
            if done < len(given) or done % WATCHED == 0:
                with coverage.watching() as new:
                    outcome = attempt(reader, data, Path(name), TRACED)
            else:
                new = set()
                outcome = attempt(reader, data, Path(name))
            slowest = max(slowest, time.monotonic() - begin)
            done += 1
            counts[outcome if outcome in counts else "failed"] += 1
            if outcome not in counts and outcome not in failures and len(failures) < SHOWN_FAILURES:
                failures[outcome] = str(found_file(reader, data))
            if done <= len(given) or (new and len(data) <= POOLED):
                pool.append(data)
                reached.append((data, set(new)))
    coverage.close()
    if keep:
        write_corpus(reader, reached)
    spent = time.monotonic() - start
    return {
        "reader": reader.name, "cases": done, **counts, "lines": len(coverage.lines), "pool": len(pool),
        "seconds": round(spent, 1), "per_second": round(done / spent), "slowest_seconds": round(slowest, 3),
        "failures": [{"error": error, "file": file} for error, file in failures.items()],
    }  # fmt: skip


def found_file(reader: Reader, data: bytes) -> Path:
    """Keep what failed."""
    path = FINDS / reader.name / f"{hashlib.sha256(data).hexdigest()[:12]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def write_corpus(reader: Reader, reached: list[tuple[bytes, set[Line]]]) -> None:
    """Keep the small files that reached the most new lines for their size."""
    folder = CORPUS / reader.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    room = KEPT_BYTES
    for data, new in sorted(reached, key=lambda pair: -len(pair[1]) / (len(pair[0]) + 200)):
        if new and len(data) <= min(KEPT_FILE, room):
            (folder / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)
            room -= len(data)


def at_work(pid: int) -> tuple[str, float]:
    """Return the state of a process, "R" where it runs or waits for a processor, and its processor seconds."""
    # The name in parentheses may hold spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def supervised(reader: Reader, first: int, *more: str) -> dict[str, Any]:
    """Fuzz one reader in another process, and say where it stood if that dies or hangs."""
    with tempfile.TemporaryDirectory(dir=ROOM) as folder:
        at = Path(folder, "progress")
        at.write_bytes(first.to_bytes(8, "little"))
        command = [
            sys.executable,
            __file__,
            "--child",
            folder,
            "--reader",
            reader.name,
            "--first",
            str(first),
        ]
        process = subprocess.Popen([*command, *more], stdout=subprocess.PIPE, text=True)
        last, still, begun, spent = b"", 0.0, 0.0, 0.0
        while process.poll() is None:
            time.sleep(LOOK_SECONDS)
            now, (state, cpu) = at.read_bytes(), at_work(process.pid)
            if now != last:
                last, still, begun = now, 0.0, cpu
            elif state != "R" and cpu == spent:
                still += LOOK_SECONDS
            spent = cpu
            if still > STILL_SECONDS or cpu - begun > STUCK_CPU_SECONDS:
                process.kill()
        output = process.stdout.read() if process.stdout else ""
        if process.returncode == 0:
            result: dict[str, Any] = json.loads(output)
            return result
        seed = int.from_bytes(at.read_bytes(), "little")
        failure: dict[str, Any] = {"seed": seed, "error": f"the process ended with {process.returncode}"}
        tried = Path(folder, reader.file)
        if "--guided" in more and tried.exists():
            failure["file"] = str(found_file(reader, tried.read_bytes()))
        return {"reader": reader.name, "cases": seed - first + 1, "failed": 1, "failures": [failure]}


def main() -> int:
    """Fuzz all readers, sharing the time, or do what the arguments say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, help="for all readers together; 1 unless --cases are given")
    parser.add_argument("--cases", type=int, default=ANY, help="for each reader, at most")
    parser.add_argument("--each", type=float, default=0.0, help="minutes for each reader, instead")
    parser.add_argument("--guided", action="store_true", help="towards lines that are new")
    parser.add_argument("--keep", action="store_true", help="with --guided: write the corpus anew")
    parser.add_argument("--reader", action="append", help="only this one; repeatable")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--again", metavar="NAME:SEED")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.keep:
        # The corpus is made of this tree alone.
        fuzz_recorded.TRACES = Path("none")
    table = {reader.name: reader for reader in readers()}
    if arguments.again:
        name, _, number = arguments.again.rpartition(":")
        path = Path(tempfile.mkdtemp()) / table[name].file
        path.write_bytes(case(table[name], int(number)) if number.isdigit() else Path(number).read_bytes())
        sys.stdout.write(f"{path}\n")
        table[name].read(path)
        return 0
    names = arguments.reader or list(table)
    minutes = arguments.minutes or (1.0 if arguments.cases == ANY else 1e6)
    seconds = 60 * (arguments.each or minutes / len(names))
    if arguments.child:
        # What NumPy has to say of a file, its reader should have said.
        warnings.simplefilter("error", RuntimeWarning)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        reader, folder = table[names[0]], arguments.child
        with Path(folder, "progress").open("r+b") as file, mmap.mmap(file.fileno(), 8) as progress:
            how: dict[str, Any] = {
                "seconds": 60 * arguments.each, "cases": share(reader, arguments.cases), "progress": progress,
                "folder": folder,
            }  # fmt: skip
            result = (
                guided(reader, arguments.first, keep=arguments.keep, **how)
                if arguments.guided
                else fuzz(reader, arguments.first, **how)
            )
        sys.stdout.write(json.dumps(result))
        return 0
    failed = 0
    more = ["--guided"] * arguments.guided + ["--keep"] * arguments.keep
    more += ["--each", str(seconds / 60), "--cases", str(arguments.cases)]
    for name in names:
        result = supervised(table[name], arguments.first, *more)
        failed += bool(result["failures"])
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
