"""The graph of the network of a platform file, and pictures of it; apart, as most runs need no graph."""

from __future__ import annotations

from pathlib import Path

from armillary.platform.files.astra_sim_keys import NETWORK_KEYS
from armillary.platform.files.native import load_platform, platform_document
from armillary.platform.files.preset import expand, is_preset, read_preset
from armillary.platform.files.topology_schema import read_topology
from armillary.platform.topology.failures import degraded
from armillary.platform.topology.layout import draw
from armillary.platform.topology.levels import levels_of, panels
from armillary.platform.topology.network import Network
from armillary.platform.topology.sketch import Panel


def load_network(path: str | Path) -> Network | None:
    """Return the graph that a platform file describes with ``topology``, or None if it has dimensions.

    Raises:
        InputError: The file is missing or malformed.
    """
    document = platform_document(path)
    at = ("platform",) if "platform" in document.data else ()
    data = document.data["platform"] if at else document.data
    if all(key in document.data for key in NETWORK_KEYS):  # a file of ASTRA-sim, which has such a key, too
        return None
    # What has dimensions is drawn from those, and a preset may change the graph.
    if not isinstance(data, dict) or "network" in data:
        return None
    document, _ = expand(document, at)
    data = document.data["platform"] if at else document.data
    if data.get("topology") is None or "network" in data:
        return None
    return read_topology(document, (*at, "topology"), data["topology"])


def panels_of(path: str | Path) -> tuple[str, list[Panel]]:
    """Return the title and the panels of a picture of a platform file or preset.

    Raises:
        InputError: The file is missing or malformed.
    """
    network = load_network(path)
    title = Path(path).name
    document = platform_document(path)
    if document.path is None and is_preset(str(path)):
        # A preset may have a graph only for pictures, beside the dimensions that are simulated.
        preset = read_preset(str(path))
        title = preset.title
        if preset.topology is not None:
            network = read_topology(preset.document, ("topology",), preset.topology)
    if network is None:
        return title, panels(levels_of(load_platform(path).dimensions))
    # Failures from the start on are drawn as links that are down.
    return title, draw(degraded(network.topology, network.failures))
