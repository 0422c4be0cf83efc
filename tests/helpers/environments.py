"""Environments for tests: every option on, every option off; and their templates, synthesised once a test session."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
ACCOUNT = "123456789012"
ZEROS = "0" * 64
SERVING_IMAGE = f"763104351884.dkr.ecr.eu-west-1.amazonaws.com/djl-inference@sha256:{'5' * 64}"

FULL = {
    "name": "langadapt-full",
    "account": ACCOUNT,
    "region": "eu-west-1",
    "preset": "azerbaijani-1b-p4d",
    "set": ["ablation=true"],
    "image": {"base": f"763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training@sha256:{'7' * 64}"},
    "serving_image_uri": SERVING_IMAGE,
    "network": {"availability_zones": ["eu-west-1a", "eu-west-1b"]},
    "schedule": {
        "expression": "cron(0 3 ? * SUN *)",
        "time_zone": "Asia/Baku",
        "parameters": {"MinImprovement": "0.02"},
    },
    "new_data": {"prefix": "incoming/corpus/"},
    "approval": {"action": "deploy"},
    "mails": ["models@example.com"],
    "monitoring": {},
    "budget": {"monthly_usd": 20000},
    "permissions_boundary": f"arn:aws:iam::{ACCOUNT}:policy/boundary",
    "tags": {"team": "language"},
}
BARE = {
    "name": "langadapt-bare",
    "account": ACCOUNT,
    "region": "eu-west-1",
    "preset": "aws-smoke",
    "image": {"uri": f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com/langadapt@sha256:{'1' * 64}"},
}


# Each option on its own, by a name for it; a choice of them makes an environment on top of BARE.
OPTIONS = {
    **{name: {name: FULL[name]} for name in ("network", "new_data", "mails", "monitoring", "budget", "image")},
    "boundary": {"permissions_boundary": FULL["permissions_boundary"]},
    "schedule": {"schedule": {"expression": "rate(7 days)"}},
    "notify": {"approval": {"action": "notify"}},
    "deploy": {"approval": {"action": "deploy"}, "serving_image_uri": SERVING_IMAGE},
    "delete": {"removal": "delete"},
    "warn": {"budget": {"monthly_usd": 100, "stop_at_percent": None}},
}


def environment_with(*options):
    """BARE with some of OPTIONS, named by them."""
    return {**BARE, **{key: value for name in options for key, value in OPTIONS[name].items()},
            "name": "-".join(name.replace("_", "-") for name in options)}  # fmt: skip


def environment_file(folder, values):
    """Writes an environment's file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{values.get('name', 'environment')}.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    return file


def synthesise(files, output, prefix=(), **variables):
    """Runs the app as a person does, without credentials; returns the finished process.

    prefix: words before the command, such as those that take the network away.
    """
    hidden = ("AWS_", "CDK_")
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    surroundings |= {"JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "1", "CDK_VALIDATION": "false"}
    surroundings |= {"CDK_OUTDIR": str(output), **variables}
    return subprocess.run(
        [sys.executable, "-m", "infra.app", *map(str, files)],
        cwd=ROOT,
        env=surroundings,
        capture_output=True,
        text=True,
    )


def synthesised_once(shared):
    """The cloud assembly of FULL, BARE and the shipped dev in a folder that all test processes share."""
    shared.mkdir(exist_ok=True)
    output = shared / "cdk.out"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "done").exists():
            files = [environment_file(shared / "environments", values) for values in (FULL, BARE)]
            finished = synthesise([*files, ROOT / "infra/environments/dev.yaml"], output)
            assert finished.returncode == 0, finished.stderr[-4_000:]
            (shared / "done").touch()
    return output


def templates(assembly):
    """Templates by the stack's name."""
    suffix = ".template.json"
    return {
        path.name.removesuffix(suffix): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(assembly.glob(f"*{suffix}"))
    }


def resources(template, kind):
    """Properties, by logical id, of the resources of a type."""
    return {
        name: resource.get("Properties", {})
        for name, resource in template["Resources"].items()
        if resource["Type"] == kind
    }
