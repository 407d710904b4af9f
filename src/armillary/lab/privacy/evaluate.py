"""Success of attacks on obfuscated traces of known runs, and errors of the simulated times, at several strengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from armillary.base.errors import InputError
from armillary.base.pool import process_pool
from armillary.engine import simulate
from armillary.lab.privacy.features import Floats, features
from armillary.lab.privacy.learners import forest, linear, nearest, ordered
from armillary.lab.privacy.machines import Machine, usual_machines
from armillary.lab.privacy.obfuscate import LEVELS, Obfuscated, Strength, obfuscate
from armillary.lab.privacy.population import ATTRIBUTES, Configuration, draw
from armillary.lab.privacy.rules import attack
from armillary.platform import load_platform
from armillary.trace.trace import Trace

T = TypeVar("T")
R = TypeVar("R")
FOLDS = 5
RULES = ("hidden", "layers", "tp", "pp", "dp")


@dataclass(frozen=True)
class Setting:
    """A strength, the tolerance for simulated times, and the number of the usual machines on which it must hold."""

    name: str
    strength: Strength
    tolerance: float = 0.05
    machines: int = 2


SETTINGS = (
    Setting("names", LEVELS[1]),
    Setting("sizes 5 %", LEVELS[2]),
    Setting("right totals", Strength(0.05, True, 1.0)),
    Setting("level 3 at 1 %", LEVELS[3], 0.01),
    Setting("level 3 at 2 %", LEVELS[3], 0.02),
    Setting("level 3 at 5 %", LEVELS[3], 0.05),
    Setting("level 3 at 10 %", LEVELS[3], 0.1),
    Setting("level 4 at 1 %", LEVELS[4], 0.01, 1),
    Setting("level 4 at 5 %", LEVELS[4], 0.05, 1),
    Setting("level 4, 2 machines", LEVELS[4]),
)
"""Settings that are compared by default."""


@dataclass(frozen=True, eq=False)
class Sample:
    """A run at one setting.

    Attributes:
        seen: Features of the obfuscated trace.
        times: Logarithm of the simulated time on each machine: an attacker can simulate it, too.
        guesses: Values that the attack by rules finds, by attribute.
        errors: Relative errors of the time on the machines that it was obfuscated for.
        elsewhere: The same on a machine that obfuscation did not know.
        whole: Whether the requested strength was reached.
    """

    seen: Floats
    times: Floats
    guesses: dict[str, int | None]
    errors: tuple[float, ...]
    elsewhere: float
    whole: bool


@dataclass(frozen=True, eq=False)
class Outcome:
    """Success of the attacks at one setting: shares of all runs by attribute."""

    setting: Setting
    learned: dict[str, float]
    rules: dict[str, float]
    errors: Floats
    elsewhere: Floats
    whole: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The whole experiment.

    Attributes:
        runs: Number of runs.
        prior: Share of the most frequent value of each attribute.
        floors: Success of the learned attack if it sees nothing but simulated times, by the number of machines.
        outcomes: One outcome for each setting.
    """

    runs: int
    prior: dict[str, float]
    floors: dict[int, dict[str, float]]
    outcomes: list[Outcome] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "runs": self.runs, "prior": self.prior, "floors": self.floors,
            "settings": [
                {
                    "name": each.setting.name, "tolerance": each.setting.tolerance,
                    "machines": each.setting.machines, **vars(each.setting.strength),
                    "learned": each.learned, "rules": each.rules, "mean_error": float(np.abs(each.errors).mean()),
                    "largest_error": float(np.abs(each.errors).max()),
                    "mean_error_elsewhere": float(np.abs(each.elsewhere).mean()),
                    "held": each.whole,
                }
                for each in self.outcomes
            ],
        }  # fmt: skip


def elsewhere_machine(ranks: int) -> Machine:
    """Return a machine that obfuscation does not know: one switch of TPU v4-like chips."""
    document = {
        "network": [
            {"name": "ici", "topology": "Switch", "size": ranks, "bandwidth": "100 GB/s", "latency": "500 ns"}
        ],
        "npu": {"peak": "275 TFLOP/s", "memory": {"bandwidth": "1200 GB/s"}},
    }
    from armillary.platform import with_roofline

    return Machine("elsewhere", with_roofline(load_platform(document)))


