"""Draw the figures of the architecture page: `python docs/images/draw_architecture.py` writes SVG files beside it.

The background is transparent, boxes are dark with white text, and everything else is a grey that reads on white and on
black, so that one file serves the light and the dark theme. Figures are 500 units wide to be legible on a phone.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

BLUE, GREEN, BROWN, PURPLE, SLATE = "#2f6aa8", "#2f7d57", "#9a5a18", "#7552a3", "#566374"
GREY = "#77818d"
WIDTH = 500
Point = tuple[float, float]


class Figure:
    """An SVG drawing while it grows."""

    def __init__(self, height: int, title: str) -> None:
        self.height, self.title = height, title
        self.parts: list[str] = []

    def box(self, at: Point, size: Point, lines: str, fill: str) -> None:
        """A box; of its lines of text the first is bold."""
        (x, y), (w, h) = at, size
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" fill="{fill}"/>')
        rows = lines.split("\n")
        top = y + h / 2 - (len(rows) - 1) * 9 + 5
        for i, row in enumerate(rows):
            self.text((x + w / 2, top + 18 * i), row, "#ffffff", "middle", bold=i == 0)

    def text(
        self, at: Point, line: str, fill: str = GREY, anchor: str = "start", *, bold: bool = False
    ) -> None:
        """One line of text."""
        weight = ' font-weight="700"' if bold else ""
        self.parts.append(
            f'<text x="{at[0]:g}" y="{at[1]:g}" fill="{fill}" text-anchor="{anchor}"{weight}>{escape(line)}</text>'
        )

    def arrow(self, *points: Point) -> None:
        """A line with a head at its last point."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{GREY}" stroke-width="2" marker-end="url(#head)"/>'
        )

    def bar(self, at: Point, size: Point, fill: str, opacity: float = 1.0) -> None:
        """A plain rectangle, for what is drawn to scale."""
        self.parts.append(
            f'<rect x="{at[0]:g}" y="{at[1]:g}" width="{size[0]:g}" height="{size[1]:g}" fill="{fill}" '
            f'fill-opacity="{opacity:g}"/>'
        )

    def svg(self) -> str:
        """Return the file's text."""
        head = (
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{GREY}"/></marker>'
        )
        body = "\n".join(self.parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
            f'height="{self.height}" font-family="system-ui, sans-serif" font-size="14" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<defs>{head}</defs>\n{body}\n</svg>\n"
        )


def rooms() -> Figure:
    """The packages as floors of a house: each imports from floors below and from its left only."""
    floors = [
        [("studio", "a web page", PURPLE), ("cli", "a module per command", SLATE),
         ("testing", "suites for plug-ins", SLATE)],
        [("serving", "requests", PURPLE), ("explore", "sweep, compare", PURPLE),
         ("lab", "learn, obfuscate", PURPLE), ("evidence", "validate", PURPLE)],
        [("report", "timelines to answers", GREEN)],
        [("convert", "formats to traces", BLUE), ("capture", "scripts to traces", BLUE),
         ("workload", "models to traces", BLUE)],
        [("engine", "physical · astra_sim · messages over transport · common", BROWN)],
        [("compute", "how long a kernel takes", BROWN), ("collective", "algorithms and chunk orders", BROWN)],
        [("trace", "Chakra graphs as columns", BLUE), ("platform", "the machine as a value", BLUE)],
        [("base", "errors, units, files, compiled kernels", SLATE)],
    ]  # fmt: skip
    figure = Figure(
        56 * len(floors) + 4, "The packages of Armillary; each imports only from below and from its left"
    )
    for row, floor in enumerate(floors):
        width = (WIDTH - 6 * (len(floor) - 1)) / len(floor)
        for i, (name, what, fill) in enumerate(floor):
            figure.box((i * (width + 6), 2 + 56 * row), (width, 50), f"{name}\n{what}", fill)
    return figure


def _inputs(figure: Figure, lowered: str) -> None:
    figure.box((0, 2), (240, 46), "Trace\ngraphs of all ranks", BLUE)
    figure.box((260, 2), (240, 46), "Platform\nthe machine", BLUE)
    figure.arrow((120, 48), (120, 72))
    figure.arrow((380, 48), (380, 72))
    figure.box((0, 74), (500, 46), "fold\nranks that provably behave alike become one class", SLATE)
    figure.arrow((250, 120), (250, 144))
    figure.box((0, 146), (500, 64), lowered, SLATE)
    figure.arrow((250, 210), (250, 234))


