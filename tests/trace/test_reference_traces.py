"""Every trace of the reference data, against protobuf and back to the same bytes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from armillary.trace import check, decode, encode, graph_from_json, graph_to_json

pytestmark = pytest.mark.shared


def test_decodes_like_protobuf_and_encodes_to_the_same_bytes(
    reference: tuple[str, bytes], chakra: SimpleNamespace
) -> None:
    name, data = reference
    graph = decode(data, name, "compiled")
    assert encode(graph, "compiled") == data
    assert graph.unknown_fields == 0
    if len(data) < 300_000:
        chakra.assert_same(graph, chakra.parse(data))
    if len(data) < 20_000:
        assert encode(decode(data, name, "interpreted"), "interpreted") == data


@pytest.mark.parametrize("part", ["resnet_dp.tar", "generator", "ddp4", "stage_samples"])
def test_json_brings_back_the_same_bytes(part: str, traces: dict[str, bytes]) -> None:
    name = next(name for name in traces if part in name)
    graph = decode(traces[name], name)
    assert encode(graph_from_json(graph_to_json(graph))) == traces[name]


def test_a_trace_without_comm_size_loads_with_a_diagnostic(traces: dict[str, bytes]) -> None:
    name = next(name for name in traces if "resnet_dp.tar" in name)
    messages = [finding.message for finding in check(decode(traces[name], name))]
    assert any("COMM_COLL_NODE without comm_size" in message for message in messages)
