"""`armillary generate learn train`: the statistical model of a corpus."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from armillary.base.errors import InputError
from armillary.base.text import unfiltered
from armillary.cli.command import Command, option
from armillary.cli.generate.learn import SUBCOMMANDS
from armillary.cli.options import seed_option
from armillary.cli.outputs import say, working
from armillary.cli.values import OUTPUT

if TYPE_CHECKING:
    from armillary.lab.learned.corpus import Corpus


@click.command(
    cls=Command,
    help=SUBCOMMANDS["train"],
    examples=(
        "armillary generate learn train corpus -o model.npz",
        "armillary generate learn train corpus -o model.npz --kind neural --steps 500",
    ),
)
@click.argument("folder", metavar="CORPUS", type=click.Path(path_type=Path))
@option(
    "-o",
    "--out",
    required=True,
    metavar="FILE",
    type=OUTPUT,
    help="Write the model (.npz).",
)
@seed_option("Random seed for choosing among many examples.", default=0, show_default=True)
@option("--kind", type=click.Choice(["statistical", "neural"]), default="statistical", show_default=True,
              help="Kind of model; a neural one needs PyTorch for training, but not for sampling.")  # fmt: skip
@option("--steps", type=click.IntRange(1), help="Gradient-descent steps of a neural model.  [default: 2000]")
def command(folder: Path, out: Path, seed: int, kind: str, steps: int | None) -> None:
    """Train and write."""
    from armillary.lab.learned.corpus import read_corpus
    from armillary.lab.learned.model_file import save_model
    from armillary.lab.learned.train import train

    # Only a neural model takes steps.
    if steps and kind != "neural":
        raise InputError(f"--steps {steps}: expected --kind neural with it")
    corpus = read_corpus(folder)
    if kind == "neural":
        about = _train_neural(corpus, out, seed, steps)
    else:
        with working("fitting"):
            model = train(corpus, seed=seed)
        save_model(model, out)
        about = model.about
    say(f"{out}: {about['traces']:,} traces, {about['tokens']:,} tokens")


def _train_neural(corpus: Corpus, output: Path, seed: int, steps: int | None) -> dict[str, Any]:
    from armillary.lab.learned.neural.model_file import save_neural
    from armillary.lab.learned.neural.train import STEPS, train

    many = steps or STEPS
    # STEPS is known only after PyTorch's module is imported.
    with click.progressbar(
        length=many, label="training", file=unfiltered(sys.stderr), hidden=not sys.stderr.isatty()
    ) as bar:
        model = train(corpus, seed=seed, steps=many, stepped=bar.update)
    save_neural(model, output)
    return model.base.about
