"""Starts a step inside a SageMaker container, or in a folder of the same shape on a laptop. Standard library only.

    python3 -m containers.launch [--step=NAME --field=value ...]

This package alone knows a SageMaker container's inside. It

  - reads /opt/ml/config (processing) or /opt/ml/input/config (training) for folders, settings and hosts; the variable
    OPT_ML names another root than /opt/ml
  - checks the code archive <sha256>.zip of the input `code` against its name and unpacks it
  - counts the GPUs, sets the network between several hosts up, and measures it (bandwidth_check.py)
  - runs `python -m steps.<step> --<input>=DIR ... --output=DIR --<field>=value`, under torchrun where a training job
    has more than one process
  - hands SIGTERM on (and SIGHUP as SIGTERM, and SIGINT), waits for the step, and ends with the step's exit code; ends
    the step where another host of the job is lost or has failed (host_connections.py)
  - says once a minute what a step does that tells no progress (heartbeat.py)
  - writes the one line of a failure to /opt/ml/output/message (processing) or /opt/ml/output/failure (training)

docs/containers.md lists the variables.
"""

from __future__ import annotations

import sys

from containers.stop_signals import StopSignals


def main(arguments: list[str]) -> int:
    """Runs the job and returns its exit code."""
    signals = StopSignals()
    signals.install()
    # Only now: as process 1 of a container this gets no signal before, and these imports take a while.
    from containers.job_running import run_to_its_end

    return run_to_its_end(arguments, signals)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
