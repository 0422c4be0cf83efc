"""Byte-level Unigram tokenizers (Kudo 2018): of all ways to cut a pre-token into pieces, the likeliest.

The model spells bytes in GPT-2's characters, all 256 of which are pieces, so that any text has pieces and decodes
exactly; what stands around it is Llama 3's, as around BBPE. Text is never cut at random (no subword regularisation).

sentencepiece trains. On 12 MB of laws tokenizers' UnigramTrainer took 23 to 33 s a size where sentencepiece took 3 to
5, and of 32,768 tokens asked for it gave 21,486, on held-out Wikipedia 11% more tokens a word.
"""

from __future__ import annotations

import io
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from tokenizers import Tokenizer, models

from steps.text.bbpe import LLAMA_3_PATTERN, SMALLEST_VOCABULARY, SPECIAL_TOKENS, check_size, finish
from steps.text.byte_characters import byte_of_character, spell
from steps.vocabulary_size import VOCABULARY_MULTIPLE

# The most frequent pre-tokens that a training looks at, and the longest, in bytes: what lies beyond teaches no piece
# that a vocabulary has room for, and costs time and memory.
MOST_PRETOKENS = 100_000
LONGEST_PRETOKEN_BYTES = 256
# The longest piece, in bytes; below it, up to the length of a substring, any part of a pre-token may become one.
LONGEST_PIECE_BYTES = 64
LONGEST_SUBSTRING_BYTES = 32
# Parts of words that a training starts from, for each token asked for: those that cover most text. Started from all
# there are, 8,192 tokens of laws keep rare long pieces: Wikipedia takes 8% more tokens a word, other laws 1% fewer.
SEEDS_PER_TOKEN = 10
# The most seeds of all, for a text that gives fewer tokens than were asked for: started from all the parts of 300 MB of
# text, memory was 2.2 GB in place of 1.1, and the tokens were as many.
MOST_SEEDS = 1_000_000
# Parts counted at once: some 200 bytes each.
PARTS_AT_ONCE = 1_000_000
# A sum of floats depends on how it is split, so this stays the same on every machine.
TRAINING_THREADS = 2
# tokenizers reads a number of 17 digits from its JSON with an error in the last one: written again, the file would be
# another. Numbers this short come back as they were.
SCORE_DECIMALS = 6

Pieces = dict[str, float]


@dataclass(frozen=True)
class TrainedUnigram:
    """tokenizers: one for each size asked for, which it does not exceed.

    learnable: tokens that the text gives to the largest size, special ones included. Where they are fewer than asked
    for, that size's tokenizer has so many, rounded down to a multiple of 64.
    """

    tokenizers: dict[int, Tokenizer]
    learnable: int


def train_unigram(counts: Mapping[str, int], sizes: Sequence[int], pattern: str = LLAMA_3_PATTERN) -> TrainedUnigram:
    """Tokenizers of several sizes, special tokens included, from occurrences by pre-token of `pattern`.

    Each size is trained by itself, so it does not matter what else is asked for. The same counts give the same
    tokenizers, byte by byte. Raises StepError for a size below bytes and special tokens.
    """
    check_size(min(sizes))
    spelled = spell_counts(counts)
    seeds = count_seeds(spelled, SEEDS_PER_TOKEN * max(sizes))
    tokenizers: dict[int, Tokenizer] = {}
    learnable = 0
    pieces: Pieces = {}
    for size in sorted(set(sizes), reverse=True):
        wanted = size - len(SPECIAL_TOKENS)
        # A larger size that fell short has all that the text gives.
        if not pieces or wanted < len(pieces):
            pieces = train_size(spelled, wanted, seeds)
        learnable = learnable or len(pieces) + len(SPECIAL_TOKENS)
        tokenizers[size] = assemble_unigram(pieces, pattern)
    return TrainedUnigram({size: tokenizers[size] for size in sizes}, learnable)


def train_size(spelled: Mapping[str, int], size: int, seeds: Mapping[str, int]) -> Pieces:
    """The pieces of one vocabulary, from its share of the seeds, or from MOST_SEEDS where those give too few."""
    share = dict(islice(seeds.items(), SEEDS_PER_TOKEN * size))
    pieces = train_pieces(spelled, size, share)
    # Fewer than its share are all that there are; where the share is as large as MOST_SEEDS, those give no more.
    if len(pieces) == size or len(share) < SEEDS_PER_TOKEN * size or len(share) >= MOST_SEEDS:
        return pieces
    return train_pieces(spelled, size, count_seeds(spelled, MOST_SEEDS))


