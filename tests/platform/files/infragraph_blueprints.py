"""The blueprints that the package `infragraph` ships, each as a whole infrastructure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

DEVICES = "infragraph.blueprints.devices"
FABRICS = "infragraph.blueprints.fabrics"


def blueprints() -> dict[str, Callable[[], Any]]:
    """Return all with NPUs by name: devices as one instance, fabrics as they are."""
    server, switch = (
        of(DEVICES, *names) for names in (("generic.server", "Server"), ("generic.generic_switch", "Switch"))
    )
    card = of(DEVICES, "nvidia.cx5", "Cx5")
    dgx = of(DEVICES, "nvidia.dgx", "NvidiaDGX")
    built: dict[str, Callable[[], Any]] = {
        name: partial(alone, lambda name=name: [dgx(name)])
        for name in ("dgx1", "dgx2", "dgx_a100", "dgx_h100", "dgx_gb200")
    }

    def with_cards() -> list[Any]:
        nic = card("cx5_100g_dual")
        return [dgx("dgx_h100", nic), nic]

    built["dgx_h100 with cards"] = partial(alone, with_cards)
    for module, name in (
        ("amd.mi300x", "MI300X"),
        ("ironwood_rack", "IronwoodRack"),
        ("generic.server", "Server"),
    ):
        built[name] = partial(alone, lambda module=module, name=name: [of(DEVICES, module, name)()])
    for name in ("xe9680", "xe9680L", "xe9685L"):
        built[name] = partial(alone, lambda name=name: [of(DEVICES, f"dell.{name}", f"Dell{name}")("nic")])
    fabrics: dict[str, tuple[str, str, Callable[[], tuple[Any, ...]]]] = {
        "single tier": ("single_tier_fabric", "SingleTierFabric", lambda: (server(), 3)),
        "clos": ("closfabric", "ClosFabric", tuple),
        "2 levels": ("clos_fat_tree_fabric", "ClosFatTreeFabric", lambda: (switch(4), server(), 2, [100, 400])),
        "3 levels": ("clos_fat_tree_fabric", "ClosFatTreeFabric", lambda: (switch(4), server(), 3, [100, 400, 400])),
        "dragonfly": ("dragonfly_fabric", "DragonflyFabric", lambda: (switch(7), server(), 4, 2, 2)),
        "hybrid de Bruijn": ("hybrid_debruijn_fabric", "HybridDeBruijnFabric", lambda: (switch(16), server(), 2)),
        "de Bruijn": ("multi_host_debruijn_fabric", "MultiHostDeBruijnFabric", lambda: (switch(16), server(), 2)),
    }  # fmt: skip
    for name, (module, kind, arguments) in fabrics.items():
        built[name] = lambda module=module, kind=kind, arguments=arguments: of(FABRICS, module, kind)(
            *arguments()
        )
    return built


def of(package: str, module: str, name: str) -> Any:
    return getattr(import_module(f"{package}.{module}"), name)


def alone(devices: Callable[[], list[Any]]) -> Any:
    """Return the infrastructure of one instance of the first device."""
    from infragraph import Infrastructure  # type: ignore[import-not-found]

    found, parts = Infrastructure(name="one"), devices()
    for device in parts:
        found.devices.append(device)
    found.instances.add(name="host", device=parts[0].name, count=1)
    return found
