"""`armillary learn train`: the statistical model of a corpus."""

from __future__ import annotations

from pathlib import Path

import click

from armillary.cli.learn import SUBCOMMANDS
from armillary.cli.outputs import working
from armillary.files import check_folder


@click.command(help=SUBCOMMANDS["train"])
@click.argument("folder", metavar="CORPUS", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="MODEL.npz",
    type=click.Path(path_type=Path),
    help="Write it here.",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of the choice of examples where there are many."
)
def command(folder: Path, output: Path, seed: int) -> None:
    """Train and write."""
    from armillary.workload.learned.corpus import read_corpus
    from armillary.workload.learned.model_file import save_model
    from armillary.workload.learned.train import train

    check_folder("--output", output)
    corpus = read_corpus(folder)
    with working("fitting"):
        model = train(corpus, seed=seed)
    save_model(model, output)
    about = model.about
    click.echo(f"{output}: {about['traces']:,} traces, {about['tokens']:,} tokens")