def physical() -> Figure:
    """How profile `physical` runs, and what two collectives do at one port."""
    figure = Figure(668, "Engine of profile physical")
    _inputs(
        figure,
        "lower\ncollective → rounds → phases, each a latency and a volume\none array of 64-bit integers",
    )
    figure.box(
        (0, 236), (216, 82), "first half of a tick\neverything that is due ends:\nnodes, volumes, latencies", BROWN
    )  # fmt: skip
    figure.box(
        (284, 236), (216, 82), "second half\nfree nodes and chunks start;\nports are shared anew", BROWN
    )
    figure.arrow((216, 277), (282, 277))
    figure.arrow((392, 318), (392, 346), (108, 346), (108, 320))
    figure.text((250, 364), "next tick at which something ends", anchor="middle")
    figure.arrow((250, 372), (250, 396))
    figure.box((0, 398), (500, 46), "Timeline\nstart and end tick of every node and phase", GREEN)

    figure.text((0, 480), "A port that two chunk flows share: half of it for each", bold=True)
    base, full, unit = 610, 100, 60
    shares = [  # first unit of time, units, from, share, colour
        (0, 2, 0, 1.0, BLUE), (2, 2, 0, 0.5, BLUE), (2, 2, 0.5, 0.5, BROWN), (4, 2, 0, 1.0, BROWN),
    ]  # fmt: skip
    for start, length, low, share, fill in shares:
        figure.bar((20 + start * unit, base - (low + share) * full), (length * unit, share * full), fill)
    for start, fill in ((4, BLUE), (6, BROWN)):
        figure.bar((20 + start * unit, base + 8), (unit, 14), fill, 0.55)
    figure.text((80, base - 45), "A sends", "#ffffff", "middle")
    figure.text((200, base - 20), "A", "#ffffff", "middle")
    figure.text((200, base - 70), "B", "#ffffff", "middle")
    figure.text((320, base - 45), "B sends", "#ffffff", "middle")
    figure.arrow((20, base), (490, base))
    figure.text((490, base - 8), "time", anchor="end")
    figure.text((20, base + 20), "volume first …")
    figure.text((490, base + 48), "… then latency, while the port serves others", anchor="end")
    return figure


def astra_sim() -> Figure:
    """How profile `astra-sim` runs, and what two chunks do in a dimension."""
    figure = Figure(742, "Engine of profile astra-sim")
    _inputs(figure, "lower\ncollective → schedule → phases with known finish\none array of 64-bit integers")
    figure.box(
        (0, 236), (500, 64),
        "run\nevents in the order tick, registered, cause sent, number:\nthe same on every rank of a class", BROWN,
    )  # fmt: skip
    figure.text((128, 328), "order known")
    figure.arrow((380, 300), (380, 344))
    figure.text((388, 328), "in doubt")
    figure.box(
        (260, 346), (240, 64), "run again\nevery message of every rank,\nin ASTRA-sim's own order", PURPLE
    )  # fmt: skip
    figure.arrow((120, 300), (120, 434))
    figure.arrow((380, 410), (380, 434))
    figure.box((0, 436), (500, 46), "Timeline\nstart and end tick of every node and phase", GREEN)

    figure.text((0, 518), "A queue per dimension; each active chunk has the whole link", bold=True)
    base, unit = 556, 60
    rows = [("chunk 1", [(0, 2, BLUE), (2, 1, BROWN)]), ("chunk 2", [(0, 2, BLUE), (2, 1, BROWN)]),
             ("chunk 3", [(2, 2, BLUE), (4, 1, BROWN)])]  # fmt: skip
    for row, (name, bars) in enumerate(rows):
        y = base - 16 + 34 * row
        figure.text((0, y + 18), name)
        for start, length, fill in bars:
            figure.bar((70 + start * unit, y), (length * unit - 3, 26), fill)
            label = "dimension 0" if fill == BLUE else "dim 1"
            figure.text((70 + (start + length / 2) * unit - 1, y + 18), label, "#ffffff", "middle")
    figure.arrow((70, base + 100), (490, base + 100))
    figure.text((490, base + 92), "time", anchor="end")
    figure.text((0, base + 130), "Two chunks are active in dimension 0 and do not slow each other;")
    figure.text((0, base + 150), "the third waits in its queue. Profile physical would share the link.")
    return figure


FIGURES = {"rooms": rooms, "engine-physical": physical, "engine-astra-sim": astra_sim}

if __name__ == "__main__":
    for name, draw in FIGURES.items():
        Path(__file__).with_name(f"{name}.svg").write_text(draw().svg())
