"""The limit on steps at a time holds, and is used."""

import sys

import pytest

from pipeline.local.executor import run_definition
from pipeline.local.images import LocalImage
from pipeline.progress import Quiet
from pipeline.registry import LocalRegistry

# Works until as many as may do so have begun, and a little longer: long enough for one too many to show.
WORK = """
import os, pathlib, sys, time
folder, limit, began = pathlib.Path(sys.argv[1]), int(sys.argv[2]), time.time()
(folder / f"{os.getpid()}.begun").touch()
while len(list(folder.glob("*.begun"))) < limit and time.time() < began + 30:
    time.sleep(0.01)
time.sleep(0.2)
(folder / "times.txt").open("a").write(f"{began} {time.time()}\\n")
"""


def most_at_once(times):
    """The largest number of (start, end) spans that hold at one moment."""
    return max(sum(begin <= moment < end for begin, end in times) for moment, _ in times)


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_steps_than_the_limit_work_at_a_time(tmp_path, limit):
    folder = tmp_path / "times"
    folder.mkdir()
    steps = [
        {"Name": f"Work{number}", "Type": "Processing", "Arguments": {
            "AppSpecification": {"ImageUri": "image", "ContainerArguments": [str(folder), str(limit)]},
            "ProcessingResources": {"ClusterConfig": {"InstanceCount": 1}}}}
        for number in range(4)
    ]  # fmt: skip
    result = run_definition(
        {"Steps": steps}, run_folder=tmp_path / "run", registry=LocalRegistry(tmp_path / "registry"),
        default_image=LocalImage((sys.executable, "-c", WORK)), max_parallel=limit, progress=Quiet(),
    )  # fmt: skip
    times = [tuple(map(float, line.split())) for line in (folder / "times.txt").read_text().splitlines()]
    assert (result.exit_code, len(times)) == (0, 4)
    assert most_at_once(times) == limit
