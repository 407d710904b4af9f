"""What the parts of a machine must have in common."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, get_args

from armillary.platform.document import show
from armillary.platform.limits import COUNT, FLAG, MOST_COUNT, Choice, Kind, check, refuse

if TYPE_CHECKING:
    from armillary.platform.model import Platform


def check_platform(platform: Platform) -> None:
    """Refuse a machine whose parts are of the wrong kind or do not fit each other.

    Raises:
        FieldError: names the field.
    """
    from armillary.platform import model

    parts = {"system": model.System, "physical": model.Physical, "memory": model.RemoteMemory}
    parts |= {"packets": model.Packets, "kernel_model": model.KernelModel}
    check(
        platform, dimensions=Kind(tuple, "a tuple of Dimension"), queues_per_dim=COUNT, rendezvous=FLAG,
        dialect=Choice(("native", "astra-sim")), profile=Choice(get_args(model.ProfileName)),
        groups=Kind(dict, "a mapping of group id to ranks"),
        **{name: Kind(part, f"a {part.__name__}") for name, part in parts.items()},
    )  # fmt: skip
    for at, dimension in enumerate(platform.dimensions):
        if not isinstance(dimension, model.Dimension):
            raise refuse(platform, ("dimensions", at), f"got {show(dimension)}, expected a Dimension")
    npus = platform.npus
    if npus > MOST_COUNT:
        raise refuse(platform, ("dimensions",), f"has {npus} NPUs in all, expected at most {MOST_COUNT}")
    for name in ("speed", "delay"):
        for rank in getattr(platform.physical, name):
            if isinstance(rank, bool) or not isinstance(rank, Integral) or not 0 <= int(rank) < npus:
                problem = f"got {show(rank)}, expected a rank from 0 to {npus - 1}"
                raise refuse(platform, ("physical", name, rank), problem)
    _check_groups(platform, npus)
    _check_algorithms(platform)
    fit, count = platform.physical.fit, len(platform.dimensions)
    if fit and fit.inner > count:
        problem = f"got {fit.inner}, expected {count} or less, the dimensions"
        raise refuse(platform, ("physical", "fit", "inner"), problem)


def _check_groups(platform: Platform, npus: int) -> None:
    from armillary.platform.files.groups import checked_groups

    for place, problem in checked_groups(platform.groups, npus):
        raise refuse(platform, ("groups", *place), problem)


def _check_algorithms(platform: Platform) -> None:
    """Refuse names of algorithms that are none, and too many of them."""
    from armillary.platform.algorithms import wrong_name
    from armillary.platform.collectives import ALGORITHMS, PHYSICAL_COLLECTIVES

    count = len(platform.dimensions)
    known = Choice(PHYSICAL_COLLECTIVES)
    for kind, names in platform.physical.algorithm.items():
        if problem := known(kind):
            raise refuse(platform, ("physical", "algorithm"), problem)
        for at, name in enumerate(names):
            if problem := wrong_name(name, ALGORITHMS):
                raise refuse(platform, ("physical", "algorithm", kind, at), problem)
        short = platform.dialect == "native" and len(names) != count
        if len(names) > count or (short and not (len(names) == 1 and names[0].startswith("one"))):
            problem = f"lists {len(names)} algorithms, expected {count}, one per network dimension"
            raise refuse(platform, ("physical", "algorithm", kind), problem)
    for kind, algorithms in platform.system.algorithms.items():
        if len(algorithms) > count:
            problem = (
                f"lists {len(algorithms)} algorithms, expected at most {count}, one per network dimension"
            )
            raise refuse(platform, ("system", "algorithms", kind), problem)
