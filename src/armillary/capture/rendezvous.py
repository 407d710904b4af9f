"""Ways past process groups in which ranks meet: stores, in which this rank is alone, and RPC, which is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from armillary.base.errors import InputError
from armillary.capture.recorder import Recorder
from armillary.convert.torch_import import torch_part

PATIENCE = timedelta(seconds=1)
"""How long a rank waits for a key of its store: nobody else sets any."""


def install(distributed: Any, recorder: Recorder) -> None:
    """Replace what would wait for the other ranks."""

    class TCPStore(distributed.HashStore):  # type: ignore[misc]
        """A store that only this rank writes to and reads from."""

        def __init__(self, host_name: str = "", port: int = 0, *_: Any, **__: Any) -> None:
            super().__init__()
            self.set_timeout(PATIENCE)
            self.host, self.port = host_name, port

        def get(self, key: str) -> bytes:
            return bytes(self._found(key, super().get, key))

        def wait(self, keys: list[str], *_: Any) -> None:
            self._found(", ".join(keys), super().wait, keys, PATIENCE)

        def _found(self, key: str, ask: Any, *given: Any) -> Any:
            try:
                return ask(*given)
            except RuntimeError as error:
                raise InputError(
                    f"{recorder.where.line()}: it waits for the key {key!r} of a store, which another rank sets, and "
                    "each rank is captured alone; expected torch.distributed.broadcast_object_list"
                ) from error

    core = distributed.distributed_c10d
    for part in (distributed, core, torch_part("distributed.rendezvous")):
        if hasattr(part, "TCPStore"):
            part.TCPStore = TCPStore

    def refused(*_: Any, **__: Any) -> None:
        raise InputError(
            f"{recorder.where.line()}: torch.distributed.rpc calls functions of other ranks, and each rank is captured "
            "alone; expected collectives or messages of torch.distributed"
        )

    if distributed.rpc.is_available():
        distributed.rpc.init_rpc = refused
