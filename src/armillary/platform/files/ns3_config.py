"""Inputs of ASTRA-sim's ns-3 back end: config.txt, the physical topology that it names, and the logical dimensions.

What they describe runs as packets of protocol lossless: priority flow control, marks, and DCQCN where it is chosen.
HPCC and TIMELY run as protocol rdma, whose queues pause, too. Each key without a counterpart is named in a warning.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from armillary.base.document import Source, is_there, read_document, read_text
from armillary.base.errors import InputError, nearest
from armillary.platform.files.astra_sim import platform_on
from armillary.platform.files.ns3_topology import read_ns3
from armillary.platform.logical import logical_dimensions
from armillary.platform.model import Packets, Platform
from armillary.platform.network import NetworkChoice
from armillary.platform.topology.graph import Topology
from armillary.platform.topology.network import Network
from armillary.platform.topology.routing import Shortest

# Packets have headers of PPP, IP, UDP and a sequence number there.
HEADER = 48
_PAYLOAD = 1000
_MAPS = ("KMAX_MAP", "KMIN_MAP", "PMAX_MAP")
_RATE_CONTROL = {"1": "DCQCN", "3": "HPCC", "7": "TIMELY", "8": "DCTCP", "10": "HPCC-PINT"}
_CONTROLS = {"3": "hpcc", "7": "timely"}
"""Of protocol rdma."""
# Keys that say nothing about time.
_QUIET = frozenset((
    "FLOW_FILE", "TRACE_FILE", "TRACE_OUTPUT_FILE", "ENABLE_TRACE", "SIMULATOR_STOP_TIME", "QLEN_MON_START",
    "QLEN_MON_END", "USE_DYNAMIC_PFC_THRESHOLD", "PAUSE_TIME", "L2_CHUNK_SIZE", "L2_BACK_TO_ZERO",
))  # fmt: skip
# Keys of one rate control, by its CC_MODE. Where it runs, they change times there and none here.
_CONSTANTS = {
    "1": ("ALPHA_RESUME_INTERVAL", "RATE_DECREASE_INTERVAL", "CLAMP_TARGET_RATE", "RP_TIMER", "EWMA_GAIN",
          "FAST_RECOVERY_TIMES", "RATE_AI", "RATE_HAI", "MIN_RATE"),
    "8": ("DCTCP_RATE_AI",),
    "3": ("FAST_REACT", "U_TARGET", "MI_THRESH", "INT_MULTI", "MULTI_RATE", "SAMPLE_FEEDBACK", "PINT_LOG_BASE",
         "PINT_PROB"),
}  # fmt: skip
_WINDOWS = ("HAS_WIN", "VAR_WIN", "GLOBAL_T")
# What these have to be to change nothing, and why nothing changes here.
_NEUTRAL = {
    "L2_ACK_INTERVAL": ("1", "ACKs use no bandwidth"),
    "RATE_BOUND": ("1", "senders are paced by their links"),
    "ACK_HIGH_PRIO": ("0", "ACKs use no bandwidth"),
    "NIC_TOTAL_PAUSE_TIME": ("0", "hosts do not pause by themselves"),
}
_COMMENT = re.compile(r"#|(?:^|(?<=\s))//")
SHOWN = 20
"""Unknown keys that a warning names, each its own."""
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_OUTPUTS = ("FCT_OUTPUT_FILE", "PFC_OUTPUT_FILE", "QLEN_MON_FILE")
_USED = (
    "TOPOLOGY_FILE",
    "PACKET_PAYLOAD_SIZE",
    "CC_MODE",
    "BUFFER_SIZE",
    "ENABLE_QCN",
    "ERROR_RATE_PER_LINK",
    "LINK_DOWN",
)


_ALL = [key for keys in _CONSTANTS.values() for key in keys]
KEYS = (*_USED, *_OUTPUTS, *sorted(_QUIET), *_MAPS, *_WINDOWS, *_NEUTRAL, *_ALL)
"""Every key of a config.txt."""


@dataclass(frozen=True)
class Ns3Machine:
    """A machine of the ns-3 back end's files, and the lines that the back end prints first."""

    platform: Platform
    heading: str


