"""Shows conversations as FineTune trains on them: every token, and which of them are trained.

    python -m steps.inspect_mask --conversations FILE_OR_DIR --model DIR [--example N] [--count N | --all]
                                 [--max_tokens N] [--colours] [--columns N] [--json]

Reads    conversations  .jsonl in any form of steps/text/conversation_forms.py
         model          a folder with a tokenizer, at its root or in tokenizer/

Conversations are counted from 1 in the order of files and lines; a line that is none has no number and stands in the
summary, with the place of the first of its kind. The summary is over all of them, whichever are shown. Exit code 0, or
1 with one line on standard error.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.configs.fine_tune import FineTuneConfig
from steps.contract import (
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_TERMINATED,
    EXIT_USER_ERROR,
    ConfigError,
    StepError,
    mendable_error,
)
from steps.text.chat_template import END_OF_TURN_TOKEN
from steps.text.conversations import Conversations, read_conversations
from steps.text.mask_view import (
    BETWEEN,
    BREAK,
    CLOSE,
    OPEN,
    Piece,
    marked,
    painted,
    style_of,
    visible,
    wrapped,
)
from steps.text.personal_data import mask_personal_data

# What needs transformers is imported where it is used: what is wrong with the command is told at once.
if TYPE_CHECKING:
    from steps.text.viewed_examples import MaskSummary, MaskViewer, ViewedExample


def inspect_mask(arguments: argparse.Namespace) -> None:
    """Prints the examples that are asked for, and the summary.

    Raises StepError for conversations or a tokenizer that FineTune would refuse, ConfigError for an example that is not
    there.
    """
    conversations = read_conversations(arguments.conversations)
    first, last = chosen_range(arguments, conversations)
    if arguments.mask_personal_data:
        for message in (message for messages in conversations.conversations for message in messages):
            message["content"], _ = mask_personal_data(message["content"])
    folder = tokenizer_folder(arguments.model)
    viewer = open_viewer(folder, arguments.max_tokens, trust_remote_code=arguments.trust_remote_code)
    examples = (
        viewer.view(number, conversations.places[number - 1], conversations.conversations[number - 1])
        for number in range(first, last + 1)
    )
    if arguments.json:
        shown = [example_as_json(example) for example in examples]
        head = {"form": conversations.form, "model": str(folder), "max_tokens": arguments.max_tokens}
        summary = viewer.summarise(conversations)
        print(json.dumps({**head, "examples": shown, "summary": {"lines": conversations.lines, **asdict(summary)}}))
        return
    columns = arguments.columns or None
    print("\n".join(legend_lines(columns, colours=arguments.colours)))
    for example in examples:
        heading = heading_lines(example, len(conversations.conversations), arguments.max_tokens)
        lines = [filled for line in heading for filled in fill(line, columns)]
        show = painted if arguments.colours else marked
        lines += wrapped(show(example.tokens, END_OF_TURN_TOKEN), columns)
        print("\n".join(["", *lines]), flush=True)
    told = summary_lines(viewer.summarise(conversations), conversations, arguments.max_tokens, folder)
    print("\n".join(["", *(filled for line in told for filled in fill(line, columns))]))


def open_viewer(folder: Path, max_tokens: int, *, trust_remote_code: bool) -> MaskViewer:
    from steps.modeling.loading import load_tokenizer
    from steps.text.viewed_examples import MaskViewer

    return MaskViewer(load_tokenizer(folder, trust_remote_code=trust_remote_code), max_tokens)


def chosen_range(arguments: argparse.Namespace, conversations: Conversations) -> tuple[int, int]:
    """(first, last) number of the conversations to show. Raises StepError where none can be used, ConfigError for
    a number that none has."""
    total = len(conversations.conversations)
    if not total:
        reason, noted = next(iter(conversations.unusable.items()))
        value = f"no conversation in {conversations.lines} lines ({noted.count} {reason}), first {noted.first}"
        raise StepError(str(arguments.conversations), value, remedy="Mend the conversations.")
    if arguments.all:
        return 1, total
    if arguments.example > total:
        remedy = "Name one of them by its number, counted from 1."
        raise ConfigError("--example", arguments.example, limit=f"{total} conversations", remedy=remedy)
    return arguments.example, min(total, arguments.example + arguments.count - 1)


def tokenizer_folder(model: Path) -> Path:
    """Where the tokenizer of a folder lies: TrainTokenizer puts it into tokenizer/. Raises StepError for none."""
    for folder in (model, model / "tokenizer"):
        if (folder / "tokenizer.json").is_file():
            return folder
    value = "no tokenizer.json" if model.is_dir() else "no such folder"
    raise StepError(str(model), value, remedy="Name a folder with a tokenizer, such as FineTune's output.")


def legend_lines(columns: int | None, *, colours: bool) -> list[str]:
    """What the signs and colours mean."""
    rest = f"{BREAK} line break; \\xC9 one byte of a character that tokens share"
    if not colours:
        return fill(f"{OPEN}trained{CLOSE} {BETWEEN} between tokens; {rest}", columns)
    kinds = [("trained", True, False), ("not trained", False, False), ("<|control|>", False, True)]
    shades = [
        Piece(f" {words} ", style_of(is_trained, is_control, number))
        for name, is_trained, is_control in kinds
        for number, words in enumerate((name, "next token"))
    ]
    return [*wrapped(shades, columns), *fill(rest, columns)]


def heading_lines(example: ViewedExample, total: int, max_tokens: int) -> list[str]:
    """What an example is: its place, its roles, its counts, why it is dropped."""
    lines = [f"example {example.number} of {total}: {example.place}: {' '.join(example.roles)}"]
    lines.append(counted(len(example.tokens), example.trained))
    if example.dropped:
        lines.append(f"dropped: {example.dropped} ({max_tokens:,})")
    return lines


def counted(tokens: int, trained: int) -> str:
    """`57 tokens, 20 trained (35.1%)`."""
    return f"{tokens:,} tokens, {trained:,} trained ({trained / tokens if tokens else 0:.1%})"


def summary_lines(summary: MaskSummary, conversations: Conversations, max_tokens: int, folder: Path) -> list[str]:
    """What FineTune makes of all lines."""
    left_out = sum(noted.count for noted in summary.dropped.values())
    lines = [f"all {conversations.lines:,} lines, form {conversations.form}: {summary.usable:,} usable, "
             f"{left_out:,} dropped; {counted(summary.tokens, summary.trained)}"]  # fmt: skip
    lines += [f"dropped: {noted.count:,} {reason}, first {noted.first}" for reason, noted in summary.dropped.items()]
    return [*lines, f"tokenizer: {folder}; max_tokens {max_tokens:,}"]


def fill(line: str, columns: int | None) -> list[str]:
    """A line of words wrapped to the columns, without what could steer a terminal: names of files and fields may."""
    line = visible(line, ())
    return [line] if columns is None else textwrap.wrap(line, columns, subsequent_indent="  ")


def example_as_json(example: ViewedExample) -> dict[str, Any]:
    tokens = [
        {"id": token.id, "text": token.text, "trained": token.is_trained, "control": token.is_control}
        for token in example.tokens
    ]
    return {
        "number": example.number, "place": example.place, "roles": example.roles, "dropped": example.dropped,
        "token_count": len(tokens), "trained_count": example.trained, "trained_share": example.trained / len(tokens),
        "tokens": tokens,
    }  # fmt: skip


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m steps.inspect_mask",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--conversations", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--example", type=int, default=1, help="number of the first to show")
    parser.add_argument("--count", type=int, default=1, help="how many to show")
    parser.add_argument("--all", action="store_true", help="show all")
    limit = FineTuneConfig.model_fields["max_tokens"].default
    parser.add_argument("--max_tokens", type=int, default=limit, help="longest conversation, in tokens")
    parser.add_argument("--mask_personal_data", action="store_true", help="with placeholders, as the setting of a run")
    parser.add_argument("--trust_remote_code", action="store_true", help="run the tokenizer's own code")
    parser.add_argument("--colours", action="store_true", help="for a terminal with 256 colours")
    parser.add_argument("--columns", type=int, default=0, help="width to wrap to; 0 wraps nothing")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args(words)


def main() -> int:
    """Shows what the command line asks for; returns the exit code."""
    arguments = parse()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(EXIT_TERMINATED))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A conversation may hold letters that the terminal's encoding lacks.
            stream.reconfigure(errors="backslashreplace")
    try:
        inspect_mask(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader has gone, as `head` goes. Python flushes at its end too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        # What is read names itself; what has no name is where this writes.
        fault = mendable_error(error, Path("standard output"))
        if fault is None:
            raise
        print(f"error: {fault}", file=sys.stderr)
        return EXIT_USER_ERROR
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
