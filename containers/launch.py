"""Starts a step inside a SageMaker container, or in a folder of the same shape on a laptop. Standard library only.

    python3 -m containers.launch [--step=NAME --field=value ...]

This package alone knows a SageMaker container's inside. It

  - reads /opt/ml/config (processing) or /opt/ml/input/config (training) for folders, settings and hosts; the variable
    OPT_ML names another root than /opt/ml
  - checks the code archive <sha256>.zip of the input `code` against its name and unpacks it
  - runs `python -m steps.<step> --<input>=DIR ... --output=DIR --<field>=value`, under torchrun where a training job
    has more than one process
  - hands SIGTERM on, waits for the step, and ends with the step's exit code
  - writes the one line of a failure to /opt/ml/output/message (processing) or /opt/ml/output/failure (training)

Variables: LANGADAPT_PROCESSES, processes of one host (default: one a GPU, at least one);
LANGADAPT_RENDEZVOUS_HOST and LANGADAPT_RENDEZVOUS_PORT, where several processes meet (default: the first host, 7777);
LANGADAPT_PARENT_PROCESS, the id of the process that starts this one, set where the step is to stop when that ends (a
laptop's run may be killed).
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path

from containers.code_unpacking import unpack_code
from containers.failure_message import write_message
from containers.job_configuration import CONTAINER_ROOT, read_processing, read_training
from containers.launch_errors import EXIT_BUG, EXIT_USER_ERROR, LaunchError
from containers.step_process import run

# What a full or read-only disk answers, which a person can mend.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)


def main(arguments: list[str]) -> int:
    """Runs the job and returns its exit code."""
    root = Path(os.environ.get("OPT_ML", CONTAINER_ROOT))
    is_training = (root / "input/config/hyperparameters.json").is_file()
    message = root / ("output/failure" if is_training else "output/message")
    try:
        launch = read_training(root) if is_training else read_processing(root, arguments)
        code_digest, code = unpack_code(launch.folders.pop("code", None), root / "code")
        return run(launch, code, code_digest, message)
    except LaunchError as error:
        return fail(message, f"error: {error}", EXIT_USER_ERROR)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            return fail(message, f"error: {type(error).__name__}: {error}", EXIT_BUG, traceback.format_exc())
        line = f"error: {error.filename or root}: {error.strerror}. Make space or name another place, then run again."
        return fail(message, line, EXIT_USER_ERROR)
    except Exception as error:
        return fail(message, f"error: {type(error).__name__}: {error}", EXIT_BUG, traceback.format_exc())


def fail(message: Path, line: str, exit_code: int, details: str = "") -> int:
    """Leaves the line of a failure that is not the step's, and gives the exit code back."""
    # The log may lie on the very disk that is full.
    with suppress(OSError):
        print(details or line, file=sys.stderr, flush=True)
    write_message(message, line)
    return exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
