"""PipelineConfig: everything a run is made of, from a preset or a YAML file, with --set overrides."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import Field

from pipeline.config_sections import (
    DEFAULT_REPLAY_SHARE,
    AwsSection,
    ComputeSection,
    DataSection,
    PlanSection,
    Section,
    ServingSection,
    ThresholdsSection,
)
from pipeline.config_text import apply_override, read_yaml
from pipeline.regions import check_regions
from pipeline.serving import check_serving
from steps.configs.adapt_vocabulary import AdaptVocabularyConfig
from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.configs.evaluate_model import EvaluateModelConfig
from steps.configs.fine_tune import FineTuneConfig
from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.configs.tokenize_corpus import TokenizeCorpusConfig
from steps.configs.train_tokenizer import TrainTokenizerConfig
from steps.contract import ConfigError, nearest_name

# Over the corpus, by each branch of an ablation.
ABLATION_PASSES = 1.0
# Settings of the data section that are settings of steps.
CARRIED_TO_STEPS = {
    "mask_personal_data": ("prepare_corpus", "fine_tune"),
    "source_replay_share": ("continued_pretraining",),
    "trust_remote_code": ("adapt_vocabulary", "continued_pretraining", "fine_tune", "evaluate_model"),
}


class PipelineConfig(Section):
    """The whole configuration; a section a step, fields in `steps/configs/`."""

    preset: str = Field("", description="name that the run folder carries")
    aws: AwsSection = AwsSection()
    data: DataSection = DataSection()
    compute: ComputeSection = ComputeSection()
    thresholds: ThresholdsSection
    serving: ServingSection = ServingSection()
    model_approval_status: Literal["PendingManualApproval", "Approved", "Rejected"] = Field(
        "PendingManualApproval", description="status that a new version is registered with"
    )
    ablation: bool = Field(
        False,
        description="train the base model with its own tokenizer too, and measure what the new one alone brings; both "
        "then read the documents in one order (block_order sequential), continued_pretraining.passes times, by default "
        "once",
    )
    prepare_corpus: PrepareCorpusConfig = PrepareCorpusConfig()
    train_tokenizer: TrainTokenizerConfig
    tokenize_corpus: TokenizeCorpusConfig
    adapt_vocabulary: AdaptVocabularyConfig = AdaptVocabularyConfig()
    continued_pretraining: ContinuedPretrainingConfig
    fine_tune: FineTuneConfig
    evaluate_model: EvaluateModelConfig = EvaluateModelConfig()
    plan: PlanSection = PlanSection()

    @pydantic.model_validator(mode="before")
    @classmethod
    def _steps_know_what_data_says(cls, values: Any) -> Any:
        """A setting of the data section stands in each step's section too, where that does not say otherwise."""
        if not isinstance(values, Mapping) or not isinstance(data := values.get("data"), Mapping):
            return values
        spread = dict(values)
        for name, sections in CARRIED_TO_STEPS.items():
            for section in sections if name in data else ():
                own = spread.get(section, {})
                spread[section] = {name: data[name], **own} if isinstance(own, Mapping) else own
        return spread

    @pydantic.model_validator(mode="after")
    def _fields_agree(self) -> PipelineConfig:
        block, batch = self.tokenize_corpus.block_tokens, self.continued_pretraining.global_batch_tokens
        if batch % block:
            limit = f"a multiple of tokenize_corpus.block_tokens {block}"
            remedy = f"Take {max(1, round(batch / block)) * block}, or change block_tokens."
            raise ConfigError("continued_pretraining.global_batch_tokens", batch, limit=limit, remedy=remedy)
        share = self.data.source_replay_share
        # The default is no request: a configuration that was written out whole holds it too.
        if self.data.source_corpus is None and share not in (0, DEFAULT_REPLAY_SHARE):
            remedy = "Name data.source_corpus, or leave the share out."
            raise ConfigError("data.source_replay_share", share, limit="0 without data.source_corpus", remedy=remedy)
        if self.data.source_corpus is not None and self.thresholds.max_retention_loss is None:
            remedy = "Set it: the largest loss on the source corpus, in bits per byte."
            raise ConfigError(
                "thresholds.max_retention_loss", "missing", limit="a value with data.source_corpus", remedy=remedy
            )
        check_regions(self.aws)
        check_serving(self.serving, self.aws.region)
        return self

    @pydantic.model_validator(mode="after")
    def _both_branches_of_an_ablation_read_alike(self) -> PipelineConfig:
        """They share continued_pretraining. Steps would read more documents the longer a tokenizer's tokens are, and a
        shuffled order of blocks is another one for each tokenizer."""
        section = self.continued_pretraining
        if not self.ablation or (section.passes and section.block_order == "sequential"):
            return self
        if section.block_order != "sequential" and "block_order" in section.model_fields_set:
            remedy = "Leave it out, or set ablation to false."
            limit = "sequential with ablation"
            raise ConfigError("continued_pretraining.block_order", section.block_order, limit=limit, remedy=remedy)
        alike = {"passes": section.passes or ABLATION_PASSES, "block_order": "sequential"}
        return self.model_copy(update={"continued_pretraining": section.model_copy(update=alike)})


