"""TrainTokenizer and TokenizeCorpus as steps, on the sample's text."""

import json
import shutil
from pathlib import Path

import pytest
from tokenizer_bases import CONTEXT_TOKENS, OTHER_PARAMETERS, WIDTH, write_base
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer

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
from steps.text.training_sample import TrainingSample
from steps.tokenize_corpus import FOLDERS as TOKENIZE_FOLDERS
from steps.tokenize_corpus import tokenize_corpus
from steps.train_tokenizer import FOLDERS as TRAIN_FOLDERS
from steps.train_tokenizer import REPORTS, train_tokenizer

SAMPLE = Path(__file__).parents[2] / "steps" / "sample_data" / "corpus.jsonl"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("corpus") / "out"
    arguments = [f"--corpus={SAMPLE}", f"--output={output}", "--validation_share=0.1", "--test_share=0.1"]
    assert run_step(prepare_corpus, PrepareCorpusConfig, PREPARE_FOLDERS, arguments=arguments) == EXIT_DONE
    return output


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = ["the base speaks English only, and the text is short", "или говорит она и по-русски, хотя немного"]
    return write_base(tmp_path_factory.mktemp("base"), train_bbpe(texts * 3, 640, 2))


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


EVERY_KIND = '--kinds=["bbpe","bbpe-apostrophe","unigram","unigram-suffix","extended","replaced"]'


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory, corpus: Path, base_model: Path) -> Path:
    output = tmp_path_factory.mktemp("every") / "out"
    arguments = [f"--corpus={corpus}", f"--base_model={base_model}", f"--output={output}", EVERY_KIND]
    arguments += ["--vocabulary_sizes=[1024,64000]", "--extended_tokens=[512,32768]", '--suffixes=["azerbaijani","cı"]']
    assert run_step(train_tokenizer, TrainTokenizerConfig, TRAIN_FOLDERS, reports=REPORTS, arguments=arguments) == 0
    return output


def test_every_kind_side_by_side(every_kind: Path, base_model: Path, corpus: Path) -> None:
    fertility = FertilityReport.model_validate_json((every_kind / "fertility.json").read_bytes())
    kinds = [candidate.name.rstrip("0123456789").rstrip("-") for candidate in fertility.candidates]
    assert kinds == ["base", "bbpe", "bbpe", "bbpe-apostrophe", "bbpe-apostrophe", "unigram", "unigram",
                     "unigram-suffix", "unigram-suffix", "extended", "extended", "replaced"]  # fmt: skip
    heldout = read_split(corpus, "validation")
    for candidate in fertility.candidates:
        assert candidate.texts["heldout"].round_trip_errors == 0, candidate.name
        rows = -(-candidate.vocab_size // 64) * 64
        assert candidate.vocabulary_parameters == rows * WIDTH
        assert candidate.vocabulary_parameters_share == pytest.approx(rows * WIDTH / (rows * WIDTH + OTHER_PARAMETERS))
        text = candidate.texts["heldout"]
        assert candidate.context_words == pytest.approx(CONTEXT_TOKENS / text.tokens_per_word)
        assert text.ci95[0] <= text.tokens_per_word <= text.ci95[1]
        assert text.bytes_per_token_ci95 is not None
        assert text.bytes_per_token_ci95[0] <= text.bytes_per_token <= text.bytes_per_token_ci95[1]
        assert (text.documents_unlike_base is not None) == (candidate.kind in ("extended", "replaced"))
        assert 0 < (text.renyi_efficiency or 0) < 1
        if candidate.kind != "base":
            loaded = AutoTokenizer.from_pretrained(every_kind / "candidates" / candidate.name)
            assert len(loaded) == candidate.vocab_size
            assert [loaded.decode(loaded(one)["input_ids"], skip_special_tokens=True) for one in heldout] == heldout
            assert "generation" in loaded.chat_template
    chosen = every_kind / "candidates" / fertility.chosen / "tokenizer.json"
    assert chosen.read_bytes() == (every_kind / "tokenizer" / "tokenizer.json").read_bytes()
    copied = (every_kind / "base_tokenizer" / "tokenizer.json").read_bytes()
    assert copied == (base_model / "tokenizer.json").read_bytes()
    assert len(fertility.table()) == 2 + len(fertility.candidates)
    assert "<svg" in (every_kind / "fertility.svg").read_text("utf-8")


def test_what_a_text_cannot_give_is_said(every_kind: Path) -> None:
    """64,000 tokens and 32,768 new ones, of a text of a hundred kilobytes."""
    fertility = FertilityReport.model_validate_json((every_kind / "fertility.json").read_bytes())
    sizes = {candidate.name: candidate.vocab_size for candidate in fertility.candidates}
    for kind in ("bbpe", "bbpe-apostrophe", "unigram", "unigram-suffix"):
        [larger] = [name for name in sizes if name.startswith(f"{kind}-") and name[len(kind) + 1 :].isdigit()
                    and not name.endswith("-1024")]  # fmt: skip
        learnt = fertility.left_out[f"{kind}-64000"].removeprefix("the training text gives ").removesuffix(" tokens")
        assert 0 <= int(learnt.replace(",", "")) - sizes[larger] < 64
        assert sizes[larger] % 64 == 0
        assert larger == f"{kind}-{sizes[larger]}"
    assert "new tokens" in fertility.left_out["extended-32768"]
    assert sizes["replaced"] == sizes["base"]
    warnings = {warned.message for warned in read_seal(every_kind).warnings}
    assert {f"{name}: {why}" for name, why in fertility.left_out.items()} <= warnings


def test_a_base_that_is_not_byte_level(
    tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture, base_model: Path
) -> None:
    folder = tmp_path / "base"
    shutil.copytree(base_model, folder)
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("a", -2.0)], 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.save(str(folder / "tokenizer.json"))
    assert run_train(tmp_path, corpus, folder, '--kinds=["extended"]') == EXIT_USER_ERROR
    told = capsys.readouterr().err
    assert "base model's tokenizer: Unigram without byte level; limit byte-level BPE" in told


