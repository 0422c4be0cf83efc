"""The sections of a configuration that belong to no step: the account, the data, the jobs, serving, the gate."""

from __future__ import annotations

import re
from typing import Literal

import pydantic
from pydantic import Field

from steps.contract import ConfigError

PLACEHOLDER_ACCOUNT = "111122223333"
DEFAULT_REPLAY_SHARE = 0.1
# 28 days: the longest that the service lets a training job run, and wait for spot capacity.
MAX_TRAINING_SECONDS = 2_419_200


class Section(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


class AwsSection(Section):
    """The account. The defaults are valid-looking placeholders: good for an offline compile, refused by upsert."""

    region: str = Field("us-west-2", pattern=r"^[a-z]{2}(-[a-z]+)+-\d$", description="AWS region")
    bucket: str = Field(
        "langadapt-placeholder-bucket",
        pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$",
        description="bucket for all artefacts, its name alone",
    )
    prefix: str = Field(
        "langadapt", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*(/[A-Za-z0-9_-]+)*$", description="key prefix in the bucket"
    )
    role_arn: str = Field(
        f"arn:aws:iam::{PLACEHOLDER_ACCOUNT}:role/langadapt-placeholder-role",
        pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$",
        description="execution role of the jobs",
    )
    pipeline_role_arn: str | None = Field(
        None,
        pattern=r"^arn:aws[a-z-]*:iam::\d{12}:role/.+$",
        description="role that drives the pipeline: starts its jobs and registers versions; null: role_arn",
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

    @pydantic.model_validator(mode="after")
    def _names_are_whole(self) -> AwsSection:
        if ".." in self.bucket or re.fullmatch(r"[\d.]+", self.bucket):
            limit = "no two dots together, and no address"
            raise ConfigError("aws.bucket", self.bucket, limit=limit, remedy="Name a bucket as S3 does.")
        for lacking, other in (("subnets", "security_group_ids"), ("security_group_ids", "subnets")):
            if getattr(self, other) and not getattr(self, lacking):
                remedy = "Name some, or leave both out: the jobs then run in no VPC of yours."
                raise ConfigError(f"aws.{lacking}", "empty", limit=f"some with aws.{other}", remedy=remedy)
        return self


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


class PlanSection(Section):
    """What `langadapt plan` reckons with where it cannot look. No step reads it."""

    base_model_shape: str | None = Field(
        None,
        min_length=1,
        description="name in pipeline/plan/model_shapes.yaml; null: config.json of data.base_model, or the sample's",
    )
    corpus_bytes: float | None = Field(
        None, ge=1, description="UTF-8 bytes of the corpus; null: the files of data.corpus, where they lie here"
    )
    bytes_per_token: float = Field(4.0, gt=0, description="of the new tokenizer, on the corpus")
    base_bytes_per_token: float = Field(2.5, gt=0, description="of the base model's own tokenizer, on the corpus")
    conversations: int | None = Field(
        None, ge=1, description="conversations to fine-tune on; null: the lines of data.conversations, if here"
    )
