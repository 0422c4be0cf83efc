"""langadapt push against S3 on loopback: what is sent, what is not sent again, what goes on after it was stopped."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import boto3
import pytest
from account_stand_in import REGION, AccountStandIn, Seen
from small_base import write_small_base
from stub_hub import COMMIT, stub_hub
from workplace import ROOT, SAMPLE

from pipeline.__main__ import command_code
from pipeline.progress import Quiet
from pipeline.remote.account import Account
from pipeline.remote.model_hub import wanted_files
from pipeline.remote.push import place_of, push
from pipeline.remote.sent_files import sent_file
from steps.contract import StepError

MODEL_ID = "someone/small-base"
MIB = 2**20


def langadapt(*words: str, bucket: str) -> int:
    return command_code([*words, "--set", f"aws.bucket={bucket}"], as_json="--json" in words)


def objects(bucket: str) -> dict[str, int]:
    """Sizes by key."""
    listed = boto3.client("s3", region_name=REGION).list_objects_v2(Bucket=bucket)
    return {entry["Key"]: entry["Size"] for entry in listed.get("Contents", [])}


def corpus_folder(folder: Path, files: int = 3) -> Path:
    for number in range(files):
        text = f"Bu, {number}. sənəddir və bir neçə sözü var.\n\n" * 50
        (folder / "corpus" / f"{number}.txt").parent.mkdir(exist_ok=True)
        (folder / "corpus" / f"{number}.txt").write_text(text, "utf-8")
    return folder / "corpus"


def test_a_corpus_is_sent_once_and_the_parameter_named(
    stand_in: AccountStandIn, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = corpus_folder(tmp_path)
    (source / "table.xlsx").write_bytes(b"not text")
    (source / ".hidden.txt").write_text("not ours")
    assert langadapt("push", "corpus", str(source), "--json", bucket=bucket) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["sent"] == ["0.txt", "1.txt", "2.txt"]
    assert answer["param"] == f"CorpusUri={answer['uri']}"
    prefix = answer["uri"].removeprefix(f"s3://{bucket}/")
    assert prefix == f"langadapt/inputs/corpus/{answer['digest']}/"
    assert objects(bucket).keys() == {*(f"{prefix}{name}" for name in answer["sent"]), f"{prefix.rstrip('/')}.json"}
    puts = [request.path for request in stand_in.sent("PUT")]
    assert puts[-1].endswith(f"{answer['digest']}.json"), "the list comes last"

    stand_in.seen.clear()
    assert langadapt("push", "corpus", str(source), bucket=bucket) == 0
    assert not stand_in.sent("PUT")
    assert not stand_in.sent("POST")
    told = capsys.readouterr().out.splitlines()
    assert told[0].endswith("nothing to send")
    assert told[1] == f"--param {answer['param']}"


def test_another_name_or_content_is_another_prefix(tmp_path: Path) -> None:
    def digest() -> str:
        files = [sent_file(path.name, path, lambda more: None) for path in sorted(source.iterdir())]
        return place_of("any", "langadapt", "corpus", files).digest

    source = corpus_folder(tmp_path)
    first = digest()
    (source / "0.txt").rename(source / "zero.txt")
    renamed = digest()
    (source / "1.txt").write_text("Başqa mətn burada dayanır və oxunur.\n", "utf-8")
    assert len({first, renamed, digest()}) == 3


def test_a_dry_run_asks_the_account_nothing(
    stand_in: AccountStandIn, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert langadapt("push", "conversations", str(SAMPLE / "conversations.jsonl"), "--dry-run", bucket=bucket) == 0
    assert stand_in.seen == []
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("would send ")
    assert told[-1].startswith(f"--param ConversationsUri=s3://{bucket}/langadapt/inputs/conversations/")


def test_a_placeholders_bucket_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_code(["push", "corpus", str(SAMPLE / "corpus.jsonl")], as_json=False) == 1
    assert capsys.readouterr().err.startswith("error: aws.bucket: langadapt-placeholder-bucket is a placeholder")


@pytest.mark.parametrize("kind", ["corpus", "conversations", "base-model"])
def test_what_a_step_would_refuse_is_not_sent(
    stand_in: AccountStandIn, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"words": "no text and no messages"}\n')
    source = bad
    if kind == "base-model":
        source = write_small_base(tmp_path / "base")
        (source / "model.safetensors").unlink()
        (source / "pytorch_model.bin").write_bytes(b"pickled")
    assert langadapt("push", kind, str(source), bucket=bucket) == 1
    expected = {"corpus": 'no text field "text"', "conversations": "1 of 1", "base-model": "pickled weights only"}
    told = capsys.readouterr().err
    assert told.startswith(f"error: data.{kind.replace('-', '_')}: ")
    assert expected[kind] in told
    assert stand_in.seen == []


def test_sources_that_are_none_are_not_sent(
    stand_in: AccountStandIn, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nothing.jsonl").touch()
    odd = corpus_folder(tmp_path)
    (odd / "two\nlines.txt").write_text("bir")
    for source, line in {
        "": "Invalid value for 'SOURCE': empty; name a folder, or . for this one.",
        "s3://own/corpus": "Invalid value for 'SOURCE': s3://own/corpus is an address; name a place on this machine.",
        str(tmp_path / "nothing.jsonl"): f"corpus: {tmp_path}/nothing.jsonl holds nothing; limit at least one byte.",
        str(odd): "corpus: the name 'two\\nlines.txt'; limit names that can be printed. Rename the file.",
    }.items():
        assert langadapt("push", "corpus", source, bucket=bucket) == 1
        assert capsys.readouterr().err.startswith(f"error: {line}")
    assert stand_in.seen == []
    (tmp_path / "large.txt").write_bytes(b"x" * 10_001)
    with pytest.raises(StepError, match=r"10\.0 kB; limit 10\.0 kB|limit"):
        sent_file("large.txt", tmp_path / "large.txt", lambda more: None, part_bytes=1)


def test_of_a_base_model_no_pickle_and_no_code_is_sent(
    bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = write_small_base(tmp_path / "base")
    for name in ("training_args.bin", "optimizer.pt", "modeling_own.py", "original/consolidated.00.pth"):
        (base / name).parent.mkdir(exist_ok=True)
        (base / name).write_bytes(b"other")
    assert langadapt("push", "base-model", str(base), "--json", bucket=bucket) == 0
    sent = json.loads(capsys.readouterr().out)["sent"]
    assert sent == ["LICENSE", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def test_s3_keeps_the_checksum_and_the_configured_key_encrypts(
    stand_in: AccountStandIn, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = corpus_folder(tmp_path, files=1)
    key = "arn:aws:kms:us-west-2:123456789012:key/11111111-2222-3333-4444-555555555555"
    assert langadapt("push", "corpus", str(source), "--set", f"aws.kms_key_id={key}", "--json", bucket=bucket) == 0
    prefix = json.loads(capsys.readouterr().out)["uri"].removeprefix(f"s3://{bucket}/")
    head = boto3.client("s3", region_name=REGION).head_object(
        Bucket=bucket, Key=f"{prefix}0.txt", ChecksumMode="ENABLED"
    )
    file = sent_file("0.txt", source / "0.txt", lambda more: None)
    assert file.sha256 == hashlib.sha256((source / "0.txt").read_bytes()).hexdigest()
    assert head["ChecksumSHA256"] == file.checksum
    puts = stand_in.sent("PUT", bucket)
    assert len(puts) == 2
    assert {request.headers["x-amz-server-side-encryption-aws-kms-key-id"] for request in puts} == {key}


def test_a_large_file_goes_in_parts_and_its_checksum_is_told_before_it_is_sent(
    stand_in: AccountStandIn, bucket: str, tmp_path: Path
) -> None:
    large = tmp_path / "large.txt"
    large.write_bytes(bytes(range(256)) * (11 * MIB // 256) + b"end")
    read: list[int] = []
    files = [sent_file("large.txt", large, read.append, 5 * MIB)]
    assert sum(read) == files[0].size_bytes == 11 * MIB + 3
    place = place_of(bucket, "langadapt", "corpus", files)
    assert push(Account(REGION), place, files, Quiet(), part_bytes=5 * MIB) == files
    assert len(stand_in.sent("PUT", "large.txt")) == 3
    stand_in.seen.clear()
    assert push(Account(REGION), place, files, Quiet(), part_bytes=5 * MIB) == []
    assert not stand_in.sent("PUT")
    # As S3 itself reports a file of three parts.
    assert files[0].is_stored({"ContentLength": files[0].size_bytes, "ChecksumSHA256": f"{files[0].checksum}-3"})


def test_what_lies_there_with_other_content_is_sent_again(
    stand_in: AccountStandIn, bucket: str, tmp_path: Path
) -> None:
    source = corpus_folder(tmp_path)
    files = [sent_file(path.name, path, lambda more: None) for path in sorted(source.iterdir())]
    place = place_of(bucket, "langadapt", "corpus", files)
    client = boto3.client("s3", region_name=REGION)
    sizes = {file.name: file.size_bytes for file in files}
    client.put_object(Bucket=bucket, Key=place.prefix, Body=b"")
    client.put_object(Bucket=bucket, Key=f"{place.prefix}0.txt", Body=b"x" * sizes["0.txt"])
    client.upload_file(str(source / "1.txt"), bucket, f"{place.prefix}1.txt", ExtraArgs={"ChecksumAlgorithm": "SHA256"})
    assert [file.name for file in push(Account(REGION), place, files, Quiet())] == ["0.txt", "2.txt"]

    client.put_object(Bucket=bucket, Key=f"{place.prefix}stranger.txt", Body=b"x")
    with pytest.raises(StepError, match=r"holds stranger\.txt, which is none of the files"):
        push(Account(REGION), place, files, Quiet())


def test_a_file_that_changes_while_it_is_sent_is_refused(stand_in: AccountStandIn, bucket: str, tmp_path: Path) -> None:
    source = corpus_folder(tmp_path, files=1)
    files = [sent_file("0.txt", source / "0.txt", lambda more: None)]
    place = place_of(bucket, "langadapt", "corpus", files)
    (source / "0.txt").write_bytes(b"y" * files[0].size_bytes)
    told = Quiet()
    with pytest.raises(StepError, match="changed while it was sent"):
        push(Account(REGION), place, files, told)
    assert place.list_key not in objects(bucket)
    assert told.lines[0].startswith("sending 1 of 1 files, 2.3 kB, to s3://")
    assert told.lines[1:] == [f"0 of 1 files are at {place.uri}; the same command goes on from there"]


def test_a_lost_connection_is_told_and_the_same_command_goes_on(
    stand_in: AccountStandIn, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    source = corpus_folder(tmp_path)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    def drop(request: Seen) -> None:
        if request.method == "PUT" and request.path.endswith("/2.txt"):
            raise ConnectionResetError

    stand_in.in_the_way = drop
    assert langadapt("push", "corpus", str(source), bucket=bucket) == 1
    told = capsys.readouterr().err
    assert "the same command goes on from there" in told
    assert "error: s3 PutObject: " in told
    stand_in.in_the_way = lambda request: None
    stand_in.seen.clear()
    assert langadapt("push", "corpus", str(source), "--json", bucket=bucket) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == ["2.txt"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_push_leaves_no_list_and_goes_on(
    stand_in: AccountStandIn, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    source = corpus_folder(tmp_path)
    reached, released = threading.Event(), threading.Event()

    def hold(request: Seen) -> None:
        if request.method == "PUT" and request.path.endswith("/2.txt"):
            reached.set()
            released.wait(60)

    stand_in.in_the_way = hold
    command = [sys.executable, "-m", "pipeline", "push", "corpus", str(source), "--set", f"aws.bucket={bucket}"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    started = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    assert reached.wait(60)
    while len(objects(bucket)) < 2:
        time.sleep(0.05)
    started.send_signal(number)
    released.set()
    _, told = started.communicate(timeout=60)
    assert started.returncode == code, told
    assert "the same command goes on from there" in told
    assert not [key for key in objects(bucket) if key.endswith(".json")]
    stand_in.in_the_way = lambda request: None
    assert langadapt("push", "corpus", str(source), "--json", bucket=bucket) == 0
    assert {"0.txt", "1.txt"}.isdisjoint(json.loads(capsys.readouterr().out)["sent"])
    assert [key for key in objects(bucket) if key.endswith(".json")]


def test_code_is_sent_once(stand_in: AccountStandIn, bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert langadapt("push", "code", "--json", "--set", "aws.kms_key_id=the-key", bucket=bucket) == 0
    sent = json.loads(capsys.readouterr().out)["sent"]
    assert len(sent) == 7
    puts = stand_in.sent("PUT")
    assert {request.headers["x-amz-server-side-encryption-aws-kms-key-id"] for request in puts} == {"the-key"}
    assert objects(bucket).keys() == {uri.removeprefix(f"s3://{bucket}/") for uri in sent}
    stand_in.seen.clear()
    assert langadapt("push", "code", bucket=bucket) == 0
    assert not stand_in.sent("PUT")


# --- a model of a hub: huggingface_hub takes its address and cache when it is imported, so in a process of its own ----

PUSH_IN_TURN = """
import json, os, sys
from pipeline.__main__ import command_code
for words in json.loads(sys.argv[1]):
    os.environ.pop("HF_TOKEN", None)
    os.environ.update(dict(word.split("=") for word in words if word.startswith("HF_TOKEN=")))
    command_code(["push", "base-model", *(word for word in words if "HF_TOKEN" not in word), "--json"], as_json=True)
