"""Facts about a model, for a line of text or JSON."""

from __future__ import annotations

from typing import Any

from armillary.workload.models.counts import parameters
from armillary.workload.models.schema import Decoder, Dlrm, Gnmt, Model, Resnet, Stack, Vit


def facts(model: Model) -> dict[str, Any]:
    """Return name, kind, parameters, layers, hidden size, heads (None: it has none) and sources."""
    counts = parameters(model)
    return {
        "title": model.name,
        "kind": model.kind,
        "parameters": counts.total,
        "active_parameters": counts.active,
        "layers": layers(model),
        "hidden": getattr(model, "hidden", None),
        "heads": heads(model),
        "source": list(model.source),
    }


def layers(model: Model) -> int:
    """Return how many layers a model has; for networks without uniform blocks, all layers with weights."""
    match model:
        case Decoder() | Vit():
            return model.layers
        case Gnmt():
            return model.encoder_layers + model.decoder_layers
        case Dlrm():
            return len(model.bottom) + len(model.top)
        case Resnet():
            # Three convolutions per block, the stem and the classifier; shortcuts do not count: hence 50 and 152.
            return 3 * sum(model.blocks) + 2
        case Stack():
            return sum(layer.repeat for layer in model.layers)


def heads(model: Model) -> int | None:
    """Return how many query heads a model has."""
    if isinstance(model, Decoder):
        return model.attention.heads
    return model.heads if isinstance(model, Vit) else None


def unknown_rows(model: Model) -> int:
    """Return how many embedding tables are not counted because their number of rows is unknown."""
    return sum(table.count for table in model.tables if table.rows is None) if isinstance(model, Dlrm) else 0
