"""References, parameters and conditions of compiled definitions."""

import json
from pathlib import Path

import pytest

from pipeline.conditions import evaluate
from pipeline.local.uri_folders import UriFolders
from pipeline.references import Scope, parameter_values, referenced_steps
from steps.contract import ConfigError, StepError


@pytest.fixture
def scope(tmp_path):
    file = tmp_path / "report.json"
    content = {"loss": {"train": 1.5}, "runs": [{"name": "a", "n": 3}], "odd.key": "x", "bad": 1}
    file.write_text(json.dumps(content).replace('"bad": 1', '"bad": 1e999'))
    outputs = [
        {"OutputName": "first", "S3Output": {"S3Uri": "s3://b/1"}},
        {"OutputName": "out", "S3Output": {"S3Uri": "s3://b/2"}},
    ]
    return Scope(
        parameters={"Name": "bakı", "Count": 3, "Limit": 0.5, "Flag": True},
        execution={"PipelineExecutionId": "abc"},
        steps={
            "Make": {"ProcessingOutputConfig": {"Outputs": outputs}},
            "Ask": {"OutputParameters": {"answer": "yes"}},
        },
        property_files={("Make", "Report"): file},
        find_file=lambda uri: tmp_path / uri.rpartition("/")[2],
    )


def report(path):
    return {"Std:JsonGet": {"PropertyFile": {"Get": "Steps.Make.PropertyFiles.Report"}, "Path": path}}


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"Get": "Parameters.Name"}, "bakı"),
        ({"Get": "Execution.PipelineExecutionId"}, "abc"),
        ({"Get": "Steps.Make.ProcessingOutputConfig.Outputs['out'].S3Output.S3Uri"}, "s3://b/2"),
        ({"Get": "Steps.Make.ProcessingOutputConfig.Outputs[0].S3Output.S3Uri"}, "s3://b/1"),
        ({"Get": "Steps.Ask.OutputParameters['answer']"}, "yes"),
        ({"Std:Join": {"On": "/", "Values": ["s3://b", {"Get": "Execution.PipelineExecutionId"}, 3]}}, "s3://b/abc/3"),
        ({"Std:Join": {"On": "", "Values": [{"Get": "Parameters.Limit"}, {"Get": "Parameters.Flag"}]}}, "0.5true"),
        (report("loss.train"), 1.5),
        (report("$.runs[0]['n']"), 3),
        (report("['odd.key']"), "x"),
        ({"Std:JsonGet": {"S3Uri": {"Std:Join": {"On": "/", "Values": ["s3://b", "report.json"]}},
                          "Path": "runs[0].name"}}, "a"),
        ({"a": [{"Get": "Parameters.Count"}, "x"], "Get": "no reference beside another key"},
         {"a": [3, "x"], "Get": "no reference beside another key"}),
    ],
    ids=str,
)  # fmt: skip
def test_resolving(scope, reference, value):
    assert scope.resolve(reference) == value


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"Get": "Parameters.Nam"}, "Parameters.Nam: stands for nothing that this run knows."),
        ({"Get": "Steps.Make.ProcessingOutputConfig.Outputs['no'].S3Output"}, "no 'no'. Correct the path."),
        (report("loss.tran"), "report.json: loss.tran: no 'tran'. Did you mean train?"),
        (report("runs[1].n"), "report.json: runs[1].n: no element 1."),
        (report("bad"), "report.json: bad: inf; limit a finite number."),
    ],
    ids=str,
)
def test_what_leads_nowhere_is_named(scope, reference, message):
    with pytest.raises(StepError) as caught:
        scope.resolve(reference)
    assert message in str(caught.value)


def test_steps_are_found_inside_every_kind_of_reference():
    nested = {
        "a": [{"Std:Join": {"On": "", "Values": [{"Get": "Steps.One.X"}, report("p")]}}],
        "b": {"Get": "Parameters.Steps"},
    }
    assert referenced_steps(nested) == {"One", "Make"}


