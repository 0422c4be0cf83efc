"""What explain-cache tells of a change, beside what the local executor then does: three jobs of a few lines each."""

import copy
import hashlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from pipeline.cache_command import explanation_lines, read_side
from pipeline.cache_explanation import Side, explain, told_apart
from pipeline.local.executor import run_definition
from pipeline.local.images import LocalImage
from pipeline.progress import Quiet
from pipeline.registry import LocalRegistry
from steps.contract import ConfigError

IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tiny@sha256:"
FUNCTION = "arn:aws:lambda:us-west-2:000000000000:function:resolve"
PREPARE = """
import os, sys
root = os.environ["OPT_ML"] + "/processing/"
names = sorted(os.listdir(root + "input/corpus"))
text = "".join(name + open(root + "input/corpus/" + name).read() for name in names)
open(root + "output/text", "w").write(text.upper())
"""
FIT = """
import json, os
root = os.environ["OPT_ML"]
rate = json.load(open(root + "/input/config/hyperparameters.json"))["rate"]
text = open(root + "/input/data/text/text").read()
open(root + "/model/model", "w").write(rate + os.environ.get("MODE", "") + text)
"""
SCORE = """
import json, os
root = os.environ["OPT_ML"] + "/processing/"
model = open(root + "input/model/model").read()
open(root + "output/score.json", "w").write(json.dumps({"score": len(model)}))
"""
JOBS = ("Prepare", "Fit", "Score")


