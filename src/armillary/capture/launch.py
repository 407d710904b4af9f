"""Capture ranks of a script: a process for each, two at a time; what is there already is not run again."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

from armillary.base.errors import InputError
from armillary.base.files import make_folder, write_text
from armillary.base.json_text import parse_json
from armillary.base.posix import needs_posix
from armillary.base.reading import read_plain
from armillary.capture import cluster
from armillary.capture.device import DEFAULT, fake_device
from armillary.capture.forks import POLL_SECONDS, Forks
from armillary.capture.inputs import unchanged
from armillary.capture.log import Log
from armillary.capture.mesh import mesh_of, needs_mesh
from armillary.capture.objects import ENDED, WAITING, number_in
from armillary.capture.rank_files import FORMAT, RUN, path_of, read
from armillary.capture.script import NOT_ALIKE, REFUSED
from armillary.capture.session import STEP
from armillary.capture.steps import differs
from armillary.capture.summary import MOST_RUN, classes, witnesses

TOGETHER = 2
"""Processes that compute at a time; those that wait for a message of another rank do not count."""
TRIES: tuple[dict[str, bool], ...] = ({}, {"early": False}, {"every_microbatch": True})
"""Options of a rank, and of the same rank after microbatches that were taken to be alike were not."""
MOST_PRINTED = 1_000_000
"""Characters of what a rank printed that are kept where it failed."""


def capture_script(
    script: str,
    arguments: Sequence[str] = (),
    *,
    folder: str | Path,
    ranks: int = 1,
    run: Sequence[int] | None = None,
    device: str = DEFAULT,
    step: int = STEP,
    module: bool = False,
    every_microbatch: bool = False,
) -> list[Log]:
    """Run a script, unchanged, as some of its ranks, and return what each did in one step.

    A rank that waits for a Python object of another one, as stages of a pipeline do, has that one captured, too. A run
    that was interrupted goes on: ranks whose files are in the folder are not run again if script, arguments, device
    and step are the same, and what the script imported and read below its folder, and of the environment, as well.

    Args:
        script: A Python file, or the name of a module.
        arguments: Its arguments.
        folder: Where ``rank_<r>.json.gz`` go.
        ranks: How many ranks it has.
        run: Those to run; None: the first and the last, one of each stage of a pipeline, and one at random; and the
            others, if those differ and there are at most `MOST_RUN`.
        device: What `torch.cuda` answers as.
        step: Step to record, from 1, after which the script is ended, or its last one if it makes fewer; 0: the whole
            script.
        module: `script` is a module, as in ``python -m``.
        every_microbatch: Run those of a pipeline, too, that do the same as those before them.

    Raises:
        InputError: the script is missing, or PyTorch or a compiler is, or the system forks no processes; or a rank
            failed before its step was recorded.
    """
    needs_posix("armillary capture")
    target = Path(folder)
    if not module and not Path(script).is_file():
        raise InputError(f"{script}: no such file, expected a Python script")
    for rank in run or ():
        if not 0 <= rank < ranks:
            raise InputError(f"rank {rank} is to run, expected ranks from 0 to {ranks - 1}")
    if run is not None and len(run) > MOST_RUN:
        raise InputError(
            f"{len(run)} ranks are to run, expected at most {MOST_RUN}, such as one of each kind"
        )
    found = fake_device(device)
    make_folder(target)
    said: dict[str, object] = {
        "script": script, "digest": "" if module else hashlib.sha256(read_plain(script)).hexdigest(),
        "arguments": list(arguments), "ranks": ranks, "device": found.name, "step": step, "format": FORMAT,
        "every_microbatch": every_microbatch,
    }  # fmt: skip
    _of_this_run(target, said)
    with tempfile.TemporaryDirectory(prefix="armillary-") as mail:
        options = {
            "folder": str(target.resolve()), "ranks": ranks, "device": found.name, "step": step, "mail": mail,
            "module": module, "every_microbatch": every_microbatch, "early": True, "follows": -1,
        }  # fmt: skip
        with _Processes(target, Path(mail), options, [script, *arguments]) as processes:
            if run is None:
                _usual(processes, ranks)
                processes.check_steps()
            else:
                processes.run(run)
            logs = processes.logs()
    write_text(target / RUN, json.dumps({**said, "done": [log.rank for log in logs]}, indent=1) + "\n")
    return logs


def _of_this_run(folder: Path, said: dict[str, object]) -> None:
    """Remove ranks of another run, or of one that ended: what the script imports may have changed since."""
    path = folder / RUN
    if path.exists():
        try:
            same = parse_json(read_plain(path), path) == said
        except (InputError, OSError, ValueError):
            same = False
        if same:
            return
    for old in (*folder.glob("rank_*.json.gz"), *folder.glob("rank_*.txt")):
        old.unlink()
    write_text(path, json.dumps(said, indent=1) + "\n")


def _usual(processes: _Processes, ranks: int) -> None:
    """Run rank 0, a rank of each stage, and, to see whether the others are alike, the last one and one at random.

    If they are not, the others are run, too.
    """
    processes.whole = {0, ranks - 1}
    processes.run({0})
    # The ranks of other stages may have groups that the first one has not, and so a finer mesh.
    for _ in range(ranks):
        logs = processes.logs()
        mesh = mesh_of(logs)
        if mesh is None:
            if ranks > MOST_RUN:
                raise needs_mesh(logs)
            processes.run(range(ranks))
            return
        stages = mesh.stages(logs)
        processes.alike = [list(mesh.sizes), list(stages)]
        first = (range(size if at in stages else 1) for at, size in enumerate(mesh.sizes))
        wanted = {mesh.rank(place) for place in product(*first)} - processes.done
        if len(wanted) > MOST_RUN:
            raise InputError(
                f"{logs[0].script}: {len(wanted)} ranks send messages to different others; expected --run"
            )
        if not wanted:
            break
        processes.run(wanted)
    # By a number that is always the same: two runs of a command run the same ranks.
    drawn = random.Random(ranks).randrange(ranks)
    processes.run({ranks - 1, drawn} - processes.done)
    # The first one alone may read its loss and print it.
    processes.run(witnesses(processes.logs(), cluster.GPUS_PER_NODE))
    # Where others differ (in a ring, each rank may see another part of a mask), what follows from none is run, too.
    logs = processes.logs()
    rest = set(range(ranks)).difference(*(each.ranks for each in classes(logs)))
    if rest and len(rest) + len(logs) <= MOST_RUN:
        processes.run(rest)


class _Processes:
    """Ranks that run, two at a time.

    Attributes:
        done: Ranks whose files are there.
        alike: Sizes of a mesh, and its axes of stages: ranks that differ along the other axes send equal objects.
        whole: Ranks that run all their steps; others follow the first one, where it runs too; none: all are.
    """

    def __init__(self, folder: Path, mail: Path, options: dict[str, object], words: list[str]) -> None:
        self._folder, self._mail, self._options, self._words = folder, mail, options, words
        self._forks: Forks | None = None
        self._running: set[int] = set()
        self._begun: set[int] = set()
        self._tries: Counter[int] = Counter()
        self.done: set[int] = set()
        self.alike: list[list[int]] = []
        self.whole: set[int] = set()
        self._logs: dict[int, Log] = {}

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._forks is not None:
            self._forks.close()

    def logs(self) -> list[Log]:
        """Return what was recorded so far."""
        for rank in self.done - self._logs.keys():
            self._logs[rank] = read(path_of(self._folder, rank))
        return [self._logs[rank] for rank in sorted(self.done)]

    def check_steps(self) -> None:
        """Run those again that did not run all their steps, if one of those that did says that these differ.

        Raises:
            InputError: one failed.
        """
        # If the first one says so, none has followed it.
        if differs(self._mail, 0) or not any(differs(self._mail, rank) for rank in self.whole):
            return
        again = self.done - self.whole
        for rank in again:
            path_of(self._folder, rank).unlink()
            self._logs.pop(rank, None)
        self.done -= again
        self._begun -= again
        self.whole = set()
        self.run(again)

    def run(self, wanted: Iterable[int]) -> None:
        """Run these ranks, and those that they wait for.

        Raises:
            InputError: one failed.
        """
        there = {rank for rank in wanted if rank in self.done or self._as_it_was(rank)}
        self.done |= there
        queue = sorted(set(wanted) - there)
        while queue or self._running:
            waiting = {rank for rank in self._running if self._waits(rank).exists()}
            for rank in waiting:
                source = number_in(self._waits(rank))
                if source >= 0 and source not in self._begun:
                    # First of all: without it nobody goes on.
                    queue = [source, *(each for each in queue if each != source)]
            while queue and len(self._running) - len(waiting) < TOGETHER:
                rank = queue.pop(0)
                if rank not in self._begun:
                    self._begun.add(rank)
                    self._running.add(rank)
                    self._begin(rank)
            for rank, status in self._ranks.ended().items():
                if status == NOT_ALIKE:
                    self._tries[rank] += 1
                    self._begin(rank)
                    continue
                self._running.remove(rank)
                self._check(rank, status)
                write_text(self._mail / f"{ENDED}{rank}", "")
                self.done.add(rank)
            time.sleep(POLL_SECONDS)

    def _begin(self, rank: int) -> None:
        whole = (
            not self.whole or rank in self.whole or 0 not in self._begun or self._options["every_microbatch"]
        )
        follows = -1 if whole else 0
        self._ranks.begin(
            rank, self.alike, printed(self._mail, rank), follows=follows, **TRIES[self._tries[rank]]
        )

    def _as_it_was(self, rank: int) -> bool:
        """Return whether a rank is there, of files and an environment that are still the same."""
        path = path_of(self._folder, rank)
        if not path.exists():
            return False
        try:
            log = read(path)
        except InputError:  # damaged: it is run again
            return False
        return unchanged(log.sources, *log.environment)

    def _waits(self, rank: int) -> Path:
        return self._mail / f"{WAITING}{rank}"

    @property
    def _ranks(self) -> Forks:
        """The process that starts ranks, if none is there before."""
        if self._forks is None:
            self._forks = Forks(self._options, self._words, self._mail / "forks.txt")
        return self._forks

    def _check(self, rank: int, status: int) -> None:
        refused, out = self._mail / f"{REFUSED}{rank}", printed(self._folder, rank)
        if not refused.exists() and not status and path_of(self._folder, rank).exists():
            out.unlink(missing_ok=True)  # of a try before
            return
        write_text(out, printed(self._mail, rank).read_text(errors="replace")[-MOST_PRINTED:])
        if refused.exists():
            path_of(self._folder, rank).unlink(missing_ok=True)  # of a process whose child was refused
            raise InputError(f"{refused.read_text()} (rank {rank}; what it printed: {out})")
        raise InputError(
            f"{self._words[0]}: rank {rank} {_ended(status)} before its step was recorded (what it printed: {out})"
        )


def printed(folder: Path, rank: int) -> Path:
    """Return the file of what a rank printed."""
    return folder / f"rank_{rank}.txt"


def _ended(status: int) -> str:
    """Return in words how a process has ended."""
    if status >= 0:
        return f"ended with exit code {status}"
    name = signal.Signals(-status).name
    return f"was ended by {name}" + (" (perhaps the host has no memory left)" if name == "SIGKILL" else "")