# --- parameters -------------------------------------------------------------------------------------------------------

DECLARED = [
    {"Name": "Uri", "Type": "String"},
    {"Name": "Count", "Type": "Integer", "DefaultValue": 1},
    {"Name": "Limit", "Type": "Float", "DefaultValue": 0.5},
    {"Name": "Flag", "Type": "Boolean", "DefaultValue": False},
    {"Name": "Kind", "Type": "String", "DefaultValue": "a", "EnumValues": ["a", "b"]},
]


def test_parameters_get_their_types_and_defaults():
    given = {"Uri": "7", "Count": "2", "Limit": "1e-3", "Flag": "true"}
    values = {"Uri": "7", "Count": 2, "Limit": 0.001, "Flag": True, "Kind": "a"}
    assert parameter_values(DECLARED, given) == values


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "--param Uri: not given and without default. Add --param Uri=VALUE."),
        ({"Uri": "x", "Limt": "1"}, "--param Limt: no such parameter. Did you mean Limit?"),
        ({"Uri": "x", "Count": "1.5"}, "--param Count: 1.5; limit a whole number."),
        ({"Uri": "x", "Limit": "nan"}, "--param Limit: nan; limit a finite number."),
        ({"Uri": "x", "Flag": "yes"}, "--param Flag: yes; limit true or false."),
        ({"Uri": "x", "Kind": "c"}, "--param Kind: c; limit one of a, b."),
    ],
    ids=str,
)
def test_wrong_parameters_are_refused(given, message):
    with pytest.raises(ConfigError) as caught:
        parameter_values(DECLARED, given)
    assert str(caught.value).startswith(message)


# --- conditions -------------------------------------------------------------------------------------------------------


def comparison(kind, left, right):
    return {"Type": kind, "LeftValue": left, "RightValue": right}


@pytest.mark.parametrize(
    ("kind", "right", "holds"),
    [
        ("Equals", 1.5, True), ("Equals", 1, False), ("GreaterThan", 1.5, False), ("GreaterThan", 1, True),
        ("GreaterThanOrEqualTo", 1.5, True), ("GreaterThanOrEqualTo", 1.6, False), ("LessThan", 1.5, False),
        ("LessThan", 2, True), ("LessThanOrEqualTo", 1.5, True), ("LessThanOrEqualTo", 1.4, False),
    ],
)  # fmt: skip
def test_comparisons(scope, kind, right, holds):
    assert evaluate(comparison(kind, report("loss.train"), right), scope).holds is holds


def test_in_not_and_or(scope):
    member = {"Type": "In", "QueryValue": {"Get": "Parameters.Name"}, "Values": ["gəncə", {"Get": "Parameters.Name"}]}
    never = comparison("LessThan", report("loss.train"), {"Get": "Parameters.Limit"})
    assert evaluate(member, scope).holds
    assert not evaluate({"Type": "Not", "Condition": member}, scope).holds
    either = evaluate({"Type": "Or", "Conditions": [never, member]}, scope)
    assert either.holds
    assert [leaf.holds for leaf in either.leaves()] == [False, True]
    assert str(never_result := evaluate(never, scope)) == "loss.train 1.5000 < 0.5000 (Limit) FAILS"
    assert (never_result.value, never_result.limit, never_result.limit_name) == (1.5, 0.5, "Limit")


@pytest.mark.parametrize(
    ("value", "values", "holds"),
    [
        (1, [True], False), (True, [1], False), (1, [1.0], True), (report("loss.train"), [1.5], True),
        ({"Get": "Execution.PipelineExecutionId"}, ["x", "abc"], True), ({"Get": "Parameters.Flag"}, ["true"], False),
        ({"Get": "Parameters.Count"}, [{"Std:Join": {"On": "", "Values": [{"Get": "Parameters.Count"}]}}], False),
        ({"Get": "Parameters.Count"}, [report("runs[0].n")], True), ({"Get": "Parameters.Count"}, [], False),
    ],
    ids=str,
)  # fmt: skip
def test_in_compares_values_of_one_kind(scope, value, values, holds):
    assert evaluate({"Type": "In", "QueryValue": value, "Values": values}, scope).holds is holds


