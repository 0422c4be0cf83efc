"""`langadapt push`: a corpus, conversations, a base model or the steps' code to the bucket."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline.command_options import (
    AsJson,
    ConfigFile,
    Overrides,
    Preset,
    expanded,
    for_a_reader,
    named_folder,
    print_json,
)

if TYPE_CHECKING:
    from pipeline.config import PipelineConfig
    from pipeline.remote.push import Place
    from pipeline.remote.sent_files import SentFile

Source = Annotated[Path, typer.Argument(help="A file or a folder.", metavar="SOURCE", parser=named_folder)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Look at it and say what would be sent; send nothing.")]

push = typer.Typer(
    help="Send data or code to the bucket; what is there already is not sent again.", rich_markup_mode=None
)


@push.command("corpus")
def push_corpus(
    source: Source,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Send the text of the new language (or a source corpus): .jsonl, .txt, .parquet, each also .gz or .zst."""
    return push_input("corpus", str(source), (preset, config, overrides), dry_run=dry_run, as_json=as_json)


@push.command("conversations")
def push_conversations(
    source: Source,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Send conversations in the new language, .jsonl, also .gz or .zst."""
    return push_input("conversations", str(source), (preset, config, overrides), dry_run=dry_run, as_json=as_json)


@push.command("base-model")
def push_base_model(
    source: Annotated[str, typer.Argument(help="A model folder, or a model's id on the Hugging Face hub.")],
    revision: Annotated[str | None, typer.Option(help="Of a model on the hub: branch, tag or commit.")] = None,
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Send a base model, its weights in safetensors: a folder, or a model of the hub fetched at one commit."""
    return push_input("base-model", source, (preset, config, overrides), revision, dry_run=dry_run, as_json=as_json)


@push.command("code")
def push_code(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    """Send the steps' code archives; `langadapt upsert` does so too."""
    from pipeline.config import load_config
    from pipeline.local.run import STEP_MODULES
    from pipeline.remote.account import Account
    from pipeline.remote.code_upload import upload_code
    from pipeline.remote.placeholders import refuse_placeholders
    from pipeline.remote.writes import Writes

    settings = load_config(preset, expanded(config), overrides or ())
    refuse_placeholders(settings, ("aws.bucket",))
    account = Account(settings.aws.region)
    sent = upload_code(settings, STEP_MODULES, account, Writes(account, dry_run=dry_run))
    folder = f"s3://{settings.aws.bucket}/{settings.aws.prefix}/code/"
    with for_a_reader():
        if as_json:
            print_json({"uri": folder, "archives": len(STEP_MODULES), "sent": sent, "dry_run": dry_run})
        else:
            verb = "would send" if dry_run else "sent"
            print("\n".join([*(f"{verb} {uri}" for uri in sent), f"{folder}: {verb} {len(sent)} archives"]))
    return 0


def push_input(
    kind: str,
    source: str,
    configuration: tuple[str | None, Path | None, list[str] | None],
    revision: str | None = None,
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Looks at a source, sends it and says what to start with. kind: corpus, conversations or base-model."""
    from pipeline.config import load_config
    from pipeline.progress import progress_for
    from pipeline.remote.account import Account
    from pipeline.remote.placeholders import refuse_placeholders
    from pipeline.remote.push import ByteCount, place_of, push
    from pipeline.remote.push_sources import KINDS, files_of
    from pipeline.remote.sent_files import sent_file

    preset, config, overrides = configuration
    settings = load_config(preset, expanded(config), overrides or ())
    refuse_placeholders(settings, ("aws.bucket",))
    folder, name = source_folder(kind, source, revision, settings)
    paths = files_of(settings, kind, folder)
    progress = progress_for()
    count = ByteCount(progress, "read", sum(path.stat().st_size for path in paths.values()))
    files = [sent_file(file, path, count) for file, path in paths.items()]
    progress.passing("")
    place = place_of(settings.aws.bucket, settings.aws.prefix, KINDS[kind], files)
    sent: list[SentFile] = []
    if not dry_run:
        account = Account(settings.aws.region)
        sent = push(account, place, files, progress, kms_key_id=settings.aws.kms_key_id)
    with for_a_reader():
        answer = push_answer(kind, name, place, files, sent, dry_run=dry_run)
        if as_json:
            print_json(answer)
        else:
            print("\n".join(push_lines(answer)))
    return 0


def source_folder(kind: str, source: str, revision: str | None, settings: PipelineConfig) -> tuple[Path, str]:
    """The folder or file of a source on this machine, and what it is called; a model of the hub is fetched first.

    Raises ConfigError for a revision of what is no model of the hub, StepError where the hub does not give it.
    """
    from pipeline.local.check_inputs import trusts_remote_code
    from pipeline.remote.model_hub import fetch_model, is_model_id
    from steps.contract import ConfigError

    if kind == "base-model" and is_model_id(source):
        model = fetch_model(source, revision, with_code=trusts_remote_code(settings))
        return model.folder, model.name
    if revision is not None:
        remedy = "Leave it out, or name a model of the hub."
        raise ConfigError("--revision", revision, limit="a model on the hub", remedy=remedy)
    path = expanded(named_folder(source))
    assert path is not None
    return path, str(path)


def push_answer(
    kind: str, name: str, place: Place, files: list[SentFile], sent: list[SentFile], *, dry_run: bool
) -> dict[str, Any]:
    """What a push has come to, as JSON gives it."""
    from pipeline.remote.push import files_table
    from pipeline.remote.push_sources import parameter_of

    return {
        "source": name,
        "uri": place.uri,
        "digest": place.digest,
        "parameter": parameter_of(kind),
        "param": f"{parameter_of(kind)}={place.uri}",
        "files": files_table(files),
        "bytes": sum(file.size_bytes for file in files),
        "sent": [file.name for file in sent],
        "sent_bytes": sum(file.size_bytes for file in sent),
        "dry_run": dry_run,
    }


def push_lines(answer: dict[str, Any]) -> list[str]:
    """The same for people: where it lies, what was sent, what to start with."""
    from steps.contract import size_text

    files = answer["files"]
    whole = f"{_count(len(files))}, {size_text(answer['bytes'])}"
    if answer["dry_run"]:
        rows = [f"  {name}  {size_text(file['bytes'])}" for name, file in files.items()]
        return [f"would send {answer['source']} to {answer['uri']} ({whole})", *rows, f"--param {answer['param']}"]
    sent = "nothing to send"
    if answer["sent"]:
        sent = f"sent {_count(len(answer['sent']))}, {size_text(answer['sent_bytes'])}"
    return [f"{answer['source']}: {whole}; {sent}", f"--param {answer['param']}"]


def _count(files: int) -> str:
    return f"{files:,} file{'' if files == 1 else 's'}"
