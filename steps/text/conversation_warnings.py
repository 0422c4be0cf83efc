"""Conversations that can be trained on and are likely not what was meant: each doubt has a name and a number.

Every rule but that of personal data is about a share of the conversations, so that a few odd ones warn of nothing, and
none is a refusal: short answers, one answer to two questions, a page about HTML are all legitimate.
"""

from __future__ import annotations

import re
import statistics
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from steps.text.characters import first_markup, first_mojibake
from steps.text.conversations import Message

Doubt = tuple[str, str]
# Below this many exchanges a share says little.
MIN_EXCHANGES = 10
REPEATED_SHARE = 0.05
# An answer of fewer words (yes; tomorrow) rightly follows many questions.
LONG_ANSWER_WORDS = 5
QUESTIONS_OF_A_REPEATED_ANSWER = 3
REPEATED_ANSWERS_SHARE = 0.1
DOMINATING_SHARE = 0.3
SWAPPED_QUESTION_SHARE = 0.2
# Where no side asks: of the sample the median answer has 4.7 of its question's length, swapped 0.2.
SWAPPED_RATIO = 0.25
# Labels, names and numbers are short by right, and labels repeat.
SWAPPED_ANSWER_WORDS = 3
SWAPPED_DISTINCT_SHARE = 0.9
ECHO_SHARE = 0.2
ECHO_WORDS = 3
MARKUP_SHARE = 0.02
CUT_ANSWER_WORDS = 20
CUT_SHARE = 0.5
TOO_LONG_SHARE = 0.05
LEAKED_SHARE = 0.02
# Of letters shared by conversations and vocabulary. Measured: 0.82 to 0.95 in one language, at most 0.75 in two of one
# script, under 0.1 in two scripts; close relatives (Turkish, Azerbaijani) have up to 0.83 and pass.
MIN_LETTER_OVERLAP = 0.76
MIN_LETTERS = 500

QUESTION_MARKS = "?؟？;՞"
TEMPLATE = re.compile(
    r"<\|[a-z_]{2,40}\|>|\[/?INST\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>"
    r"|^#{2,3} ?(?:Instruction|Response|Input|User|Assistant|Human|System)\b ?:"
    r"|^(?:Human|Assistant|User|USER|ASSISTANT): ",
    re.MULTILINE,
)
# Scripts of thousands of letters, of which a vocabulary holds some: each counts as one letter.
MANY_LETTERS = ("CJK UNIFIED", "CJK COMPATIBILITY", "HANGUL SYLLABLE", "YI SYLLABLE", "ETHIOPIC SYLLABLE")


@dataclass(frozen=True)
class Exchange:
    """A question and the answer that follows it."""

    question: str
    answer: str


def exchanges(conversations: Iterable[Sequence[Message]]) -> Iterator[Exchange]:
    """Every question with its answer."""
    for messages in conversations:
        turns = [message["content"].strip() for message in messages if message["role"] != "system"]
        yield from (Exchange(*pair) for pair in zip(turns[::2], turns[1::2], strict=True))


def find_doubts(conversations: Sequence[Sequence[Message]]) -> list[Doubt]:
    """(name, message) of what is doubtful about the conversations themselves."""
    found = list(exchanges(conversations))
    if len(found) < MIN_EXCHANGES:
        return []
    checks = [_repeated_conversations(conversations), *_repeated_answers(found), _swapped(found), _cut(found),
              _echo(found), *_markup(conversations)]  # fmt: skip
    return [doubt for doubt in checks if doubt is not None]


def _share(count: int, total: int) -> str:
    return f"{count} of {total} ({count / total:.0%})"


def _repeated_conversations(conversations: Sequence[Sequence[Message]]) -> Doubt | None:
    texts = Counter("\0".join(message["content"] for message in messages) for messages in conversations)
    copies = len(conversations) - len(texts)
    if copies <= REPEATED_SHARE * len(conversations):
        return None
    often = max(texts.values())
    message = (
        f"{_share(copies, len(conversations))} conversations are copies of others, one stands {often} times; each copy "
        "is trained on again. Give every conversation once."
    )
    return "repeated-conversations", message


