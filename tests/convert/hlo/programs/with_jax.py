"""Compile programs with JAX for eight CPU devices; write NAME.hlo, NAME.mlir, costs.json and a profile to a folder."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

shard_map = getattr(jax, "shard_map", None)
if shard_map is None:
    from jax.experimental.shard_map import shard_map

BATCH, WIDTH, HIDDEN, LAYERS = 32, 64, 256, 6
DP, TP = 4, 2
mesh = Mesh(np.array(jax.devices()).reshape(DP, TP), ("dp", "tp"))


def array(*shape, spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, spec))


def step(weights, x, y):
    def loss(weights):
        return jnp.mean((jax.nn.relu(x @ weights[0]) @ weights[1] - y) ** 2)

    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))


def step_by_hand(weights, x, y):
    """Megatron's split of the two layers over tp, data parallel over dp."""
    up, down = weights
    hidden = jax.nn.relu(x @ up)
    out = lax.psum(hidden @ down, "tp")
    error = 2 * (out - y) / (BATCH * WIDTH)
    d_down = hidden.T @ error
    d_up = x.T @ ((error @ down.T) * (hidden > 0))
    d_up, d_down = lax.psum((d_up, d_down), "dp")
    return up - 0.1 * d_up, down - 0.1 * d_down


def collectives(x):
    """Each of them once, on 16 x 16 floats of every device."""
    ring = [(i, (i + 1) % DP) for i in range(DP)]
    shift = ring[:-1]
    return (
        lax.psum(x, "dp"),
        lax.psum(x, ("dp", "tp")),
        lax.all_gather(x, "tp"),
        lax.psum_scatter(x, "dp", tiled=True),
        lax.all_to_all(x, "dp", 0, 1, tiled=True),
        lax.ppermute(x, "dp", ring),
        lax.ppermute(x, "dp", shift),
    )


def scan(weights, x):
    def layer(carry, w):
        return jnp.tanh(carry @ w), None

    return jnp.sum(lax.scan(layer, x, weights)[0])


def scan_with_psum(weights, x):
    def layer(carry, w):
        return lax.psum(carry @ w, "tp"), None

    return lax.scan(layer, x, weights)[0]


def convolution(kernel, x):
    dims = ("NHWC", "HWIO", "NHWC")
    return jnp.sum(lax.conv_general_dilated(x, kernel, (2, 2), "SAME", dimension_numbers=dims) ** 2)


WEIGHTS = (array(WIDTH, HIDDEN, spec=P(None, "tp")), array(HIDDEN, WIDTH, spec=P("tp", None)))
ROWS = array(BATCH, WIDTH, spec=P("dp", None))
SPECS = (P(None, "tp"), P("tp", None))


def float32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def mapped(function, in_specs, out_specs):
    return shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)


PROGRAMS = {
    "jit": (step, WEIGHTS, ROWS, ROWS),
    "shard_map": (mapped(step_by_hand, (SPECS, P("dp"), P("dp")), SPECS), WEIGHTS, ROWS, ROWS),
    "collectives": (mapped(collectives, P("dp", "tp"), P("dp", "tp")), float32(16 * DP, 16 * TP)),
    "scan": (jax.grad(scan), float32(LAYERS, WIDTH, WIDTH), float32(BATCH, WIDTH)),
    "scan_with_psum": (
        mapped(scan_with_psum, (P(None, "tp", None), P(None, None)), P()),
        float32(LAYERS, 2 * WIDTH, WIDTH),
        float32(BATCH, WIDTH),
    ),
    "convolution": (jax.grad(convolution), float32(3, 3, 8, 16), float32(4, 16, 16, 8)),
}


def main(folder: Path) -> None:
    costs = {}
    for name, (function, *arguments) in PROGRAMS.items():
        lowered = jax.jit(function).lower(*arguments)
        (folder / f"{name}.mlir").write_text(lowered.as_text())
        compiled = lowered.compile()
        (folder / f"{name}.hlo").write_text(compiled.as_text())
        found = compiled.cost_analysis()
        found = found[0] if isinstance(found, list) else found
        costs[name] = found.get("flops", 0) + found.get("transcendentals", 0)
    (folder / "costs.json").write_text(json.dumps(costs))
    record(folder)


def record(folder: Path) -> None:
    """Write profile.xplane.pb: two runs of all collectives."""
    function, given = PROGRAMS["collectives"]
    run, x = jax.jit(function), jnp.ones(given.shape, given.dtype)
    jax.block_until_ready(run(x))
    with jax.profiler.trace(folder):
        for _ in range(2):
            jax.block_until_ready(run(x))
    (found,) = folder.rglob("*.xplane.pb")
    found.rename(folder / "profile.xplane.pb")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
