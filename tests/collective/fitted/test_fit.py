import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base.errors import InputError
from armillary.collective.fitted import fit_names, load_fit
from armillary.collective.fitted.between import Spanning, Stage, nic_share, steps
from armillary.collective.fitted.derive import derive
from armillary.collective.fitted.model import SUBSTITUTES, CollectiveFit
from armillary.collective.fitted.read import measured_names, sheets
from armillary.collective.fitted.regimes import Regime, at_members, at_size
from armillary.collective.fitted.write import text_of

MECHANISM = """title: x
device: h100-sxm
lines:
  LL: {overhead: 4 us, hop: 1 us, bandwidth: 147 GB/s}
  LL128: {overhead: 5 us, hop: 3 us, bandwidth: 244 GB/s}
  Simple: {overhead: 5 us, hop: 7 us, bandwidth: 403 GB/s}
  message LL: {overhead: 7 us, bandwidth: 6 GB/s}
  message: {overhead: 2 us, hop: 11 us, bandwidth: 373 GB/s}
"""
CURVE = (Regime(1000, 5000.0, 10.0), Regime(math.inf, 8000.0, 100.0))


def fit(inside, between=None):
    return CollectiveFit("made-up", sheets()["h100-sxm"], inside, between or {})


def test_the_regime_of_a_size_is_the_first_that_reaches_it():
    assert at_size(CURVE, 1000) == (5000.0, 0.1)
    assert at_size(CURVE, 1001) == (8000.0, 0.01)


def test_members_between_two_measured_ones_lie_between():
    curves = {2: (Regime(math.inf, 1000.0, 100.0),), 4: (Regime(math.inf, 3000.0, 50.0),)}
    assert at_members(curves, "all-gather", 3, 1) == pytest.approx((2000.0, 0.015))
    assert at_members(curves, "all-gather", 8, 1) == pytest.approx((7000.0, 0.02))  # 1 us for each GPU
    assert at_members(curves, "all-reduce", 8, 1) == pytest.approx((5000.0, 0.02))  # 2 us for each doubling
    assert at_members({4: CURVE}, "all-reduce", 8, 1) == at_size(CURVE, 1)


def test_time_is_latency_and_bytes_sent_over_bandwidth():
    found = fit({"all-reduce": {8: CURVE}}).time("all-reduce", 8, 1, 1 << 20)
    assert (found.latency_ns, found.transfer_ns) == (8000.0, pytest.approx(1.75 * (1 << 20) / 100))
    assert found.total_ns == found.latency_ns + found.transfer_ns


def test_an_operation_without_data_takes_the_nearest_and_says_so():
    known = fit({"all-gather": {8: CURVE}})
    found = known.time("broadcast", 8, 1, 7000)
    assert found.regime == "8 GPUs of a node, as all-gather"
    # An all-gather of 8000 bytes sends 7000.
    assert found.total_ns == known.time("all-gather", 8, 1, 8000).total_ns
    halved = fit({"all-reduce": {8: CURVE}}).time("all-gather", 8, 1, 1 << 20)
    assert halved.latency_ns == 4000.0
    assert known.time("all-reduce", 8, 1, 7000) is None
    assert known.time("all-gather", 8, 2, 7000) is None


def test_a_message_is_half_of_an_all_to_all_of_two():
    known = fit({"all-to-all": {2: CURVE}})
    assert known.time("send", 2, 1, 5000).total_ns == known.time("all-to-all", 2, 1, 10000).total_ns


def test_alone_there_is_nothing_to_send():
    assert fit({}).time("all-reduce", 1, 1, 100).total_ns == 0.0


def test_between_nodes_latency_grows_with_nodes_and_steps_and_nics_share_the_bytes():
    spanning = Spanning({8: 40.0}, (Stage(math.inf, 100.0, 10.0, 1.0, 2.0),))
    latency, transfer = spanning.time("all-reduce", 8, 4, 32000)
    assert latency == 100 + 10 * 2 + 2 * 31
    assert transfer == pytest.approx(2 * 32000 * (2 * 31 / 32) / 8 / 40)
    assert nic_share("all-to-all", 8, 4) == 24 / 32  # what leaves the node
    assert (nic_share("send", 1, 2), steps("send", 2)) == (1.0, 1)


@pytest.mark.parametrize("name", fit_names())
def test_every_fit_of_the_package_times_everything(name):
    known = load_fit(name)
    for operation in SUBSTITUTES:
        inside = known.time(operation, 8, 1, 1 << 26)
        if inside is None:
            assert operation == "all-reduce", name
            continue
        assert 0 < inside.total_ns < 1e10
        assert 0 < known.time(operation, 8, 4, 1 << 26).total_ns < 1e9