class Project:
    """A folder with a corpus and the code of the steps, and a definition that reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = {"Prepare": PREPARE, "Fit": FIT, "Score": SCORE}
        (folder / "corpus").mkdir()
        (folder / "corpus" / "a.txt").write_text("salam")
        (folder / "corpus" / "b.txt").write_text("dünya")
        self.change = lambda definition: None

    def definition(self):
        definition = copy.deepcopy(definition_of({step: self.written(step) for step in JOBS}))
        self.change({step["Name"]: step for step in definition["Steps"]} | {"": definition})
        return definition

    def written(self, step: str) -> str:
        """Writes a step's code below its digest, and returns the URI of its folder's file."""
        digest = hashlib.sha256(self.code[step].encode()).hexdigest()
        place = self.folder / "code" / digest
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{digest}.py").write_text(self.code[step])
        return f"s3://bucket/code/{digest}/{digest}.py"

    def run(self):
        def resolve(event, context):
            content = [(path.name, path.read_text()) for path in sorted((self.folder / "corpus").iterdir())]
            return {"corpus_digest": hashlib.sha256(json.dumps(content).encode()).hexdigest()}

        definition = self.definition()
        image = LocalImage((sys.executable, str(self.folder / "start.py")))
        (self.folder / "start.py").write_text(START)
        images = {f"{IMAGE}{digit * 64}": image for digit in "12"}
        return run_definition(
            definition, run_folder=self.folder / "run", registry=LocalRegistry(self.folder / "registry"),
            images=images, functions={FUNCTION: resolve}, pipeline_name="tiny", progress=Quiet(),
            uris={"s3://bucket/corpus": self.folder / "corpus", "s3://bucket/code": self.folder / "code"},
        )  # fmt: skip


# Stands for the image: runs the one file of the input `code`.
START = """
import glob, os, runpy
places = [glob.glob(os.environ["OPT_ML"] + place) for place in ("/processing/input/code/*.py", "/input/data/code/*.py")]
runpy.run_path(sum(places, [])[0])
"""


def definition_of(code):
    def processing(name, inputs, **more):
        return {
            "Name": name, "Type": "Processing", "CacheConfig": {"Enabled": True, "ExpireAfter": "P30D"},
            "Arguments": {
                "AppSpecification": {"ImageUri": f"{IMAGE}{'1' * 64}", **more},
                "ProcessingResources": {"ClusterConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1}},
                "ProcessingInputs": [
                    {"InputName": key, "S3Input": {"S3Uri": uri, "LocalPath": f"/opt/ml/processing/input/{key}"}}
                    for key, uri in (inputs | {"code": code[name]}).items()
                ],
                "ProcessingOutputConfig": {"Outputs": [{"OutputName": "output", "S3Output": {
                    "S3Uri": {"Std:Join": {"On": "/", "Values": ["s3://bucket/runs", RUN, name]}},
                    "LocalPath": "/opt/ml/processing/output",
                }}]},
            },
        }  # fmt: skip

    prepared = {"Get": "Steps.Prepare.ProcessingOutputConfig.Outputs['output'].S3Output.S3Uri"}
    training = {
        "Name": "Fit", "Type": "Training", "CacheConfig": {"Enabled": True, "ExpireAfter": "P30D"},
        "Arguments": {
            "AlgorithmSpecification": {"TrainingImage": f"{IMAGE}{'1' * 64}", "TrainingInputMode": "File"},
            "HyperParameters": {"rate": "0.1"},
            "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
            "InputDataConfig": [
                {"ChannelName": key, "DataSource": {"S3DataSource": {"S3Uri": uri, "S3DataType": "S3Prefix"}}}
                for key, uri in {"text": prepared, "code": code["Fit"]}.items()
            ],
            "OutputDataConfig": {"S3OutputPath": {"Std:Join": {"On": "/", "Values": ["s3://bucket/runs", RUN]}},
                                 "CompressionType": "NONE"},
        },
    }  # fmt: skip
    digest = {"Std:Join": {"On": "", "Values": [
        "--corpus_digest=", {"Get": "Steps.Resolve.OutputParameters['corpus_digest']"}]}}  # fmt: skip
    score = {"Std:JsonGet": {"PropertyFile": {"Get": "Steps.Score.PropertyFiles.Score"}, "Path": "score"}}
    scoring = processing("Score", {"model": {"Get": "Steps.Fit.ModelArtifacts.S3ModelArtifacts"}})
    scoring["PropertyFiles"] = [{"PropertyFileName": "Score", "OutputName": "output", "FilePath": "score.json"}]
    return {
        "Version": "2020-12-01", "Parameters": [{"Name": "Least", "Type": "Integer", "DefaultValue": 1}],
        "Steps": [
            {"Name": "Resolve", "Type": "Lambda", "FunctionArn": FUNCTION, "Arguments": {},
             "OutputParameters": [{"OutputName": "corpus_digest", "OutputType": "String"}]},
            processing("Prepare", {"corpus": "s3://bucket/corpus"}, ContainerArguments=["--step=prepare", digest]),
            training, scoring,
            {"Name": "Gate", "Type": "Condition", "Arguments": {
                "Conditions": [{"Type": "GreaterThan", "LeftValue": score, "RightValue": {"Get": "Parameters.Least"}}],
                "IfSteps": [], "ElseSteps": []}},
        ],
    }  # fmt: skip


RUN = {"Get": "Execution.PipelineExecutionId"}


def edit_code(old, new):
    def change(project):
        project.code["Fit"] = project.code["Fit"].replace(old, new)

    return change


def edit(path, value):
    """Sets a member of the step Fit in the definition that is compiled next."""

    def change(project):
        def set_member(steps):
            *above, last = path
            holder = steps["Fit"]
            for name in above:
                holder = holder.setdefault(name, {})
            holder[last] = value

        project.change = set_member

    return change


def edit_file(change):
    return lambda project: change(project.folder / "corpus")


# What is changed, what becomes of Prepare, Fit and Score here, and the same on the service by its own rules.
CHANGES = {
    "a setting": (edit(("Arguments", "HyperParameters", "rate"), "0.2"), "hit miss miss", "hit miss miss"),
    "a line of code": (edit_code("rate + os", "rate * 2 + os"), "hit miss miss", "hit miss miss"),
    "a comment": (edit_code("import json, os", "import json, os  # read both"), "hit miss hit", "hit miss miss"),
    "a byte of the corpus": (edit_file(lambda corpus: (corpus / "a.txt").write_text("Şalam")), "miss miss miss",
                             "miss miss miss"),
    "a renamed file": (edit_file(lambda corpus: (corpus / "a.txt").rename(corpus / "c.txt")), "miss miss miss",
                       "miss miss miss"),
    "an instance type": (edit(("Arguments", "ResourceConfig", "InstanceType"), "ml.g5.2xlarge"), "hit hit hit",
                         "hit hit hit"),
    "a tag": (edit(("Arguments", "Tags"), [{"Key": "team", "Value": "ai"}]), "hit hit hit", "hit hit hit"),
    "an image's digest": (edit(("Arguments", "AlgorithmSpecification", "TrainingImage"), f"{IMAGE}{'2' * 64}"),
                          "hit miss hit", "hit miss miss"),
    "an environment variable": (edit(("Arguments", "Environment", "MODE"), "fast"), "hit miss miss",
                                "hit miss miss"),
    "a threshold": (lambda project: setattr(project, "change", lambda steps: steps[""]["Parameters"][0].update(
        DefaultValue=2)), "hit hit hit", "hit hit hit"),
    "a copy": (lambda project: shutil.copy(project.folder / "start.py", project.folder / "other.py"), "hit hit hit",
               "hit hit hit"),
    "nothing": (lambda project: None, "hit hit hit", "hit hit hit"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHANGES)
def test_it_agrees_with_the_executor(tmp_path, kind):
    change, here, service = CHANGES[kind]
    project = Project(tmp_path)
    assert project.run().exit_code == 0
    first = read_side(tmp_path / "run")
    change(project)
    definition = project.definition()
    predicted = explain(first, Side("new", definition, {"Least": 1}))
    result = project.run()
    assert result.exit_code == 0, result.failure

    done = {name: {"Cached": "hit", "Succeeded": "miss"}[result.steps[name].state] for name in JOBS}
    assert " ".join(done.values()) == here
    # Of two executions all is known, the data as well.
    known = explain(first, read_side(tmp_path / "run"))
    assert {each.step: each.local for each in known} == done
    assert " ".join(each.service for each in known) == service
    # Beforehand, the data are taken to be the same, and what a step will write is open.
    if kind not in ("a byte of the corpus", "a renamed file"):
        assert all(each.local in ("depends", done[each.step]) for each in predicted)
        assert [each.local for each in predicted if each.step in ("Prepare", "Fit")] == [done["Prepare"], done["Fit"]]
        assert " ".join(each.service for each in predicted) == service


def test_the_argument_that_changed_is_told_with_both_values(tmp_path):
    project = Project(tmp_path)
    before = project.definition()
    edit(("Arguments", "HyperParameters", "rate"), "0.2")(project)
    explained = explain(Side("old", before, {}), Side("new", project.definition(), {}))
    assert explanation_lines(explained) == [
        "Prepare  SageMaker hit    here hit",
        "Fit      SageMaker miss   here miss",
        "  HyperParameters.rate: 0.1 -> 0.2",
        "  SageMaker: changed: HyperParameters.rate",
        "  here: changed: hyperparameter rate",
        "Score    SageMaker miss   here depends",
        "  SageMaker: runs again before it: Fit",
        "  here: served where the output of Fit is the same as before",
    ]


def test_an_input_that_lies_elsewhere_may_hold_the_same(tmp_path):
    project = Project(tmp_path)
    before = project.definition()
    after = copy.deepcopy(before)
    after["Steps"][1]["Arguments"]["ProcessingInputs"][0]["S3Input"]["S3Uri"] = "s3://bucket/moved"
    prepare = explain(Side("old", before, {}), Side("new", after, {}))[0]
    assert (prepare.service, prepare.local) == ("miss", "depends")
    assert prepare.local_reason == "served where what lies under s3://bucket/moved is the same as before"


def test_steps_that_are_new_or_not_cached_run(tmp_path):
    before = Project(tmp_path).definition()
    after = copy.deepcopy(before)
    after["Steps"][1]["CacheConfig"]["Enabled"] = False
    after["Steps"][3]["Name"] = "Measure"
    after["Steps"][4]["Arguments"]["Conditions"][0]["LeftValue"]["Std:JsonGet"]["PropertyFile"]["Get"] = (
        "Steps.Measure.PropertyFiles.Score"
    )
    outcomes = {each.step: each.service for each in explain(Side("old", before, {}), Side("new", after, {}))}
    assert outcomes == {"Prepare": "runs", "Fit": "miss", "Measure": "miss"}


def test_what_each_execution_has_anew_never_hits_on_the_service(tmp_path):
    definition = Project(tmp_path).definition()
    definition["Steps"][2]["Arguments"]["Environment"] = {"AT": {"Get": "Execution.StartDateTime"}}
    fit = explain(Side("old", definition, {}), Side("new", definition, {}))[1]
    assert (fit.service, fit.service_reason) == ("miss", "each execution has another Execution.StartDateTime")


def test_long_values_are_told_from_where_they_differ():
    first, second = told_apart("s3://bucket/" + "a" * 80 + "/one", "s3://bucket/" + "a" * 80 + "/two")
    assert first != second
    assert (first[0], first[-3:], second[-3:]) == ("…", "one", "two")


@pytest.mark.parametrize("change", [
    lambda definition: definition["Steps"][1].pop("Name"),
    lambda definition: definition["Steps"][1].update(Arguments=7),
    lambda definition: definition["Steps"][1]["Arguments"]["ProcessingInputs"][0].update(S3Input="s3://a"),
    lambda definition: definition["Steps"][1]["Arguments"].pop("AppSpecification"),
    lambda definition: definition["Steps"][3].update(DependsOn=["Nobody"]),
])  # fmt: skip
def test_a_damaged_definition_is_one_line_that_names_the_check(tmp_path, change):
    definition = Project(tmp_path).definition()
    change(definition)
    (tmp_path / "damaged.json").write_text(json.dumps(definition))
    with pytest.raises(ConfigError, match=r"^\$\.Steps\[.*langadapt check lists all that is wrong"):
        read_side(tmp_path / "damaged.json")
