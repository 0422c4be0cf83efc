"""What a job's inputs bring: manifests, and the places that its words, variables and settings name."""

import json
import sys

import pytest

from pipeline.local.executor import run_definition
from pipeline.local.images import LocalImage, at_root
from pipeline.local.input_files import input_digest, input_files
from pipeline.local.job_spec import JobInput
from pipeline.local.uri_folders import UriFolders
from pipeline.progress import Quiet
from pipeline.registry import LocalRegistry
from steps.contract import StepError, file_sha256

LISTED = JobInput("text", "s3://b/list.manifest", "/opt/ml/input/data/text", is_manifest=True)


@pytest.fixture
def uris(tmp_path):
    for name in ("a.txt", "more/b.txt", "c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return UriFolders(tmp_path / "run", {"s3://b": tmp_path})


def write_manifest(folder, *entries):
    (folder / "list.manifest").write_text(json.dumps(entries))


def test_a_manifest_names_its_files(tmp_path, uris):
    write_manifest(tmp_path, {"prefix": "s3://b/"}, "more/b.txt", "a.txt")
    assert input_files(LISTED, uris, "Fit") == {"a.txt": tmp_path / "a.txt", "more/b.txt": tmp_path / "more/b.txt"}

    digest = input_digest(LISTED, uris, file_sha256, "Fit")
    (tmp_path / "c.txt").write_text("not listed")
    assert input_digest(LISTED, uris, file_sha256, "Fit") == digest
    (tmp_path / "a.txt").write_text("listed")
    assert input_digest(LISTED, uris, file_sha256, "Fit") != digest


def test_a_reader_of_a_prefix_finds_all_that_steps_wrote_below_it(tmp_path, uris):
    """Outputs of two steps, an archive, and what lay there before; digests follow each of them."""
    for name in ("run/s3/c/all/old.txt", "sealed/1/x.txt", "sealed/2/y.txt", "sealed/3/model.tar.gz"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    uris.add("s3://c/all/one", tmp_path / "sealed/1")
    uris.add("s3://c/all/two/deep/", tmp_path / "sealed/2")
    uris.add("s3://c/all/model.tar.gz", tmp_path / "sealed/3/model.tar.gz")
    uris.add("s3://c/all-others", tmp_path / "sealed")
    entry = JobInput("all", "s3://c/all/", "/opt/ml/processing/all")

    assert input_files(entry, uris, "Read") == {
        "model.tar.gz": tmp_path / "sealed/3/model.tar.gz", "old.txt": tmp_path / "run/s3/c/all/old.txt",
        "one/x.txt": tmp_path / "sealed/1/x.txt", "two/deep/y.txt": tmp_path / "sealed/2/y.txt",
    }  # fmt: skip
    digest = input_digest(entry, uris, file_sha256, "Read")
    (tmp_path / "sealed/2/y.txt").write_text("other")
    assert input_digest(entry, uris, file_sha256, "Read") != digest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not JSON", "Fit: {0} is no manifest; limit a list of JSON."),
        ("[]", "Fit: {0} is no manifest; limit a list of JSON."),
        ('{"prefix": "s3://b/"}', "Fit: {0} is no manifest; limit a list of JSON."),
        ('["a.txt"]', "Fit: {0} is no manifest; limit a list of JSON."),
        ('[{"prefix": "s3://b/"}, "../a.txt"]', "Fit: {0} lists '../a.txt'; limit a path below its prefix."),
        ('[{"prefix": "s3://b/"}, 3]', "Fit: {0} lists 3; limit a path below its prefix."),
        ('[{"prefix": "s3://b/"}, "z.txt"]', "Fit: {0} lists z.txt, which is not there. Correct the manifest."),
    ],
)
def test_what_is_no_manifest_is_told_in_one_line(tmp_path, uris, text, message):
    (tmp_path / "list.manifest").write_text(text)
    with pytest.raises(StepError) as caught:
        input_files(LISTED, uris, "Fit")
    assert str(caught.value).startswith(message.format(tmp_path / "list.manifest"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/opt/ml", "/r"),
        ("/opt/ml/model", "/r/model"),
        ("--path=/opt/ml/input", "--path=/r/input"),
        ("chmod +x /opt/ml/input/a.sh && /opt/ml/input/a.sh", "chmod +x /r/input/a.sh && /r/input/a.sh"),
        ('{"place": "/opt/ml/model"}', '{"place": "/r/model"}'),
        ("/opt/mlflow", "/opt/mlflow"),
        ("s3://bucket/opt/ml/x", "s3://bucket/opt/ml/x"),
        ("/home/opt/ml", "/home/opt/ml"),
    ],
)
def test_paths_of_the_container_lead_to_the_jobs_own_place(tmp_path, text, expected):
    assert at_root(text, tmp_path).replace(str(tmp_path), "/r") == expected