def read_ns3_machine(
    system: Source,
    config: str | Path,
    logical: Source,
    memory: Source | None = None,
    comm_groups: Source | None = None,
    cli: Iterable[str] = (),
) -> Ns3Machine:
    """Return the machine of these files.

    Args:
        system: System JSON.
        config: The back end's ``config.txt``; paths in it are relative to the current folder, or else to its own.
        logical: JSON with ``logical-dims``.
        memory: Remote-memory JSON, or None.
        comm_groups: Communicator-group JSON, or None.
        cli: Flags such as ``--num-queues-per-dim=2``.

    Raises:
        InputError: A file is missing, malformed, or the files contradict each other.
    """
    path, warnings = Path(config), list[str]()
    keys = _keys(path, warnings)
    sizes = _logical(logical)
    npus = math.prod(sizes)
    name = keys.get("TOPOLOGY_FILE", [""])[0]
    if not name:
        raise InputError(f"{path}: missing key 'TOPOLOGY_FILE', expected the file of the physical topology")
    beside = path.parent / name
    topology, notes = read_ns3(beside if not is_there(name) and is_there(beside) else name, npus)
    warnings += notes
    marks = _number(path, keys, "ENABLE_QCN", 1, 1) > 0
    options = _packets(path, keys, topology, marks, warnings)
    dimensions = logical_dimensions(topology, sizes if len(sizes) > 1 else ())
    platform = platform_on(dimensions, system, memory, comm_groups, cli, warnings, logged=True)
    platform = replace(
        platform, topology=Network(topology, "ecmp"),
        packets=Packets("rdma" if "control" in options else "lossless", options, f"{path}"),
        network_model=NetworkChoice("packet"), profile="physical",
    )  # fmt: skip
    return Ns3Machine(platform, _heading(topology, sizes, int(options["mtu"]), marks))


def _heading(topology: Topology, sizes: tuple[int, ...], payload: int, marks: bool) -> str:
    dims = ",".join(map(str, sizes))
    lines = ["ASTRA-sim + NS3", f"There are {topology.npus} npus: {dims},"]
    lines += [f"QP is {'enabled' if marks else 'disabled'} "]
    # Round trip of each pair: the way there and back, and a packet on every link of it.
    longest = most = 0.0
    pairs = _pairs(topology.npus)
    paths = Shortest(topology).paths(pairs[:, 0], pairs[:, 1])
    for message in range(len(pairs)):
        links = paths[message]
        rate = topology.bandwidth[links]
        trip = float(2 * topology.latency[links].sum() + (payload / rate).sum())
        longest, most = max(longest, trip), max(most, trip * float(rate.min()))
    return "\n".join([*lines, f"maxRtt={int(longest)} maxBdp={int(most)}", ""])