def preset_names() -> list[str]:
    """Names of the presets that travel with the package."""
    folder = resources.files("pipeline") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_config(preset: str | None = None, file: Path | None = None, overrides: Iterable[str] = ()) -> PipelineConfig:
    """The configuration of a preset (default: laptop) or of a YAML file, with `section.field=value` overrides.

    Raises ConfigError that names the field at fault and, for a misspelt one, the one meant.
    """
    if preset is not None and file is not None:
        raise ConfigError("--config", str(file), limit="one of --preset and --config", remedy="Give only one of them.")
    if file is not None:
        if not file.is_file():
            value = f"{file} is no file" if file.exists() else f"{file} does not exist"
            raise ConfigError("--config", value, remedy="Name a YAML file.")
        try:
            text, name = file.read_text(encoding="utf-8-sig"), file.stem
        except UnicodeDecodeError as error:
            raise ConfigError("--config", f"{file} is not UTF-8", remedy="Save it as UTF-8.") from error
    else:
        name = preset or "laptop"
        if name not in preset_names():
            raise ConfigError("--preset", name, remedy=nearest_name(name, preset_names()))
        text = (resources.files("pipeline") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
    values = read_yaml(text, str(file) if file is not None else name)
    values.setdefault("preset", name)
    for override in overrides:
        apply_override(values, override)
    return validate_config(values)


def validate_config(values: Mapping[str, Any]) -> PipelineConfig:
    """The checked configuration. Raises ConfigError for the first field at fault."""
    try:
        return PipelineConfig.model_validate(values)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "config"
        if first["type"] == "extra_forbidden":
            raise ConfigError(where, "no such field", remedy=_field_meant(first["loc"])) from error
        if first["type"] == "missing":
            raise ConfigError(
                where, "missing", limit="a value", remedy=f"Add {where}, as each preset has it."
            ) from error
        limit, remedy = _limit_and_remedy(first, where)
        raise ConfigError(where, repr(first["input"]), limit=limit, remedy=remedy) from error


def _limit_and_remedy(error: Any, where: str) -> tuple[str, str]:
    """What pydantic asks of a value, in the words of a configuration, and what to do."""
    kind, value = error["type"], error["input"]
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "a section of fields", f"Write its fields as {where}.FIELD."
    if kind in ("tuple_type", "list_type"):
        return "a list", f"Write it in brackets: [{value}]."
    if kind == "multiple_of":
        multiple = error["ctx"]["multiple_of"]
        return f"a multiple of {multiple}", f"Take {max(1, round(value / multiple)) * multiple}."
    if kind == "too_short":
        return f"at least {error['ctx']['min_length']} in the list", "Change this field."
    if kind == "string_too_short":
        return f"at least {error['ctx']['min_length']} character", "Change this field."
    if kind == "string_pattern_mismatch":
        return f"the form {error['ctx']['pattern']}", "Change this field."
    # pydantic adds why it could not read the value, which stands right before.
    message = error["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return message.split(", unable to")[0].split(", got ")[0], "Change this field."


def _field_meant(location: tuple[int | str, ...]) -> str:
    """A sentence that names the field meant by a misspelt one: of its own section, or of the same name in another."""
    wrong, known = _siblings(location)
    remedy = nearest_name(wrong, known)
    if remedy.startswith("Did"):
        return remedy
    sections = {name: info.annotation for name, info in PipelineConfig.model_fields.items()}
    homes = [name for name, section in sections.items() if wrong in getattr(section, "model_fields", {})]
    return f"Did you mean {homes[0]}.{wrong}?" if homes else remedy


def _siblings(location: tuple[int | str, ...]) -> tuple[str, list[str]]:
    """The misspelt name at a location and the names of the fields that its section has."""
    model: Any = PipelineConfig
    for part in location[:-1]:
        model = model.model_fields[part].annotation
    return str(location[-1]), list(model.model_fields)


def placeless_digest(config: PipelineConfig) -> str:
    """sha256 of a configuration as a version tells it, the same in every account and on a laptop.

    Left out are the account's names, where the data lies (its content has a digest of its own), the address of the
    image that serves, and what `langadapt plan` reckons with.
    """
    serving = config.serving.model_copy(update={"image_uri": ServingSection().image_uri})
    return config_digest(config.model_copy(update={"serving": serving}), ["aws", "data", "plan"])


def config_digest(config: pydantic.BaseModel, ignored_fields: Iterable[str] = ()) -> str:
    """sha256 of a configuration's canonical JSON, without the ignored fields."""
    values = config.model_dump(mode="json", exclude=set(ignored_fields))
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
