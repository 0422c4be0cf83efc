"""A model of a Hugging Face hub as a folder of this machine: one commit of it, its weights in safetensors alone.

Token, cache and address are those that every tool of Hugging Face takes: HF_TOKEN or `hf auth login`, HF_HOME,
HF_ENDPOINT. What was fetched before is not fetched again, and a download that was stopped goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.remote.push_sources import described_files
from steps.contract import StepError
from steps.contract.model_folder import INDEX_NAME

MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
SINGLE_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class HubModel:
    """folder: the files. name: the model's id with the commit that they are of, as `owner/name@commit`."""

    folder: Path
    name: str


def is_model_id(source: str) -> bool:
    """Whether a source is the name of a model on a hub; a path that exists is none."""
    return MODEL_ID.fullmatch(source) is not None and not Path(source).exists()


def fetch_model(model_id: str, revision: str | None, *, with_code: bool = False) -> HubModel:
    """Fetches a model's configuration, tokenizer and safetensors.

    revision: a branch, tag or commit; default: the main branch. Whatever it is, the commit that it means now is taken.
    with_code: its Python files as well.
    Raises StepError where the hub has no such model or no safetensors of it, or refuses.
    """
    from huggingface_hub import HfApi, snapshot_download

    with _told(model_id, revision):
        found = HfApi().model_info(model_id, revision=revision)
    names = [entry.rfilename for entry in found.siblings or []]
    wanted = wanted_files(model_id, names, with_code=with_code)
    with _told(model_id, revision):
        folder = snapshot_download(model_id, revision=found.sha, allow_patterns=wanted)
    return HubModel(Path(folder), f"{model_id}@{found.sha}")


def wanted_files(model_id: str, names: list[str], *, with_code: bool) -> list[str]:
    """The names to fetch of all that a repository has. Raises StepError for one without safetensors."""
    top = [name for name in names if "/" not in name]
    weights = [name for name in top if name.endswith(".safetensors")]
    if not weights:
        others = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5"))]
        value = f"no safetensors{f', but {others[0]}' if others else ''}"
        remedy = "Name a model, or a revision of it, that has its weights in safetensors."
        raise StepError(model_id, value, limit="*.safetensors", remedy=remedy)
    # Beside the shards of an index some repositories keep the weights once more, in another layout.
    if INDEX_NAME in top:
        shards = [name for name in weights if re.fullmatch(r"model-\d+-of-\d+\.safetensors", name)]
        weights = shards or weights
    elif SINGLE_WEIGHTS in weights:
        weights = [SINGLE_WEIGHTS]
    code = [name for name in top if name.endswith(".py")] if with_code else []
    return sorted({*weights, *code, *described_files(names)})


@contextmanager
def _told(model_id: str, revision: str | None) -> Iterator[None]:
    """Within it an error of the hub becomes a StepError that says what to mend."""
    from huggingface_hub import errors

    at = f" at {revision}" if revision else ""
    try:
        yield
    except errors.GatedRepoError as error:
        remedy = "Accept its licence on its page, and give the token of that user (HF_TOKEN or `hf auth login`)."
        raise StepError(model_id, "the hub asks for its licence to be accepted", remedy=remedy) from error
    except errors.RevisionNotFoundError as error:
        raise StepError(model_id, f"no revision {revision}", remedy="Name a branch, tag or commit of it.") from error
    except errors.RepositoryNotFoundError as error:
        remedy = "Check the name; a private model needs its user's token (HF_TOKEN or `hf auth login`)."
        raise StepError(model_id, f"not on the hub{at}, or private", remedy=remedy) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no answer"
        remedy = "Check the token (HF_TOKEN or `hf auth login`)." if status in (401, 403) else "Try again later."
        raise StepError(model_id, f"the hub answered {status}", remedy=remedy) from error
    # The last is its own word for HF_HUB_OFFLINE.
    except (errors.HTTPError, errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        remedy = "Check the network and HF_ENDPOINT; the same command goes on from what was fetched."
        raise StepError(model_id, f"the hub cannot be reached ({type(error).__name__})", remedy=remedy) from error
