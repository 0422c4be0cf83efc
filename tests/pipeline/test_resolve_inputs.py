"""ResolveInputs: one logic for Lambda and laptop, with boto3's own stub and real files under it."""

import ast
import hashlib
import sys
from datetime import UTC, datetime
from pathlib import Path

import boto3
import pytest
from botocore.stub import Stubber

from pipeline import resolve_inputs as module
from pipeline.local.execution import LambdaContext
from pipeline.local.inputs import LocalStore, local_handler
from pipeline.local.uri_folders import UriFolders
from pipeline.registry import LocalRegistry
from pipeline.resolve_inputs import (
    ResolveInputsError,
    S3Store,
    SageMakerChampions,
    SageMakerExecutions,
    StoredFile,
    input_digest,
    relative_key,
    resolve_inputs,
)
from steps.contract import StepError


class Shelf:
    """A store, a registry and executions of plain values."""

    def __init__(self, champion=None, running=()):
        self.stored = {
            "s3://b/corpus": [StoredFile("a.jsonl", 3, "e1")],
            "s3://b/base": [StoredFile("model.safetensors", 9, "e2")],
            "s3://b/v7": [StoredFile("model.safetensors", 9, "e3")],
        }
        self.champion, self.ids = champion, running

    def files(self, uri):
        return self.stored.get(uri, [])

    def newest_approved_uri(self, group):
        assert group == "texts"
        return self.champion

    def running(self, pipeline_name):
        assert pipeline_name == "adapt"
        return self.ids


EVENT = {
    "corpus_uri": "s3://b/corpus", "base_model_uri": "s3://b/base", "model_package_group": "texts",
    "pipeline_name": "adapt", "execution_id": "e1", "allow_concurrent": False,
}  # fmt: skip


def resolve(shelf, **changes):
    return resolve_inputs({**EVENT, **changes}, shelf, shelf, shelf)


def test_digests_are_of_sorted_key_size_and_content():
    found = resolve(Shelf())

    assert found["corpus_digest"] == hashlib.sha256(b"a.jsonl\x003\x00e1\n").hexdigest()
    assert set(found) == {"corpus_digest", "base_model_digest", "champion_uri", "champion_digest", "champion_present"}
    rows = [StoredFile("b", 1, "x"), StoredFile("a", 2, "y")]
    assert input_digest("n", "u", rows) == input_digest("n", "u", reversed(rows))
    assert input_digest("n", "u", rows) != input_digest("n", "u", rows[:1])


def test_the_base_model_stands_in_for_a_missing_champion():
    found = resolve(Shelf())
    assert (found["champion_uri"], found["champion_present"]) == ("s3://b/base", "false")
    assert found["champion_digest"] == found["base_model_digest"]

    found = resolve(Shelf(champion="s3://b/v7"))
    assert (found["champion_uri"], found["champion_present"]) == ("s3://b/v7", "true")
    assert found["champion_digest"] not in (found["base_model_digest"], found["corpus_digest"])


def test_an_empty_input_is_named():
    with pytest.raises(ResolveInputsError, match=r"^corpus: nothing at s3://b/none. Put files there"):
        resolve(Shelf(), corpus_uri="s3://b/none")


def test_another_execution_is_refused_unless_allowed():
    shelf = Shelf(running=["e1", "e0"])
    with pytest.raises(ResolveInputsError, match=r"^pipeline adapt: execution e0 is running; limit 1 at a time."):
        resolve(shelf)
    assert resolve(shelf, allow_concurrent="true") == resolve(Shelf(running=["e1"]))


@pytest.mark.parametrize(
    ("key", "prefix", "relative"),
    [
        ("data/corpus/a/b.txt", "data/corpus/", "a/b.txt"), ("data/corpus/a.txt", "data/corpus", "a.txt"),
        ("data/corpus.jsonl", "data/corpus.jsonl", "corpus.jsonl"), ("data/corpus-old/a.txt", "data/corpus", None),
        ("a.txt", "", "a.txt"),
    ],
)  # fmt: skip
def test_keys_relative_to_a_prefix(key, prefix, relative):
    assert relative_key(key, prefix) == relative


def client(service):
    return boto3.client(service, region_name="us-west-2", aws_access_key_id="x", aws_secret_access_key="x")


def files_at(uri, *names, beside=None):
    """What the store finds where S3 lists these keys for the URI's prefix; beside: and these for the list beside it."""
    s3 = client("s3")
    with Stubber(s3) as stub:
        contents = [{"Key": name, "Size": 4, "ETag": f'"{index}"'} for index, name in enumerate(names)]
        prefix = uri.removeprefix("s3://bucket/")
        stub.add_response("list_objects_v2", {"Contents": contents}, {"Bucket": "bucket", "Prefix": prefix})
        if beside is not None:
            asked = {"Bucket": "bucket", "Prefix": f"{prefix.rstrip('/')}.json"}
            stub.add_response("list_objects_v2", {"Contents": [{"Key": beside}]} if beside else {}, asked)
        found = S3Store(s3).files(uri)
        stub.assert_no_pending_responses()
        return found


def test_s3_is_listed_by_etag_without_folder_marks():
    marked = ("in/corpus/", "in/corpus/b.txt", "in/corpus/deep/", "in/corpus/deep/c.txt")
    expected = [StoredFile("b.txt", 4, "1"), StoredFile("deep/c.txt", 4, "3")]
    assert files_at("s3://bucket/in/corpus", *marked) == expected
    assert files_at("s3://bucket/in/corpus/", *marked) == expected
    assert files_at("s3://bucket/in/corpus.jsonl", "in/corpus.jsonl") == [StoredFile("corpus.jsonl", 4, "0")]


