"""The stack, the long way: both ways to its template, CDK's own checker, and its definition run on this machine."""

from __future__ import annotations

import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from environments import BARE, FULL, OPTIONS, ROOT, environment_file, environment_with, resources, synthesise, templates
from template_definition import definition, names_of, placed_archives
from workplace import JOB_STEPS, PRESET, fill_workplace, prove

from pipeline.local.environment import local_image
from pipeline.local.executor import run_definition
from pipeline.local.inputs import local_handler
from pipeline.registry import LocalRegistry
from steps.contract import EXIT_DONE, EXIT_USER_ERROR

pytestmark = pytest.mark.verify

CLI = ROOT / "infra/node_modules/aws-cdk/bin/cdk"
WITHOUT_NETWORK = ("unshare", "--map-root-user", "--net")
# A policy that nobody has given a reason for: what the app's own synthesis has to refuse.
PLANTED = """
import sys
from pathlib import Path
from aws_cdk import aws_iam as iam
from infra.app import build_app, synthesised
app = build_app([Path(sys.argv[1])])
stack = app.node.children[0]
wide = iam.PolicyStatement(actions=["s3:GetObject"], resources=["*"])
iam.ManagedPolicy(stack, "Planted", statements=[wide])
sys.exit(synthesised(app))
"""


def has_namespaces() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*WITHOUT_NETWORK, "true"]).returncode == 0


