"""A small script that trains, to which tests add what they capture."""

from __future__ import annotations

from pathlib import Path

from armillary.capture import Log, capture_script

TRAIN = """
import sys, torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    loss = model(torch.randn(4, 8, device="cuda")).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss
"""


def capture(tmp_path: Path, text: str, **options: object) -> Log:
    """Return the first rank of the script with more text; `options` are those of `capture_script`."""
    file = tmp_path / "script.py"
    file.write_text(TRAIN + text)
    return capture_script(str(file), folder=tmp_path / "cap", **options)[0]  # type: ignore[arg-type]
