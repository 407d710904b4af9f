"""`armillary reproduce`: one module for each published study, loaded when it is called."""

from __future__ import annotations

import click

from armillary.cli import COMMANDS
from armillary.cli.lazy import LazyGroup

SUBCOMMANDS = {
    "all": "Every study with its defaults, on one page: claim, number, ours, verdict, why.",
    "building-blocks": "The collective algorithm of each building block, and whether it meets congestion.",
    "case1": "Wafers against conventional platforms: training steps on 512 NPUs.",
    "case2": "Chunk scheduling across dimensions: does it make machines of equal bandwidth equal?",
    "case3": "ZeRO-Infinity against a hierarchical memory pool (ASTRA-sim 2.0, case study 3).",
    "comet": "Transformer-1T and a DLRM on 1,024 nodes: is more memory or more network worth it?",
    "compute-scaling": "Compute and exposed communication on a torus of 2x4x4 as NPUs get faster.",
    "gemm-share": "Share of matrix products in a training step of Transformer and GNMT.",
    "rings-v100": "Ring all-reduce measured on 2, 4 and 8 V100, against a ring with one bandwidth.",
    "switch-buffer": "Flat and hierarchical all-reduce over TCP, against the global switch's buffer.",
    "themis": "Bandwidth that an all-reduce uses over 2 to 4 dimensions, by chunk scheduler.",
    "wafer-scaling": "More NPUs on a wafer against more wafers: an all-reduce on 512 to 4,096 NPUs.",
}
"""Command name -> one-line help; the module is the name with underscores."""


@click.group(cls=LazyGroup, help=COMMANDS["reproduce"], modules=__name__, table=SUBCOMMANDS)
def command() -> None:
    """Group the studies."""
