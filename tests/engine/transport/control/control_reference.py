"""Congestion controls again, as their papers write them: floating point, seconds, bytes; an object a connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt


@dataclass
class Swift:
    """Kumar et al., SIGCOMM 2020, algorithm 1 and section 3.2."""

    mss: float
    links: int
    most: float
    window: float
    base: float = 20e-6
    rtt: float = 0.0
    cut: float = 0.0

    def target(self) -> float:
        alpha = 5 * self.base / (1 / sqrt(0.1) - 1 / sqrt(100))
        extra = alpha / sqrt(self.window / self.mss) - alpha / sqrt(100)
        return self.base + self.links * self.base / 6.55 + max(0.0, min(extra, 5 * self.base))

    def ack(self, acked: float, delay: float, marked: bool, now: float) -> None:
        target = self.target()
        if delay < target:
            more = self.mss * acked
            self.window += more / self.window if self.window >= self.mss else more / self.mss
        elif now - self.cut >= delay:
            self.cut = now
            self.window *= max(1 - 0.8 * (delay - target) / delay, 0.5)
        self.window = max(0.1 * self.mss, min(self.window, self.most))


@dataclass
class Timely:
    """Mittal et al., SIGCOMM 2015, algorithm 1; at least half of the rate stays, and 100 Mb/s."""

    line: float
    base: float
    window: float = 0.0
    rate: float = 0.0
    diff: float = 0.0
    before: float = 0.0
    bytes: float = 0.0
    falls: int = 0

    def ack(self, acked: float, delay: float, marked: bool, now: float) -> None:
        self.bytes += acked
        if self.bytes >= 16384:
            self.bytes = 0
            self.step(delay)
        self.before = delay

    def step(self, delay: float) -> None:
        self.diff = self.diff / 8 + (delay - self.before if self.before else 0.0) * 7 / 8
        gradient = self.diff / self.base
        delta = self.line / 1000
        self.falls = self.falls + 1 if 50e-6 <= delay <= 500e-6 and gradient <= 0 else 0
        if delay < 50e-6:
            self.rate += delta
        elif delay > 500e-6:
            self.rate *= 1 - 0.8 * (1 - 500e-6 / delay)
        elif gradient <= 0:
            self.rate += (5 if self.falls >= 5 else 1) * delta
        else:
            self.rate *= 1 - min(0.5, 0.8 * gradient)
        self.rate = max(12.5e6, min(self.rate, self.line))


@dataclass
class Nscc:
    """Ultra Ethernet 1.0 as htsim has it (its parameters, from 100 Gb/s and 12 us)."""

    mss: float
    bdp: float
    most: float
    window: float
    target: float
    least: float = float("inf")
    mean: float = 0.0
    growth: float = 0.0
    segment: float = 0.0
    cut: float = 0.0
    grown: float = 0.0
    round: float = 0.0
    period: float = 0.0
    arrived: float = 0.0
    trigger: bool = False
    idle: float = 0.0
    skip: float = 0.0
    flight: float = field(default=0.0)

    def ack(self, acked: float, rtt: float, marked: bool, now: float) -> None:
        self.least = min(self.least, rtt)
        delay, scale = rtt - self.least, self.bdp / 150_000
        self.mean += 0.0125 * (delay - self.mean)
        self.trigger |= delay > 4 * self.target
        self.arrived += acked
        if now >= self.period:
            quick = self.period > 0 and self.trigger and self.arrived < self.most / 8
            if quick:
                self.window, self.skip, self.growth = max(self.mss, self.arrived), self.flight, 0.0
            self.period, self.arrived, self.trigger = now + self.least + self.target, 0.0, False
            if quick:
                return
        if self.skip > 0:
            self.skip = max(0.0, self.skip - acked)
            return
        self.idle = self.idle + acked if not marked and delay < 1e-6 else 0.0
        if not marked and self.idle > self.window:
            self.window += 0.25 * scale * acked
        elif not marked and delay >= self.target:
            self.growth += 5 * self.mss * scale * acked
        elif not marked:
            self.growth += 4 * self.mss * scale / 12e-6 * acked * (self.target - delay)
        elif delay >= self.target and self.mean > self.target and now - self.cut >= self.least:
            self.cut = now
            self.window *= max(1 - 0.8 * (self.mean - self.target) / self.mean, 0.5)
        self.window = max(self.mss, min(self.window, self.most))
        self.segment += acked
        if self.segment >= 8 * self.mss or now - self.grown >= self.least:
            self.window += self.growth / self.window
            self.growth, self.segment, self.grown = 0.0, 0.0, now
            if now - self.round >= self.least:
                self.round = now
                self.window += 0.15 * self.mss * scale
            self.window = max(self.mss, min(self.window, self.most))


@dataclass
class Hpcc:
    """Li et al., SIGCOMM 2019, algorithm 1, with eta 0.95, maxStage 5, and 80 bytes of W_AI."""

    base: float
    most: float
    window: float
    agreed: float
    use: float = 0.0
    stage: int = 0
    mark: int = 0
    links: list[tuple[float, float, float, float]] | None = None

    def ack(
        self, number: int, sent: int, links: list[tuple[float, float, float, float]], least: float
    ) -> None:
        """Each link: (rate, depth, bytes, time)."""
        before, self.links = self.links, links
        if before is None:
            return
        u, tau = 0.0, self.base
        for old, new in zip(before, links, strict=True):
            rate, span = new[0], new[3] - old[3]
            if span > 0:
                found = min(old[1], new[1]) / (rate * self.base) + (new[2] - old[2]) / span / rate
                if found > u:
                    u, tau = found, min(span, self.base)
        self.use = (1 - tau / self.base) * self.use + tau / self.base * u
        far = self.use >= 0.95 or self.stage >= 5
        window = self.agreed / (self.use / 0.95) + 80 if far else self.agreed + 80
        self.window = max(least, min(window, self.most))
        if number >= self.mark:
            self.mark, self.stage, self.agreed = sent, 0 if far else self.stage + 1, self.window