def bytes_of_templates(assembly: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(assembly.glob("*.template.json"))}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped environments, as `make synth` synthesises them."""
    output = tmp_path_factory.mktemp("first") / "cdk.out"
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    finished = synthesise([], output, prefix=WITHOUT_NETWORK if has_namespaces() else ())
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    assert finished.returncode == EXIT_DONE, finished.stderr
    # On a machine that others keep busy the clock tells more of them than of this.
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    network = "in a namespace without a network" if has_namespaces() else "offline not tried, as unshare does not work"
    claim = f"make synth, {network}, and without credentials ({seconds:.0f} s by the clock), seconds of processor time"
    prove(claim, round(used, 1), "under 30", used < 30)
    return output


def test_two_runs_give_the_same_templates(first: Path, tmp_path: Path) -> None:
    assert synthesise([], tmp_path / "cdk.out").returncode == EXIT_DONE
    same = bytes_of_templates(first) == bytes_of_templates(tmp_path / "cdk.out")
    prove("templates of two runs that differ", int(not same), "0", same and len(bytes_of_templates(first)) == 2)


def test_cdk_synth_gives_the_same_templates(first: Path, tmp_path: Path) -> None:
    if shutil.which("node") is None or not CLI.is_file():
        reason = "no node on the path, or no CDK command line: (cd infra && npm ci)"
        print(f"skipped: {reason}")
        pytest.skip(reason)
    hidden = ("AWS_", "CDK_")
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    surroundings |= {"CDK_VALIDATION": "false", "HOME": str(tmp_path), "CI": "1", "AWS_EC2_METADATA_DISABLED": "true"}
    # As a person calls it: the app of cdk.json, with a folder as the file names one, seen from infra/.
    settings = json.loads((ROOT / "infra/cdk.json").read_text(encoding="utf-8"))
    assert not Path(settings["output"]).is_absolute()
    app = settings["app"].replace("../.venv/bin/python", sys.executable)
    assert sys.executable in app
    output = os.path.relpath(tmp_path / "cdk.out", ROOT / "infra")
    command = ["node", str(CLI), "synth", "-q", "--no-notices", "--output", output, "--app", app]
    finished = subprocess.run(command, cwd=ROOT / "infra", env=surroundings, capture_output=True, text=True)
    assert finished.returncode == EXIT_DONE, finished.stderr[-3_000:]
    same = bytes_of_templates(first) == bytes_of_templates(tmp_path / "cdk.out")
    prove("templates of `cdk synth` and of `python -m infra.app` that differ", int(not same), "0", same)
    assert not (ROOT / "infra/cdk.context.json").exists(), "something was looked up"


def test_cdks_own_checker_finds_no_error(tmp_path: Path) -> None:
    files = [environment_file(tmp_path, values) for values in (FULL, BARE)]
    finished = synthesise(files, tmp_path / "cdk.out", CDK_VALIDATION="true")
    report = json.loads((tmp_path / "cdk.out/validation-report.json").read_text(encoding="utf-8"))
    checkers = {one["pluginName"]: len(one["violations"]) for one in report["pluginReports"]}
    assert "CloudFormation Validate" in checkers
    prove("violations that CDK's checker finds, all options on and off", sum(checkers.values()), "0",
          finished.returncode == EXIT_DONE and not sum(checkers.values()))  # fmt: skip


def test_what_is_to_be_deleted_is_and_what_is_adopted_is_not_made(tmp_path: Path) -> None:
    values = {**BARE, "removal": "delete", "adopt_model_package_group": True}
    assert synthesise([environment_file(tmp_path, values)], tmp_path / "cdk.out").returncode == EXIT_DONE
    template = templates(tmp_path / "cdk.out")["langadapt-bare"]
    kept = [name for name, entry in template["Resources"].items() if "Retain" in entry.get("DeletionPolicy", "")]
    groups = resources(template, "AWS::SageMaker::ModelPackageGroup")
    prove("resources kept by `removal: delete`, groups made beside an adopted one", (len(kept), len(groups)), "(0, 0)",
          not kept and not groups)  # fmt: skip


def test_a_wildcard_without_a_reason_stops_the_synthesis(tmp_path: Path) -> None:
    surroundings = {**os.environ, "CDK_VALIDATION": "false", "CDK_OUTDIR": str(tmp_path / "cdk.out")}
    command = [sys.executable, "-c", PLANTED, str(environment_file(tmp_path, BARE))]
    finished = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True)
    told = [line for line in finished.stderr.splitlines() if line.startswith("error: ")]
    prove("a planted wildcard is refused by cdk-nag, exit code and lines", (finished.returncode, len(told)), "(1, 1)",
          finished.returncode == EXIT_USER_ERROR and len(told) == 1)  # fmt: skip
    assert told[0].startswith("error: langadapt-bare/Planted/Resource: AwsSolutions-IAM5[Resource::*].")


def test_every_pair_of_options_is_synthesised_without_a_finding(tmp_path: Path) -> None:
    pairs = [pair for pair in itertools.combinations(OPTIONS, 2) if pair != ("budget", "warn")]
    files = [environment_file(tmp_path, environment_with(*pair)) for pair in pairs if pair != ("notify", "deploy")]
    finished = synthesise(files, tmp_path / "cdk.out")
    made = len(templates(tmp_path / "cdk.out"))
    prove("environments of two options synthesised, with no finding of cdk-nag", made, str(len(files)),
          finished.returncode == EXIT_DONE and made == len(files) >= 60)  # fmt: skip


def test_the_definition_in_the_template_runs_on_this_machine(tmp_path: Path, make_tiny_llama) -> None:
    """Its code comes from what the stack would place in the bucket, ResolveInputs by its function's ARN."""
    (tmp_path / "data").mkdir()
    workplace = fill_workplace(tmp_path / "data", make_tiny_llama)
    values = {name: value for name, value in BARE.items() if name != "preset"} | {"config": str(PRESET)}
    assembly = tmp_path / "cdk.out"
    finished = synthesise([environment_file(tmp_path, values)], assembly)
    assert finished.returncode == EXIT_DONE, finished.stderr
    template = templates(assembly)["langadapt-bare"]
    bucket, function_arn = names_of(template)
    code = tmp_path / "code"
    code.mkdir()
    for name, content in placed_archives(assembly, template).items():
        (code / name).write_bytes(content)
    inputs = {"CorpusUri": "corpus.jsonl", "ConversationsUri": "conversations.jsonl", "BaseModelUri": "base"}
    result = run_definition(
        definition(template),
        run_folder=tmp_path / "run",
        registry=LocalRegistry(tmp_path / "registry"),
        default_image=local_image(),
        parameters={name: str(workplace.folder / file) for name, file in inputs.items()},
        functions={function_arn: local_handler},
        uris={f"s3://{bucket}/langadapt/code": code},
        pipeline_name=resources(template, "AWS::SageMaker::Pipeline").popitem()[1]["PipelineName"],
    )
    states = [str(result.steps[name].state) for name in (*JOB_STEPS, "RegisterModel")]
    prove("steps of the template's definition that succeeded here, the registration too", states.count("Succeeded"),
          str(len(states)), set(states) == {"Succeeded"})  # fmt: skip
