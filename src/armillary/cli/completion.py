"""Shell completion of names: models, machines, devices and the like."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _names_or_files(names: Callable[[], Iterable[str]]) -> Completer:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name) for name in names() if name.startswith(incomplete)]
        # In bash an item of type file drops the items before it: it goes first.
        return [CompletionItem(incomplete, type="file"), *found]

    return complete


# Each list is imported when the shell asks for it: completion must not load the package.
def _models() -> Iterable[str]:
    from armillary.workload.models import preset_names

    return preset_names()


def _machines() -> Iterable[str]:
    from armillary.platform.files.preset import preset_names

    return preset_names()


def _devices() -> Iterable[str]:
    from armillary.compute.gpu.device import gpu_names

    return gpu_names()


def _fits() -> Iterable[str]:
    from armillary.collective.fitted import fit_names

    return fit_names()


def _costs() -> Iterable[str]:
    from armillary.explore.cost import cost_preset_names

    return cost_preset_names()


def _failures() -> Iterable[str]:
    from armillary.explore.whole_run.failures import failure_preset_names

    return failure_preset_names()


def _software() -> Iterable[str]:
    from armillary.explore.training.fitted import stack_names

    return stack_names()


def _formats() -> Iterable[str]:
    from armillary.convert import names

    return names()


complete_models = _names_or_files(_models)
complete_machines = _names_or_files(_machines)
complete_devices = _names_or_files(_devices)
complete_fits = _names_or_files(_fits)
complete_costs = _names_or_files(_costs)
complete_failures = _names_or_files(_failures)
complete_software = _names_or_files(_software)


def complete_formats(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the front ends that begin so."""
    return [CompletionItem(name) for name in _formats() if name.startswith(incomplete)]
