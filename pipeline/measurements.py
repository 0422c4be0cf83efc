"""The files of measurements that the pipeline itself reads while it runs: evaluation.json and fertility.json."""

from __future__ import annotations

from sagemaker.core.workflow.functions import JsonGet
from sagemaker.core.workflow.properties import PropertyFile

from pipeline.job_parts import OUTPUT_NAME

FERTILITY_FILE = PropertyFile("Fertility", output_name=OUTPUT_NAME, path="fertility.json")
EVALUATION_FILE = PropertyFile("Evaluation", output_name=OUTPUT_NAME, path="evaluation.json")


def evaluated(json_path: str) -> JsonGet:
    """A number of evaluation.json (steps/schemas/evaluation.py). A path may end in the place in a list: `ci95[0]`."""
    return JsonGet(step_name="Evaluate", property_file=EVALUATION_FILE, json_path=json_path)


def fertility(json_path: str) -> JsonGet:
    """A value of fertility.json (steps/schemas/fertility.py)."""
    return JsonGet(step_name="TrainTokenizer", property_file=FERTILITY_FILE, json_path=json_path)