@pytest.mark.parametrize("name", measured_names())
def test_a_written_fit_reads_back(name, tmp_path):
    known = load_fit(name)
    path = tmp_path / "again.yaml"
    path.write_text(text_of(known, "again"))
    again = load_fit(path)
    assert (again.sheet, again.spread, again.measured) == (known.sheet, known.spread, known.measured)
    for operation in SUBSTITUTES:
        for nodes in (1, 2):
            assert again.time(operation, 8, nodes, 3 << 20).total_ns == pytest.approx(
                known.time(operation, 8, nodes, 3 << 20).total_ns, rel=2e-3
            )


@given(link=st.floats(0.5, 2), clock=st.floats(0.5, 2))
def test_a_derived_device_scales_with_links_and_clock(link, clock):
    known = load_fit("h100-sxm")
    sheet = known.sheet.model_copy(
        update={"link": known.sheet.link * link, "clock": known.sheet.clock * clock}
    )
    scaled = derive("other", sheet, known)
    large, small = 1 << 34, 1024
    assert scaled.time("all-gather", 8, 1, large).transfer_ns == pytest.approx(
        known.time("all-gather", 8, 1, large).transfer_ns / link, rel=0.1
    )
    assert scaled.time("all-gather", 8, 1, small).total_ns == pytest.approx(
        known.time("all-gather", 8, 1, small).total_ns / clock, rel=0.1
    )
    assert scaled.deviation("all-gather", 8, 1, large) > known.deviation("all-gather", 8, 1, large)


def test_a_device_of_the_same_generation_is_nearer_than_another_and_what_was_not_measured_is_wider():
    b200, gb200, mi300x = (load_fit(name) for name in ("b200", "gb200", "mi300x"))
    spreads = [fit.deviation("all-gather", 8, 1, 1 << 26) for fit in (b200, gb200, mi300x)]
    assert 0 < spreads[0] < spreads[1] < spreads[2] < 1
    assert b200.deviation("broadcast", 8, 1, 1 << 26) > b200.deviation("all-reduce", 8, 1, 1 << 26)
    assert b200.deviation("all-reduce", 8, 2, 1 << 26) > b200.deviation("all-reduce", 8, 1, 1 << 26)


def test_two_members_of_a_mesh_use_one_link():
    derived = load_fit("mi300x")
    two, eight = (1 / derived.time("send", n, 1, 1 << 34).transfer_ns for n in (2, 8))
    assert two < eight / 5


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("title: x\ndevice: h100-sxm\ninside: {}\n", "expected 'lines', or measured operations"),
        ("title: x\ndevice: h100-sxm\nlines: {LL: {bandwidth: 451 GB/s}}\n", "without LL128, Simple"),
        ("title: x\ndevice: h100-sxm\nlines: {LLL: {bandwidth: 451 GB/s}}\n", "did you mean 'LL'"),
        (MECHANISM.replace("403", "460"), "at most that of the data sheet, 450 GB/s"),
        (MECHANISM + "own: {all-gathr: 0.5}\n", "did you mean 'all-gather'"),
        (MECHANISM + "inside: {all-reduce: {8: [{latency: 1 us}]}}\n", "got both"),
        ("title: x\ndevice: h10\ninside: {all-reduce: {8: [{latency: 1 us}]}}\n", "did you mean 'h100-sxm'"),
        ("title: x\ndevice: h100-sxm\ninside: {al-reduce: {8: [{latency: 1 us}]}}\n", "did you mean"),
        ("title: x\ndevice: h100-sxm\ninside: {all-reduce: {8: [{latency: 1}]}}\n", "expected a time"),
        ("title: x\ndevice: h100-sxm\ninside: {all-reduce: {8: []}}\n", "expected regimes"),
        ("title: x\ndevice: h100-sxm\ninsde: {}\n", "did you mean 'inside'"),
        (
            "title: x\ndevice: h100-sxm\ninside: {all-reduce: {8: [{latency: 1 us}, {latency: 2 us}]}}\n",
            "growing up_to",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_key(text, problem, tmp_path):
    path = tmp_path / "fit.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"fit\.yaml") as caught:
        load_fit(path)
    assert problem in str(caught.value)


def test_an_unknown_name_says_what_is_known():
    with pytest.raises(InputError, match="did you mean 'h100-sxm'"):
        load_fit("h100-sx")
    assert load_fit("H100_SXM").name == load_fit("h100").name == "h100-sxm"
