"""Looks at conversations before a run, so that a fault in them is told in seconds and not after pretraining.

    python -m steps.check_conversations FILE_OR_DIR [--max_dropped_share=0.1]

Exit code 0 where FineTune could read them. Else 1, and one JSON object on standard output: subject, value, limit and
remedy of the error. What needs the tokenizer (conversations that are too long) is FineTune's to find.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from steps.configs.fine_tune import FineTuneConfig
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, mendable_error
from steps.text.conversations import check_questions, check_unusable, question_of, read_conversations


def main() -> int:
    """Reads the conversations that the command line names; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m steps.check_conversations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("path", type=Path)
    share = FineTuneConfig.model_fields["max_dropped_share"].default
    parser.add_argument("--max_dropped_share", type=float, default=share)
    arguments = parser.parse_args()
    try:
        found = read_conversations(arguments.path)
        check_unusable(found.unusable, found.lines, arguments.max_dropped_share)
        check_questions(len({question_of(messages) for messages in found.conversations}))
    except Exception as error:
        # Not the data's faults alone: a path that is too long, a folder that may not be listed, no memory.
        fault = mendable_error(error, arguments.path)
        if fault is None:
            raise
        parts = {"subject": fault.subject, "value": str(fault.value), "limit": fault.limit, "remedy": fault.remedy}
        print(json.dumps(parts))
        return EXIT_USER_ERROR
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
