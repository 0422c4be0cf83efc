"""Looks at conversations and accuracy items before a run, so that a fault is told in seconds and not after pretraining.

    python -m steps.check_data [--conversations=FILE_OR_DIR [--max_dropped_share=0.1]] [--accuracy=FILE_OR_DIR]

Exit code 0 where FineTune and Evaluate could read them. Else 1, and one JSON object on standard output: input, the
option whose data it is, and subject, value, limit and remedy of the error. What needs the tokenizer (conversations that
are too long) is FineTune's to find.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from steps.configs.evaluate_model import EvaluateModelConfig
from steps.configs.fine_tune import FineTuneConfig
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, mendable_error
from steps.text.accuracy_items import read_accuracy_tasks
from steps.text.conversations import check_questions, check_unusable, question_of, read_conversations


def main() -> int:
    """Reads the data that the command line names; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m steps.check_data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--conversations", type=Path)
    share = FineTuneConfig.model_fields["max_dropped_share"].default
    parser.add_argument("--max_dropped_share", type=float, default=share)
    parser.add_argument("--accuracy", type=Path)
    arguments = parser.parse_args()
    for name in ("conversations", "accuracy"):
        path = getattr(arguments, name)
        if path is None:
            continue
        try:
            if name == "conversations":
                check_conversations(path, arguments.max_dropped_share)
            else:
                read_accuracy_tasks(path, EvaluateModelConfig.model_fields["max_accuracy_items"].default)
        except Exception as error:
            # Not the data's faults alone: a path that is too long, a folder that may not be listed, no memory.
            fault = mendable_error(error, path)
            if fault is None:
                raise
            parts = {"subject": fault.subject, "value": str(fault.value), "limit": fault.limit, "remedy": fault.remedy}
            print(json.dumps({"input": name, **parts}))
            return EXIT_USER_ERROR
    return EXIT_DONE


def check_conversations(path: Path, max_dropped_share: float) -> None:
    """Raises StepError for conversations that FineTune would refuse."""
    found = read_conversations(path)
    check_unusable(found.unusable, found.lines, max_dropped_share)
    questions = {question_of(messages) for messages in found.conversations}
    check_questions(len(questions), len(found.conversations))


if __name__ == "__main__":
    sys.exit(main())