@pytest.mark.parametrize(
    ("uri", "names", "neighbour"),
    [
        ("s3://bucket/in/corpus", ("in/corpus-old/c.txt", "in/corpus/b.txt"), "in/corpus-old/c.txt"),
        ("s3://bucket/in/corpus.jsonl", ("in/corpus.jsonl", "in/corpus.jsonl.bak"), "in/corpus.jsonl.bak"),
        ("s3://bucket/in/corp", ("in/corpus/b.txt",), "in/corpus/b.txt"),
    ],
)
def test_a_prefix_that_would_bring_neighbours_into_the_job_is_refused(uri, names, neighbour):
    with pytest.raises(ResolveInputsError) as caught:
        files_at(uri, *names)
    assert str(caught.value).startswith(f"{uri}: {neighbour} begins with it, too; limit keys of one folder or file. ")


def test_what_was_pushed_in_part_is_refused():
    prefix = f"langadapt/inputs/corpus/{'0' * 64}/"
    found = files_at(f"s3://bucket/{prefix}", f"{prefix}a.txt", beside=f"{prefix.rstrip('/')}.json")
    assert found == [StoredFile("a.txt", 4, "0")]
    with pytest.raises(ResolveInputsError, match="pushed in part"):
        files_at(f"s3://bucket/{prefix}", f"{prefix}a.txt", beside="")


def test_the_folder_above_what_was_pushed_is_refused():
    folder, digests = "langadapt/inputs/corpus/", ("0" * 64, "1" * 64)
    pushed = [f"{folder}{digest}{end}" for digest in digests for end in ("/a.txt", ".json")]
    with pytest.raises(ResolveInputsError) as caught:
        files_at(f"s3://bucket/{folder}", *pushed)
    remedy = "Give the parameter that langadapt push printed."
    assert str(caught.value) == f"s3://bucket/{folder}: holds 2 pushed; limit one of them. {remedy}"
    assert files_at(f"s3://bucket/{folder}", f"{folder}news.txt") == [StoredFile("news.txt", 4, "0")]


def test_the_sagemaker_registry_gives_the_newest_approved_models_folder():
    sagemaker = client("sagemaker")
    arn = "arn:aws:sagemaker:us-west-2:111122223333:model-package/texts/7"
    now = datetime(2026, 1, 1, tzinfo=UTC)
    summary = {"ModelPackageArn": arn, "CreationTime": now, "ModelPackageStatus": "Completed"}
    source = {"S3Uri": "s3://b/v7/", "S3DataType": "S3Prefix", "CompressionType": "None"}
    package = {
        "ModelPackageName": "texts", "ModelPackageArn": arn, "CreationTime": now, "ModelPackageStatus": "Completed",
        "ModelPackageStatusDetails": {"ValidationStatuses": []},
        "InferenceSpecification": {"Containers": [{"Image": "i", "ModelDataSource": {"S3DataSource": source}}]},
    }  # fmt: skip
    asked = {
        "ModelPackageGroupName": "texts", "ModelApprovalStatus": "Approved", "SortBy": "CreationTime",
        "SortOrder": "Descending",
    }  # fmt: skip
    with Stubber(sagemaker) as stub:
        stub.add_response("list_model_packages", {"ModelPackageSummaryList": [summary]}, asked)
        stub.add_response("describe_model_package", package, {"ModelPackageName": arn})
        assert SageMakerChampions(sagemaker).newest_approved_uri("texts") == "s3://b/v7/"
        stub.add_response("list_model_packages", {"ModelPackageSummaryList": []}, asked)
        assert SageMakerChampions(sagemaker).newest_approved_uri("texts") is None


def test_running_executions_are_found_by_their_status():
    sagemaker = client("sagemaker")
    arn = "arn:aws:sagemaker:us-west-2:111122223333:pipeline/adapt/execution/"
    rows = [
        {"PipelineExecutionArn": arn + name, "PipelineExecutionStatus": status}
        for name, status in [("e1", "Executing"), ("e2", "Stopping"), ("e3", "Succeeded"), ("e4", "Failed")]
    ]
    with Stubber(sagemaker) as stub:
        stub.add_response("list_pipeline_executions", {"PipelineExecutionSummaries": rows}, {"PipelineName": "adapt"})
        assert SageMakerExecutions(sagemaker).running("adapt") == ["e1", "e2"]


def test_on_this_machine_with_files_and_the_local_registry(tmp_path):
    for name in ("corpus", "base"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    registry = LocalRegistry(tmp_path / "registry")
    folders = UriFolders(tmp_path, {"s3://b": tmp_path})
    context = LambdaContext(folders.find, registry, tmp_path, "e1")
    before = local_handler(EVENT, context)
    assert before["champion_present"] == "false"

    registry.register(group="texts", model=tmp_path / "base", metadata={}, metrics={}, request={}, status="Approved")
    after = local_handler(EVENT, context)
    assert after["champion_present"] == "true"
    assert folders.find(after["champion_uri"]) == tmp_path / "registry/texts/1/model"
    assert after["corpus_digest"] == before["corpus_digest"]
    assert [file.key for file in LocalStore(folders.find).files((tmp_path / "corpus" / "file").as_uri())] == ["file"]
    with pytest.raises(StepError, match="corpus: nothing at s3://b/none"):
        local_handler({**EVENT, "corpus_uri": "s3://b/none"}, context)


def test_the_file_stands_alone_as_a_lambda_function():
    tree = ast.parse(Path(module.__file__).read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import)
            else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        )
    }  # fmt: skip
    assert imported - sys.stdlib_module_names == {"boto3"}
