"""TrainTokenizer and TokenizeCorpus as steps, on the sample's text."""

import json
import shutil
from pathlib import Path

import pytest

from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.configs.tokenize_corpus import TokenizeCorpusConfig
from steps.configs.train_tokenizer import TrainTokenizerConfig
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, content_digest, read_seal, run_step
from steps.prepare_corpus import FOLDERS as PREPARE_FOLDERS
from steps.prepare_corpus import prepare_corpus
from steps.schemas.fertility import FertilityReport
from steps.text.bbpe import train_bbpe
from steps.text.corpus import read_split
from steps.text.packing import PackedBlocks
from steps.tokenize_corpus import FOLDERS as TOKENIZE_FOLDERS
from steps.tokenize_corpus import tokenize_corpus
from steps.train_tokenizer import FOLDERS as TRAIN_FOLDERS
from steps.train_tokenizer import REPORTS, train_tokenizer, write_tokenizer_folder

SAMPLE = Path(__file__).parents[2] / "steps" / "sample_data" / "corpus.jsonl"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("corpus") / "out"
    arguments = [f"--corpus={SAMPLE}", f"--output={output}", "--validation_share=0.1", "--test_share=0.1"]
    assert run_step(prepare_corpus, PrepareCorpusConfig, PREPARE_FOLDERS, arguments=arguments) == EXIT_DONE
    return output


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    write_tokenizer_folder(train_bbpe(["the base speaks English only, and the text is short"] * 3, 576, 2), folder, 256)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 256}))
    return folder


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory, corpus: Path, base_model: Path) -> Path:
    output = tmp_path_factory.mktemp("tokenizer") / "out"
    arguments = [f"--corpus={corpus}", f"--base_model={base_model}", f"--output={output}"]
    arguments.append("--vocabulary_sizes=[1024,2048]")
    assert run_step(train_tokenizer, TrainTokenizerConfig, TRAIN_FOLDERS, reports=REPORTS, arguments=arguments) == 0
    return output


def test_fertility_report(tokenizer: Path) -> None:
    fertility = FertilityReport.model_validate_json((tokenizer / "fertility.json").read_bytes())
    assert [candidate.name for candidate in fertility.candidates] == ["base", "bbpe-1024", "bbpe-2048"]
    figures = [candidate.texts["heldout"].tokens_per_word for candidate in fertility.candidates]
    assert figures == sorted(figures, reverse=True)
    assert fertility.chosen == "bbpe-2048"
    assert all(candidate.texts["heldout"].round_trip_errors == 0 for candidate in fertility.candidates)


def run_train(tmp_path: Path, corpus: Path, base_model: Path, *settings: str) -> int:
    arguments = [f"--corpus={corpus}", f"--base_model={base_model}", f"--output={tmp_path / 'out'}", *settings]
    return run_step(train_tokenizer, TrainTokenizerConfig, TRAIN_FOLDERS, reports=REPORTS, arguments=arguments)


def test_two_runs_have_one_content(tmp_path: Path, corpus: Path, base_model: Path, tokenizer: Path) -> None:
    """Though fertility.json holds the seconds and the memory of each."""
    assert run_train(tmp_path, corpus, base_model, "--vocabulary_sizes=[1024,2048]") == EXIT_DONE
    first, second = read_seal(tokenizer), read_seal(tmp_path / "out")
    assert first.reports == ["fertility.json"]
    assert first.files["fertility.json"] != second.files["fertility.json"]
    assert first.content_digest == second.content_digest


def test_a_wide_tolerance_takes_the_smaller_one(tmp_path: Path, corpus: Path, base_model: Path) -> None:
    settings = ["--vocabulary_sizes=[1024,2048]", "--fertility_tolerance=0.9"]
    assert run_train(tmp_path, corpus, base_model, *settings) == EXIT_DONE
    assert json.loads((tmp_path / "out" / "fertility.json").read_text())["chosen"] == "bbpe-1024"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["--vocabulary_sizes=[1000]"], "vocabulary_sizes.0: 1000 (Input should be a multiple of 64)"),
        (["--vocabulary_sizes=[64000]"], "tokens that the training text gives"),
        (["--vocabulary_sizes=[1024]", "--chosen=bbpe-7"], "train_tokenizer.chosen: bbpe-7; limit bbpe-1024"),
        (["--vocabulary_size=[64]"], "Did you mean vocabulary_sizes?"),
        (["--fertility_tolerance=nan"], "fertility_tolerance"),
    ],
)
def test_bad_settings(
    tmp_path: Path, corpus: Path, base_model: Path, capsys: pytest.CaptureFixture, settings: list[str], words: str
) -> None:
    assert run_train(tmp_path, corpus, base_model, *settings) == EXIT_USER_ERROR
    assert words in capsys.readouterr().err


