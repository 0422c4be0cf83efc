"""THE DAG, top to bottom, in the SageMaker SDK's own classes.

    ResolveInputs -> PrepareCorpus -> TrainTokenizer -+-> TokenizeCorpus --+
                                                      +-> AdaptVocabulary -+-> ContinuedPretraining -> FineTune
        -> Evaluate -> QualityGate -+-> RegisterModel   (open)
                                    +-> GateClosed      (closed)

With `ablation: true` TrainTokenizer -> TokenizeCorpusBase -> ContinuedPretrainingBase -> Evaluate as well: the base
model with its own tokenizer, on the same documents in the same order.

No step names the one before it: the service orders steps by what they read. What all jobs have in common is in
pipeline/jobs.py, the parameters in pipeline/parameters.py, the gate in pipeline/quality_gate.py, the form of a model
version in pipeline/registration.py.
Importing this module imports the SageMaker SDK, which pipeline/compile.py does in surroundings that suit it.
"""

from __future__ import annotations

from pathlib import Path

from sagemaker.core.lambda_helper import Lambda
from sagemaker.core.workflow.execution_variables import ExecutionVariables
from sagemaker.core.workflow.pipeline_context import PipelineSession
from sagemaker.mlops.workflow.condition_step import ConditionStep
from sagemaker.mlops.workflow.fail_step import FailStep
from sagemaker.mlops.workflow.lambda_step import LambdaOutput, LambdaStep
from sagemaker.mlops.workflow.model_step import ModelStep
from sagemaker.mlops.workflow.pipeline import Pipeline
from sagemaker.mlops.workflow.steps import Step

from pipeline.code_archive import STEPS_FOLDER
from pipeline.config import PipelineConfig
from pipeline.jobs import Jobs, output_of
from pipeline.measurements import EVALUATION_FILE, FERTILITY_FILE
from pipeline.parameters import Parameters
from pipeline.quality_gate import closed_message, gate_conditions, gate_limits
from pipeline.registration import model_metadata, registration_arguments
from pipeline.shown_texts import described

PRETRAINING_METRICS = (
    "phase",
    "loss",
    "validation_bits_per_byte",
    "source_validation_bits_per_byte",
    "learning_rate",
    "gradient_norm",
    "blocks_read",
    "tokens_per_second_per_device",
    "model_flop_utilisation",
    "peak_memory_bytes",
    "seconds_left",
)


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
        metrics=PRETRAINING_METRICS,
    )
    ablation = ablation_steps(config, parameters, jobs, prepare_corpus, train_tokenizer) if config.ablation else []
    fine_tune = jobs.training_step(
        "FineTune",
        "fine_tune",
        inputs={"model": continued_pretraining, "conversations": parameters.conversations_uri},
        instance_type=parameters.fine_tune_instance_type,
        metrics=["loss", "validation_loss", "stop_rate_training", "stop_rate_heldout"],
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
            **({"ablation": ablation[-1]} if ablation else {}),
        },
        run_time_settings={"champion_present": resolved["champion_present"]},
        instance_type=parameters.evaluate_instance_type,
        property_files=[EVALUATION_FILE],
    )

    limits = gate_limits(parameters)
    register_model = ModelStep(
        "RegisterModel",
        step_args=registration_arguments(
            config,
            session,
            parameters,
            model_uri=output_of(fine_tune),
            evaluation_uri=output_of(evaluate),
            metadata=model_metadata(jobs, parameters, resolved),
        ),
        retry_policies=jobs.service_retries(),
        **described("RegisterModel"),
    )
    message = closed_message(limits, resolved["champion_present"])
    gate_closed = FailStep("GateClosed", error_message=message, **described("GateClosed"))
    quality_gate = ConditionStep(
        "QualityGate",
        **described("QualityGate"),
        conditions=gate_conditions(limits, resolved["champion_present"]),
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
            *ablation,
            fine_tune,
            evaluate,
            quality_gate,
        ],
        sagemaker_session=session,
    )


def ablation_steps(
    config: PipelineConfig, parameters: Parameters, jobs: Jobs, prepare_corpus: Step, train_tokenizer: Step
) -> list[Step]:
    """The branch that differs from the main one in the tokenizer alone; its last step's output is the model."""
    tokenize_corpus = jobs.processing_step(
        "TokenizeCorpusBase",
        "tokenize_corpus",
        inputs={"corpus": prepare_corpus, "tokenizer": train_tokenizer},
        other_settings={"use_base_tokenizer": True},
        instance_count=config.compute.tokenize_corpus.instance_count,
    )
    continued_pretraining = jobs.training_step(
        "ContinuedPretrainingBase",
        "continued_pretraining",
        inputs={"base_model": parameters.base_model_uri, "blocks": tokenize_corpus},
        instance_type=parameters.continued_pretraining_instance_type,
        instance_count=parameters.continued_pretraining_instance_count,
        metrics=PRETRAINING_METRICS,
    )
    return [tokenize_corpus, continued_pretraining]


def resolve_inputs_step(config: PipelineConfig, parameters: Parameters) -> LambdaStep:
    """Never cached: it says what lies under the URIs now, and refuses while another execution runs."""
    user_data = parameters.user_data()
    return LambdaStep(
        "ResolveInputs",
        lambda_func=Lambda(function_arn=config.aws.resolve_inputs_function_arn),
        **described("ResolveInputs"),
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