def spell_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Occurrences by pre-token in byte characters, the most frequent first: those that a training looks at."""
    spelled = ((spell(pretoken.encode()), count) for pretoken, count in counts.items() if pretoken)
    short = (pair for pair in spelled if len(pair[0]) <= LONGEST_PRETOKEN_BYTES)
    return dict(sorted(short, key=lambda pair: (-pair[1], pair[0]))[:MOST_PRETOKENS])


def count_seeds(spelled: Mapping[str, int], most: int) -> dict[str, int]:
    """Bytes covered by each part of a pre-token that occurs more than once: the `most` that cover most.

    sentencepiece's own seeds come from a list of distinct pre-tokens, each taken once: a word that is part of no other
    is none, however frequent, and other laws take 20% more tokens a word.
    """
    # So many parts are counted at once, the others in further passes: which ones go together changes nothing.
    passes = math.ceil(sum(number_of_parts(len(pretoken)) for pretoken in spelled) / PARTS_AT_ONCE)
    best: list[tuple[str, int]] = []
    for number in range(passes):
        occurrences: Counter[str] = Counter()
        for pretoken, count in spelled.items():
            for part in parts_of(pretoken):
                if hash(part) % passes == number:
                    occurrences[part] += count
        covered = ((part, count * len(part)) for part, count in occurrences.items() if count > 1)
        best = sorted(chain(best, covered), key=lambda pair: (-pair[1], pair[0]))[:most]
    return dict(best)


def number_of_parts(size: int) -> int:
    """How many parts `parts_of` gives of a pre-token of that many bytes, or a few less."""
    longest = min(size, LONGEST_SUBSTRING_BYTES)
    return sum(size - length + 1 for length in range(2, longest + 1))


def parts_of(pretoken: str) -> Iterator[str]:
    """Every part of two to 32 bytes, and the whole."""
    size = len(pretoken)
    for begin in range(size - 1):
        for end in range(begin + 2, min(size, begin + LONGEST_SUBSTRING_BYTES) + 1):
            yield pretoken[begin:end]
    if LONGEST_SUBSTRING_BYTES < size <= LONGEST_PIECE_BYTES:
        yield pretoken


def train_pieces(spelled: Mapping[str, int], size: int, seeds: Mapping[str, int]) -> Pieces:
    """Log probability by piece: at most `size` pieces, the 256 bytes among them."""
    if not seeds:
        return {character: round(-math.log(256), SCORE_DECIMALS) for character in byte_of_character()}
    import sentencepiece

    # Each byte once, so that those the text lacks are pieces too.
    lines = [f"{pretoken}\t{count}" for pretoken, count in spelled.items()]
    lines += [f"{character}\t1" for character in byte_of_character()]
    written = io.BytesIO()
    # Seeds can be given by file alone.
    with tempfile.TemporaryDirectory() as folder:
        seeds_file = Path(folder) / "seeds.tsv"
        seeds_file.write_text("".join(f"{seed}\t{covered}\n" for seed, covered in seeds.items()), "utf-8")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            input_format="tsv",
            model_writer=written,
            model_type="unigram",
            # One more: the unknown piece, which sentencepiece demands and nothing here needs.
            vocab_size=size + 1,
            hard_vocab_limit=False,
            seed_sentencepieces_file=str(seeds_file),
            max_sentencepiece_length=LONGEST_PIECE_BYTES,
            max_sentence_length=4 * LONGEST_PRETOKEN_BYTES,
            character_coverage=1.0,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            split_by_unicode_script=False,
            split_by_number=False,
            split_by_whitespace=False,
            split_digits=False,
            byte_fallback=False,
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            num_threads=TRAINING_THREADS,
            minloglevel=2,
        )
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    pieces = {
        model.id_to_piece(index): round(model.get_score(index), SCORE_DECIMALS)
        for index in range(1, model.get_piece_size())
    }
    return with_all_bytes(pieces, size)


def with_all_bytes(pieces: Pieces, size: int) -> Pieces:
    """The pieces with every byte among them, at most `size`: a byte that was left out is as likely as the rarest piece.

    sentencepiece counts coverage in float32, where a byte of some occurrences in gigabytes is nothing.
    """
    missing = [character for character in byte_of_character() if character not in pieces]
    longer = sorted((pair for pair in pieces.items() if len(pair[0]) > 1), key=lambda pair: (-pair[1], pair[0]))
    dropped = {piece for piece, _ in longer[len(longer) - max(0, len(pieces) + len(missing) - size) :]}
    kept = {piece: score for piece, score in pieces.items() if piece not in dropped}
    return {**kept, **dict.fromkeys(missing, min(pieces.values()))}


def assemble_unigram(pieces: Pieces, pattern: str) -> Tokenizer:
    """A whole tokenizer of a multiple of 64 tokens: the bytes in Llama 3's order, then the pieces, likeliest first."""
    size = (len(pieces) + len(SPECIAL_TOKENS)) // VOCABULARY_MULTIPLE * VOCABULARY_MULTIPLE
    longer = sorted((pair for pair in pieces.items() if len(pair[0]) > 1), key=lambda pair: (-pair[1], pair[0]))
    vocabulary = [(character, pieces[character]) for character in byte_of_character()]
    vocabulary += longer[: size - SMALLEST_VOCABULARY]
    # Without an unknown piece: every text consists of bytes.
    return finish(Tokenizer(models.Unigram(vocabulary, None, False)), pattern)
