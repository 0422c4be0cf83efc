"""The service's shapes: what botocore's own validator lets through is found here."""

import copy
import re

import pytest
from botocore.model import ServiceModel

from pipeline.service_shapes import OPERATIONS, compiled_pattern, service_model, shape_problems

PROCESSING = {
    "AppSpecification": {"ImageUri": "image", "ContainerArguments": ["--step=a"]},
    "ProcessingResources": {"ClusterConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30}},
    "RoleArn": "arn:aws:iam::111122223333:role/some-role",
}
REGISTRATION = {
    "ModelPackageGroupName": "group",
    "CustomerMetadataProperties": {"bits_per_byte.candidate": "0.5795", "dil": "Azərbaycan dili"},
}


def changed(arguments, path, value):
    """The arguments with one value replaced, or taken out where the value is None."""
    result = copy.deepcopy(arguments)
    *above, last = path.split("/")
    target = result
    for key in above:
        target = target[key]
    if value is None:
        del target[last]
    else:
        target[last] = value
    return result


def test_arguments_that_the_service_takes_have_no_problem():
    assert shape_problems("Processing", PROCESSING, "job") == []
    assert shape_problems("RegisterModel", REGISTRATION, "job") == []


def test_steps_without_a_request_have_no_shape():
    assert shape_problems("Lambda", {"anything": 1}, "job") == []


@pytest.mark.parametrize(
    ("path", "value", "found", "limit"),
    [
        ("RoleArn", None, "missing", "required"),
        ("RoleArn", "arn:aws:iam::111122223333:role/" + "x" * 2_020, "2051 characters", "at most 2048 characters"),
        ("RoleArn", "arn:aws:s3:::bucket/of/some/length", "arn:aws:s3", "pattern"),
        ("Environment", {"A": "x" * 257}, "257 characters", "at most 256 characters"),
        ("Environment", {"A": 1}, "1", "a text"),
        ("Surprise", 1, "no such member", "one of"),
        ("AppSpecification/ContainerArguments", ["x" * 257], "257 characters", "at most 256 characters"),
        ("AppSpecification/ContainerArguments", ["x"] * 101, "101 entries", "at most 100 entries"),
        ("AppSpecification/ContainerArguments", "--step=a", "'--step=a'", "a list"),
        ("ProcessingResources/ClusterConfig/InstanceType", "ml.p4d.24xlarge", "ml.p4d.24xlarge", "one of the"),
        ("ProcessingResources/ClusterConfig/InstanceCount", 0, "0", "at least 1"),
        ("ProcessingResources/ClusterConfig/InstanceCount", True, "True", "a whole number"),
        ("ProcessingResources/ClusterConfig/VolumeSizeInGB", 16_385, "16385", "at most 16384"),
    ],
)
def test_seeded_mistakes_are_found(path, value, found, limit):
    (problem,) = shape_problems("Processing", changed(PROCESSING, path, value), "job")
    assert problem[0].startswith(path.replace("/", "."))
    assert problem[1].startswith(found)
    assert problem[2].startswith(limit)


def test_metadata_texts_follow_the_services_unicode_pattern():
    (problem,) = shape_problems("RegisterModel", changed(REGISTRATION, "CustomerMetadataProperties/dil", "a,b"), "job")
    assert problem[:2] == ("CustomerMetadataProperties.dil", "a,b")


def test_job_names_are_checked_too():
    (problem,) = shape_problems("Processing", PROCESSING, "-job")
    assert problem[0] == "ProcessingJobName"


def test_every_pattern_of_the_three_requests_is_one_that_python_reads():
    """A new botocore may bring patterns that are not translated: that must fail here, not in a user's run."""
    model = service_model()
    assert isinstance(model, ServiceModel)
    patterns, waiting, seen = set(), [model.operation_model(name).input_shape for name, _ in OPERATIONS.values()], set()
    while waiting:
        shape = waiting.pop()
        if shape.name in seen:
            continue
        seen.add(shape.name)
        patterns.add(shape.metadata.get("pattern", ".*"))
        waiting += shape.members.values() if shape.type_name == "structure" else ()
        waiting += [shape.member] if shape.type_name == "list" else ()
        waiting += [shape.key, shape.value] if shape.type_name == "map" else ()
    assert len(patterns) > 30
    assert all(isinstance(compiled_pattern(pattern), re.Pattern) for pattern in patterns)
