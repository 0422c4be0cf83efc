"""ContinuedPretraining killed again and again: a script that forks the step's processes, so that each start is cheap.

    killed_pretraining.py '{"arguments": [...], "folder": "/...", "processes": 1, "kills": 20, "seed": 0}'

The folder gets log.txt and, in the end, the output of the attempt that nobody killed. Each attempt is killed after a
random number of steps and a random time; of several processes every other kill takes one alone. A training that ends
before it is killed begins anew. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
from small_pretraining import free_port

from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.continued_pretraining import FOLDERS, REPORTS, continued_pretraining
from steps.contract import run_step

MOST_STEPS = 5
LONGEST_ATTEMPT_SECONDS = 120


def start(arguments: list[str], folder: Path, processes: int) -> list[int]:
    """Forks the step's processes, whose output goes to log.txt; gives their ids."""
    log, port = folder / "log.txt", str(free_port())
    log.unlink(missing_ok=True)
    children = []
    for rank in range(processes):
        child = os.fork()
        if child:
            children.append(child)
            continue
        file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}  # fmt: skip
        config, more = ContinuedPretrainingConfig, {"checkpoints": True, "reports": REPORTS}
        os._exit(run_step(continued_pretraining, config, FOLDERS, arguments=arguments, **more))
    return children


def has_ended(child: int, codes: dict[int, int]) -> bool:
    if child not in codes:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            codes[child] = os.waitstatus_to_exitcode(status)
    return child in codes


def wait(children: list[int], codes: dict[int, int]) -> float:
    """Until all have ended; the seconds that it took."""
    begun = time.monotonic()
    while sum(has_ended(child, codes) for child in children) < len(children):
        assert time.monotonic() - begun < LONGEST_ATTEMPT_SECONDS
        time.sleep(0.01)
    return time.monotonic() - begun


def reaches(steps: int, folder: Path, children: list[int], codes: dict[int, int]) -> bool:
    """Waits until so many steps are logged; False where the processes ended before."""
    log = folder / "log.txt"
    while not (log.exists() and log.read_text(errors="replace").count("metrics: step=") >= steps):
        if sum(has_ended(child, codes) for child in children) > 0:
            return False
        time.sleep(0.002)
    return True


def main(arguments: list[str], folder: Path, processes: int, kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    draw = random.Random(seed)
    output, checkpoints = folder / "output", folder / "checkpoints"
    arguments = [*arguments, f"--output={output}", f"--checkpoints={checkpoints}"]
    killed = restarts = 0
    longest_alone, resumed = 0.0, set()
    while True:
        children, codes = start(arguments, folder, processes), {}
        if killed == kills:
            wait(children, codes)
            break
        if reaches(draw.randint(0, MOST_STEPS), folder, children, codes):
            time.sleep(draw.random() * 0.05)
        alone = processes > 1 and killed % 2 == 1
        alive = [child for child in children if not has_ended(child, codes)]
        for child in [draw.choice(alive)] if alone and alive else alive:
            os.kill(child, signal.SIGKILL)
        seconds = wait(children, codes)
        log = (folder / "log.txt").read_text(errors="replace")
        if -signal.SIGKILL in codes.values():
            killed += 1
            longest_alone = max(longest_alone, seconds if alone else 0.0)
            resumed |= {line for line in log.splitlines() if line.startswith("going on")}
        else:
            assert set(codes.values()) == {0}, log
        if (output / "manifest.json").exists():
            restarts += 1
            shutil.rmtree(output)
            shutil.rmtree(checkpoints)
    log = (folder / "log.txt").read_text(errors="replace")
    assert set(codes.values()) == {0}, log
    found = {"kills": killed, "restarts": restarts, "resumed_from": len(resumed)}
    print(json.dumps({**found, "longest_alone_seconds": longest_alone}))


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(given["arguments"], Path(given["folder"]), given["processes"], given["kills"], given["seed"])
