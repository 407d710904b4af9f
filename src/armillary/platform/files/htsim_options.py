"""Options of htsim's programs, as ASTRA-sim's HTSim back end hands them on: TCP, and Ultra Ethernet (``uet``).

Each option is simulated, named in a note as one without effect, or refused where its answer would be another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from armillary.base.errors import InputError, nearest
from armillary.base.hints import show
from armillary.base.units import whole

COUPLED = ("COUPLED_INC", "FULLY_COUPLED", "COUPLED_TCP", "COUPLED_SCALABLE_TCP", "COUPLED_EPSILON")
# Packets that a queue of TCP holds where the topology states no bytes.
_QUEUE = 8
_MSS, _HEADER = 1448, 90
_MOST = 1 << 31
# Of a packet of Ultra Ethernet: bytes on the wire, and how many of them are no payload.
_MTU, _UET_HEADER = 4150, 64
# Names of load balancing there -> of `spread` here.
_BALANCING = {
    "bitmap": "bitmap", "reps": "reps", "oblivious": "packet", "mixed": "reps", "reps_legacy": "reps",
}  # fmt: skip
# Ultra Ethernet: options -> how many values follow; those that are simulated, and those without effect here.
_SIMULATED = {
    "-topo": 1, "-nodes": 1, "-o": 1, "-tiers": 1, "-planes": 1, "-linkspeed": 1, "-mtu": 1, "-cwnd": 1, "-q": 1,
    "-ecn": 2, "-paths": 1, "-seed": 1, "-sender_cc_only": 0, "-receiver_cc_only": 0, "-sender_cc": 0,
    "-receiver_cc": 0, "-sender_cc_algo": 1, "-target_q_delay": 1, "-load_balancing_algo": 1, "-disable_trim": 0,
    "-trimsize": 1,
}  # fmt: skip
_UET = _SIMULATED | {
    "-end": 1, "-queue_size_bdp_factor": 1, "-hop_latency": 1, "-switch_latency": 1, "-qa_gate": 1,
    "-queue_type": 1, "-host_queue_type": 1, "-strat": 1, "-ar_method": 1, "-ar_granularity": 1, "-ar_sticky_delta": 1,
    "-oversubscribed_cc": 0, "-Ai": 1, "-Md": 1, "-alpha": 1, "-sleek": 0, "-failed": 1, "-sack_threshold": 1,
    "-pcie": 1, "-conn_reuse": 0, "-log": 1, "-logtime": 1, "-debug": 0,
}  # fmt: skip
_TCP = {"-topo": 1, "-nodes": 1, "-o": 1, "-sub": 1, "UNCOUPLED": 0} | {
    name: int(name == "COUPLED_EPSILON") for name in COUPLED
}


@dataclass(frozen=True)
class HtsimOptions:
    """What the options of a program of htsim come to.

    Attributes:
        topology: The file of ``-topo``.
        nodes: Of ``-nodes``; None: not given.
        tiers: Of ``-tiers``; None: not given.
        nic: Gb/s that a host sends at, whatever tier 0 of the topology says.
        protocol: Of network model `packet`.
        packets: Options of that protocol.
        before, after: What the program prints of them, around the line of requested nodes.
        notes: What is not simulated as htsim does, the assumptions first.
    """

    topology: str
    nodes: int | None
    nic: float
    protocol: Literal["tcp", "rdma"]
    packets: dict[str, Any]
    tiers: int | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def read_options(protocol: str, words: Sequence[str]) -> HtsimOptions:
    """Return what options of the program of a protocol mean.

    Args:
        protocol: A name of `PROTOCOLS`.
        words: What stands after ``--htsim_opts``: ``-topo f`` is required.

    Raises:
        InputError: an option is none of that program's, has no valid value, or no counterpart here.
    """
    if protocol not in PROTOCOLS:
        known = ", ".join(PROTOCOLS)
        raise InputError(f"htsim-proto: got {show(protocol)}, expected one of {known}")
    return PROTOCOLS[protocol](words)


def _tcp(words: Sequence[str]) -> HtsimOptions:
    given = _parsed(words, _TCP)
    subflows = _count(given, "-sub", 1 << 10) or 1
    algorithm = next((name for name in reversed(given) if not name.startswith("-")), "UNCOUPLED")
    notes = [
        f"{_topology(given)}: htsim's TCP is NewReno with queues of {_QUEUE} packets where the topology states no "
        f"bytes; packets of {_MSS} + {_HEADER} bytes, the first window and timeouts are not htsim's"
    ]
    if subflows > 1:
        notes.append(f"--htsim_opts: -sub {subflows} has no effect: a message has one flow")
    if algorithm != "UNCOUPLED":
        notes.append(
            f"--htsim_opts: {algorithm} has no effect: a message has one flow, and nothing to be coupled with"
        )
    epsilon = given.get("COUPLED_EPSILON", ["1"])[0]
    logged = given.get("-o", ["logout.dat"])[0]
    options = {"algorithm": "newreno", "mss": _MSS, "header": _HEADER, "buffer": _QUEUE * (_MSS + _HEADER)}
    return HtsimOptions(
        _topology(given), _count(given, "-nodes"), 100, "tcp", options,
        before=(f"Using subflow count {subflows}",),
        after=(f"Using algo={algorithm} epsilon={epsilon}", f"Logging to {logged}"),
        notes=notes + _unwritten(given),
    )  # fmt: skip


def _uet(words: Sequence[str]) -> HtsimOptions:
    given = _parsed(words, _UET)
    for option, value in (("-sender_cc_algo", "nscc"), ("-planes", "1")):
        if option in given and given[option] != [value]:
            raise InputError(f"--htsim_opts: {option}: got {show(given[option][0])}, expected {value}")
    by_sender = "-sender_cc" in given or "-sender_cc_only" in given
    by_receiver = "-receiver_cc" in given or "-receiver_cc_only" in given
    if ("-sender_cc_only" in given and by_receiver) or ("-receiver_cc_only" in given and by_sender):
        raise InputError(
            "--htsim_opts: -sender_cc_only or -receiver_cc_only beside the other control, expected -sender_cc "
            "-receiver_cc for both"
        )
    control = "nscc+rccc" if by_sender and by_receiver else "rccc" if by_receiver else "nscc"
    balancing = given.get("-load_balancing_algo", ["mixed"])[0]
    if balancing not in _BALANCING:
        raise InputError(
            f"--htsim_opts: -load_balancing_algo: got {show(balancing)}, expected one of "
            f"{', '.join(_BALANCING)}{nearest(balancing, _BALANCING)}"
        )
    packet = _count(given, "-mtu", 1 << 16, least=_UET_HEADER + 1) or _MTU
    packets: dict[str, Any] = {
        "control": control, "mtu": packet - _UET_HEADER, "header": _UET_HEADER,
        "spread": _BALANCING[balancing], "seed": _count(given, "-seed", least=0) if "-seed" in given else 13,
    }  # fmt: skip
    for option, name in (("-cwnd", "window"), ("-q", "buffer")):
        if (number := _count(given, option, 1 << 13)) is not None:
            packets[name] = number * packet
    if "-ecn" in given:
        packets |= {
            name: packet * _number("-ecn", text, 1 << 24, 0)
            for name, text in zip(("kmin", "kmax"), given["-ecn"], strict=True)
        }
    for option, name, scale in (
        ("-paths", "paths", 1),
        ("-trimsize", "ack", 1),
        ("-target_q_delay", "target", 1000),
    ):
        if (number := _count(given, option, 1 << 16)) is not None:
            packets[name] = number * scale
    if (paths := packets.get("paths", 1)) & (paths - 1):
        raise InputError(f"--htsim_opts: -paths: got {paths}, expected a power of two, e.g. 64")
    if "-disable_trim" in given:
        packets |= {"full": "drop", "recovery": "timeout"}
    speed = _count(given, "-linkspeed") or 100_000
    notes = [
        f"{_topology(given)}: htsim's Ultra Ethernet is {packets['control']} of network model packet over ECMP; how "
        "it differs is in docs/how-to/transports.md"
    ]
    if _BALANCING[balancing] != balancing and balancing != "oblivious":
        notes.append(f"--htsim_opts: load balancing {balancing} is simulated as reps")
    without = [option for option in given if option not in _SIMULATED]
    if without:
        notes.append(f"--htsim_opts: without effect: {', '.join(without)}")
    return HtsimOptions(
        _topology(given), _count(given, "-nodes"), speed / 1000, "rdma", packets, _count(given, "-tiers", 3),
        notes=notes + _unwritten(given),
    )  # fmt: skip


PROTOCOLS: Mapping[str, Callable[[Sequence[str]], HtsimOptions]] = {"tcp": _tcp, "uet": _uet}
"""Values of ``--htsim-proto``."""


def _parsed(words: Sequence[str], known: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the values of each option."""
    found: dict[str, list[str]] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word not in known:
            raise InputError(
                f"--htsim_opts: got {show(word)}, expected one of {', '.join(known)}{nearest(word, tuple(known))}"
            )
        if len(left) < known[word]:
            raise InputError(f"--htsim_opts: {word}: {len(left)} values, expected {known[word]}")
        # What comes last counts, and stands last.
        found.pop(word, None)
        found[word], left = left[: known[word]], left[known[word] :]
    return found


def _topology(given: Mapping[str, list[str]]) -> str:
    if "-topo" not in given:
        raise InputError(
            "--htsim_opts: missing option '-topo', expected -topo FILE, a topology of htsim (.topo)"
        )
    return given["-topo"][0]


def _count(given: Mapping[str, list[str]], option: str, most: int = _MOST, least: int = 1) -> int | None:
    return _number(option, given[option][0], most, least) if option in given else None


def _number(option: str, text: str, most: int, least: int) -> int:
    value = whole(text)
    if value is None or not least <= value <= most:
        raise InputError(
            f"--htsim_opts: {option}: got {show(text)}, expected a whole number from {least} to {most}"
        )
    return value


def _unwritten(given: Mapping[str, list[str]]) -> list[str]:
    return [f"--htsim_opts: -o {given['-o'][0]}: not written"] if "-o" in given else []
