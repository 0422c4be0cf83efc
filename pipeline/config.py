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

from pipeline.config_text import apply_override, read_yaml
from steps.configs.adapt_vocabulary import AdaptVocabularyConfig
from steps.configs.continued_pretraining import ContinuedPretrainingConfig
from steps.configs.evaluate_model import EvaluateModelConfig
from steps.configs.fine_tune import FineTuneConfig
from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.configs.tokenize_corpus import TokenizeCorpusConfig
from steps.configs.train_tokenizer import TrainTokenizerConfig
from steps.contract import ConfigError, nearest_name

PLACEHOLDER_ACCOUNT = "111122223333"


DEFAULT_REPLAY_SHARE = 0.1
# 28 days: the longest that the service lets a training job run, and wait for spot capacity.
MAX_TRAINING_SECONDS = 2_419_200
# Over the corpus, by each branch of an ablation.
ABLATION_PASSES = 1.0
# Settings of the data section that are settings of steps.
CARRIED_TO_STEPS = {
    "mask_personal_data": ("prepare_corpus", "fine_tune"),
    "source_replay_share": ("continued_pretraining",),
    "trust_remote_code": ("adapt_vocabulary", "continued_pretraining", "fine_tune", "evaluate_model"),
}


class Section(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


class AwsSection(Section):
    """The account. The defaults are valid-looking placeholders: good for an offline compile, refused by upsert."""

    region: str = Field("us-west-2", pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="AWS region")
    bucket: str = Field(
        "langadapt-placeholder-bucket", min_length=3, max_length=63, description="bucket for all artefacts"
    )
    prefix: str = Field("langadapt", pattern=r"^[A-Za-z0-9][A-Za-z0-9/_-]*$", description="key prefix in the bucket")
    role_arn: str = Field(
        f"arn:aws:iam::{PLACEHOLDER_ACCOUNT}:role/langadapt-placeholder-role",
        pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$",
        description="execution role of the jobs",
    )
    resolve_inputs_function_arn: str = Field(
        f"arn:aws:lambda:us-west-2:{PLACEHOLDER_ACCOUNT}:function:langadapt-placeholder-resolve-inputs",
        pattern=r"^arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:function:.+$",
        description="the ResolveInputs function",
    )
    image_uri: str = Field(
        f"{PLACEHOLDER_ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/langadapt-placeholder@sha256:" + "0" * 64,
        pattern=r"^[^@\s]+@sha256:[0-9a-f]{64}$",
        description="environment image, by digest: behind a tag it could change unseen by the step cache",
    )
    pipeline_name: str = Field("langadapt", pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,81}$", description="pipeline name")
    model_package_group: str = Field(
        "langadapt", pattern=r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$", description="Model Registry group"
    )
    kms_key_id: str | None = Field(None, description="KMS key of the outputs")
    subnets: tuple[str, ...] = Field((), description="subnets of the jobs; empty: no VPC")
    security_group_ids: tuple[str, ...] = Field((), description="security groups of the jobs")
    max_parallel_steps: int | None = Field(None, ge=1, description="steps at a time; null: the service's default")
    tags: dict[str, str] = Field({}, max_length=50, description="tags of the pipeline")
    scheduler_role_arn: str | None = Field(
        None,
        pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$",
        description="role that EventBridge Scheduler starts executions with; needed by `langadapt schedule set`",
    )


class DataSection(Section):
    """What a run reads: files or folders here, or s3:// prefixes. Null: the sample here, a parameter on AWS."""

    corpus: str | None = Field(
        None, min_length=1, description="text of the new language: .jsonl, .txt, .parquet, each also .gz or .zst"
    )
    conversations: str | None = Field(None, min_length=1, description="conversations in the new language, .jsonl")
    base_model: str | None = Field(None, min_length=1, description="Hugging Face model folder with safetensors")
    source_corpus: str | None = Field(
        None, min_length=1, description="text of the base's language: replayed in training, and for retention"
    )
    source_replay_share: float = Field(
        DEFAULT_REPLAY_SHARE,
        ge=0,
        le=0.9,
        description="share of the training blocks that come from the source corpus; 0: none",
    )
    extra_heldout: str | None = Field(None, min_length=1, description="a further held-out text, never trained on")
    accuracy: str | None = Field(None, min_length=1, description="questions with answers to measure accuracy, .jsonl")
    mask_personal_data: bool = Field(
        False, description="put placeholders for e-mail addresses, telephone, card, account and document numbers"
    )
    trust_remote_code: bool = Field(
        False, description="run the base model's own code (auto_map of its config.json) on the machines of the steps"
    )


class JobSection(Section):
    """Where one step's job runs."""

    instance_type: str = Field(pattern=r"^ml\.[a-z0-9-]+\.[a-z0-9]+$", description="SageMaker instance type")
    volume_gib: int = Field(100, ge=1, le=16_384, description="storage volume, where the instance has none of its own")
    max_runtime_seconds: int = Field(86_400, ge=60, le=432_000, description="time after which the job is stopped")


class ShardedJobSection(JobSection):
    """A processing job whose instances share its work; the other steps would do all of it once an instance."""

    instance_count: int = Field(1, ge=1, le=100, description="instances")


class TrainingJobSection(JobSection):
    max_runtime_seconds: int = Field(
        86_400, ge=60, le=MAX_TRAINING_SECONDS, description="time after which the job is stopped"
    )
    managed_spot: bool = Field(
        False, description="take spare capacity at a discount: the service may interrupt the job, which goes on later"
    )
    max_wait_seconds: int | None = Field(
        None,
        ge=60,
        le=MAX_TRAINING_SECONDS,
        description="with managed_spot, time for training and waiting together; null: twice max_runtime_seconds",
    )

    @property
    def spot_wait_seconds(self) -> int | None:
        """Seconds that a job on spot capacity may take, the waiting for it included; None without managed_spot."""
        if not self.managed_spot:
            return None
        return self.max_wait_seconds or min(2 * self.max_runtime_seconds, MAX_TRAINING_SECONDS)


class ShardedTrainingJobSection(TrainingJobSection):
    """A training job whose instances share each optimizer step."""

    instance_count: int = Field(1, ge=1, le=100, description="instances")


class ComputeSection(Section):
    """One job description a step, and how long results stay in the step cache."""

    prepare_corpus: JobSection = JobSection(instance_type="ml.m5.4xlarge")
    train_tokenizer: JobSection = JobSection(instance_type="ml.m5.4xlarge")
    tokenize_corpus: ShardedJobSection = ShardedJobSection(instance_type="ml.m5.4xlarge")
    adapt_vocabulary: JobSection = JobSection(instance_type="ml.m5.4xlarge")
    continued_pretraining: ShardedTrainingJobSection = ShardedTrainingJobSection(instance_type="ml.p4d.24xlarge")
    fine_tune: TrainingJobSection = TrainingJobSection(instance_type="ml.g5.8xlarge")
    evaluate_model: JobSection = JobSection(instance_type="ml.g5.8xlarge")
    cache_days: int = Field(30, ge=1, le=365, description="days that the step cache is valid")
    max_attempts: int = Field(3, ge=1, le=10, description="attempts of a job after a fault of the service")

    @pydantic.model_validator(mode="after")
    def _waiting_leaves_time_to_train(self) -> ComputeSection:
        for step in ("continued_pretraining", "fine_tune"):
            section: TrainingJobSection = getattr(self, step)
            wait = section.max_wait_seconds
            if wait is not None and not section.managed_spot:
                remedy = "Leave it out, or set managed_spot to true."
                raise ConfigError(f"compute.{step}.max_wait_seconds", wait, limit="none without managed_spot",
                                  remedy=remedy)  # fmt: skip
            if wait is not None and wait < section.max_runtime_seconds:
                limit = f"at least max_runtime_seconds {section.max_runtime_seconds}"
                remedy = "Raise it: it counts training and waiting together."
                raise ConfigError(f"compute.{step}.max_wait_seconds", wait, limit=limit, remedy=remedy)
        return self


class ServingSection(Section):
    """What a registered version is served with (docs/serving.md). The default image is a placeholder like aws' own."""

    engine: Literal["djl-lmi", "vllm"] = Field("djl-lmi", description="the server in the image")
    image_uri: str = Field(
        f"{PLACEHOLDER_ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com/langadapt-placeholder-serving@sha256:" + "0" * 64,
        pattern=r"^[^@\s]+@sha256:[0-9a-f]{64}$",
        description="image of the server, by digest: an approved version must not change behind a tag",
    )
    instance_types: tuple[str, ...] = Field(
        ("ml.g5.xlarge",), min_length=1, description="instance types that can serve the model, recommended ones first"
    )
    tensor_parallel_devices: int = Field(1, ge=1, le=64, description="GPUs of one instance that share the model")
    max_context_tokens: int | None = Field(
        None, ge=16, description="longest prompt with its reply, for which memory is kept; null: the model's own"
    )
    dtype: Literal["auto", "bfloat16", "float16"] = Field("auto", description="auto: what the server takes")


class ThresholdsSection(Section):
    """Defaults of the gate's parameters. None is built in: a preset or a config states them."""

    max_bits_per_byte: float = Field(gt=0, description="ceiling of the candidate's bits per byte")
    min_improvement: float = Field(description="smallest improvement over the base model, in bits per byte")
    max_retention_loss: float | None = Field(
        None, description="largest loss on the source language, in bits per byte; needed with data.source_corpus"
    )


class PipelineConfig(Section):
    """The whole configuration; a section a step, fields in `steps/configs/`."""

    preset: str = Field("", description="name that the run folder carries")
    aws: AwsSection = AwsSection()
    data: DataSection = DataSection()
    compute: ComputeSection = ComputeSection()
    thresholds: ThresholdsSection
    serving: ServingSection = ServingSection()
    model_approval_status: Literal["PendingManualApproval", "Approved", "Rejected"] = "PendingManualApproval"
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
            raise ConfigError(where, "missing", limit="a value", remedy=f"Add {where}.") from error
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


def config_digest(config: pydantic.BaseModel, ignored_fields: Iterable[str] = ()) -> str:
    """sha256 of a configuration's canonical JSON, without the ignored fields."""
    values = config.model_dump(mode="json", exclude=set(ignored_fields))
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
