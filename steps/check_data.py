"""Looks at a user's data before a run, so that a fault is told in seconds and not after pretraining.

    python -m steps.check_data [--conversations=FILE_OR_DIR [--max_dropped_share=0.1]] [--accuracy=FILE_OR_DIR]
        [--corpus=FILE_OR_DIR [--text_field=text]] [--files]

Exit code 0 where the steps could read them; with --files one JSON object on standard output then: of each input the
files that are read, as they are named below it. Else 1, and one JSON object on standard output: input, the option whose
data it is, and subject, value, limit and remedy of the error. What needs the tokenizer (conversations that are too
long) is FineTune's to find. Of a corpus the beginning of each file is read: the rest is PrepareCorpus' to find.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import islice
from pathlib import Path

from steps.configs.evaluate_model import EvaluateModelConfig
from steps.configs.fine_tune import FineTuneConfig
from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, mendable_error
from steps.text.accuracy_items import read_accuracy_tasks
from steps.text.conversations import check_questions, check_unusable, question_of, read_conversations
from steps.text.corpus_input import Input
from steps.text.opening import KINDS
from steps.text.reading import read_records, text_files

# Of each file of a corpus. Where none of them is a document, the file is in another form.
LOOKED_AT_RECORDS = 20
KINDS_READ = {"conversations": (".jsonl",), "accuracy": (".jsonl",), "corpus": KINDS}


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
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--text_field", default=PrepareCorpusConfig.model_fields["text_field"].default)
    parser.add_argument("--files", action="store_true")
    arguments = parser.parse_args()
    read: dict[str, list[str]] = {}
    for name, kinds in KINDS_READ.items():
        path = getattr(arguments, name)
        if path is None:
            continue
        try:
            if name == "conversations":
                check_conversations(path, arguments.max_dropped_share)
            elif name == "accuracy":
                read_accuracy_tasks(path, EvaluateModelConfig.model_fields["max_accuracy_items"].default)
            else:
                check_corpus(path, arguments.text_field)
            read[name] = [
                file.relative_to(path if path.is_dir() else path.parent).as_posix() for file in text_files(path, kinds)
            ]
        except Exception as error:
            # Not the data's faults alone: a path that is too long, a folder that may not be listed, no memory.
            fault = mendable_error(error, path)
            if fault is None:
                raise
            parts = {"subject": fault.subject, "value": str(fault.value), "limit": fault.limit, "remedy": fault.remedy}
            print(json.dumps({"input": name, **parts}))
            return EXIT_USER_ERROR
    if arguments.files:
        print(json.dumps(read))
    return EXIT_DONE


def check_conversations(path: Path, max_dropped_share: float) -> None:
    """Raises StepError for conversations that FineTune would refuse."""
    found = read_conversations(path)
    check_unusable(found.unusable, found.lines, max_dropped_share)
    questions = {question_of(messages) for messages in found.conversations}
    check_questions(len(questions), len(found.conversations))


def check_corpus(path: Path, text_field: str) -> None:
    """Raises StepError for a corpus with a file that cannot be read, or whose first lines are no documents."""
    for file in text_files(path):
        looked_at = Input("corpus", file, PrepareCorpusConfig(text_field=text_field))
        records = list(islice(read_records(file, text_field), LOOKED_AT_RECORDS))
        faulty = [record for record in records if record.fault is not None]
        for record in faulty:
            looked_at.note_fault(record)
        if faulty and len(faulty) == len(records):
            looked_at.lines = len(records)
            raise looked_at.too_many_faults(faulty[0])


if __name__ == "__main__":
    sys.exit(main())
