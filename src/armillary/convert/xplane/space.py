"""Read ``XSpace`` (tsl/profiler/protobuf/xplane.proto): planes of lines of events, whose names stand in tables.

A plane's events and stats name their kind by number: ``event_metadata`` and ``stat_metadata`` have the names. An event
begins at ``timestamp_ns`` of its line and its own ``offset_ps``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import unpack

from armillary.base.allowed import how_to_raise, limit
from armillary.base.errors import InputError
from armillary.base.packing import read_unpacked
from armillary.base.reading import MOST_FILE
from armillary.convert.xplane.wire import Part, Wire

MOST_ENTRIES = 5_000_000
"""Events, stats and names of a file, some 10 µs each."""
_WHOLE = 2**64
_LATEST = 2**62

Stat = int | float | str | bytes


@dataclass
class Event:
    """One event; times in ns, `stats` by name, those of its kind included."""

    name: str
    start: int
    end: int
    stats: dict[str, Stat]

    def text(self, name: str) -> str:
        """Return a stat as text; "" without it."""
        value = self.stats.get(name, "")
        return "" if isinstance(value, bytes) else str(value)

    def amount(self, name: str) -> int:
        """Return a stat that counts something; 0 without it."""
        value = self.stats.get(name, 0)
        return int(value) if isinstance(value, int | float) and 0 <= value < _LATEST else 0


@dataclass
class Kind:
    """What all events of one number are: a name, in short and as a whole, and stats."""

    name: str = ""
    display: str = ""
    stats: dict[str, Stat] = field(default_factory=dict)


class Space:
    """The planes of a file."""

    def __init__(self, path: Path) -> None:
        """Read a file and find its planes.

        Raises:
            InputError: it is no such file, or larger than the limits.
        """
        # Not a view: bytes are read one by one.
        data = bytes(read_unpacked(path, MOST_FILE))
        self.path = path
        self.wire = Wire(data, str(path), "an XSpace, the .xplane.pb that jax.profiler.trace(…) writes")
        self._count = 0
        self.planes = [
            Plane(self, part) for number, part in self.wire.messages(self.wire.whole) if number == 1
        ]
        if not any(plane.name for plane in self.planes):
            raise InputError(f"{path}: has no plane with a name, expected {self.wire.expected}")

    def count(self) -> None:
        """Count one more event, stat or name.

        Raises:
            InputError: there are more than the limit.
        """
        self._count += 1
        if self._count > (most := limit(MOST_ENTRIES)):
            raise InputError(
                f"{self.path}: has more than {most:,.0f} events, stats and names, expected a shorter profile "
                f"({how_to_raise(2)})"
            )


class Plane:
    """One plane: its name, its lines, and the kinds of its events."""

    def __init__(self, space: Space, part: Part) -> None:
        self.space, self.wire, self.name = space, space.wire, ""
        self._parts: dict[int, list[Part]] = {3: [], 4: [], 5: []}
        self._names: dict[int, str] = {}
        self._kinds: dict[int, Kind] = {}
        for number, place in self.wire.messages(part):
            if number == 2:
                self.name = self.wire.text(place)
            elif number in self._parts:
                self._parts[number].append(place)

    def lines(self) -> Iterator[tuple[str, Part]]:
        """Yield name and place of each line."""
        for part in self._parts[3]:
            names = {number: place for number, place in self.wire.messages(part) if number in (2, 11)}
            named = names.get(2) or names.get(11)
            yield self.wire.text(named) if named else "", part

    def kinds(self) -> dict[int, Kind]:
        """Return the kinds of its events by number."""
        if self._kinds or not self._parts[4]:
            return self._kinds
        for part in self._parts[5]:
            number, place = self._entry(part)
            found = [self.wire.text(each) for at, each in self.wire.messages(place) if at == 2]
            self._names[number] = found[-1] if found else ""
        for part in self._parts[4]:
            number, place = self._entry(part)
            kind = self._kinds[number] = Kind()
            for at, each in self.wire.messages(place):
                if at == 2:
                    kind.name = self.wire.text(each)
                elif at == 4:
                    kind.display = self.wire.text(each)
                elif at == 5:
                    self._stat(each, kind.stats)
        return self._kinds

    def _entry(self, part: Part) -> tuple[int, Part]:
        """Return key and value of an entry of a map, which are fields 1 and 2."""
        self.space.count()
        key, place = 0, (part[0], part[0])
        for number, wire, value, after in self.wire.fields(part):
            if number == 1 and wire == 0:
                key = value
            elif number == 2 and wire == 2:
                place = value, after
        return key, place

    def events(self, line: Part) -> Iterator[Event]:
        """Yield the events of a line that have a time.

        Raises:
            InputError: one begins or ends at no time that a trace can say.
        """
        kinds = self.kinds()
        begin, places = 0, []
        for number, wire, value, after in self.wire.fields(line):
            if number == 3 and wire == 0:
                begin = value
            elif number == 4 and wire == 2:
                places.append((value, after))
        for place in places:
            self.space.count()
            numbers, stats = dict[int, int](), dict[str, Stat]()
            for at, wire, value, after in self.wire.fields(place):
                if wire == 0:
                    numbers[at] = value
                elif wire == 2 and at == 4:
                    self._stat((value, after), stats)
            # What has occurrences in place of an offset was counted, not timed; an offset of 0 may be left out.
            if 5 in numbers and 2 not in numbers:
                continue
            first, length = begin * 1000 + numbers.get(2, 0), numbers.get(3, 0)
            if length < 0 or not 0 <= first <= first + length < _LATEST * 1000:
                raise self.wire.damaged(
                    place[0],
                    f"an event begins at {first} ps and lasts {length} ps, expected times from 0 to 2**62 ns",
                )
            kind = kinds.get(numbers.get(1, 0)) or Kind()
            about = {"long_name": kind.name, **kind.stats, **stats}
            yield Event(kind.display or kind.name or "event", first // 1000, (first + length) // 1000, about)

    def _stat(self, part: Part, found: dict[str, Stat]) -> None:
        self.space.count()
        number, result = 0, None
        for at, wire, value, after in self.wire.fields(part):
            if at == 1:
                number = value
            else:
                known = self._value(at, wire, value, after)
                result = result if known is None else known
        if (name := self._names.get(number)) and result is not None:
            found[name] = result

    def _value(self, field_number: int, wire: int, value: int, after: int) -> Stat | None:
        """Return the value that a field of a stat is; the schema has one field for each type."""
        match field_number, wire:
            case 2, 1:
                return float(unpack("<d", (value % _WHOLE).to_bytes(8, "little"))[0])
            case 3, 0:
                return value % _WHOLE
            case 4, 0:
                return value
            case 5, 2:
                return self.wire.text((value, after))
            case 6, 2:
                return self.wire.data[value:after]
            case 7, 0:
                # A text that stands often is the name of a stat.
                return self._names.get(value, "")
        return None
