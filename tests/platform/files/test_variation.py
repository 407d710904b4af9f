"""The keys of `platform.variation`: what they mean, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.platform.files.native import load_platform
from armillary.platform.limits import FieldError
from armillary.platform.model import Platform
from armillary.platform.network import Dimension
from armillary.platform.variation import Background, Clock, LinkFlaps, SlowNics, Stragglers, Variation

STUDY = """\
platform:
  network:
    - {{name: node, topology: Switch, size: 2, bandwidth: 50 GB/s, latency: 1 us}}
    - {{name: rail, topology: Switch, size: 4, bandwidth: 5 GB/s, latency: 1 us}}
  variation: {variation}
"""


def read(folder: Path, variation: str, more: str = "") -> Platform:
    path = folder / "study.yaml"
    path.write_text(STUDY.format(variation=variation) + more)
    return load_platform(path)


def test_keys_are_what_they_say(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "{clock: {spread: 9 %, shape: uniform, levels: 0, per: 2, source: measured}, "
        "stragglers: {share: 1 %, slower: 250 %}, link_flaps: {share: 0.5 %, lasts: 3 s}, "
        "slow_nics: {share: 1 %, loses: 50 %, per: 8, dimension: node}, background: {most: 20 %}}",
    )
    assert found.variation == Variation(
        Clock(0.09, "uniform", 0, 2, "measured"), Stragglers(0.01, 2.5), LinkFlaps(0.005, 3e9),
        SlowNics(0.01, 0.5, 8, "node"), Background(0.2),
    )  # fmt: skip
    assert read(tmp_path, "{}").variation == Variation()


@pytest.mark.parametrize(
    ("variation", "says"),
    [
        ("{clok: {spread: 9 %}}", r"study.yaml:5: platform.variation.clok: unknown key \(did you mean 'clock'"),
        ("{clock: {}}", "missing key 'spread'"),
        ("{clock: {spread: 0 %}}", "spread"),
        ("{clock: {spread: 101 %}}", "at most 100 %"),
        ("{clock: {spread: 9 %, shape: norml}}", "did you mean 'normal'"),
        ("{clock: {spread: 9 %, levels: -1}}", "levels: got -1"),
        ("{clock: {spread: 9 %, levels: 100000}}", "levels: got 100000"),
        ("{clock: {spread: 9 %, per: 0}}", "per: got 0, expected 1 or more"),
        ("{stragglers: {share: 1 %, slower: -5 %}}", "slower"),
        ("{link_flaps: {share: 1 %, lasts: 3}}", "lasts"),
        ("{link_flaps: {share: 1 %, lasts: 0 s}}", "study.yaml:5: .*lasts: got '0 s', expected more than 0"),
        ("{slow_nics: {share: 1 %, loses: 100 %}}", "at most 99.9 %"),
        ("{slow_nics: {share: 1 %, loses: 5 %, dimension: rial}}", "variation.slow_nics.dimension: got 'rial'.*'rail'"),
        ("{background: {most: 20 %, dimension: x}}", "variation.background.dimension: got 'x'"),
        ("[clock]", "expected a mapping"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_with_their_place(tmp_path: Path, variation: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read(tmp_path, variation)


def test_profile_astra_sim_has_no_variation(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="variation"):
        read(tmp_path, "{clock: {spread: 9 %}}", "profile: astra-sim\n")


def test_values_refuse_what_the_file_refuses() -> None:
    with pytest.raises(FieldError, match=r"Clock.spread"):
        Clock(0.0)
    with pytest.raises(FieldError, match=r"Variation.clock"):
        Variation(Stragglers(0.1, 0.1))  # type: ignore[arg-type]
    one = (Dimension("d", "Switch", 4, 1.0, 0.0),)
    for shares, says in (((1.0, 1.0), "lists 2 shares"), ((0.0,), "more than 0"), ((1.5,), "at most 100 %")):
        with pytest.raises(FieldError, match=says):
            Platform(one, port_speed={0: shares})
    with pytest.raises(FieldError, match="expected a rank from 0 to 3"):
        Platform(one, port_speed={4: (1.0,)})