"""


def push_from_hub(folder: Path, address: str, bucket: str, *commands: list[str]) -> list[dict[str, Any]]:
    """What each of several pushes of the model answers; a word HF_TOKEN=... is a variable."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    own = {"PYTHONPATH": str(ROOT), "HF_ENDPOINT": address, "HF_HOME": str(folder / "hub"), "HF_HUB_DISABLE_XET": "1"}
    words = json.dumps([[MODEL_ID, "--set", f"aws.bucket={bucket}", *command] for command in commands])
    done = subprocess.run(
        [sys.executable, "-c", PUSH_IN_TURN, words],
        cwd=folder, env={**environment, **own}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_model_of_the_hub_is_taken_at_one_commit_with_the_users_token(bucket: str, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in sorted(write_small_base(tmp_path / "base").iterdir())}
    others = {"pytorch_model.bin": b"pickled", "original/consolidated.00.pth": b"pickled", "modeling_own.py": b"code"}
    token = "HF_TOKEN=hf_token_of_the_user"
    with stub_hub(MODEL_ID, {**files, **others}, token="hf_token_of_the_user") as hub:
        refused, done, again, unknown = push_from_hub(
            tmp_path, hub.address, bucket, [], [token], [token, "--revision", "v1"], [token, "--revision", "v9"]
        )
    assert "the hub asks for its licence to be accepted" in refused["error"]["line"]
    assert done["source"] == again["source"] == f"{MODEL_ID}@{COMMIT}"
    # Fetched once each, and no pickle nor code.
    assert sorted(done["sent"]) == sorted(hub.fetched) == sorted(files)
    assert again["sent"] == []
    assert again["uri"] == done["uri"]
    assert unknown["error"]["value"] == "no revision v9"


def test_a_model_of_the_hub_without_safetensors_is_refused_before_it_is_fetched() -> None:
    with pytest.raises(StepError, match=r"someone/small-base: no safetensors, but pytorch_model\.bin"):
        wanted_files(MODEL_ID, ["config.json", "pytorch_model.bin"], with_code=False)


def test_of_two_layouts_of_the_weights_the_one_of_the_index_is_fetched() -> None:
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    names = ["config.json", "model.safetensors.index.json", "consolidated.safetensors", "own.py", *shards]
    assert wanted_files(MODEL_ID, names, with_code=True) == [
        "config.json", *shards, "model.safetensors.index.json", "own.py",
    ]  # fmt: skip
    names = ["config.json", "consolidated.safetensors", "model.safetensors"]
    assert wanted_files(MODEL_ID, names, with_code=False) == ["config.json", "model.safetensors"]


def test_a_hub_that_cannot_be_reached_is_told(bucket: str, tmp_path: Path) -> None:
    with stub_hub(MODEL_ID, {}) as hub:
        address = hub.address
    (gone,) = push_from_hub(tmp_path, address, bucket, [])
    assert "the hub cannot be reached" in gone["error"]["line"]
