"""Builds the DAG's job steps: what every processing and training job of langadapt has in common.

A job is the environment image, the step's code archive as the input `code`, named input folders, one output folder,
and the step's settings as texts. The container's command line is always the launcher's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.network import NetworkConfig
from sagemaker.core.processing import Processor
from sagemaker.core.shapes import CheckpointConfig, OutputDataConfig, StoppingCondition, TensorBoardOutputConfig
from sagemaker.core.training.configs import Compute, Networking
from sagemaker.core.workflow.execution_variables import ExecutionVariables
from sagemaker.core.workflow.functions import Join
from sagemaker.core.workflow.pipeline_context import PipelineSession
from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.retry import (
    SageMakerJobExceptionTypeEnum,
    SageMakerJobStepRetryPolicy,
    StepExceptionTypeEnum,
    StepRetryPolicy,
)
from sagemaker.mlops.workflow.steps import CacheConfig, ProcessingStep, Step, TrainingStep
from sagemaker.train.model_trainer import ModelTrainer

from pipeline.code_archive import STEPS_FOLDER, code_archive
from pipeline.config import PipelineConfig, config_digest
from pipeline.config_sections import JobSection, TrainingJobSection
from pipeline.instances import has_local_storage
from pipeline.job_parts import OUTPUT_NAME, channel, flag, metric_definition, processing_input, processing_output
from pipeline.shown_texts import described
from steps.configs import continued_pretraining, fine_tune
from steps.contract import StepConfig, config_arguments

LAUNCH_COMMAND = ["python3", "-m", "containers.launch"]
CHECKPOINT_FOLDER = "/opt/ml/checkpoints"
TENSORBOARD_FOLDER = "/opt/ml/output/tensorboard"
CODE_INPUT = "code"
# Where a training job leaves its model folder when it is not compressed, below its output path and its name.
MODEL_SUFFIX = "output/model/"
# The first wait before another attempt; it doubles with each.
SERVICE_RETRY_SECONDS = 30
CAPACITY_RETRY_SECONDS = 300
# Settings of a step with which it still goes on from the same checkpoints; of the steps not named, all count.
NOT_LEARNED: Mapping[str, Callable[[Any], Sequence[str]]] = {
    "continued_pretraining": continued_pretraining.not_learned,
    "fine_tune": fine_tune.not_learned,
}

# What a job reads: an earlier step's output folder, or a URI.
Source: TypeAlias = Step | PipelineVariable


class LaunchedTrainer(ModelTrainer):
    """A ModelTrainer whose container starts launch.py; the SDK sets an entry point only for code that it uploads."""

    def _create_training_job_args(self, *arguments, **named):
        request = super()._create_training_job_args(*arguments, **named)
        request["AlgorithmSpecification"]["ContainerEntrypoint"] = list(LAUNCH_COMMAND)
        return request


@dataclass(frozen=True)
class Lineage:
    """What a step's result depends on: digests known now, and digests that only the execution knows.

    digest: of the settings and the code of the step and of all before it. settings_digest: the same without the code
    and without settings that change nothing that is learned.
    """

    digest: str
    settings_digest: str
    run_time_digests: Mapping[str, PipelineVariable]


@dataclass(frozen=True)
class Job:
    """What a processing and a training job are both made from."""

    name: str
    step: str
    section: JobSection
    sources: Mapping[str, str | PipelineVariable]
    config: StepConfig
    settings: Mapping[str, str | PipelineVariable]
    code_digest: str
    upstream: Mapping[str, Lineage]
    lineage: Lineage


@dataclass
class Jobs:
    """Makes the job steps of one pipeline.

    image_uri: the parameter with the environment image. resolved: ResolveInputs' outputs; a setting `x_digest` of a
    step that reads x gets the output of that name, so that new content under an old URI is a new cache key. package:
    the folder of the steps' package, whose code the jobs run. lineages, code_digests: by the name of each step made so
    far.
    """

    config: PipelineConfig
    session: PipelineSession
    image_uri: PipelineVariable
    resolved: Mapping[str, PipelineVariable]
    package: Path = STEPS_FOLDER
    lineages: dict[str, Lineage] = field(default_factory=dict)
    code_digests: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """URI below which everything of langadapt lies, without a final slash."""
        return f"s3://{self.config.aws.bucket}/{self.config.aws.prefix}"

    def processing_step(
        self,
        name: str,
        step: str,
        *,
        inputs: Mapping[str, Source],
        run_time_settings: Mapping[str, PipelineVariable] | None = None,
        other_settings: Mapping[str, bool] | None = None,
        instance_type: PipelineVariable | None = None,
        instance_count: int = 1,
        property_files: Sequence[PropertyFile] = (),
    ) -> ProcessingStep:
        """A processing job that runs the module steps.<step>.

        inputs: by name, an earlier step (its output folder) or a URI. run_time_settings: settings that only the
        execution knows, the digests aside. other_settings: settings that this job has otherwise than the step's
        section of the configuration. instance_type: a parameter in place of the configured type.
        """
        job = self._job(name, step, inputs, run_time_settings, other_settings)
        processor = Processor(
            role=self.config.aws.role_arn,
            image_uri=self.image_uri,
            entrypoint=list(LAUNCH_COMMAND),
            instance_count=instance_count,
            instance_type=instance_type or job.section.instance_type,
            volume_size_in_gb=job.section.volume_gib,
            volume_kms_key=self._volume_kms_key(job.section, instance_type),
            output_kms_key=self.config.aws.kms_key_id,
            max_runtime_in_seconds=job.section.max_runtime_seconds,
            base_job_name=name,
            network_config=NetworkConfig(**self._network()) if self._network() else None,
            sagemaker_session=self.session,
        )
        step_arguments = processor.run(
            inputs=[processing_input(input_name, uri) for input_name, uri in job.sources.items()],
            outputs=[processing_output(self._run_output("runs", name))],
            arguments=[flag(key, value) for key, value in job.settings.items()],
        )
        return ProcessingStep(
            name,
            step_args=step_arguments,
            **described(name),
            property_files=list(property_files),
            cache_config=self._cache(),
            retry_policies=[*self.service_retries(), *self._job_retries()],
        )

    def training_step(
        self,
        name: str,
        step: str,
        *,
        inputs: Mapping[str, Source],
        metrics: Sequence[str],
        instance_type: PipelineVariable,
        instance_count: PipelineVariable | int = 1,
        output_folder: str = "runs",
    ) -> TrainingStep:
        """A training job that runs the module steps.<step> and goes on from its checkpoints.

        metrics: names that the step reports. output_folder: `runs`, which expires, or `models`, which never does.
        The other arguments are those of `processing_step`.
        """
        job = self._job(name, step, inputs)
        section = job.section
        assert isinstance(section, TrainingJobSection), name
        # No volume key: the instance type is a parameter, and those that train have local storage.
        compute = Compute(
            instance_type=instance_type,
            instance_count=instance_count,
            volume_size_in_gb=section.volume_gib,
            enable_managed_spot_training=section.managed_spot or None,
        )
        limits = StoppingCondition(
            max_runtime_in_seconds=section.max_runtime_seconds, max_wait_time_in_seconds=section.spot_wait_seconds
        )
        trainer = self._trainer(job, compute, limits, self._run_output(output_folder, name))
        trainer.with_metric_definitions([metric_definition(metric) for metric in metrics])
        events = self._run_output("runs", name, "tensorboard")
        trainer.with_tensorboard_output_config(
            TensorBoardOutputConfig(s3_output_path=events, local_path=TENSORBOARD_FOLDER)
        )
        return TrainingStep(
            name,
            step_args=trainer.train(input_data_config=[channel(*source) for source in job.sources.items()]),
            **described(name),
            cache_config=self._cache(),
            retry_policies=[*self.service_retries(), *self._job_retries()],
        )

    def _trainer(
        self, job: Job, compute: Compute, limits: StoppingCondition, output_uri: PipelineVariable
    ) -> LaunchedTrainer:
        return LaunchedTrainer(
            role=self.config.aws.role_arn,
            sagemaker_session=self.session,
            base_job_name=job.name,
            training_image=self.image_uri,
            training_input_mode="File",
            compute=compute,
            networking=Networking(**self._network()) if self._network() else None,
            stopping_condition=limits,
            output_data_config=OutputDataConfig(
                s3_output_path=output_uri, compression_type="NONE", kms_key_id=self.config.aws.kms_key_id
            ),
            checkpoint_config=CheckpointConfig(s3_uri=self._checkpoint_uri(job), local_path=CHECKPOINT_FOLDER),
            hyperparameters=dict(job.settings),
        )

    def _job(
        self,
        name: str,
        step: str,
        inputs: Mapping[str, Source],
        run_time_settings: Mapping[str, PipelineVariable] | None = None,
        other_settings: Mapping[str, bool] | None = None,
    ) -> Job:
        """The common parts of a job; its lineage is noted for the steps that read from it."""
        section: StepConfig = getattr(self.config, step)
        config = type(section).model_validate({**section.model_dump(), **(other_settings or {})})
        settings = config_arguments(config)
        read = [f"{input_name}_digest" for input_name in inputs]
        digests = {key: self.resolved[key] for key in read if key in settings and key in self.resolved}
        archive = code_archive(step, self.package)
        sources = {input_name: output_of(source) for input_name, source in inputs.items()}
        upstream = {key: self.lineages[source.name] for key, source in inputs.items() if isinstance(source, Step)}
        inherited = {key: value for lineage in upstream.values() for key, value in lineage.run_time_digests.items()}
        self.code_digests[name] = archive.digest
        self.lineages[name] = Lineage(
            digest=_digest([step, config_digest(config), archive.digest, *_digests(upstream)]),
            settings_digest=_digest([step, learned_digest(step, config), *_settings_digests(upstream)]),
            run_time_digests={**inherited, **digests},
        )
        return Job(
            name=name,
            step=step,
            section=getattr(self.config.compute, step),
            sources={**sources, CODE_INPUT: f"{self.root}/code/{archive.name}"},
            config=config,
            settings={"step": step, **settings, **digests, **(run_time_settings or {})},
            code_digest=archive.digest,
            upstream=upstream,
            lineage=self.lineages[name],
        )

    def _checkpoint_uri(self, job: Job) -> Join:
        """checkpoints/<step>/<settings>/<code>/<inputs>, the inputs as the digests of all that makes them.

        What an earlier step will write is unknown when this is compiled, but its settings, its code and, in the
        execution, the digests of the user's data are known: any change of them starts clean. No instance count:
        checkpoints reshard. No setting of speed or reports. No execution id: a later execution goes on from here.
        """
        fixed = [
            f"{self.root}/checkpoints/{job.step}",
            learned_digest(job.step, job.config),
            job.code_digest,
            _digest(_digests(job.upstream)),
        ]
        known_later = job.lineage.run_time_digests
        return Join("/", [*fixed, *(known_later[key] for key in sorted(known_later))])

    def _run_output(self, *path: str) -> Join:
        """<first>/<execution id>/<rest>; only an output, no part of the cache key, may carry an execution's id."""
        first, *rest = path
        return Join("/", [f"{self.root}/{first}", ExecutionVariables.PIPELINE_EXECUTION_ID, *rest])

    def _cache(self) -> CacheConfig:
        return CacheConfig(enable_caching=True, expire_after=f"P{self.config.compute.cache_days}D")

    def service_retries(self) -> list[StepRetryPolicy]:
        """Faults of the service and throttling, soon again."""
        types = [StepExceptionTypeEnum.SERVICE_FAULT, StepExceptionTypeEnum.THROTTLING]
        attempts = self.config.compute.max_attempts
        return [StepRetryPolicy(types, interval_seconds=SERVICE_RETRY_SECONDS, max_attempts=attempts)]

    def _job_retries(self) -> list[SageMakerJobStepRetryPolicy]:
        """Lost instances, missing capacity and used-up quotas, later again; a step that fails by itself never."""
        return [
            SageMakerJobStepRetryPolicy(
                exception_types=[SageMakerJobExceptionTypeEnum.RESOURCE_LIMIT],
                failure_reason_types=[
                    SageMakerJobExceptionTypeEnum.INTERNAL_ERROR,
                    SageMakerJobExceptionTypeEnum.CAPACITY_ERROR,
                ],
                interval_seconds=CAPACITY_RETRY_SECONDS,
                max_attempts=self.config.compute.max_attempts,
            )
        ]

    def _volume_kms_key(self, section: JobSection, instance_type: PipelineVariable | None) -> str | None:
        """The key of the volume; none where a parameter may name an instance with local storage, which refuses one."""
        if instance_type is not None or has_local_storage(section.instance_type):
            return None
        return self.config.aws.kms_key_id

    def _network(self) -> dict[str, list[str]]:
        aws = self.config.aws
        if not aws.subnets:
            return {}
        return {"subnets": list(aws.subnets), "security_group_ids": list(aws.security_group_ids)}


def output_of(source: Source) -> PipelineVariable:
    """URI of a step's output folder; a URI is given back as it is."""
    if isinstance(source, ProcessingStep):
        return source.properties.ProcessingOutputConfig.Outputs[OUTPUT_NAME].S3Output.S3Uri
    if isinstance(source, TrainingStep):
        properties = source.properties
        # ModelArtifacts.S3ModelArtifacts of an uncompressed model may lack the final slash that S3Prefix asks for.
        return Join("/", [properties.OutputDataConfig.S3OutputPath, properties.TrainingJobName, MODEL_SUFFIX])
    if isinstance(source, PipelineVariable):
        return source
    raise TypeError(f"no output folder: {source!r}")


def learned_digest(step: str, config: StepConfig) -> str:
    """sha256 of a step's settings, those left out that change nothing that is learned."""
    return config_digest(config, NOT_LEARNED[step](config) if step in NOT_LEARNED else ())


def _digests(upstream: Mapping[str, Lineage]) -> list[str]:
    return [upstream[key].digest for key in sorted(upstream)]


def _settings_digests(upstream: Mapping[str, Lineage]) -> list[str]:
    return [upstream[key].settings_digest for key in sorted(upstream)]


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()
