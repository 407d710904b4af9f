"""Quantities with units."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armillary.base import units


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("80 GiB", 80 * 2**30),
        ("1GB", 10**9),
        ("1 kB", 1000),
        ("1 KB", 1000),
        ("1.5 MiB", 3 * 2**19),
        ("8 Gbit", 10**9),
        ("8 Gb", 10**9),
        ("1e3 B", 1000),
        ("0 B", 0),
        (" .5 KiB ", 512),
    ],
)
def test_bytes(text: str, value: int) -> None:
    assert units.parse_bytes(text) == units.parse_capacity(text) == value


@pytest.mark.parametrize(
    ("reader", "text", "value"),
    [
        (units.parse_bandwidth, "400 GB/s", 400.0),
        (units.parse_bandwidth, "400 Gb/s", 50.0),
        (units.parse_bandwidth, "400 Gbit/s", 50.0),
        (units.parse_bandwidth, "400 Gbps", 50.0),
        (units.parse_bandwidth, "1 GiB/s", 2**30 / 10**9),
        (units.parse_bandwidth, "2.039 TB/s", 2039.0),
        (units.parse_time, "936.25 ns", 936.25),
        (units.parse_time, "1 us", 1000.0),
        (units.parse_time, "1 µs", 1000.0),
        (units.parse_time, "0.5ms", 5e5),
        (units.parse_time, "2 s", 2e9),
        (units.parse_time, "250 ps", 0.25),
        (units.parse_flops, "312 TFLOP/s", 312e12),
        (units.parse_percent, "5 %", 0.05),
        (units.parse_flops, "1.2 PFLOPS", 1.2e15),
    ],
)
def test_other_quantities(reader, text: str, value: float) -> None:
    assert reader(text) == value


@pytest.mark.parametrize(
    ("reader", "value", "message"),
    [
        (units.parse_bytes, 80, "got 80, expected a size with a unit, e.g. '80 GiB'"),
        (units.parse_bytes, "80", "got '80', which has no unit"),
        (units.parse_bytes, "80 GiX", "unknown unit 'GiX'"),
        (units.parse_bytes, "1.5 B", "expected a whole number of bytes"),
        (units.parse_bytes, "16 EiB", "which is too large"),
        (units.parse_bytes, "-1 GiB", "which is negative"),
        (units.parse_bytes, "nan GiB", "got 'nan GiB', expected a size"),
        (units.parse_bytes, "1e999999999 B", "expected a size"),
        (units.parse_bytes, None, "got None"),
        (units.parse_bandwidth, "inf GB/s", "expected a bandwidth with a unit, e.g. '400 GB/s'"),
        (units.parse_bandwidth, "400 GB", "unknown unit 'GB', expected a bandwidth"),
        (units.parse_bandwidth, "400 GBs", "(did you mean 'GBps'?)"),
        (
            units.parse_percent,
            "5",
            "got '5', which has no unit, expected a percentage with a unit, e.g. '5 %'",
        ),
        (units.parse_time, "5 sec", "unknown unit 'sec'"),
        (units.parse_time, "1,000 ns", "got '1,000 ns'"),
        (units.parse_flops, "312 TFLOP", "(did you mean 'TFLOPS'?)"),
        (units.parse_flops, True, "got True"),
    ],
)
def test_refused(reader, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        reader(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_time(10366400), "10.37 ms"),
        (units.format_time(0), "0 ns"),
        (units.format_time(999.96), "1 µs"),
        (units.format_time(936.25), "936.2 ns"),
        (units.format_time(12345e9), "12,340 s"),
        (units.format_time(-2500), "-2.5 µs"),
        (units.format_bytes(2**30), "1 GiB"),
        (units.format_bytes(1023), "1,023 B"),
        (units.format_bandwidth(400), "400 GB/s"),
        (units.format_bandwidth(0.05), "50 MB/s"),
        (units.format_flops(312e12), "312 TFLOP/s"),
        (units.format_count(4096), "4,096"),
        (units.format_count(12345678), "12.35 M"),
    ],
)
def test_written(text: str, expected: str) -> None:
    assert text == expected


@given(st.integers(min_value=0, max_value=2**62))
def test_written_size_reads_back_within_its_digits(size: int) -> None:
    number, unit = units.format_bytes(size).replace(",", "").split()
    assert float(number) * units.parse_bytes(f"1 {unit}") == pytest.approx(size, rel=1e-3)


@pytest.mark.parametrize("kind", ["bytes", "bandwidth", "time", "flops", "percent"])
def test_pattern_agrees_with_the_reader(kind: str) -> None:
    reader = getattr(units, f"parse_{kind}")
    pattern = re.compile(units.unit_pattern(kind))
    for text in ("1 B", "1.5 GB/s", "1 ns", "2 TFLOP/s", "3", "-1 s", "1 parsec"):
        try:
            reader(text)
            accepted = True
        except ValueError as error:
            accepted = "whole number" in str(error)
        assert bool(pattern.match(text)) == accepted, text
