"""What was tried to serve a load, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from armillary.explore.deploy.flags import launch
from armillary.report.page.blocks import Block, table, text
from armillary.report.page.blocks import headline as answer
from armillary.report.page.shown import Shown
from armillary.serving.result import METRICS, Serving, interval_text, load_text, per_user, seconds_text
from armillary.serving.service import Service


@dataclass(frozen=True)
class Deployment:
    """Replicas that served the load.

    Attributes:
        served: What became of it.
        share: Of the requests that must be good.
        words: What of its engine, precision and limits differs from others that were tried, e.g. "sglang, fp8".
    """

    served: Serving
    share: float
    words: str = ""

    @property
    def service(self) -> Service:
        """What served it."""
        return self.served.service

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.service.devices

    @property
    def good(self) -> float:
        """Share of the requests that meet the objective."""
        return self.served.good or 0.0

    @property
    def meets(self) -> bool:
        """Whether enough requests do."""
        return self.good >= self.share

    @property
    def per_device(self) -> float:
        """Output tokens per s and device."""
        return self.served.output_tokens_per_s / self.devices

    @property
    def per_user(self) -> float:
        """Tokens per s that a user sees, of the median time per token; nan: answers have one token."""
        return per_user(self.served)

    @property
    def replicas(self) -> str:
        """Such as "2 x tp 4", or "prefill 1 x tp 4, decode 2 x tp 2"."""
        found = _replicas(self.service)
        if before := self.service.prefill:
            return f"prefill {_replicas(before)}, decode {found}"
        return found

    @property
    def name(self) -> str:
        """Such as "2 x tp 4, sglang"."""
        return f"{self.replicas}, {self.words}" if self.words else self.replicas


def _replicas(of: Service) -> str:
    return f"{of.replicas} x {_kind(of)}"


def _kind(of: Service) -> str:
    tp, dp = of.plan.parallel.tp, of.engine.ranks
    return f"dp {dp}" if dp > 1 else f"tp {tp}"


@dataclass(frozen=True, repr=False)
class Deployments(Shown):
    """What was tried to serve a load.

    Attributes:
        tried: Those that meet the objective first, fewest devices first and of these most good requests; then the
            others, most good requests first.
        rejected: Kind of replica -> why there can be none.
    """

    tried: tuple[Deployment, ...]
    rejected: Mapping[str, str]

    @property
    def best(self) -> Deployment:
        """That on the fewest devices that meets the objective; if none does, that of the most good requests."""
        return self.tried[0]

    @cached_property
    def front(self) -> tuple[bool, ...]:
        """Of those tried, whether none that meets the objective, or none at all, gives more of both rates.

        These are tokens per s and device, and per user.
        """
        counts = [each.meets == self.best.meets for each in self.tried]
        points = [(each.per_device, each.per_user) for each in self.tried]
        rivals = [point for point, counted in zip(points, counts, strict=True) if counted]
        return tuple(
            counted and not any(a >= device and b >= user and (a, b) != (device, user) for a, b in rivals)
            for (device, user), counted in zip(points, counts, strict=True)
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was assumed of the best, and of others that it was compared with."""
        found = list(self.best.service.assumptions)
        least: dict[str, Deployment] = {}
        for each in self.tried:
            least.setdefault(each.service.engine.rule, each)
        if len(least) > 1:
            needs = [
                f"{name} {each.devices if each.meets else f'more than {each.devices}'}"
                for name, each in least.items()
            ]
            found.append(
                "engines are compared by measured tables of their kernels, and differ by less than the model can "
                "tell where intervals of means overlap; "
                f"devices needed: {', '.join(needs)}"
            )
        if len({each.service.plan.numbers.compute for each in self.tried}) > 1:
            found.append(
                "answers are as good in each precision: what quantising does to them is not modelled"
            )
        return tuple(found)

    @property
    def headline(self) -> str:
        """The answer."""
        best, found = self.best, self.best.served
        limits = " and ".join(
            f"{METRICS[name]} of {seconds_text(most)}" for name, most in found.limits.items()
        )
        times = f"TTFT {seconds_text(found.ttft_s.mean)}, TPOT {seconds_text(found.tpot_s.mean)}"
        what = f"{100 * best.good:.1f} % of requests keep within {limits} ({times} on average)"
        if best.meets:
            return f"{best.name}, the fewest devices ({best.devices}) of {len(self.tried)} tried: {what}"
        devices = f"{best.devices} device{'s' * (best.devices > 1)}"
        return f"None of {len(self.tried)} tried is enough: at most {what}, with {best.name} on {devices}"

    def __repr__(self) -> str:
        """Return the answer, and what was tried."""
        return f"{self.headline}\nLoad: {load_text(self.best.served)}\n{len(self.tried)} tried"

    @property
    def title(self) -> str:
        """Model, machine and load."""
        return f"Replicas of {self.best.served.title}"

    def rows(self) -> list[tuple[str, list[float]]]:
        """Return of each that was tried its name, and devices, good share, s, s, and tokens per s."""
        return [
            (
                each.name,
                [
                    each.devices, each.good, each.served.ttft_s.mean, each.served.tpot_s.mean, each.per_device,
                    each.per_user,
                ],
            )
            for each in self.tried
        ]  # fmt: skip

    def blocks(self, *, changes: bool = True) -> list[Block]:
        """Return the blocks of the page: the answer, what was tried, how to start it, and what becomes of requests."""
        columns = (
            ("replicas", "text"), ("engine", "text"), ("devices", "count"), ("good", "share"), ("TTFT", "time"),
            ("TPOT", "time"), ("tokens/s per device", "number"), ("per user", "number"), ("on the front", "text"),
        )  # fmt: skip
        rows = [
            [each.replicas, each.words or each.service.engine.rule, *values, "yes" if on else ""]
            for each, (_, values), on in zip(self.tried, self.rows(), self.front, strict=True)
        ]
        first, _, rest = self.headline.partition(": ")
        found = [
            answer(
                first,
                [
                    rest,
                    *filter(None, [interval_text(self.best.served)]),
                    f"Load: {load_text(self.best.served)}",
                ],
                notes=self.assumptions,
            ),
            table("What was tried", columns, rows),
            text("How to start it", launch(self.best.service)),
        ]
        if self.rejected:
            why = [[kind, each] for kind, each in self.rejected.items()]
            found.append(table("Why others are not among them", (("replica", "text"), ("why", "text")), why))
        return [*found, *self.best.served.blocks(changes=changes)[1:]]