LOOK = """
import json, os, pathlib, sys
root = pathlib.Path(os.environ["OPT_ML"])
seen = {
    "words": sys.argv[1:], "variable": os.environ["PLACE"], "OPT_ML": str(root),
    "settings": json.loads((root / "input/config/hyperparameters.json").read_text()),
    "channels": json.loads((root / "input/config/inputdataconfig.json").read_text()),
    "files": sorted(str(path.relative_to(root)) for path in (root / "input/data").rglob("*") if path.is_file()),
}
(root / "model" / "seen.json").write_text(json.dumps(seen))
"""


def test_a_training_job_sees_its_channels_and_its_own_places(tmp_path, uris):
    (tmp_path / "look.py").write_text(LOOK)
    write_manifest(tmp_path, {"prefix": "s3://b/"}, "more/b.txt", "a.txt")
    channels = [
        {"ChannelName": "listed", "ContentType": "text/plain", "DataSource": {"S3DataSource": {
            "S3DataType": "ManifestFile", "S3Uri": "s3://b/list.manifest",
            "S3DataDistributionType": "ShardedByS3Key"}}},
        {"ChannelName": "one", "InputMode": "FastFile", "DataSource": {"S3DataSource": {
            "S3DataType": "S3Prefix", "S3Uri": "s3://b/c.txt"}}},
    ]  # fmt: skip
    arguments = {
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File",
                                   "ContainerEntrypoint": ["python3", "/opt/ml/input/data/code/look.py"],
                                   "ContainerArguments": ["--model=/opt/ml/model"]},
        "HyperParameters": {"place": "/opt/ml/checkpoints"}, "Environment": {"PLACE": "/opt/ml/output"},
        "ResourceConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large"},
        "OutputDataConfig": {"S3OutputPath": "s3://b/models", "CompressionType": "NONE"},
        "InputDataConfig": [*channels, {"ChannelName": "code", "DataSource": {"S3DataSource": {
            "S3DataType": "S3Prefix", "S3Uri": "s3://b/look.py"}}}],
    }  # fmt: skip
    result = run_definition(
        {"Steps": [{"Name": "Fit", "Type": "Training", "Arguments": arguments}]}, run_folder=tmp_path / "run",
        registry=LocalRegistry(tmp_path / "registry"), uris={"s3://b": tmp_path}, progress=Quiet(),
        default_image=LocalImage((sys.executable, "-c", "raise SystemExit(9)"), runs_entrypoint=True),
    )  # fmt: skip
    assert result.failure == ""
    seen = json.loads((result.outputs["Fit"]["model"] / "seen.json").read_text())
    root = seen["OPT_ML"]
    assert seen["words"] == [f"--model={root}/model"]
    assert (seen["variable"], seen["settings"]) == (f"{root}/output", {"place": f"{root}/checkpoints"})
    assert seen["files"] == [
        "input/data/code/look.py", "input/data/listed/a.txt", "input/data/listed/more/b.txt", "input/data/one/c.txt",
    ]  # fmt: skip
    assert seen["channels"]["listed"] == {
        "TrainingInputMode": "File", "S3DistributionType": "ShardedByS3Key", "RecordWrapperType": "None",
        "ContentType": "text/plain",
    }  # fmt: skip
    assert seen["channels"]["one"]["TrainingInputMode"] == "FastFile"