def test_a_sample_beyond_the_budget(tmp_path: Path, corpus: Path, base_model: Path) -> None:
    settings = ["--vocabulary_sizes=[640]", "--max_training_bytes=20000"]
    assert run_train(tmp_path, corpus, base_model, *settings) == EXIT_DONE
    fertility = FertilityReport.model_validate_json((tmp_path / "out" / "fertility.json").read_bytes())
    assert fertility.training is not None
    total = sum(len(text.encode()) for text in read_split(corpus, "train"))
    assert fertility.training.share == pytest.approx(fertility.training.bytes / total)
    assert 0.5 < fertility.training.bytes / 20_000 < 1.5
    sampled = list(TrainingSample(corpus, "train", 20_000, 0)())
    assert sum(len(text.encode()) for text in sampled) == fertility.training.bytes
    assert sampled != list(TrainingSample(corpus, "train", 20_000, 1)())
    assert read_seal(tmp_path / "out").metrics["training_share"] == fertility.training.share


def run_train(tmp_path: Path, corpus: Path, base_model: Path, *settings: str) -> int:
    arguments = [f"--corpus={corpus}", f"--base_model={base_model}", f"--output={tmp_path / 'out'}", *settings]
    return run_step(train_tokenizer, TrainTokenizerConfig, TRAIN_FOLDERS, reports=REPORTS, arguments=arguments)


def test_two_runs_have_one_content(tmp_path: Path, corpus: Path, base_model: Path, tokenizer: Path) -> None:
    """Though fertility.json holds the seconds and the memory of each."""
    assert run_train(tmp_path, corpus, base_model, "--vocabulary_sizes=[1024,2048]") == EXIT_DONE
    first, second = read_seal(tokenizer), read_seal(tmp_path / "out")
    assert {"fertility.json", "fertility.svg", "candidates/bbpe-1024/tokenizer.json"} <= {*first.reports}
    assert first.content_digest == second.content_digest
    # Two trainings this small can take the same milliseconds: another report, and another file, put in by hand.
    other = first.files["fertility.svg"]
    for name, counts in (("fertility.json", False), ("tokenizer/tokenizer.json", True)):
        changed = first.model_copy(update={"files": {**first.files, name: other}})
        assert (changed.content_digest != first.content_digest) == counts


def test_a_wide_tolerance_takes_the_smaller_one(tmp_path: Path, corpus: Path, base_model: Path) -> None:
    settings = ["--vocabulary_sizes=[1024,2048]", "--min_gain=0.9"]
    assert run_train(tmp_path, corpus, base_model, *settings) == EXIT_DONE
    assert json.loads((tmp_path / "out" / "fertility.json").read_text())["chosen"] == "bbpe-1024"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["--vocabulary_sizes=[1000]"], "vocabulary_sizes.0: 1000 (Input should be a multiple of 64)"),
        (["--vocabulary_sizes=[1024]", "--chosen=bbpe-7"], "train_tokenizer.chosen: bbpe-7; limit bbpe-1024"),
        (
            ["--vocabulary_sizes=[1024]", "--chosen=unigram-1024"],
            "train_tokenizer.chosen: unigram-1024; limit a candidate of the kinds bbpe",
        ),
        (["--vocabulary_size=[64]"], "Did you mean vocabulary_sizes?"),
        (["--min_gain=nan"], "min_gain"),
        (["--vocabulary_sizes=[512]"], "vocabulary_sizes.0: 512 (Input should be greater than or equal to 576)"),
        (['--kinds=["unigram-suffix"]'], "train_tokenizer.suffixes: []; limit at least one for"),
        (['--kinds=["unigram-suffix"]', '--suffixes=["l-r"]'], "train_tokenizer.suffixes: 'l-r'; limit letters"),
        (['--kinds=["bbpe","bbpe"]'], "kinds"),
        (
            ["--vocabulary_sizes=[1024]", "--max_vocabulary_parameters_share=0.01"],
            "train_tokenizer.max_vocabulary_parameters_share: 0.01; limit 0.291, of bbpe-1024, the smallest vocabulary",
        ),
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
