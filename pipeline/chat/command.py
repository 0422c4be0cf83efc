"""The command `langadapt chat` and its options."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline.command_options import AsJson, expanded

if TYPE_CHECKING:
    from pipeline.chat.session import Chat
    from pipeline.chat.speakers import ReplySettings, Speaker
    from pipeline.progress import Progress
    from steps.schemas.chat import Ready

# Seeds are counted on from the one that is given, a reply each.
LARGEST_SEED = 2**31
# As the service has it; botocore asks for the length alone.
ENDPOINT_NAME = re.compile(r"(?=.{1,63}$)[a-zA-Z0-9](-*[a-zA-Z0-9])*")


def chat(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="MODEL_DIR", help="Model folder, or the folder of a run: its fine-tuned model."),
    ] = None,
    system: Annotated[str, typer.Option(help="System prompt.")] = "",
    prompt: Annotated[
        str | None, typer.Option(help="Ask this and leave; - reads standard input.", metavar="TEXT")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="BASE_DIR", help="A second model, asked the same; replies side by side.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(metavar="NAME", help="A SageMaker endpoint in the place of a model folder.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="AWS region of --endpoint; default: AWS' own settings.")] = None,
    max_new_tokens: Annotated[int, typer.Option(metavar="TOKENS", min=1, help="Longest reply.")] = 512,
    temperature: Annotated[float, typer.Option(min=0, help="0: always the most probable token.")] = 0.0,
    top_p: Annotated[
        float, typer.Option(min=1e-6, max=1, help="Share of the probability that tokens are drawn from.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Of what is drawn.")] = 0,
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="auto: CUDA where present.")] = "auto",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run the model's own code on this machine.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Talk to a model: on a terminal turn by turn, with --prompt once."""
    from pipeline.chat.endpoint import Endpoint
    from pipeline.chat.one_shot import prompt_text
    from pipeline.chat.session import Chat
    from pipeline.chat.speakers import ReplySettings
    from pipeline.progress import progress_for
    from steps.contract import ConfigError

    if as_json and prompt is None:
        raise ConfigError("--json", "without --prompt", remedy="Give a question with --prompt.")
    question = None if prompt is None else prompt_text(prompt)
    settings = ReplySettings(max_new_tokens, temperature, top_p, seed)
    progress = progress_for()
    local = functools.partial(
        local_speaker, settings=settings, device=device, trust_remote_code=trust_remote_code, tell=progress.line
    )
    check_who_is_asked(model, endpoint, region)
    speakers: list[Speaker] = [] if model is None else [local(model)]
    if endpoint is not None:
        speakers.append(Endpoint(endpoint, settings, region=region))
    if compare is not None:
        speakers.append(local(compare, takes_plain_text=True))
    return talk_with(Chat(speakers, system=system), question, progress, as_json=as_json)


def talk_with(talk: Chat, question: str | None, progress: Progress, *, as_json: bool) -> int:
    """Loads the models, asks the one question or goes on turn by turn, and returns the exit code."""
    from pipeline.chat.dialogue import Dialogue, note
    from pipeline.chat.line_input import LineInput
    from pipeline.chat.one_shot import answer_once

    try:
        progress.passing(f"Loading {' and '.join(talk.names)}")
        try:
            ready = talk.open()
        finally:
            progress.passing("")
        if question is not None:
            return answer_once(talk, question, as_json=as_json)
        for name, found in zip(talk.names, ready, strict=True):
            note(f"{name}: {described(found)}")
        note("/help lists the commands, ctrl-D leaves")
        return Dialogue(talk, LineInput()).run()
    finally:
        talk.close()


def check_who_is_asked(model: Path | None, endpoint: str | None, region: str | None) -> None:
    """Raises ConfigError where not exactly one of model folder and endpoint is named, or the endpoint can be none."""
    from steps.contract import ConfigError

    if (model is None) == (endpoint is None):
        value = "neither is given" if model is None else "both are given"
        remedy = "Name a model folder or an endpoint."
        raise ConfigError("MODEL_DIR, --endpoint", value, limit="one of them", remedy=remedy)
    if endpoint is not None and not ENDPOINT_NAME.fullmatch(endpoint):
        limit = "up to 63 letters, digits and hyphens"
        raise ConfigError("--endpoint", endpoint, limit=limit, remedy="Name it as SageMaker lists it.")
    if endpoint is None and region is not None:
        raise ConfigError("--region", "without --endpoint", remedy="Leave it out, or name an endpoint.")


def local_speaker(
    given: Path,
    *,
    settings: ReplySettings,
    device: str,
    trust_remote_code: bool,
    tell: Callable[[str], None],
    takes_plain_text: bool = False,
) -> Speaker:
    """The model of a folder; of a run's, the one that it has fine-tuned, which is told."""
    from pipeline.chat.dialogue import note
    from pipeline.chat.local_model import LocalModel
    from pipeline.chat.model_folder import model_folder_of
    from pipeline.summary import shown

    named = expanded(given) or given
    folder = model_folder_of(named)
    if folder != named:
        note(f"{named} is a run: its fine-tuned model, {shown(folder)}")
    return LocalModel(
        str(given), folder, settings, device=device, trust_remote_code=trust_remote_code,
        takes_plain_text=takes_plain_text, tell=tell,
    )  # fmt: skip


def described(ready: Ready) -> str:
    """`1.2B parameters, bfloat16, cuda`; of an endpoint its region."""
    if ready.parameters is None:
        return f"endpoint in {ready.device}"
    size = f"{ready.parameters:,}"
    for unit, letter in ((1_000_000_000, "B"), (1_000_000, "M"), (1_000, "K")):
        if ready.parameters >= unit:
            size = f"{ready.parameters / unit:.3g}{letter}"
            break
    return f"{size} parameters, {ready.dtype}, {ready.device}"
