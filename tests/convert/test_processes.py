from __future__ import annotations

import os
import time
from pathlib import Path

from armillary.convert.processes import RankProcesses

WRITE = (
    "import os, sys; open(sys.argv[1] + os.environ['RANK'], 'w').write(' '.join(os.environ[name] for name in "
)
NAMES = ("WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "GLOO_SOCKET_IFNAME", "EXTRA")


def finish(processes: RankProcesses) -> None:
    while processes.running():
        processes.wait()


def test_each_rank_gets_the_environment_of_torchrun(tmp_path: Path) -> None:
    prefix = f"{tmp_path}/rank"
    with RankProcesses(["-c", f"{WRITE}{NAMES}))", prefix], 3, {"EXTRA": "more"}) as processes:
        finish(processes)
        assert processes.failures() == {}
    for rank in range(3):
        assert Path(f"{prefix}{rank}").read_text() == f"3 {rank} 127.0.0.1 lo more"


def test_failures_name_rank_and_exit_code_or_signal() -> None:
    script = "import os, sys; r = int(os.environ['RANK']); r == 1 and sys.exit(7); r == 2 and os.kill(os.getpid(), 9)"
    with RankProcesses(["-c", script], 3) as processes:
        finish(processes)
        assert processes.failures() == {
            1: "rank 1 ended with exit code 7",
            2: "rank 2 was killed by SIGKILL",
        }


def test_leaving_ends_all_ranks_and_what_they_started(tmp_path: Path) -> None:
    script = (
        "import os, signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)']); "
        "part = sys.argv[1] + os.environ['RANK']; open(part + '.part', 'w').write(str(child.pid)); "
        "os.rename(part + '.part', part); time.sleep(3600)"
    )
    files = [tmp_path / f"child{rank}" for rank in range(2)]
    with RankProcesses(["-c", script, f"{tmp_path}/child"], 2) as processes:
        while not all(file.exists() for file in files):
            processes.wait()
    assert processes.running() == []
    children = [int(file.read_text()) for file in files]
    end = time.monotonic() + 600
    while any(alive(child) for child in children) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(alive(child) for child in children)


def alive(process: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_port_is_free() -> None:
    import socket

    from armillary.convert.processes import free_port

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free_port()))
    assert os.environ.get("MASTER_PORT") is None