def _repeated_answers(found: Sequence[Exchange]) -> Iterator[Doubt]:
    questions: dict[str, set[str]] = defaultdict(set)
    uses = Counter(exchange.answer for exchange in found)
    for exchange in found:
        questions[exchange.answer].add(exchange.question)
    top, times = max(uses.items(), key=lambda item: (item[1], item[0]))
    dominates = times > DOMINATING_SHARE * len(found) and len(questions[top]) >= QUESTIONS_OF_A_REPEATED_ANSWER
    if dominates:
        message = (
            f"{_share(times, len(found))} answers are the same: {shorten(top)}; the model learns to say it to "
            "anything. Look at how the answers were made."
        )
        yield "one-answer-dominates", message
    repeated = [
        answer
        for answer, asked in questions.items()
        if len(asked) >= QUESTIONS_OF_A_REPEATED_ANSWER
        and len(answer.split()) >= LONG_ANSWER_WORDS
        and not (dominates and answer == top)
    ]
    count = sum(uses[answer] for answer in repeated)
    if count > REPEATED_ANSWERS_SHARE * len(found):
        message = (
            f"{_share(count, len(found))} answers stand under {QUESTIONS_OF_A_REPEATED_ANSWER} or more different "
            f"questions, such as: {shorten(max(repeated, key=lambda answer: (uses[answer], answer)))} Look at whether "
            "questions and answers belong together."
        )
        yield "repeated-answers", message


def _swapped(found: Sequence[Exchange]) -> Doubt | None:
    """Answers are shorter and they do the asking, or no side asks and answers are far shorter, whole and all different.

    Short answers alone are legitimate (labels, answers to long texts with a question), and so is asking back (tutors).
    """
    ratio = statistics.median(len(exchange.answer) / max(1, len(exchange.question)) for exchange in found)
    asked = sum(1 for exchange in found if _is_question(exchange.question))
    asking = sum(1 for exchange in found if _is_question(exchange.answer))
    few = SWAPPED_QUESTION_SHARE * len(found)
    words = statistics.median(len(exchange.answer.split()) for exchange in found)
    distinct = len({exchange.answer for exchange in found})
    if ratio < 1 and asking >= few and asking > 2 * asked:
        told = f"{_share(asking, len(found))} answers end with a question mark but {asked} questions do"
    elif (
        ratio < SWAPPED_RATIO
        and asked < few
        and words >= SWAPPED_ANSWER_WORDS
        and distinct >= SWAPPED_DISTINCT_SHARE * len(found)
    ):
        told = f"{_share(distinct, len(found))} answers differ, while {asked} questions end with a question mark"
    else:
        return None
    message = (
        f"the median answer has {ratio:.2f} of its question's length, and {told}. Look at whether question and answer "
        "are swapped."
    )
    return "swapped-columns", message


def _is_question(text: str) -> bool:
    return text.rstrip("\"'»”)").endswith(tuple(QUESTION_MARKS))


def _cut(found: Sequence[Exchange]) -> Doubt | None:
    """Answers that end in the middle of a sentence, in a script that marks where sentences end."""
    long = [exchange.answer for exchange in found if len(exchange.answer.split()) >= CUT_ANSWER_WORDS]
    marked = [answer for answer in long if any(mark in answer for mark in ".!?。！？؟।։")]
    cut = [answer for answer in marked if _is_word(answer[-1])]
    if len(marked) < MIN_EXCHANGES or len(cut) <= CUT_SHARE * len(marked):
        return None
    message = (
        f"{_share(len(cut), len(marked))} long answers end inside a sentence, such as: ...{cut[0][-40:]} The model "
        "learns to stop there. Give the answers whole."
    )
    return "truncated-answers", message


def _is_word(character: str) -> bool:
    return character.isalnum() or character in ",-–—" or unicodedata.category(character).startswith("M")


def _echo(found: Sequence[Exchange]) -> Doubt | None:
    echoes = [
        exchange
        for exchange in found
        if len(exchange.question.split()) >= ECHO_WORDS and exchange.answer.startswith(exchange.question)
    ]
    if len(echoes) <= ECHO_SHARE * len(found):
        return None
    message = (
        f"{_share(len(echoes), len(found))} answers begin with their question; the model learns to repeat it. Cut it "
        "off the answers."
    )
    return "answers-begin-with-question", message


