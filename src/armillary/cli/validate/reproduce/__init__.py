"""`armillary validate reproduce`: reproduced published studies."""

from __future__ import annotations

import click

from armillary.cli.command import LazyGroup
from armillary.cli.validate import SUBCOMMANDS as _BESIDE

STUDIES = {
    "building-blocks": "The collective algorithm of each building block, and whether it meets congestion.",
    "case1": "Wafers versus conventional platforms: training steps on 512 NPUs.",
    "case2": "Chunk scheduling across dimensions: does it make machines of equal bandwidth equal?",
    "case3": "ZeRO-Infinity versus a hierarchical memory pool (ASTRA-sim 2.0, case study 3).",
    "comet": "Transformer-1T and a DLRM on 1,024 nodes: is more memory or more network worth it?",
    "compute-scaling": "Compute and exposed communication on a torus of 2x4x4 as NPUs get faster.",
    "gemm-share": "Share of GEMMs in a training step of Transformer and GNMT.",
    "rings-v100": "Ring all-reduce measured on 2, 4 and 8 V100, versus a ring with one bandwidth.",
    "switch-buffer": "Flat and hierarchical all-reduce over TCP, by buffer size of the global switch.",
    "themis": "Bandwidth utilisation of an all-reduce over 2 to 4 dimensions, by chunk scheduler.",
    "wafer-scaling": "More NPUs per wafer versus more wafers: an all-reduce on 512 to 4,096 NPUs.",
}
"""Study -> one-line help; what is assumed and run is in the module of that name of `armillary.evidence.reproduce`."""
SUBCOMMANDS = {
    "all": "Every study with its defaults, on one page: claim, number, ours, verdict, why.",
} | STUDIES


class _Studies(LazyGroup):
    """Builds the commands of studies from their assumptions."""

    # Studies are not modules of their own here: their commands are made from what they assume.
    def load(self, name: str) -> click.Command:
        if name not in STUDIES:
            return super().load(name)
        from armillary.cli.validate.reproduce.studies import command_of

        return command_of(name, STUDIES[name])


@click.group(cls=_Studies, help=_BESIDE["reproduce"], modules=__name__, table=SUBCOMMANDS)
def command() -> None:
    """Group the studies."""