def evaluate(
    runs: int,
    seed: int = 0,
    settings: Sequence[Setting] = SETTINGS,
    workers: int = 1,
    progress: Callable[[int], object] | None = None,
) -> Evaluation:
    """Obfuscate runs of known configurations, attack them, and return how often the attacks succeed.

    The learned attack is the best of four classifiers, on all features or on the times alone. Each is trained on four
    fifths of the runs, obfuscated by the same tool at the same setting with other keys, and tested on the rest.

    Args:
        runs: Number of runs to draw.
        seed: Seed of the runs and of all keys.
        settings: Strengths to compare.
        workers: Number of processes.
        progress: Called after each run with the number of runs done.
    """
    configurations = draw(runs, seed)
    tasks = [(one, f"{seed}-{number}", tuple(settings)) for number, one in enumerate(configurations)]
    found = carried_out(_samples, tasks, workers, progress)
    secrets = [one.secret() for one in configurations]
    # Name -> (distinct values, class of each run).
    codes = {
        name: np.unique(np.array([each[name] for each in secrets]), return_inverse=True)
        for name in ATTRIBUTES
    }
    prior = {name: float(np.bincount(code).max() / runs) for name, (_, code) in codes.items()}
    result = Evaluation(runs, prior, {})
    # The times must survive any obfuscation that is of use, so what they alone betray is the least to be expected.
    for count in sorted({setting.machines for setting in settings}):
        times = np.array([base[:count] for base, _ in found])
        result.floors[count] = _learned([times], codes, seed)
    for number, setting in enumerate(settings):
        samples = [each[number] for _, each in found]
        times = np.array([sample.times for sample in samples])
        seen = np.hstack([np.array([sample.seen for sample in samples]), times])
        rules = {
            name: float(np.mean([s.guesses[name] == known[name] for s, known in zip(samples, secrets, strict=True)]))
            for name in RULES
        }  # fmt: skip
        result.outcomes.append(
            Outcome(
                setting, _learned((seen, times), codes, seed), rules,
                np.array([sample.errors for sample in samples]), np.array([sample.elsewhere for sample in samples]),
                float(np.mean([sample.whole for sample in samples])),
            )
        )  # fmt: skip
    return result


Task = tuple[Configuration, str, tuple[Setting, ...]]


def carried_out(
    function: Callable[[T], R], tasks: Sequence[T], workers: int, progress: Callable[[int], object] | None
) -> list[R]:
    """Return the results of a function for all tasks, in order; `progress` gets the number of tasks done."""
    found = []
    with process_pool(workers) if workers > 1 else nullcontext() as pool:
        for each in pool.map(function, tasks) if pool else map(function, tasks):
            found.append(each)
            if progress:
                progress(len(found))
    return found


def _samples(task: Task) -> tuple[Floats, list[Sample]]:
    """Return the logarithm of the original's time on each machine, and the run obfuscated at all settings."""
    configuration, key, settings = task
    trace = configuration.trace()
    machines, other = usual_machines(trace.n_ranks), elsewhere_machine(trace.n_ranks)
    before = simulate(trace, other.platform).total_ticks
    base = np.log([simulate(trace, machine.platform).total_ticks for machine in machines])
    found = []
    for number, setting in enumerate(settings):
        asked = setting.strength
        made = obfuscated(trace, machines[: setting.machines], setting, f"{key}-{number}")
        after = simulate(made.trace, other.platform).total_ticks
        found.append(
            Sample(
                # The times of the obfuscated trace itself, which anybody can simulate.
                features(made.trace), np.log(made.ticks * (1 + made.errors)),
                {guess.attribute: guess.value for guess in attack(made.trace)},
                tuple(made.errors.tolist()), after / before - 1,
                made.reached.structure == asked.structure and made.reached.sizes == asked.sizes,
            )
        )  # fmt: skip
    return base, found


def obfuscated(trace: Trace, machines: Sequence[Machine], setting: Setting, key: str) -> Obfuscated:
    """Obfuscate a trace; where no surrogate is found, try again with another key, as a user would."""
    # The fourth key is tried outside the loop, so that its error is seen.
    for again in range(3):
        with suppress(InputError):
            return obfuscate(
                trace, machines, setting.strength, tolerance=setting.tolerance, key=f"{key}{'+' * again}"
            )
    return obfuscate(trace, machines, setting.strength, tolerance=setting.tolerance, key=f"{key}+++")


def _learned(views: Sequence[Floats], codes: dict[str, Any], seed: int) -> dict[str, float]:
    """Return the share of runs in which the best of the classifiers, on the best of the views, finds each attribute."""
    fold = np.random.default_rng(seed).permutation(len(views[0])) % FOLDS
    found = {}
    for name, (values, code) in codes.items():
        # Correct answers by view and classifier. The largest is taken in hindsight, which favours the attacker.
        right = np.zeros((len(views), 4))
        # Sizes are compared as logarithms; names have no order, so their places serve.
        order = np.log(values) if values.dtype.kind == "i" else np.arange(len(values)).astype(np.float64)
        for number in range(FOLDS):
            # Cross-validation: train on four folds, test on the fifth.
            labels, classes = code[fold != number], int(code.max()) + 1
            for row, seen in zip(right, views, strict=True):
                known, asked = seen[fold != number], seen[fold == number]
                tables = (
                    forest(known, labels, asked, classes, seed),
                    nearest(known, labels, asked, classes),
                    linear(known, labels, asked, classes),
                    ordered(known, order[labels], asked, labels, classes),
                )
                row += [(table.argmax(axis=1) == code[fold == number]).sum() for table in tables]
        found[name] = float(right.max() / len(fold))
    return found