def tokenize(corpus: Path, tokenizer: Path, output: Path, *more: str) -> int:
    arguments = [f"--corpus={corpus}", f"--tokenizer={tokenizer}", f"--output={output}", "--block_tokens=128", *more]
    return run_step(tokenize_corpus, TokenizeCorpusConfig, TOKENIZE_FOLDERS, shares_work=True, arguments=arguments)


def test_blocks_hold_the_whole_text(tmp_path: Path, corpus: Path, tokenizer: Path) -> None:
    assert tokenize(corpus, tokenizer, tmp_path / "out") == EXIT_DONE
    for split in ("train", "validation"):
        blocks = PackedBlocks(tmp_path / "out" / split)
        assert blocks.bytes == sum(len(text.encode()) for text in read_split(corpus, split))


@pytest.fixture(scope="module")
def by_one(tmp_path_factory: pytest.TempPathFactory, corpus: Path, tokenizer: Path) -> Path:
    output = tmp_path_factory.mktemp("by_one") / "out"
    assert tokenize(corpus, tokenizer, output) == EXIT_DONE
    return output


@pytest.mark.parametrize("instances", [2, 3, 5, 7])
def test_any_number_of_instances_gives_what_one_gives(
    tmp_path: Path, corpus: Path, tokenizer: Path, by_one: Path, instances: int
) -> None:
    """Of four shards of train and one of validation: the fifth and those behind it have nothing to do."""
    together, owned = tmp_path / "together", []
    for instance in range(instances):
        share = [f"--instance_index={instance}", f"--instance_count={instances}"]
        assert tokenize(corpus, tokenizer, tmp_path / f"i{instance}", *share) == EXIT_DONE
        owned.append(len(list((tmp_path / f"i{instance}").rglob("*.tokens.npy"))))
        # What several processing jobs write below one prefix.
        shutil.copytree(tmp_path / f"i{instance}", together, dirs_exist_ok=True)
    assert owned == {2: [3, 2], 3: [3, 1, 1], 5: [2, 1, 1, 1, 0], 7: [2, 1, 1, 1, 0, 0, 0]}[instances]
    assert read_seal(together).content_digest == read_seal(by_one).content_digest
    assert content_digest(together) == content_digest(by_one)
    for split in ("train", "validation"):
        assert len(PackedBlocks(together / split)) == len(PackedBlocks(by_one / split))


def test_a_changed_corpus_is_never_read(
    tmp_path: Path, corpus: Path, tokenizer: Path, capsys: pytest.CaptureFixture
) -> None:
    copy = tmp_path / "copy"
    for path in corpus.rglob("*"):
        if path.is_file():
            (copy / path.relative_to(corpus)).parent.mkdir(parents=True, exist_ok=True)
            (copy / path.relative_to(corpus)).write_bytes(path.read_bytes())
    shard = copy / "train" / "part-00000.jsonl"
    shard.write_bytes(shard.read_bytes()[:-10])
    assert tokenize(copy, tokenizer, tmp_path / "out") == EXIT_USER_ERROR
    assert "train/part-00000.jsonl" in capsys.readouterr().err


def test_a_source_corpus_becomes_blocks_of_its_own(tmp_path: Path, tokenizer: Path) -> None:
    prepared = tmp_path / "corpus"
    source = tmp_path / "source.jsonl"
    lines = [f"Sentence {number} of a text in the language that the base model knows." for number in range(200)]
    source.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines), "utf-8")
    arguments = [f"--corpus={SAMPLE}", f"--source_corpus={source}", f"--output={prepared}"]
    settings = ["--near_duplicate_similarity=1", "--train_shards=2"]
    assert (
        run_step(prepare_corpus, PrepareCorpusConfig, PREPARE_FOLDERS, arguments=[*arguments, *settings]) == EXIT_DONE
    )
    assert tokenize(prepared, tokenizer, tmp_path / "out") == EXIT_DONE
    for split in ("source_train", "source_validation"):
        blocks = PackedBlocks(tmp_path / "out" / split)
        assert blocks.bytes == sum(len(text.encode()) for text in read_split(prepared, split)) > 0
    metrics = read_seal(tmp_path / "out").metrics
    assert metrics["source_train_blocks"] == len(PackedBlocks(tmp_path / "out" / "source_train"))
    assert not (tmp_path / "out" / "source_test").exists()


def test_the_base_tokenizer_lies_beside_the_chosen_one_byte_for_byte(base_model: Path, tokenizer: Path) -> None:
    copied = {path.name: path.read_bytes() for path in (tokenizer / "base_tokenizer").iterdir()}
    assert copied == {name: (base_model / name).read_bytes() for name in copied}
    assert copied.keys() == {"tokenizer.json", "tokenizer_config.json", "config.json"}
