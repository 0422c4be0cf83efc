"""What the step cache of SageMaker Pipelines compares.

By the service's documentation ("Default cache key attributes by pipeline step type", read 2026-11): the members below,
by value. It leaves out what lies under a URI, instance types and counts, output places, roles, networks, tags and
limits. A step whose earlier steps ran again reads from other places, and so runs again too.
"""

from __future__ import annotations

KEY_MEMBERS = {
    "Processing": ("AppSpecification", "Environment", "ProcessingInputs"),
    "Training": (
        "AlgorithmSpecification", "CheckpointConfig", "DebugHookConfig", "DebugRuleConfigurations", "Environment",
        "HyperParameters", "InputDataConfig",
    ),
}  # fmt: skip
# Variables of Execution.* that each execution has anew; name and ARN of the pipeline stay.
VOLATILE_VARIABLES = (
    "PipelineExecutionId", "PipelineExecutionArn", "StartDateTime", "CurrentDateTime", "TrainingJobName",
    "ProcessingJobName",
)  # fmt: skip
