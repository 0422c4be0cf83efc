"""Files to the bucket under a prefix that their content names, with a list of them beside it, written last.

    s3://<bucket>/<prefix>/inputs/<kind>/<digest>/...      the files
    s3://<bucket>/<prefix>/inputs/<kind>/<digest>.json     their sizes and sha256; without it the prefix is half pushed

The list lies beside the prefix, so that a job gets the files alone. What lies there with the same size and checksum is
not sent again, so a push that was stopped goes on and one that is done sends nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipeline.progress import Progress
from pipeline.remote.account import Account
from pipeline.remote.aws_errors import AwsError
from pipeline.remote.sent_files import PART_BYTES, SentFile, content_digest
from pipeline.remote.writes import encryption
from steps.contract import StepError, size_text

INPUTS_FOLDER = "inputs"
CONCURRENT_REQUESTS = 8
CHANGED_REMEDY = "Leave the files as they are and push again."


@dataclass(frozen=True)
class Place:
    """Where the files of one content go. root: the key prefix of everything of ours, kind: the folder of this input."""

    bucket: str
    root: str
    kind: str
    digest: str

    @property
    def prefix(self) -> str:
        return f"{self.root}/{INPUTS_FOLDER}/{self.kind}/{self.digest}/"

    @property
    def list_key(self) -> str:
        return f"{self.prefix.rstrip('/')}.json"

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


def place_of(bucket: str, root: str, kind: str, files: Sequence[SentFile]) -> Place:
    return Place(bucket, root, kind, content_digest([*files]))


def push(
    account: Account,
    place: Place,
    files: Sequence[SentFile],
    progress: Progress,
    *,
    kms_key_id: str | None = None,
    part_bytes: int = PART_BYTES,
) -> list[SentFile]:
    """Sends what is not there yet, then the list; returns the files that were sent.

    Raises StepError where the prefix holds something else or a file changes meanwhile, AwsError. However it ends, the
    same call goes on from there.
    """
    listed = account.pages("s3", "ListObjectsV2", "Contents", Bucket=place.bucket, Prefix=place.prefix)
    # A key that ends in a slash is how the console shows an empty folder.
    stored = {entry["Key"]: entry["Size"] for entry in listed if not entry["Key"].endswith("/")}
    _refuse_strangers(place, stored, files)
    sizes_agree = stored == {place.prefix + file.name: file.size_bytes for file in files}
    if sizes_agree and _listed(account, place) == files_table(files):
        return []
    waiting = [file for file in files if not _is_stored(account, place, file, stored)]
    if waiting:
        size = size_text(sum(file.size_bytes for file in waiting))
        progress.line(f"sending {len(waiting)} of {len(files)} files, {size}, to {place.uri}")
    with _telling_what_is_there(progress, place, files, waiting) as sent:
        _send(account, place, waiting, progress, sent, kms_key_id, part_bytes)
    content = json.dumps({"digest": place.digest, "files": files_table(files)}, indent=1).encode()
    account.call("s3", "PutObject", Bucket=place.bucket, Key=place.list_key, Body=content,
                 ContentType="application/json", **encryption(kms_key_id))  # fmt: skip
    return waiting


def files_table(files: Sequence[SentFile]) -> dict[str, dict[str, Any]]:
    """What the list says of each file."""
    return {file.name: {"bytes": file.size_bytes, "sha256": file.sha256} for file in files}


def _refuse_strangers(place: Place, stored: Mapping[str, int], files: Sequence[SentFile]) -> None:
    """A job would read them along, and the digest would not be theirs."""
    known = {place.prefix + file.name for file in files}
    if strangers := sorted(stored.keys() - known):
        value = f"holds {strangers[0].removeprefix(place.prefix)}, which is none of the files"
        raise StepError(place.uri, value, remedy="Remove what else lies there.")


def _listed(account: Account, place: Place) -> Any:
    """The files of the list; None where there is no list yet, or one that cannot be read."""
    try:
        answer = account.call("s3", "GetObject", Bucket=place.bucket, Key=place.list_key)
    except AwsError as error:
        if error.kind == "not_found":
            return None
        raise
    with account.told("s3", "GetObject"):
        content = answer["Body"].read()
    try:
        return json.loads(content)["files"]
    except (ValueError, KeyError, TypeError):
        return None


def _is_stored(account: Account, place: Place, file: SentFile, stored: Mapping[str, int]) -> bool:
    key = place.prefix + file.name
    if stored.get(key) != file.size_bytes:
        return False
    return file.is_stored(account.call("s3", "HeadObject", Bucket=place.bucket, Key=key, ChecksumMode="ENABLED"))


@contextmanager
def _telling_what_is_there(
    progress: Progress, place: Place, files: Sequence[SentFile], waiting: Sequence[SentFile]
) -> Iterator[list[SentFile]]:
    """Takes the files that were sent, and says how far it came where it comes no further."""
    sent: list[SentFile] = []
    done = False
    try:
        yield sent
        done = True
    finally:
        progress.passing("")
        if not done:
            there = len(files) - len(waiting) + len(sent)
            progress.line(f"{there} of {len(files)} files are at {place.uri}; the same command goes on from there")


def _send(
    account: Account, place: Place, waiting: Sequence[SentFile], progress: Progress, sent: list[SentFile],
    kms_key_id: str | None, part_bytes: int,
) -> None:  # fmt: skip
    """Sends the files, several at a time; `sent` gets each that S3 has whole."""
    from boto3.s3.transfer import ProgressCallbackInvoker, TransferConfig, create_transfer_manager

    if not waiting:
        return
    total = sum(file.size_bytes for file in waiting)
    counted = ByteCount(progress, "sent", total)
    config = TransferConfig(
        multipart_threshold=part_bytes, multipart_chunksize=part_bytes, max_concurrency=CONCURRENT_REQUESTS,
        preferred_transfer_client="classic",
    )  # fmt: skip
    extra = {"ChecksumAlgorithm": "SHA256", **encryption(kms_key_id)}
    client = account.client("s3")
    # An error, ctrl-C or SIGTERM inside leaves it at once: what is on its way is cancelled, begun parts are removed.
    with account.told("s3", "PutObject"), create_transfer_manager(client, config) as manager:
        futures = [
            (file, manager.upload(str(file.path), place.bucket, place.prefix + file.name, extra_args=extra,
                                  subscribers=[ProgressCallbackInvoker(counted)]))
            for file in waiting
        ]  # fmt: skip
        for file, future in futures:
            future.result()
            key = place.prefix + file.name
            head = client.head_object(Bucket=place.bucket, Key=key, ChecksumMode="ENABLED")
            if not file.is_stored(head):
                raise StepError(str(file.path), "changed while it was sent", remedy=CHANGED_REMEDY)
            sent.append(file)


class ByteCount:
    """How many bytes of a total are done, on a terminal's last line. Called from any thread.

    verb: what was done with them, such as `sent`.
    """

    def __init__(self, progress: Progress, verb: str, total_bytes: int) -> None:
        self._progress, self._verb, self._total, self._done = progress, verb, total_bytes, 0
        self._shown, self._lock = "", threading.Lock()

    def __call__(self, more_bytes: int) -> None:
        with self._lock:
            self._done += more_bytes
            text = f"{self._verb} {size_text(self._done)} of {size_text(self._total)}"
            if text != self._shown:
                self._shown = text
                self._progress.passing(text)
