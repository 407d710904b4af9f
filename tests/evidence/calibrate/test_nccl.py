import re

import pytest

from armillary.collective.fitted.read import sheets
from armillary.evidence.calibrate import nccl
from armillary.evidence.calibrate.nccl_fits import fit_texts
from armillary.evidence.calibrate.nccl_picture import draw
from armillary.evidence.calibrate.samples import Sample, merged

NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
FITS = "src/armillary/collective/fitted/fits"


def times(operation, per_node, nodes, latency, bandwidth, sizes=range(12, 31)):
    return [Sample("", operation, per_node, nodes, 2**n, latency + 2**n / bandwidth) for n in sizes]


def test_a_cluster_is_fitted_within_and_between_nodes():
    samples = [*times("all-reduce", 8, 1, 20e3, 200), *times("all-reduce", 8, 2, 60e3, 100)]
    fit = nccl.fit_cluster("mine", sheets()["h100-sxm"], samples, ["a.log"])
    assert max(abs(each.error) for each in nccl.predictions(fit, samples)) < 0.01
    held_out = nccl.held_out_sizes(samples)
    assert len(held_out) == len(samples) - 4  # but the smallest and largest of both
    assert max(abs(each.error) for each in held_out) < 0.02


def test_a_size_that_is_held_out_is_not_seen():
    odd = Sample("", "all-reduce", 8, 1, 2**20, 1e9)
    samples = [sample for sample in times("all-reduce", 8, 1, 20e3, 200) if sample.size != odd.size]
    (found,) = (each for each in nccl.held_out_sizes([*samples, odd]) if each.sample.size == odd.size)
    assert found.ns < 1e6


def test_node_counts_are_held_out():
    samples = [sample for nodes in (2, 4, 8) for sample in times("all-gather", 8, nodes, 50e3, 100)]
    assert len(nccl.held_out_nodes(samples)) == len(samples)
    assert nccl.held_out_nodes(times("all-gather", 8, 2, 50e3, 100)) == []


def test_messages_smaller_than_measured_are_those_of_two():
    samples = [*times("all-to-all", 2, 1, 8e3, 100), *times("send", 8, 1, 100e3, 300, range(25, 31))]
    fit = nccl.fit_cluster("mine", sheets()["h100-sxm"], samples, [])
    assert fit.time("send", 8, 1, 2**25).total_ns == pytest.approx(100e3 + 2**25 / 300, rel=0.01)
    for members in (2, 8):
        assert fit.time("send", members, 1, 2**14).total_ns == pytest.approx(8e3 + 2**15 / 100, rel=0.01)


def test_repeated_measurements_count_once_by_their_median():
    samples = [Sample("", "send", 2, 1, 8, ns) for ns in (1.0, 9.0, 2.0)]
    assert merged(samples) == [Sample("", "send", 2, 1, 8, 2.0)]


def test_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    samples = [*times("all-reduce", 8, 1, 20e3, 200), *times("send", 8, 2, 60e3, 100)]
    draw(
        nccl.fit_cluster("mine", sheets()["h100-sxm"], samples, []),
        [*samples, *times("all-gather", 8, 1, 1e3, 9)],
        tmp_path / "a.png",
    )
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_the_fits_of_the_package_are_those_of_the_measurements(shared, pytestconfig):
    for name, text in fit_texts(shared / "measured"):
        kept = (pytestconfig.rootpath / FITS / f"{name}.yaml").read_text()
        # Machines differ in the last of the four digits that are written.
        assert NUMBER.sub("#", kept) == NUMBER.sub("#", text), name
        assert [float(each) for each in NUMBER.findall(kept)] == pytest.approx(
            [float(each) for each in NUMBER.findall(text)], rel=2e-3
        ), name
