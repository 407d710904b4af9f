"""Pipelines by name of their schedule: two blocks a stage, sharded (FSDP2), checkpointed; perhaps an odd microbatch."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleMulti, get_schedule_class
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.reentrant, self.odd, self.doubles = reentrant, False, False

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.odd:
            x = x * 2
        out = x + checkpoint(self.inner, x, use_reentrant=self.reentrant)
        if out.requires_grad:
            out.register_hook(lambda gradient: gradient * 2 if self.doubles else None)
        return out


def last_is_odd(stage: PipelineStage, last: int) -> None:
    """Let the last microbatch do something that the others do not."""
    forward = stage.forward_one_chunk

    def called(number: int, *given: object, **named: object) -> object:
        for block in stage.submod:
            block.odd = number == last
        return forward(number, *given, **named)

    stage.forward_one_chunk = called


def second_goes_back_otherwise(stage: PipelineStage) -> None:
    """Let the gradients of the second microbatch of the first step do something that those of the others do not."""
    backward, seen = stage.backward_one_chunk, set[int]()

    def called(number: int, *given: object, **named: object) -> object:
        for block in stage.submod:
            block.doubles = number == 1 and number not in seen
        seen.add(number)
        return backward(number, *given, **named)

    stage.backward_one_chunk = called


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedule", default="1F1B")
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--reentrant", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--reshard", action="store_true")
    parser.add_argument("--odd-last", action="store_true")
    parser.add_argument("--odd-second", action="store_true")
    chosen = parser.parse_args()
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    pp = dist.get_world_size() // 2
    mesh = init_device_mesh("cuda", (pp, 2), mesh_dim_names=("pp", "dp"))
    place, kind = mesh["pp"].get_local_rank(), get_schedule_class(chosen.schedule)
    several = issubclass(kind, PipelineScheduleMulti)
    if not several:
        mine = [place]
    elif "V" in chosen.schedule.removeprefix("Interleaved"):
        mine = [place, 2 * pp - 1 - place]
    else:
        mine = [place, pp + place]
    stages = []
    for number in mine:
        blocks = [Block(chosen.reentrant).cuda() for _ in range(2)]
        for block in blocks:
            if chosen.compile:
                block.compile()
            fully_shard(block, mesh=mesh["dp"], reshard_after_forward=chosen.reshard)
        model = fully_shard(nn.Sequential(*blocks), mesh=mesh["dp"], reshard_after_forward=chosen.reshard)
        stage = PipelineStage(
            model, number, pp * len(mine), torch.device("cuda"), group=mesh["pp"].get_group()
        )
        if chosen.odd_last:
            last_is_odd(stage, chosen.microbatches - 1)
        if chosen.odd_second:
            second_goes_back_otherwise(stage)
        stages.append(stage)
    optimizer = torch.optim.AdamW([each for stage in stages for each in stage.submod.parameters()])
    schedule = kind(stages if several else stages[0], chosen.microbatches, loss_fn=nn.functional.mse_loss)
    for _ in range(3):
        given, target = (torch.randn(16, 32, device="cuda") for _ in range(2))
        losses: list[torch.Tensor] = []
        schedule.step(
            *([given] if any(stage.is_first for stage in stages) else []),
            **({"target": target, "losses": losses} if any(stage.is_last for stage in stages) else {}),
        )
        if losses:
            torch.stack(losses).mean().item()
        optimizer.step()
        optimizer.zero_grad()


main()
