"""THE DAG, top to bottom, in the SageMaker SDK's own classes.

    ResolveInputs -> PrepareCorpus -> TrainTokenizer -+-> TokenizeCorpus --+
                                                      +-> AdaptVocabulary -+-> ContinuedPretraining -> FineTune
        -> Evaluate -> QualityGate -+-> RegisterModel   (open)
                                    +-> GateClosed      (closed)

No step names the one before it: the service orders steps by what they read. What all jobs have in common is in
pipeline/jobs.py, the parameters in pipeline/parameters.py, the form of a model version in pipeline/registration.py.
Importing this module imports the SageMaker SDK, which pipeline/compile.py does in surroundings that suit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.lambda_helper import Lambda
from sagemaker.core.workflow.conditions import (
    Condition,
    ConditionEquals,
    ConditionGreaterThanOrEqualTo,
    ConditionLessThanOrEqualTo,
    ConditionOr,
)
from sagemaker.core.workflow.execution_variables import ExecutionVariables
from sagemaker.core.workflow.functions import Join, JsonGet
from sagemaker.core.workflow.pipeline_context import PipelineSession
from sagemaker.core.workflow.properties import PropertyFile
from sagemaker.mlops.workflow.condition_step import ConditionStep
from sagemaker.mlops.workflow.fail_step import FailStep
from sagemaker.mlops.workflow.lambda_step import LambdaOutput, LambdaStep
from sagemaker.mlops.workflow.model_step import ModelStep
from sagemaker.mlops.workflow.pipeline import Pipeline

from pipeline.code_archive import STEPS_FOLDER
from pipeline.config import PipelineConfig
from pipeline.job_parts import OUTPUT_NAME
from pipeline.jobs import Jobs, output_of
from pipeline.parameters import Parameters
from pipeline.registration import registration_arguments
from pipeline.registry import SETTINGS_MEMBER

FERTILITY_FILE = PropertyFile("Fertility", output_name=OUTPUT_NAME, path="fertility.json")
EVALUATION_FILE = PropertyFile("Evaluation", output_name=OUTPUT_NAME, path="evaluation.json")


def build_pipeline(config: PipelineConfig, session: PipelineSession, package: Path = STEPS_FOLDER) -> Pipeline:
    """The pipeline of one configuration. The session only captures requests: nothing is sent and nothing uploaded.

    package: folder of the steps' package.
    """
    parameters = Parameters.of(config)
    resolve_inputs = resolve_inputs_step(config, parameters)
    resolved = resolve_inputs.properties.Outputs
    jobs = Jobs(config, session, parameters.image_uri, resolved, package)

    prepare_corpus = jobs.processing_step(
        "PrepareCorpus",
        "prepare_corpus",
        inputs=parameters.texts(),
    )
    train_tokenizer = jobs.processing_step(
        "TrainTokenizer",
        "train_tokenizer",
        inputs={"corpus": prepare_corpus, "base_model": parameters.base_model_uri},
        property_files=[FERTILITY_FILE],
    )
    tokenize_corpus = jobs.processing_step(
        "TokenizeCorpus",
        "tokenize_corpus",
        inputs={"corpus": prepare_corpus, "tokenizer": train_tokenizer},
        instance_count=config.compute.tokenize_corpus.instance_count,
    )
    adapt_vocabulary = jobs.processing_step(
        "AdaptVocabulary",
        "adapt_vocabulary",
        inputs={"base_model": parameters.base_model_uri, "tokenizer": train_tokenizer, "corpus": prepare_corpus},
    )
    continued_pretraining = jobs.training_step(
        "ContinuedPretraining",
        "continued_pretraining",
        inputs={"model": adapt_vocabulary, "blocks": tokenize_corpus},
        instance_type=parameters.continued_pretraining_instance_type,
        instance_count=parameters.continued_pretraining_instance_count,
        metrics=["phase", "loss", "learning_rate", "gradient_norm", "tokens_per_second", "validation_bits_per_byte"],
    )
    fine_tune = jobs.training_step(
        "FineTune",
        "fine_tune",
        inputs={"model": continued_pretraining, "conversations": parameters.conversations_uri},
        instance_type=parameters.fine_tune_instance_type,
        metrics=["loss", "validation_loss", "stop_rate"],
        output_folder="models",  # never expires: registered models point into it
    )
    evaluate = jobs.processing_step(
        "Evaluate",
        "evaluate_model",
        inputs={
            "base_model": parameters.base_model_uri,
            "pretrained": continued_pretraining,
            "model": fine_tune,
            "champion": resolved["champion_uri"],
            "corpus": prepare_corpus,
            **parameters.questions(),
        },
        run_time_settings={"champion_present": resolved["champion_present"]},
        instance_type=parameters.evaluate_instance_type,
        property_files=[EVALUATION_FILE],
    )

    gate = gate_limits(parameters)
    register_model = ModelStep(
        "RegisterModel",
        step_args=registration_arguments(
            config,
            session,
            parameters,
            model_uri=output_of(fine_tune),
            evaluation_uri=output_of(evaluate),
            metadata=model_metadata(jobs, resolved),
        ),
        retry_policies=jobs.service_retries(),
    )
    gate_closed = FailStep("GateClosed", error_message=closed_message(gate, resolved["champion_present"]))
    quality_gate = ConditionStep(
        "QualityGate",
        conditions=[*(limit.condition() for limit in gate), no_worse_than_champion(resolved["champion_present"])],
        if_steps=[register_model],
        else_steps=[gate_closed],
    )

    return Pipeline(
        config.aws.pipeline_name,
        parameters=parameters.declared(),
        # No experiment: experiments exist in some regions only, and the registry holds what is compared.
        pipeline_experiment_config=None,
        steps=[
            resolve_inputs,
            prepare_corpus,
            train_tokenizer,
            tokenize_corpus,
            adapt_vocabulary,
            continued_pretraining,
            fine_tune,
            evaluate,
            quality_gate,
        ],
        sagemaker_session=session,
    )


def resolve_inputs_step(config: PipelineConfig, parameters: Parameters) -> LambdaStep:
    """Never cached: it says what lies under the URIs now, and refuses while another execution runs."""
    user_data = parameters.user_data()
    return LambdaStep(
        "ResolveInputs",
        lambda_func=Lambda(function_arn=config.aws.resolve_inputs_function_arn),
        inputs={
            **{f"{name}_uri": uri for name, uri in user_data.items()},
            "model_package_group": config.aws.model_package_group,
            "pipeline_name": ExecutionVariables.PIPELINE_NAME,
            "execution_id": ExecutionVariables.PIPELINE_EXECUTION_ID,
            "allow_concurrent": parameters.allow_concurrent,
        },
        outputs=[
            *(LambdaOutput(f"{name}_digest") for name in user_data),
            LambdaOutput("champion_uri"),
            LambdaOutput("champion_digest"),
            LambdaOutput("champion_present"),
        ],
    )


# --- the gate ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """One condition of the gate: a number of evaluation.json that is `at most` or `at least` a parameter."""

    json_path: str
    comparison: str
    limit: PipelineVariable

    def condition(self) -> Condition:
        kinds = {"<=": ConditionLessThanOrEqualTo, ">=": ConditionGreaterThanOrEqualTo}
        return kinds[self.comparison](evaluated(self.json_path), self.limit)


def gate_limits(parameters: Parameters) -> list[Limit]:
    """The conditions that hold of every candidate; that of the champion stands beside them."""
    limits = [
        Limit("bits_per_byte.candidate", "<=", parameters.max_bits_per_byte),
        Limit("bits_per_byte.improvement", ">=", parameters.min_improvement),
    ]
    if parameters.max_retention_loss is not None:
        limits.append(Limit("retention.loss", "<=", parameters.max_retention_loss))
    return limits


def no_worse_than_champion(champion_present: PipelineVariable) -> Condition:
    """Without an approved version there is nothing to be worse than."""
    return ConditionOr(
        [
            ConditionEquals(champion_present, "false"),
            ConditionGreaterThanOrEqualTo(evaluated("champion.improvement"), 0.0),
        ]
    )


def closed_message(gate: list[Limit], champion_present: PipelineVariable) -> Join:
    """Every condition with value and limit: one else branch cannot tell which of them failed."""
    parts: list[str | PipelineVariable] = ["Quality gate closed. All of these must hold:"]
    for limit in gate:
        parts += [
            f" {limit.json_path} = ",
            evaluated(limit.json_path),
            f", limit {limit.comparison} ",
            limit.limit,
            ";",
        ]
    parts += [" champion.improvement = ", evaluated("champion.improvement"), ", limit >= 0.0"]
    parts += [" unless champion_present = false (it is ", champion_present, ")."]
    return Join("", parts)


def evaluated(json_path: str) -> JsonGet:
    """A number of evaluation.json."""
    return JsonGet(step_name="Evaluate", property_file=EVALUATION_FILE, json_path=json_path)


def model_metadata(jobs: Jobs, resolved: Mapping[str, PipelineVariable]) -> dict[str, str | PipelineVariable]:
    """What a person approves from, beside the model version in the registry."""

    def fertility(json_path: str) -> JsonGet:
        return JsonGet(step_name="TrainTokenizer", property_file=FERTILITY_FILE, json_path=json_path)

    return {
        "bits_per_byte.base": evaluated("bits_per_byte.base").to_string(),
        "bits_per_byte.pretrained": evaluated("bits_per_byte.pretrained").to_string(),
        "bits_per_byte.candidate": evaluated("bits_per_byte.candidate").to_string(),
        "bits_per_byte.improvement": evaluated("bits_per_byte.improvement").to_string(),
        "champion.bits_per_byte": evaluated("champion.bits_per_byte").to_string(),
        "champion.present": resolved["champion_present"],
        "documents": evaluated("documents").to_string(),
        "text_sha256": evaluated("text_sha256").to_string(),
        "tokenizer": fertility("chosen").to_string(),
        "tokens_per_word.base": fertility("tokens_per_word.base").to_string(),
        "tokens_per_word.chosen": fertility("tokens_per_word.chosen").to_string(),
        "corpus_digest": resolved["corpus_digest"],
        "conversations_digest": resolved["conversations_digest"],
        "base_model_digest": resolved["base_model_digest"],
        # All settings that made the model: with its content, what tells it from another version.
        SETTINGS_MEMBER: jobs.lineages["FineTune"].settings_digest,
        # The same with all code: where it comes from.
        "recipe_sha256": jobs.lineages["FineTune"].digest,
    }
