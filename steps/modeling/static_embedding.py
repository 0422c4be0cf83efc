"""A static embedding of a tokenizer's tokens, trained on text in seconds: tokens that stand in like surroundings, or
are spelled alike, get vectors of a small angle.

Tokens within WINDOW of each other are counted, nearer ones more; the counts become positive pointwise mutual
information, which a randomised singular value decomposition makes short (Levy and Goldberg showed that skip-gram with
negative sampling factorises the same matrix). A token's vector is joined by the mean of the vectors of its n-grams of
letters, each n-gram the mean of the tokens that contain it: fastText's idea, which serves rare tokens.

Memory is bounded by the text read: about 160 bytes for each pair of tokens that occurs, of which there are at most
WINDOW a token (measured: 2 GiB for 5.5 million tokens and 13 million pairs). Ten megabytes of text take about a minute
of one core.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from steps.text.plain_encoding import encode_plain
from steps.text.token_bytes import token_bytes_of

WINDOW = 5
DIMENSIONS = 128
# Rarer tokens have no surroundings to speak of.
MIN_COUNT = 5
# Contexts count with this power of their frequency, which dampens the pull of rare ones.
CONTEXT_SMOOTHING = 0.75
NGRAM_LETTERS = range(3, 7)
# Of the n-grams beside a token's own vector. On the sample's base model 0, 0.5 and 1 came out within 1% of each other.
SPELLING_WEIGHT = 0.5
# N-grams share this many places by their checksum, which bounds their memory at 128 MiB.
NGRAM_PLACES = 2**18
ENCODED_DOCUMENTS = 256
COUNTED_TOKENS = 500_000
OVERSAMPLING = 10
POWER_ITERATIONS = 2


def train_static_embedding(
    tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], *, max_bytes: int, seed: int
) -> torch.Tensor:
    """Vectors [tokens, DIMENSIONS] in float32 of length 1, or 0 for a token that neither text nor spelling tells of.

    max_bytes: of the texts, in UTF-8; what follows is not read.
    """
    vocabulary = len(tokenizer)
    frequency, keys, counts = count_pairs(token_streams(tokenizer, texts, max_bytes), vocabulary)
    own = factorise(keys, counts, vocabulary, seed)
    return _unit(_unit(own) + SPELLING_WEIGHT * _unit(spelling_vectors(tokenizer, own, frequency)))


def token_streams(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str], max_bytes: int) -> Iterator[np.ndarray]:
    """The ids of each text, int64, until max_bytes of text are read."""
    waiting: list[str] = []
    for text in texts:
        cut = text.encode()[:max_bytes].decode("utf-8", errors="ignore")
        max_bytes -= len(text.encode())
        waiting.append(cut)
        if len(waiting) == ENCODED_DOCUMENTS or max_bytes <= 0:
            yield from (np.array(ids, dtype=np.int64) for ids in encode_plain(tokenizer, waiting))
            waiting = []
        if max_bytes <= 0:
            return
    yield from (np.array(ids, dtype=np.int64) for ids in encode_plain(tokenizer, waiting))


def count_pairs(streams: Iterable[np.ndarray], vocabulary: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(frequency [vocabulary], keys, counts): how often each token stands, and how often two stand near each other.

    A key is smaller id x vocabulary + larger id; keys are sorted. A pair at distance d counts WINDOW + 1 - d times.
    Pairs with a token rarer than MIN_COUNT are left out.
    """
    frequency = np.zeros(vocabulary, dtype=np.int64)
    keys, counts = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    for ids, document in _chunks(streams):
        frequency += np.bincount(ids, minlength=vocabulary)
        found, times = [keys], [counts]
        for distance in range(1, min(WINDOW, len(ids) - 1) + 1):
            left, right = ids[:-distance], ids[distance:]
            same = document[:-distance] == document[distance:]
            pairs = (np.minimum(left, right) * vocabulary + np.maximum(left, right))[same]
            found.append(pairs)
            times.append(np.full(len(pairs), WINDOW + 1 - distance, dtype=np.int64))
        keys, counts = _summed(np.concatenate(found), np.concatenate(times))
    frequent = frequency >= MIN_COUNT
    kept = frequent[keys // vocabulary] & frequent[keys % vocabulary]
    return frequency, keys[kept], counts[kept]


def _chunks(streams: Iterable[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Ids of many documents after one another, and the number of the document that each belongs to."""
    waiting: list[np.ndarray] = []
    size = 0
    for ids in streams:
        for first in range(0, len(ids), COUNTED_TOKENS):
            waiting.append(ids[first : first + COUNTED_TOKENS])
            size += len(waiting[-1])
            if size >= COUNTED_TOKENS:
                yield np.concatenate(waiting), np.repeat(np.arange(len(waiting)), [len(part) for part in waiting])
                waiting, size = [], 0
    if size:
        yield np.concatenate(waiting), np.repeat(np.arange(len(waiting)), [len(part) for part in waiting])


def _summed(keys: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted distinct keys and the sum of each one's counts."""
    if not len(keys):
        return keys, counts
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[starts], np.add.reduceat(counts[order], starts)


def factorise(keys: np.ndarray, counts: np.ndarray, vocabulary: int, seed: int) -> torch.Tensor:
    """Vectors [vocabulary, DIMENSIONS] from pair counts; zero for tokens without pairs."""
    vectors = torch.zeros(vocabulary, DIMENSIONS)
    if not len(keys):
        return vectors
    first, second = keys // vocabulary, keys % vocabulary
    apart = first != second
    rows = np.concatenate([first, second[apart]])
    columns = np.concatenate([second, first[apart]])
    order = np.argsort(rows * vocabulary + columns, kind="stable")
    rows, columns = rows[order], columns[order]
    times = np.concatenate([counts, counts[apart]])[order].astype(np.float64)
    of_token = np.bincount(rows, weights=times, minlength=vocabulary)
    of_context = of_token**CONTEXT_SMOOTHING
    with np.errstate(divide="ignore"):
        log_token, log_context = np.log(of_token), np.log(of_context / of_context.sum())
    log_times = np.log(times)
    starts = torch.from_numpy(np.concatenate([[0], np.bincount(rows, minlength=vocabulary).cumsum()]))

    def matrix(information: np.ndarray) -> torch.Tensor:
        values = torch.from_numpy(np.maximum(information, 0.0).astype(np.float32))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse")
            return torch.sparse_csr_tensor(
                starts, torch.from_numpy(columns), values, (vocabulary, vocabulary), check_invariants=True
            )

    # Counts are symmetric, so the transposed matrix has its entries in the same places.
    forward = matrix(log_times - log_token[rows] - log_context[columns])
    backward = matrix(log_times - log_token[columns] - log_context[rows])
    found = truncated_svd(forward, backward, DIMENSIONS, seed)
    vectors[:, : found.shape[1]] = found
    return vectors


def truncated_svd(matrix: torch.Tensor, transposed: torch.Tensor, dimensions: int, seed: int) -> torch.Tensor:
    """U sqrt(S) of the largest singular values, [rows, at most dimensions], by randomised subspace iteration."""
    height = matrix.shape[0]
    width = min(dimensions + OVERSAMPLING, height)
    guess = torch.randn(height, width, generator=torch.Generator().manual_seed(seed))
    basis = torch.linalg.qr(matrix @ guess)[0]
    for _ in range(POWER_ITERATIONS):
        basis = torch.linalg.qr(transposed @ basis)[0]
        basis = torch.linalg.qr(matrix @ basis)[0]
    left, singular, _ = torch.linalg.svd((transposed @ basis).T, full_matrices=False)
    return (basis @ left * singular.sqrt())[:, :dimensions]


def spelling_vectors(tokenizer: PreTrainedTokenizerBase, vectors: torch.Tensor, frequency: np.ndarray) -> torch.Tensor:
    """For each token the mean of its n-grams' vectors, [tokens, DIMENSIONS]; an n-gram's is the mean of those of the
    tokens that contain it, each weighted by the root of its frequency."""
    places, starts = ngram_places(tokenizer)
    tokens = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    weight = torch.from_numpy(np.sqrt(frequency * (frequency >= MIN_COUNT))).float()
    sums = torch.zeros(NGRAM_PLACES, vectors.shape[1])
    weights = torch.zeros(NGRAM_PLACES)
    index, token = torch.from_numpy(places), torch.from_numpy(tokens)
    for place, owner in zip(index.split(COUNTED_TOKENS), token.split(COUNTED_TOKENS), strict=True):
        sums.index_add_(0, place, vectors[owner] * weight[owner, None])
        weights.index_add_(0, place, weight[owner])
    sums /= weights.clamp(min=1e-9)[:, None]
    return torch.nn.functional.embedding_bag(index, sums, torch.from_numpy(starts[:-1]), mode="mean")


def ngram_places(tokenizer: PreTrainedTokenizerBase) -> tuple[np.ndarray, np.ndarray]:
    """(places, starts): token n has the n-grams places[starts[n]:starts[n + 1]]; special tokens have none."""
    token_bytes = token_bytes_of(tokenizer)
    special = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    places: list[int] = []
    starts = [0]
    for index in range(len(tokenizer)):
        if index not in special:
            text = f"<{token_bytes[index].decode('utf-8', errors='replace')}>"
            grams = (text[at : at + size] for size in NGRAM_LETTERS for at in range(len(text) - size + 1))
            places += [zlib.crc32(gram.encode()) % NGRAM_PLACES for gram in grams]
        starts.append(len(places))
    return np.array(places, dtype=np.int64), np.array(starts, dtype=np.int64)


def _unit(vectors: torch.Tensor) -> torch.Tensor:
    """Rows of length 1; rows of zeros stay."""
    return torch.nn.functional.normalize(vectors, dim=1)