@pytest.mark.parametrize(
    ("kind", "left", "right", "message"),
    [
        ("LessThan", True, False, "true < false; limit numbers or texts."),
        ("GreaterThan", report("runs"), report("runs"), "limit numbers or texts."),
        ("Equals", report("runs"), 3, "limit two values of one type."),
        ("Equals", report("loss.train"), True, "1.5 == true; limit two values of one type."),
    ],
    ids=str,
)
def test_what_has_no_order_or_no_common_kind_is_told(scope, kind, left, right, message):
    with pytest.raises(StepError) as caught:
        evaluate(comparison(kind, left, right), scope)
    assert message in str(caught.value)


def test_deep_nesting(scope):
    yes, no = comparison("Equals", report("['odd.key']"), "x"), comparison("Equals", {"Get": "Parameters.Flag"}, False)
    inner = {"Type": "Or", "Conditions": [no, {"Type": "Not", "Condition": yes}]}
    outer = evaluate({"Type": "Not", "Condition": {"Type": "Or", "Conditions": [inner, no]}}, scope)
    assert (outer.holds, [leaf.holds for leaf in outer.leaves()]) == (True, [False, True, False])


def test_a_property_file_that_is_a_folder_or_no_json_is_told(scope, tmp_path):
    scope.property_files["Make", "Report"] = tmp_path
    with pytest.raises(StepError, match="not written by its step"):
        scope.resolve(report("a"))
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe{")
    scope.property_files["Make", "Report"] = tmp_path / "binary.json"
    with pytest.raises(StepError, match="no JSON"):
        scope.resolve(report("a"))


def test_variables_of_a_job_are_known_inside_its_step_alone(scope):
    reference = {"Get": "Execution.TrainingJobName"}
    assert scope.inside(TrainingJobName="job-1").resolve(reference) == "job-1"
    with pytest.raises(StepError, match="stands for nothing"):
        scope.resolve(reference)


def test_a_number_and_a_text_are_not_compared(scope):
    with pytest.raises(StepError, match="limit two values of one type"):
        evaluate(comparison("Equals", report("loss.train"), "1.5"), scope)


# --- URIs -------------------------------------------------------------------------------------------------------------


def test_uris_stand_for_folders(tmp_path):
    folders = UriFolders(tmp_path, {"s3://bucket/inputs/corpus/": tmp_path / "mine"})
    folders.add("s3://bucket/runs/1/Make", tmp_path / "sealed")

    assert folders.find("s3://bucket/inputs/corpus") == tmp_path / "mine"
    assert folders.find("s3://bucket/inputs/corpus/a/b.txt") == tmp_path / "mine/a/b.txt"
    assert folders.find("s3://bucket/inputs/corpus-2") == tmp_path / "s3/bucket/inputs/corpus-2"
    assert folders.find("s3://bucket/runs/1/Make/evaluation.json") == tmp_path / "sealed/evaluation.json"
    assert folders.find("file:///data/my%20text/ə") == Path("/data/my text/ə")
    with pytest.raises(ConfigError, match="limit file:// or s3://"):
        folders.find("https://example.com/x")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"loss": NaN}', "NaN is no number"),
        ('{"loss": 1.0, "other": -Infinity}', "-Infinity is no number"),
        ('{"loss": 1.0, "loss": 2.0}', "'loss' is given twice"),
        ('{"loss": {"a": 1, "a": 1}}', "'a' is given twice"),
        ("[" * 100_000, "recursion"),
        ("", "Expecting value"),
    ],
)
def test_a_file_that_is_json_for_python_alone_is_refused(text, fault, scope, tmp_path):
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(StepError, match=rf"report\.json: no JSON \(.*{fault}"):
        scope.resolve(report("loss"))