def _markup(conversations: Sequence[Sequence[Message]]) -> Iterator[Doubt]:
    kinds: dict[str, tuple[Callable[[str], str | None], str, str]] = {
        "html-in-conversations": (first_markup, "hold HTML", "Take the tags and entities out."),
        "mojibake-in-conversations": (
            first_mojibake, "hold text read in a wrong encoding", "Read the source as UTF-8."
        ),
        "template-in-text": (
            _first_template_mark, "hold marks of a chat template", "Take them out: the template puts its own."
        ),
    }  # fmt: skip
    for name, (first_in, words, remedy) in kinds.items():
        found = ((first_in(message["content"]) for message in messages) for messages in conversations)
        hits = [hit for hits_of in found if (hit := next(filter(None, hits_of), None))]
        if len(hits) > MARKUP_SHARE * len(conversations):
            yield name, f"{_share(len(hits), len(conversations))} conversations {words}, such as {hits[0]!r}. {remedy}"


def _first_template_mark(text: str) -> str | None:
    match = TEMPLATE.search(text)
    return match.group() if match else None


def shorten(text: str, characters: int = 60) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= characters else f"{line[:characters].rstrip()}..."


def language_doubt(conversations: Iterable[Sequence[Message]], vocabulary: Iterable[str]) -> Doubt | None:
    """Doubt where the letters of the conversations are not those of the tokenizer's vocabulary.

    vocabulary: the text of each token. Both sides are shares of letters; the overlap is the sum of the smaller ones.
    """
    texts = (message["content"] for messages in conversations for message in messages)
    spoken = Counter(letter for text in texts for letter in letters(text))
    known = Counter(letter for token in vocabulary for letter in letters(token))
    total, total_known = spoken.total(), known.total()
    if min(total, total_known) < MIN_LETTERS:
        return None
    overlap = sum(min(count / total, known[letter] / total_known) for letter, count in spoken.items())
    if overlap >= MIN_LETTER_OVERLAP:
        return None
    message = (
        f"their letters are {overlap:.0%} those of the tokenizer's vocabulary; one language has more than "
        f"{MIN_LETTER_OVERLAP:.0%}. Look at whether they are in the language of the corpus."
    )
    return "conversations-in-another-language", message


def letters(text: str) -> Iterator[str]:
    """The letters of a text in lower case; those of scripts with thousands of them by the script's name."""
    for character in text.lower():
        if character.isalpha():
            name = "" if character < "\u1200" else unicodedata.name(character, "")
            yield next((script for script in MANY_LETTERS if name.startswith(script)), character)


def heldout_doubt(training: Iterable[str], heldout: Sequence[str]) -> Doubt | None:
    """Doubt where more than 2% of the held-out questions stand in training in other letters or marks.

    The held-out loss would flatter.
    """
    known = {plain_words(question) for question in training}
    leaked = [question for question in heldout if plain_words(question) in known]
    if len(leaked) <= LEAKED_SHARE * len(heldout):
        return None
    message = (
        f"{_share(len(leaked), len(heldout))} held-out questions stand in training but for capitals, marks and spaces, "
        f"such as: {shorten(leaked[0])} Give each question once."
    )
    return "heldout-questions-in-training", message


def plain_words(text: str) -> str:
    """A text's letters and digits in lower case, words apart by one space."""
    return " ".join(re.findall(r"\w+", text.lower()))


def too_long_doubt(too_long: int, total: int, max_tokens: int) -> Doubt | None:
    """Doubt where many conversations were left out because their end lies beyond max_tokens."""
    if too_long <= TOO_LONG_SHARE * total:
        return None
    message = (
        f"{_share(too_long, total)} conversations are longer than max_tokens {max_tokens} and were left out. Raise "
        "fine_tune.max_tokens or shorten them."
    )
    return "conversations-too-long", message


def personal_data_doubt(found: Mapping[str, int]) -> Doubt | None:
    """Doubt where there is any personal data, which a model may repeat to anyone."""
    if not any(found.values()):
        return None
    counted = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()) if count)
    return "personal-data-in-conversations", f"{counted}; a model may repeat them. Set data.mask_personal_data=true."
