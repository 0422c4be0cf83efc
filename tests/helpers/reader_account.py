"""Who answers a reader's commands that ask an AWS account: moto's server on loopback, or a stub of the service."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
from account_stand_in import AccountStandIn, account_stand_in
from sagemaker_stub import sagemaker_stub
from stub_executions import add_execution, ending, serve_run
from workplace import PRESET, ROOT, Workplace

from pipeline.config import load_config

# moto has no steps of executions: what asks for them has the stub.
ACCOUNT_COMMANDS = ("push", "upsert", "start", "executions", "schedule", "models --remote")
STUBBED_COMMANDS = ("status", "logs", "stop", "retry")


@contextmanager
def own_account(folder: Path) -> Iterator[AccountStandIn]:
    """An account with the bucket that the README's own.yaml names. Writes that file into the folder: the preset of
    seconds with the README's sections."""
    text = (ROOT / "README.md").read_text("utf-8")
    section = next(block for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if block.startswith("aws:"))
    (folder / "own.yaml").write_text(PRESET.read_text("utf-8") + section, "utf-8")
    settings = load_config(file=folder / "own.yaml").aws
    with account_stand_in() as served:
        client = boto3.client("s3", region_name=settings.region, endpoint_url=served.environment["AWS_ENDPOINT_URL"],
                              aws_access_key_id="stand-in", aws_secret_access_key="stand-in")  # fmt: skip
        where = {"LocationConstraint": settings.region}
        client.create_bucket(Bucket=settings.bucket, CreateBucketConfiguration=where)  # type: ignore[typeddict-item]
        yield served


@contextmanager
def answering(kind: str, place: Workplace, account: AccountStandIn) -> Iterator[dict[str, str]]:
    """Variables with which a command of this kind finds who answers it; none for one that needs no account."""
    if kind in ACCOUNT_COMMANDS:
        yield account.environment
    elif kind in STUBBED_COMMANDS:
        with sagemaker_stub() as stub:
            definition = json.loads((place.run_folder / place.execution()["definition"]).read_bytes())
            serve_run(stub, place.run_folder, definition)
            stub.streams["/aws/sagemaker/TrainingJobs", "job-FineTune/algo-1-1700000000"] = ["metrics: loss=2.5"]
            if kind in ("stop", "retry"):
                add_execution(stub, ending(stub)[:1] if kind == "stop" else ending(stub, train="Failed")[-1:])
            yield stub.environment
    else:
        yield {}
