"""What the image is built from, and how its build is told."""

import re

from environments import ROOT, resources

from infra.image_build import arns_in_ecr, build_specification, context_files, image_tag

BASE = f"public.ecr.aws/deep-learning-containers/pytorch@sha256:{'1' * 64}"
BASE_IN_ECR = f"763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training@sha256:{'2' * 64}"


def test_the_context_is_what_the_dockerignore_lets_in_and_the_files_that_say_how():
    names = set(context_files())
    assert {"Dockerfile", ".dockerignore", "launch.py", "requirements-gpu.txt"} <= names
    ignored = (ROOT / "containers/.dockerignore").read_text(encoding="utf-8").split()
    allowed = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert allowed == {"*.py", "requirements-*.txt"}
    assert not {name for name in names if not name.endswith((".py", ".txt"))} - {"Dockerfile", ".dockerignore"}
    assert "constraints.txt" not in names


def test_a_tag_changes_with_all_that_is_built_and_with_nothing_else():
    files = {"a.py": b"1", "b.py": b"2"}
    tag = image_tag(files, BASE, "gpu")
    assert tag == image_tag(dict(reversed(files.items())), BASE, "gpu")
    others = [image_tag({**files, "a.py": b"3"}, BASE, "gpu"), image_tag({"a.py": b"1"}, BASE, "gpu"),
              image_tag(files, BASE_IN_ECR, "gpu"), image_tag(files, BASE, "cpu"),
              image_tag({"a.py": b"12", "b.py": b""}, BASE, "gpu")]  # fmt: skip
    assert len({tag, *others}) == 6
    # Of Docker: what a tag may be.
    assert re.fullmatch(r"[a-z0-9-]{1,128}", tag)


def test_a_base_in_ecr_is_logged_in_to_and_may_be_pulled():
    commands = build_specification(BASE)["phases"]["pre_build"]["commands"]
    both = build_specification(BASE_IN_ECR)["phases"]["pre_build"]["commands"]
    assert (len(commands), len(both)) == (1, 2)
    assert both[0] == commands[0]
    assert '--region "eu-west-1"' in both[1]
    assert arns_in_ecr("aws", BASE) == []
    assert arns_in_ecr("aws", BASE_IN_ECR) == ["arn:aws:ecr:eu-west-1:763104351884:repository/pytorch-training"]


def test_the_project_builds_with_its_own_files_and_pushes_to_its_own_repository(stack_templates):
    template = stack_templates["langadapt-dev"]
    [project] = resources(template, "AWS::CodeBuild::Project").values()
    variables = {one["Name"]: one["Value"] for one in project["Environment"]["EnvironmentVariables"]}
    assert variables["BASE_ARGUMENT"] == "GPU_BASE"
    assert f"FROM ${{{variables['BASE_ARGUMENT']}}} AS {variables['TARGET']}" in context_files()["Dockerfile"].decode()
    [repository] = resources(template, "AWS::ECR::Repository").values()
    assert repository["ImageTagMutability"] == "IMMUTABLE"
    assert repository["EmptyOnDelete"] is True
    [request] = resources(template, "Custom::EnvironmentImage").values()
    assert request["Tag"].startswith("gpu-")
    assert project["TimeoutInMinutes"] * 60 + project["QueuedTimeoutInMinutes"] * 60 <= int(request["ServiceTimeout"])
