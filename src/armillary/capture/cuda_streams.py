"""Streams, events and graphs of `torch.cuda`, of which the recorder is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from armillary.capture.graphs import Graphs
from armillary.capture.library import DEVICE, STREAM


def streams(
    torch: Any, noted: Callable[[int, int, int], None], graphs: Graphs, index: Callable[[Any], int]
) -> dict[str, Any]:
    """Return what `torch.cuda` is to have, by name.

    Args:
        torch: PyTorch.
        noted: Learns of streams and events as in `armillary.capture.library`.
        graphs: Learns of CUDA graphs.
        index: Number of a device, however it is given.
    """

    class Stream(torch.Stream):  # type: ignore[misc]
        """A stream with the methods that those of CUDA have."""

        def __new__(cls, device: Any = None, priority: int = 0, **named: Any) -> Any:
            if named:
                return super().__new__(cls, **named)
            return super().__new__(cls, device=torch.device("cuda", index(device)), priority=priority)

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        @property
        def cuda_stream(self) -> int:
            return int(self.stream_id)

        def record_event(self, event: Any = None) -> Any:
            event = event or Event()
            event.record(self)
            return event

        def wait_event(self, event: Any) -> None:
            event.wait(self)

        def wait_stream(self, other: Any) -> None:
            Event().record_and_wait(other, self)

    class Event(torch.Event):  # type: ignore[misc]
        """An event with the methods that those of CUDA have."""

        def __new__(cls, enable_timing: bool = False, blocking: bool = False, **_: Any) -> Any:
            return super().__new__(
                cls,
                device=torch.device("cuda"),
                enable_timing=enable_timing,
                blocking=blocking,
                interprocess=False,
            )

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def record(self, stream: Any = None) -> None:
            super().record(current() if stream is None else stream)

        def wait(self, stream: Any = None) -> None:
            super().wait(current() if stream is None else stream)

        def elapsed_time(self, other: Any) -> float:
            # In ms; nothing takes time here, and programs divide by it.
            return 1.0

        def query(self) -> bool:
            return True

        def record_and_wait(self, before: Any, after: Any) -> None:
            self.record(before)
            self.wait(after)

    class Context:
        """``with torch.cuda.stream(other):``."""

        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            if self.stream is not None:
                self.before = torch.accelerator.current_stream()
                torch.accelerator.set_stream(self.stream)

        def __exit__(self, *_: object) -> None:
            if self.stream is not None:
                torch.accelerator.set_stream(self.before)

    def current(device: Any = None) -> Any:
        found = torch.accelerator.current_stream(index(device))
        return Stream(
            stream_id=found.stream_id, device_index=found.device_index, device_type=found.device_type
        )

    class Graph:
        """A CUDA graph: what is called while it is captured runs when it is replayed, and not before."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self._held: Any = None

        def capture_begin(self, *_: Any, **__: Any) -> None:
            graphs.begin()

        def capture_end(self) -> None:
            self._held = graphs.end()

        def replay(self) -> None:
            graphs.run(self._held)

        def reset(self) -> None:
            self._held = None

        def pool(self) -> tuple[int, int]:
            return 0, 0

        def __getattr__(self, name: str) -> Any:
            # What prints or inspects a graph.
            return lambda *_, **__: None

    # CUDA is device type 1.
    return {
        "Stream": Stream,
        "ExternalStream": lambda number, device=None, **_: Stream(
            stream_id=number, device_index=index(device), device_type=1
        ),
        "Event": Event,
        "stream": Context,
        "StreamContext": Context,
        "current_stream": current,
        "default_stream": lambda device=None: Stream(stream_id=0, device_index=index(device), device_type=1),
        "set_stream": torch.accelerator.set_stream,
        "synchronize": lambda *_: noted(DEVICE, 0, 0),
        "_synchronize_stream": lambda stream: noted(STREAM, 0, stream.stream_id),
        "CUDAGraph": Graph,
        "graph_pool_handle": lambda: (0, 0),
        "is_current_stream_capturing": lambda: graphs.captures,
    }
