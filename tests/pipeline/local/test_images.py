"""What stands for an image: found before the run, or when the step that tells it is done."""

import sys

import pytest

from pipeline.local.executor import run_definition
from pipeline.local.images import LocalImage, image_members, job_command
from pipeline.local.job_spec import job_spec
from pipeline.progress import Quiet
from pipeline.registry import LocalRegistry
from steps.contract import ConfigError


def processing(entrypoint=None, image="image"):
    application = {"ImageUri": image, "ContainerArguments": ["--a=1"]}
    if entrypoint:
        application["ContainerEntrypoint"] = entrypoint
    return {
        "Name": "Work", "Type": "Processing",
        "Arguments": {"AppSpecification": application, "ProcessingResources": {"ClusterConfig": {"InstanceCount": 1}}},
    }  # fmt: skip


def spec_of(step):
    return job_spec(step["Name"], step["Type"], step["Arguments"], "job")


def run(tmp_path, *steps, **options):
    return run_definition(
        {"Steps": list(steps)}, run_folder=tmp_path / "run", registry=LocalRegistry(tmp_path / "registry"),
        progress=Quiet(), **options,
    )  # fmt: skip


def test_the_words_that_a_job_becomes():
    own = LocalImage(("mine", "-x"), runs_entrypoint=True)
    assert job_command(spec_of(processing(["python3", "-u", "/opt/ml/code/a.py"])), own) == [
        sys.executable, "-u", "/opt/ml/code/a.py", "--a=1",
    ]  # fmt: skip
    assert job_command(spec_of(processing(["/usr/bin/python3.11", "a.py"])), own)[0] == sys.executable
    assert job_command(spec_of(processing(["/bin/bash", "a.sh"])), own) == ["/bin/bash", "a.sh", "--a=1"]
    assert job_command(spec_of(processing(["pythonic"])), own)[0] == "pythonic"
    # Without an entry point of its own, and where the image does not say that it is run.
    assert job_command(spec_of(processing()), own) == ["mine", "-x", "--a=1"]
    assert job_command(spec_of(processing(["bash"])), LocalImage(("mine",))) == ["mine", "--a=1"]


def test_the_entry_point_counts_for_the_cache_where_it_is_run():
    one, two = spec_of(processing(["bash", "a.sh"])), spec_of(processing(["bash", "b.sh"]))
    own, other = LocalImage(("mine",), "1", runs_entrypoint=True), LocalImage(("mine",), "1")
    assert image_members(one, own) == {"image": "image 1", "entrypoint 0": "bash", "entrypoint 1": "a.sh"}
    assert image_members(one, own) != image_members(two, own)
    assert image_members(one, other) == image_members(two, other) == {"image": "image 1", "command 0": "mine"}


def test_an_image_that_an_earlier_step_tells(tmp_path):
    ask = {"Name": "Ask", "Type": "Lambda", "FunctionArn": "arn:f", "Arguments": {},
           "OutputParameters": [{"OutputName": "image", "OutputType": "String"}]}  # fmt: skip
    work = processing(image={"Get": "Steps.Ask.OutputParameters['image']"})
    images = {"told:1": LocalImage((sys.executable, "-c", ""))}
    for told, exit_code, failure in (
        ("told:1", 0, ""),
        ("told:2", 1, "Work: image told:2 has no local command. Did you mean told:1?"),
    ):
        functions = {"arn:f": lambda event, context, told=told: {"image": told}}
        result = run(tmp_path, ask, work, images=images, functions=functions)
        assert (result.exit_code, result.failure) == (exit_code, failure)


@pytest.mark.parametrize("image", [LocalImage(), LocalImage(runs_entrypoint=True)])
def test_nothing_to_run_is_told_first(tmp_path, image):
    with pytest.raises(ConfigError) as caught:
        run(tmp_path, processing(), default_image=image)
    assert str(caught.value) == (
        "Work: image image has no local command. Give it one, or the step a ContainerEntrypoint that is run."
    )
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_cannot_be_started_is_told(tmp_path):
    (tmp_path / "script").write_text("#!/bin/sh\n")
    for command in ("script", "nothing-there"):
        result = run(tmp_path, processing(), default_image=LocalImage((str(tmp_path / command),)))
        assert result.exit_code == 1
        assert result.failure.startswith(f"Work: Work, command: {tmp_path / command}. Map the image to a command")
