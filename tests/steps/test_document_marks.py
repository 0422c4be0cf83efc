"""The tokens around a document, of tokenizers that name few or none of them; and blocks of a base model's tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
from tokenizer_bases import write_weights
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.configs.tokenize_corpus import TokenizeCorpusConfig
from steps.configs.train_tokenizer import TrainTokenizerConfig
from steps.contract import EXIT_DONE, StepError, run_step
from steps.modeling.bits_per_byte import context_token_id
from steps.modeling.loading import load_tokenizer
from steps.prepare_corpus import FOLDERS as PREPARE_FOLDERS
from steps.prepare_corpus import prepare_corpus
from steps.text.bbpe import load_fast_tokenizer, tokenizer_digest
from steps.text.corpus import read_split
from steps.text.document_marks import DocumentMarks, document_marks
from steps.text.packing import IGNORED_LABEL, PackedBlocks
from steps.tokenize_corpus import FOLDERS as TOKENIZE_FOLDERS
from steps.tokenize_corpus import tokenize_corpus
from steps.train_tokenizer import FOLDERS as TRAIN_FOLDERS
from steps.train_tokenizer import REPORTS, train_tokenizer

SAMPLE = Path(__file__).parents[2] / "steps" / "sample_data" / "corpus.jsonl"
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
FIRST_SPECIAL = len(BYTES)


def tokenizer_folder(folder: Path, special: list[str], settings: dict, **files: dict) -> Path:
    """A byte-level tokenizer whose special tokens follow its 256 bytes."""
    tokenizer = Tokenizer(models.BPE(vocab={token: place for place, token in enumerate(BYTES)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    contents = {"tokenizer_config": settings, "config": {"model_type": "gpt2"}, **files}
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


PLAIN = {"tokenizer_class": "PreTrainedTokenizerFast"}
CASES = {
    "all three": (
        ["<s>", "</s>", "<pad>"],
        {**PLAIN, "bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"}, "pad_token": "<pad>"},
        (0, 1, 2),
    ),
    "Llama 3, without padding": (
        ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"],
        {**PLAIN, "bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"},
        (0, 1, 0),
    ),
    "Qwen, without BOS, padding as its end": (
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        {**PLAIN, "bos_token": None, "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
        (0, 0, 1),
    ),
    "without EOS": (["<s>", "<mask>"], {**PLAIN, "bos_token": "<s>", "eos_token": None}, (0, 0, 1)),
    "as GPT-2's class has them": (["<|endoftext|>", "<|other|>"], {}, (0, 0, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_marks_follow_the_tokenizers_own_settings(tmp_path: Path, case: str) -> None:
    special, settings, expected = CASES[case]
    folder = tokenizer_folder(tmp_path / "tokenizer", special, settings)
    marks = document_marks(folder, load_fast_tokenizer(folder))
    assert (marks.begin, marks.end, marks.pad) == tuple(FIRST_SPECIAL + place for place in expected)
    # What is trained on and what is measured begin alike.
    assert marks.begin == context_token_id(load_tokenizer(folder))


def test_the_older_file_of_special_tokens_is_read_too(tmp_path: Path) -> None:
    named = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}
    folder = tokenizer_folder(tmp_path / "t", ["<s>", "</s>"], PLAIN, special_tokens_map=named)
    marks = document_marks(folder, load_fast_tokenizer(folder))
    assert (marks.begin, marks.end, marks.pad) == (FIRST_SPECIAL, FIRST_SPECIAL + 1, FIRST_SPECIAL)


@pytest.mark.parametrize(
    ("special", "settings", "words"),
    [
        (["<|endoftext|>"], {**PLAIN, "bos_token": None, "eos_token": "<|endoftext|>"}, "no token for padding beside"),
        (["<s>"], {**PLAIN, "bos_token": None, "eos_token": None}, "no BOS and no EOS token"),
        (["<s>"], {**PLAIN, "bos_token": "<z>", "eos_token": "<s>"}, "bos_token <z>; limit a token of its"),
        (["<s>"], {"auto_map": {"AutoTokenizer": ["own.Slow", "own.Fast"]}}, "its class is not known"),
    ],
)
def test_what_no_settings_give_is_one_line(tmp_path: Path, special: list[str], settings: dict, words: str) -> None:
    folder = tokenizer_folder(tmp_path / "tokenizer", special, settings, config={})
    with pytest.raises(StepError, match=words):
        document_marks(folder, load_fast_tokenizer(folder))


def test_both_tokenizers_cut_the_same_documents_in_the_same_order(tmp_path: Path) -> None:
    """The base's too, which has neither BOS nor padding of its own."""
    base = tokenizer_folder(
        tmp_path / "base", ["<|endoftext|>", "<|im_start|>"], {**PLAIN, "bos_token": None, "eos_token": "<|endoftext|>"}
    )
    write_weights(base, load_fast_tokenizer(base).get_vocab_size(with_added_tokens=True))
    folders = {name: tmp_path / name for name in ("corpus", "tokenizer", "chosen", "base_blocks")}
    prepared = [f"--corpus={SAMPLE}", f"--output={folders['corpus']}", "--train_shards=2", "--validation_share=0.1"]
    assert run_step(prepare_corpus, PrepareCorpusConfig, PREPARE_FOLDERS, arguments=prepared) == EXIT_DONE
    trained = [f"--corpus={folders['corpus']}", f"--base_model={base}", f"--output={folders['tokenizer']}"]
    trained += ["--vocabulary_sizes=[1024]", "--max_vocabulary_parameters_share=1"]
    assert run_step(train_tokenizer, TrainTokenizerConfig, TRAIN_FOLDERS, reports=REPORTS, arguments=trained) == 0
    blocks = {}
    for name in ("chosen", "base_blocks"):
        arguments = [f"--corpus={folders['corpus']}", f"--tokenizer={folders['tokenizer']}", "--block_tokens=128"]
        arguments += [f"--output={folders[name]}", f"--use_base_tokenizer={str(name == 'base_blocks').lower()}"]
        assert run_step(tokenize_corpus, TokenizeCorpusConfig, TOKENIZE_FOLDERS, arguments=arguments) == EXIT_DONE
        blocks[name] = PackedBlocks(folders[name] / "train")
    tokenizers = {"chosen": "tokenizer/tokenizer", "base_blocks": "tokenizer/base_tokenizer"}
    expected = list(read_split(folders["corpus"], "train"))
    for name, packed in blocks.items():
        decoder = load_fast_tokenizer(tmp_path / tokenizers[name])
        assert texts_of(packed, decoder, document_marks(tmp_path / tokenizers[name], decoder)) == expected
        assert packed.bytes == sum(len(text.encode()) for text in expected)
    assert len(blocks["base_blocks"]) > len(blocks["chosen"])
    assert blocks["base_blocks"].tokenizer_sha256 == tokenizer_digest(base)


def texts_of(packed: PackedBlocks, tokenizer: Tokenizer, marks: DocumentMarks) -> list[str]:
    """The documents as the blocks hold them, told apart by the marks; every end but one at a block's start is labelled,
    nothing of the padding is."""
    batch = packed.batch(range(len(packed)))
    ids, labels = batch["input_ids"].flatten(), batch["labels"].flatten()
    at_start = batch["position_ids"].flatten() == 0
    ends = (ids == marks.end) & ~(at_start & (ids == marks.begin) & (numpy.roll(ids, -1) != marks.begin))
    assert (labels[ends & ~at_start] == marks.end).all()
    assert (labels[ids == marks.pad] == IGNORED_LABEL).all()
    texts, document = [], []
    for token, start in zip(ids.tolist(), at_start.tolist(), strict=True):
        if token == marks.end and not (start and not document):
            texts.append(tokenizer.decode(document))
            document = []
        elif token not in (marks.begin, marks.pad):
            document.append(token)
    return texts