def _pairs(npus: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return pairs of NPUs: all of few, of many the first with each."""
    sources = range(npus) if npus <= 64 else range(1)
    return np.array([(a, b) for a in sources for b in range(npus) if a != b], np.int64).reshape(-1, 2)


def _logical(source: Source) -> tuple[int, ...]:
    document = read_document(source, "logical topology", "json")
    document.check_keys(("logical-dims",))
    found = document.require("logical-dims", "a list of sizes as text, innermost first")
    if not isinstance(found, list) or not found:
        document.reject(("logical-dims",), found, 'a list of sizes, e.g. ["8","2"]')
    sizes = []
    for at, each in enumerate(found):
        text = str(each) if isinstance(each, int) and not isinstance(each, bool) else each
        if not isinstance(text, str) or not text.isdecimal() or not 1 <= len(text) <= 7 or not int(text):
            document.reject(("logical-dims", at), each, "a size, 1 or more, as text")
        sizes.append(int(text))
    if math.prod(sizes) > 1 << 24:
        document.reject(("logical-dims",), found, f"at most {1 << 24} NPUs in all")
    return tuple(sizes)


def _keys(path: Path, warnings: list[str]) -> dict[str, list[str]]:
    """Return the keys of a config.txt and their values; as there, a later one counts and unknown ones do not."""
    found: dict[str, list[str]] = {}
    # A stream of words, as there: line breaks mean nothing, so that one line may hold several keys.
    words = [
        (number, word)
        for number, line in enumerate(read_text(path, "ns-3 configuration").split("\n"), 1)
        for word in _COMMENT.split(line)[0].split()
    ]
    at, unknown = 0, 0
    while at < len(words):
        number, key = words[at]
        at += 1
        if key not in KEYS:
            # The values of an unknown key are read past, too: only what looks like a key is one.
            if _KEY.fullmatch(key):
                unknown += 1
                # To look for the nearest key takes longer than to read the line.
                if unknown <= SHOWN:
                    hint = nearest(key, KEYS)
                    warnings.append(
                        f"{path}:{number}: unknown key '{key[:40]}' has no effect, as in ASTRA-sim{hint}"
                    )
            continue
        most = len(words) if key in _MAPS else 3 if key == "LINK_DOWN" else 1
        end = at
        while end < min(at + most, len(words)) and words[end][1] not in KEYS:
            end += 1
        if end == at:
            raise InputError(f"{path}:{number}: {key}: no value, expected one")
        found[key] = [word for _, word in words[at:end]]
        at = end
    if unknown > SHOWN:
        warnings.append(f"{path}: {unknown - SHOWN:,} more unknown keys have no effect")
    return found


def _number(path: Path, keys: dict[str, list[str]], key: str, default: float, high: float) -> float:
    if key not in keys:
        return default
    try:
        value = float(keys[key][0])
    except ValueError:
        value = -1.0
    if not 0 <= value <= high:
        raise InputError(f"{path}: {key}: got '{keys[key][0][:40]}', expected a number from 0 to {high:g}")
    return value


def _packets(
    path: Path, keys: dict[str, list[str]], topology: Topology, marks: bool, warnings: list[str]
) -> dict[str, Any]:
    """Return the options of protocol lossless, or of rdma, which have a `control`."""
    payload = int(_number(path, keys, "PACKET_PAYLOAD_SIZE", _PAYLOAD, 1 << 20))
    if payload < 1:
        raise InputError(f"{path}: PACKET_PAYLOAD_SIZE: got {payload}, expected 1 or more")
    mode = keys.get("CC_MODE", ["1"])[0]
    if mode in _RATE_CONTROL and mode != "1" and mode not in _CONTROLS:
        warnings.append(
            f"{path}: CC_MODE {mode} is {_RATE_CONTROL[mode]}, which is not simulated: hosts send at line rate"
        )
    if _number(path, keys, "ERROR_RATE_PER_LINK", 0.0, 1.0) > 0:
        warnings.append(f"{path}: ERROR_RATE_PER_LINK has no effect: packets are not lost")
    if any(value not in ("0",) for value in keys.get("LINK_DOWN", ["0"])[:1]):
        warnings.append(f"{path}: LINK_DOWN has no effect: links do not fail")
    warnings += _unused(path, keys, mode)
    written = [key for key in _OUTPUTS if key in keys]
    if written:
        warnings.append(f"{path}: {', '.join(written)}: not written")
    megabytes = _number(path, keys, "BUFFER_SIZE", 16, 1 << 20)
    ports = np.diff(topology.first_link)[topology.npus :]
    options: dict[str, Any] = {"mtu": payload, "header": HEADER}
    if len(ports) and megabytes:
        # A switch shares its buffer there; here each port has its part.
        options["buffer"] = int(megabytes * 2**20 / int(ports.max()))
    if mode in _CONTROLS:
        return options | {"control": _CONTROLS[mode], "full": "pause"}
    rate = round(float(topology.bandwidth.max()) * 8e9) if topology.links else 0
    if marks:
        low, high, share = (_of_rate(path, keys, key, rate) for key in ("KMIN_MAP", "KMAX_MAP", "PMAX_MAP"))
        if low is not None and high is not None:
            options |= {"kmin": int(low * 1000), "kmax": int(high * 1000)}
            if mode == "1":
                options["dcqcn"] = True
            if share:
                options["pmax"] = share
        elif mode == "1":
            warnings.append(
                f"{path}: no KMIN_MAP and KMAX_MAP: nothing is marked, and hosts send at line rate"
            )
    return options


def _unused(path: Path, keys: dict[str, list[str]], mode: str) -> list[str]:
    """Return what a configuration says that changes times in ns-3 and none here."""
    notes = []
    # There is a window of one bandwidth-delay product unless the file says otherwise; HPCC has it here, too.
    if _number(path, keys, "HAS_WIN", 1, 1) and mode != "3":
        stated = (
            ", ".join(f"{key} {keys[key][0]}" for key in _WINDOWS if key in keys) or "HAS_WIN is 1 by default"
        )
        notes.append(f"{path}: {stated}: windows do not limit senders here, switches pause them")
    runs = _RATE_CONTROL[mode] if mode == "1" or mode in _CONTROLS else ""
    # TIMELY and HPCC take the steps and the least rate of DCQCN's keys.
    names = _CONSTANTS.get(mode, ()) + (("RATE_AI", "RATE_HAI", "MIN_RATE") if mode in _CONTROLS else ())
    if runs and (given := [key for key in names if key in keys]):
        have = "have" if len(given) > 1 else "has"
        notes.append(f"{path}: {', '.join(given)} {have} no effect: {runs} runs with its own constants")
    notes += [
        f"{path}: {key} {keys[key][0]} has no effect: {why}"
        for key, (neutral, why) in _NEUTRAL.items()
        if key in keys and keys[key][0] != neutral
    ]
    return notes


def _of_rate(path: Path, keys: dict[str, list[str]], key: str, rate: int) -> float | None:
    """Return what a map (how many, then rate and value of each) says for a rate in bits per second."""
    if key not in keys:
        return None
    words = keys[key]
    try:
        numbers = [float(word) for word in words]
        pairs = dict(zip(numbers[1::2], numbers[2::2], strict=True))
        if len(pairs) != numbers[0] or not all(0 <= each <= 1e15 for each in numbers):
            raise ValueError
    except (ValueError, IndexError):
        raise InputError(
            f"{path}: {key}: expected how many, then a rate in bits per second and a value for each"
        ) from None
    if rate not in pairs:
        raise InputError(
            f"{path}: {key}: no entry for links of {rate / 1e9:g} Gb/s, expected one beside "
            f"{', '.join(f'{each / 1e9:g}' for each in pairs)} Gb/s"
        )
    return pairs[rate]
