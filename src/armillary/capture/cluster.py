"""The cluster that a captured rank is part of: process groups whose collectives do nothing, and no files of others.

PyTorch's backend ``fake`` knows ranks and groups and moves nothing. What moves Python objects through a group is
replaced, see `armillary.capture.objects`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from armillary.base.errors import InputError
from armillary.capture import objects, processes, rendezvous
from armillary.capture.recorder import Recorder
from armillary.convert.torch_import import torch_part

GPUS_PER_NODE = 8
NCCL = "nccl"


def environment(rank: int, ranks: int, local: int = GPUS_PER_NODE) -> dict[str, str]:
    """Return what torchrun would set for a rank."""
    local = min(local, ranks)
    return {
        "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank % local), "LOCAL_WORLD_SIZE": str(local),
        "GROUP_RANK": str(rank // local), "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": str(ranks), "NGPU": str(ranks),
        "GROUP_WORLD_SIZE": str(-(-ranks // local)), "ROLE_NAME": "default", "TORCHELASTIC_RUN_ID": "armillary",
        "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }  # fmt: skip


def join(torch: Any, recorder: Recorder, rank: int, ranks: int, mail: objects.Mail) -> None:
    """Make this process rank `rank` of `ranks`; messages of objects go through `mail`."""
    distributed = torch.distributed
    if not distributed.is_available():
        return
    store = torch_part("testing._internal.distributed.fake_pg").FakeStore

    core = distributed.distributed_c10d
    init = core.init_process_group
    replaced: dict[str, Callable[..., Any]] = {}

    # What the program asked for: it may look at that, and all groups are of one that does nothing.
    backends: dict[str, str] = {}
    real_name = core.get_backend

    def init_process_group(backend: str | None = None, *_: Any, **__: Any) -> None:
        init("fake", rank=rank, world_size=ranks, store=store())
        backends[""] = str(backend or NCCL)

    replaced["init_process_group"] = init_process_group
    new_group = core.new_group

    def group(
        ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None, **named: Any
    ) -> Any:
        if elsewhere(ranks) and not named.get("use_local_synchronization"):
            # Of 100,000 ranks an axis has that many groups, and this rank is in one: the others are counted only.
            core._world.group_count += 1
            return core.GroupMember.NON_GROUP_MEMBER
        found = new_group(ranks, backend="fake", **named)
        if backend and found is not core.GroupMember.NON_GROUP_MEMBER:
            backends[found.group_name] = str(backend)
        return found

    def elsewhere(members: Any) -> bool:
        """Return whether a group is one that PyTorch takes, without this rank."""
        return (
            isinstance(members, list)
            and rank not in members
            and 0 < len(members) == len(set(members))
            and all(type(each) is int and 0 <= each < ranks for each in members)
        )

    def split_group(parent_pg: Any = None, split_ranks: Any = None, *_: Any, **__: Any) -> Any:
        # Of ranks of the parent; all members make all groups, in the same order.
        parent = distributed.get_process_group_ranks(parent_pg or core.GroupMember.WORLD)
        lists = [[parent[at] for at in each] for each in split_ranks]
        groups = [group(each, backend=get_backend(parent_pg)) for each in lists]
        return next((found for found, each in zip(groups, lists, strict=True) if rank in each), None)

    def get_backend(group: Any = None) -> str:
        found = str(real_name(group))
        asked = backends.get(getattr(group, "group_name", ""), backends.get("", NCCL))
        # Of one for each kind of device, that of GPUs.
        parts = dict(part.split(":", 1) for part in asked.split(",") if ":" in part)
        return found if found != "fake" else parts.get("cuda", asked)

    replaced["new_group"] = group
    replaced["get_backend"] = get_backend
    replaced["split_group"] = split_group
    for name in ("is_nccl_available", "is_gloo_available", "is_torchelastic_launched"):
        replaced[name] = lambda: True
    replaced["set_timeout"] = lambda *_, **__: None
    replaced["monitored_barrier"] = lambda *_, **__: None
    replaced |= objects.replacements(core, recorder, rank, mail)
    # Parts of PyTorch that are imported by now have names of their own for these.
    parts = [
        part for name, part in list(sys.modules.items()) if name.startswith("torch.") and part is not core
    ]
    for name, value in replaced.items():
        before = getattr(core, name, None)
        setattr(core, name, value)
        setattr(distributed, name, value)
        for part in parts:
            if before is not None and vars(part).get(name) is before:
                setattr(part, name, value)
    _works(distributed, recorder)
    processes.install(rank, recorder)
    rendezvous.install(distributed, recorder)
    _data_parallel(torch)
    _one_process(torch, recorder)
    _chunks()
    _meshes()
    _flat_parameters()


def _works(distributed: Any, recorder: Recorder) -> None:
    """Let whoever waits for a communication be noted."""
    work, futures = distributed.Work, torch_part("futures")
    wait = work.wait

    def waited(self: Any, *args: Any, **named: Any) -> Any:
        recorder.wait(self)
        return wait(self, *args, **named)

    def get_future(self: Any) -> Any:
        """Return what is there already; those of the fake backend give no tensors back."""
        done = futures.Future()
        done.set_result(recorder.results(self))
        return done

    work.wait, work.get_future = waited, get_future


def _data_parallel(torch: Any) -> None:
    """Reduce buckets of DDP in Python: those of the fake backend give no tensors back."""
    parallel = torch.nn.parallel.DistributedDataParallel
    start, register = parallel.__init__, parallel.register_comm_hook
    # It gathers the shapes of all ranks and compares them: here the other ranks have none.
    torch.distributed._verify_params_across_processes = lambda *_, **__: None
    # Its statistics want the times of events of CUDA.
    torch.distributed.Logger.set_runtime_stats_and_log = lambda *_: None

    def hook(group: Any, bucket: Any) -> Any:
        buffer = bucket.buffer()
        # The mean over all replicas, which DDP has before it reduces.
        buffer.div_(group.size())
        torch.distributed.all_reduce(buffer, group=group, async_op=True)
        future = torch.futures.Future()
        future.set_result(buffer)
        return future

    # PyTorch compares annotations with its own types; those here are text.
    hook.__annotations__.clear()

    def either(module: Any, bucket: Any) -> Any:
        state, chosen = vars(module).get("_armillary_hook", (module.process_group, hook))
        return chosen(state, bucket)

    either.__annotations__.clear()

    def started(self: Any, *args: Any, **named: Any) -> None:
        start(self, *args, **named)
        register(self, self, either)

    def registered(self: Any, state: object, hook: Callable[..., Any]) -> None:
        # DDP takes one hook only, and has that one.
        vars(self)["_armillary_hook"] = state, hook

    parallel.__init__, parallel.register_comm_hook = started, registered


def _one_process(torch: Any, recorder: Recorder) -> None:
    """Let `torch.nn.DataParallel` run on one GPU, and refuse it on several: all of it would be one rank."""

    def forward(self: Any, *inputs: Any, **named: Any) -> Any:
        if len(self.device_ids) > 1:
            raise InputError(
                f"{recorder.where.line()}: DataParallel computes on {len(self.device_ids)} GPUs in one process; "
                "expected DistributedDataParallel, which has a process for each, or --ranks 1"
            )
        to = torch.utils._pytree.tree_map_only(torch.Tensor, lambda each: each.cuda(), (inputs, named))
        return self.module(*to[0], **to[1])

    torch.nn.DataParallel.forward = forward


def _chunks() -> None:
    """Cut parameters of FSDP2 where they are asked for: it makes a view for every rank, and uses one."""
    try:
        _fsdp_param = torch_part("distributed.fsdp._fully_shard._fsdp_param")
    except ImportError:  # before PyTorch 2.6
        return

    class Chunks:
        def __init__(self, tensor: Any, count: int, dim: int) -> None:
            self.tensor, self.count, self.dim = tensor, count, dim
            self.each = -(-tensor.size(dim) // count)

        def __len__(self) -> int:
            return self.count

        def __getitem__(self, at: int) -> Any:
            size = self.tensor.size(self.dim)
            first = min(at * self.each, size)
            return self.tensor.narrow(self.dim, first, min(self.each, size - first))

    if hasattr(_fsdp_param, "_chunk_with_empty"):
        vars(_fsdp_param)["_chunk_with_empty"] = lambda tensor, count, dim=0: Chunks(tensor, count, dim)


def _meshes() -> None:
    """Let meshes of one root share what they know of its ranks: DTensor makes and compares hundreds of meshes.

    PyTorch compares the ranks of all, and searches them for its own, which takes most of a capture of 100,000 ranks.
    """

    class Ranks(tuple[int, ...]):
        hashed: int | None = None

        def __eq__(self, other: object) -> bool:
            return self is other or tuple.__eq__(self, other)

        def __ne__(self, other: object) -> bool:
            return self is not other and tuple.__ne__(self, other)

        def __hash__(self) -> int:
            if self.hashed is None:
                self.hashed = tuple.__hash__(self)
            return self.hashed

        def __reduce__(self) -> tuple[Any, ...]:
            # Programs save DTensors, with their mesh.
            return tuple, (tuple(self),)

    mesh = torch_part("distributed.device_mesh").DeviceMesh
    init = mesh.__init__
    # Meshes of one root share the tensor of its ranks, which is kept, or its id might be another's.
    known: dict[int, tuple[Any, Ranks]] = {}

    def made(self: Any, *args: Any, **named: Any) -> None:
        init(self, *args, **named)
        if hasattr(self, "_flatten_rank_map") and hasattr(self, "_rank_map"):
            of = self._rank_map
            if id(of) not in known:
                known[id(of)] = of, Ranks(self._flatten_rank_map)
            self._flatten_rank_map = known[id(of)][1]

    mesh.__init__ = made
    _axes(mesh)
    if not hasattr(mesh, "_compute_coordinate_on_dim"):
        return
    search = mesh._compute_coordinate_on_dim
    places: dict[tuple[int, Any, int], tuple[Any, Any]] = {}

    def place(self: Any) -> Any:
        of = self._rank_map
        key = id(of), self._layout, self._rank
        if key not in places:
            places[key] = of, search(self)
        return places[key][1]

    mesh._compute_coordinate_on_dim = place


def _axes(mesh: Any) -> None:
    """Make the group of this rank along an axis, and count the others: PyTorch goes through 58,000 of some programs."""
    part, core = torch_part("distributed.device_mesh"), torch_part("distributed.distributed_c10d")
    if not all(hasattr(mesh, name) for name in ("_init_one_process_group", "_concatenate", "_get_root_mesh")):
        return  # before PyTorch 2.13
    each, join = mesh._init_one_process_group, mesh._concatenate
    # FSDP2 puts the same two meshes together for every parameter. Kept, or their ids might be those of others.
    joined: dict[tuple[int, ...], tuple[list[Any], Any]] = {}

    def together(meshes: list[Any]) -> Any:
        key = tuple(map(id, meshes))
        if key not in joined:
            joined[key] = list(meshes), join(meshes)
        return joined[key][1]

    def one(layout: Any, ranks: Any, name: str, override: Any) -> Any:
        rows = part._MeshLayout([layout]).remap_to_tensor(ranks)
        mine = (rows == core.get_rank()).any(1).nonzero().flatten().tolist()
        bound = getattr(core._get_default_group(), "bound_device_id", None)
        if len(mine) != 1 or len(rows) == 1 or bound is not None or part.dist_config.use_torchcomms:
            return each(layout, ranks, name, override)
        (backend, options), [at] = override, mine
        core._world.group_count += at
        found = core.new_group(
            ranks=rows[at].tolist(), timeout=options._timeout if options else None, backend=backend,
            pg_options=options, group_desc=f"mesh_{name}",
        )  # fmt: skip
        core._world.group_count += len(rows) - at - 1
        return found.group_name

    mesh._init_one_process_group, mesh._concatenate = staticmethod(one), staticmethod(together)


def _flat_parameters() -> None:
    """Let FSDP1 see from its size whether a tensor has memory: none has an address."""
    part = torch_part("distributed.fsdp._flat_param")
    if hasattr(part, "_data_ptr_allocated"):
        vars(part)["_data_ptr_allocated"] = lambda tensor: tensor.untyped_storage().size() > 0
