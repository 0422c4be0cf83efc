"""Evaluate on tiny models: the numbers in evaluation.json are those of a direct computation."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from steps.configs.evaluate_model import EvaluateModelConfig
from steps.contract import StepError, StepFolders
from steps.evaluate_model import evaluate_model, first_words, read_texts
from steps.modeling.generation import continue_greedily, stop_token_ids
from steps.modeling.loading import load_model, load_tokenizer, save_model
from steps.schemas.corpus import CorpusSummary
from steps.schemas.evaluation import Evaluation
from steps.text.corpus import SplitWriter, text_sha256
from steps.text.loops import repeated_share
from steps.text.plain_encoding import encode_plain

HELDOUT = [
    "Bakıda qış mülayim keçir, amma Xəzərdən əsən xəzri küləyi havanı sərtləşdirir.",
    "Müştəri xidməti həftənin yeddi günü işləyir; zəngə orta hesabla bir dəqiqəyə cavab verilir.",
    "Nənəm hər bazar günü   təndirdə çörək bişirərdi.",
    "İnternet paketiniz bitibsə, tətbiqdən yenisini seçin. Ödəniş balansdan çıxılacaq. " * 3,
]
SOURCE = ["The weather in the mountains changes quickly.", "Tickets are sold at the counter."]
CONFIG = EvaluateModelConfig(
    context_bytes=128, context_tokens=64, batch_tokens=512, samples=2, sample_prompt_words=3, sample_new_tokens=6
)


TRAIN = ["Bu cümlə öyrədilir və heç bir sınaq sənədində yoxdur.", HELDOUT[3]]


def write_corpus(folder: Path, splits: dict[str, list[str]]) -> Path:
    summaries = {}
    for split, documents in {"train": TRAIN, **splits}.items():
        writer = SplitWriter(folder, split, 1)
        for document in sorted(documents, key=text_sha256):
            writer.add(text_sha256(document), document)
        summaries[split] = writer.close()
    summary = CorpusSummary(splits=summaries, sources={})
    (folder / "corpus.json").write_text(summary.model_dump_json())
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory, make_tiny_tokenizer, make_tiny_llama) -> dict[str, Path]:
    """Four folders: base with a tokenizer without merges, the others with one of 320 tokens."""
    root = tmp_path_factory.mktemp("models")
    coarse, fine = make_tiny_tokenizer(vocab_size=262), make_tiny_tokenizer()
    save_model(make_tiny_llama(262, seed=1), coarse, root / "base_model")
    for seed, name in enumerate(["pretrained", "model", "champion"], 2):
        model = make_tiny_llama(320, seed=seed)
        # Sampling settings as published folders carry them; greedy samples must not follow them.
        model.generation_config.update(do_sample=True, temperature=0.6, top_p=0.9)
        save_model(model, fine, root / name)
    return {path.name: path for path in root.iterdir()}


def direct_bits_per_byte(folder: Path, documents: list[str]) -> float:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    nats = 0.0
    for text in documents:
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        assert ids[0, 0] == tokenizer.bos_token_id
        with torch.no_grad():
            logits = model(ids, use_cache=False).logits[0, :-1].double()
        nats += float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))
    return nats / math.log(2) / sum(len(text.encode()) for text in documents)


def run(models, corpus: Path, output: Path, config: EvaluateModelConfig) -> tuple[Evaluation, dict]:
    output.mkdir()
    metrics = evaluate_model(config, StepFolders(output=output, inputs={**models, "corpus": corpus}))
    return Evaluation.model_validate_json((output / "evaluation.json").read_bytes()), metrics


def test_every_figure_is_measured(models, tmp_path, capsys):
    corpus = write_corpus(tmp_path / "corpus", {"test": HELDOUT, "extra_heldout": HELDOUT[:2], "source_test": SOURCE})
    config = CONFIG.model_copy(update={"context_bytes": 400, "context_tokens": 400, "champion_present": True})
    evaluation, metrics = run(models, corpus, tmp_path / "out", config)
    expected = {name: direct_bits_per_byte(folder, HELDOUT) for name, folder in models.items()}
    for section in (evaluation.bits_per_byte, evaluation.equal_tokens):
        assert section.base == pytest.approx(expected["base_model"], rel=1e-6)
        assert section.pretrained == pytest.approx(expected["pretrained"], rel=1e-6)
        assert section.candidate == pytest.approx(expected["model"], rel=1e-6)
        assert section.improvement == section.base - section.candidate
        assert section.improvement_ci95[0] <= section.improvement <= section.improvement_ci95[1]
    assert evaluation.champion.present
    assert evaluation.champion.bits_per_byte == pytest.approx(expected["champion"], rel=1e-6)
    assert evaluation.extra_heldout is not None
    assert evaluation.extra_heldout.candidate == pytest.approx(direct_bits_per_byte(models["model"], HELDOUT[:2]))
    assert evaluation.retention is not None
    assert evaluation.retention.base == pytest.approx(direct_bits_per_byte(models["base_model"], SOURCE))
    assert evaluation.retention.loss == evaluation.retention.candidate - evaluation.retention.base
    sections = [
        (evaluation, HELDOUT),
        (evaluation.bits_per_byte, HELDOUT),
        (evaluation.equal_tokens, HELDOUT),
        (evaluation.extra_heldout, HELDOUT[:2]),
        (evaluation.retention, SOURCE),
    ]
    for section, texts in sections:
        assert (section.documents, section.bytes_scored) == (len(texts), sum(len(text.encode()) for text in texts))
    ordered = sorted(HELDOUT, key=text_sha256)
    assert evaluation.text_sha256 == hashlib.sha256("\0".join(ordered).encode()).hexdigest()
    assert metrics["bits_per_byte"] == evaluation.bits_per_byte.candidate
    # One of the four stands in the training text, and one has 7 words.
    assert evaluation.contamination.test.model_dump() == {"texts": 3, "contaminated": 1, "share": 1 / 3, "too_short": 1}
    assert metrics["contaminated_share"] == 1 / 3
    measured = re.findall(r"metrics: model=(\w+) measure=(\w+) bits_per_byte=", capsys.readouterr().out)
    common = ["equal_bytes", "equal_tokens", "extra_heldout"]
    assert measured == [
        *(("base", measure) for measure in [*common, "retention"]),
        *(("pretrained", measure) for measure in common),
        *(("candidate", measure) for measure in [*common, "retention"]),
        ("champion", "equal_bytes"),
    ]


def test_without_champion_base_stands_in_and_absent_texts_are_left_out(models, tmp_path):
    corpus = write_corpus(tmp_path / "corpus", {"test": HELDOUT})
    unread = {**models, "champion": tmp_path / "absent"}
    evaluation, metrics = run(unread, corpus, tmp_path / "out", CONFIG)
    assert not evaluation.champion.present
    assert evaluation.champion.bits_per_byte == evaluation.bits_per_byte.base
    assert evaluation.champion.improvement_ci95 == evaluation.bits_per_byte.improvement_ci95
    assert evaluation.extra_heldout is None
    assert evaluation.retention is None
    assert "retention_loss" not in metrics


def test_samples_are_greedy_continuations_of_the_first_prompts(models, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    corpus = write_corpus(tmp_path / "corpus", {"test": HELDOUT})
    evaluation, _ = run(models, corpus, tmp_path / "out", CONFIG)
    lines = [json.loads(line) for line in (tmp_path / "out" / "samples.jsonl").read_text().splitlines()]
    assert [sample.model_dump() for sample in evaluation.samples] == lines
    for line in lines:
        for name, figures in line["figures"].items():
            assert figures["characters"] == len(line[name])
            assert figures["repeated_trigrams"] == repeated_share(line[name])
    first = sorted(HELDOUT, key=text_sha256)[0]
    assert lines[0]["prompt"] == first_words(first, 3)
    model = AutoModelForCausalLM.from_pretrained(models["model"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(models["model"])
    ids = tokenizer(lines[0]["prompt"])["input_ids"]
    prompt_tokens = len(ids)
    for _ in range(6):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == tokenizer.eos_token_id:
            break
    assert lines[0]["candidate"] == tokenizer.decode(ids[prompt_tokens:], skip_special_tokens=True)


def test_a_prompt_that_spells_an_end_of_turn_is_continued_as_text(models, tmp_path):
    text = "Növbəni <|eot_id|> bitirir, sonra yeni növbə başlayır."
    corpus = write_corpus(tmp_path / "corpus", {"test": [text, HELDOUT[0]]})
    evaluation, _ = run(models, corpus, tmp_path / "out", CONFIG)
    (sample,) = (sample for sample in evaluation.samples if sample.prompt.startswith("Növbəni"))
    assert sample.prompt == "Növbəni <|eot_id|> bitirir,"
    model, tokenizer = load_model(models["model"]), load_tokenizer(models["model"])
    ids = [tokenizer.bos_token_id, *encode_plain(tokenizer, [sample.prompt])[0]]
    assert tokenizer.convert_tokens_to_ids("<|eot_id|>") not in ids
    (reply,) = continue_greedily(model, [ids], new_tokens=6, stop_ids=stop_token_ids(tokenizer))
    assert sample.candidate == tokenizer.decode(reply, skip_special_tokens=True)


def test_documents_are_the_first_by_hash(tmp_path):
    corpus = write_corpus(tmp_path / "corpus", {"test": HELDOUT})
    assert read_texts(corpus, 2) == {"test": sorted(HELDOUT, key=text_sha256)[:2]}


def test_words_are_cut_with_their_white_space():
    assert first_words("a  b\nc d", 3) == "a  b\nc"
    assert first_words(" a b", 9) == " a b"


def test_a_context_beyond_the_models_positions_is_refused(models, tmp_path):
    corpus = write_corpus(tmp_path / "corpus", {"test": [HELDOUT[3] * 5, HELDOUT[0]]})
    with pytest.raises(StepError, match="context_tokens: the longest window has 599 tokens; limit 512"):
        run(models, corpus, tmp_path / "out", CONFIG.model_copy(update={"context_tokens": 600}))
    assert not (tmp_path / "out" / "evaluation.json").exists()


def test_weights_that_are_not_finite_fail(models, tmp_path, make_tiny_llama, tiny_tokenizer):
    model = make_tiny_llama()
    with torch.no_grad():
        model.model.norm.weight.fill_(float("inf"))
    save_model(model, tiny_tokenizer, tmp_path / "model")
    corpus = write_corpus(tmp_path / "corpus", {"test": HELDOUT})
    with pytest.raises(StepError, match="limit a finite number"):
        run({**models, "model": tmp_path / "model"}, corpus, tmp_path / "out", CONFIG)


def test_continuation_ends_at_a_stop_token_and_at_the_last_position(make_tiny_llama):
    model = make_tiny_llama(max_position_embeddings=8)
    (free,) = continue_greedily(model, [[1, 2, 3]], new_tokens=50, stop_ids=[])
    assert len(free) == 5
    (stopped,) = continue_greedily(model, [[1, 2, 3]], new_tokens=50, stop_ids=[free[1]])
    assert stopped == free[: free.index(free[1]) + 1]
    assert continue_greedily(model, [list(range(8)), [1]], new_tokens=5, stop_ids=[]) == [[], []]
    assert continue_greedily(model, [], new_tokens=5, stop_ids=[]) == []


def test_continuations_do_not_depend_on_the_batch(make_tiny_llama):
    model = make_tiny_llama()
    prompts = [[1, 2, 3], [9, 8, 7, 6, 5, 4, 3], [40]]
    alone = [continue_greedily(model, [prompt], new_tokens=12, stop_ids=[])[0] for prompt in prompts]
    assert continue_greedily(model, prompts, new_tokens=12, stop_ids=[]) == alone
    stops = [alone[0][4]]
    together = continue_greedily(model, prompts, new_tokens=12, stop_ids=stops)
    assert together == [continue_greedily(model, [prompt], new_tokens=12, stop_ids=stops)[0] for prompt in prompts]
    assert together[0] == alone[0][: alone[0].index(stops[0]) + 1]


def test_the_files_keys(models, tmp_path):
    """What other programs read (design.md), and nothing else but the extra held-out text."""
    corpus = write_corpus(tmp_path / "corpus", {"test": HELDOUT})
    run(models, corpus, tmp_path / "out", CONFIG)
    written = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert sorted(written) == sorted(
        ["bits_per_byte", "equal_tokens", "champion", "retention", "ablation", "accuracy", "contamination", "samples",
         "bytes_scored", "documents", "text_sha256", "extra_heldout"]
    )  # fmt: skip
    for key in ("base", "pretrained", "candidate", "improvement", "improvement_ci95"):
        assert key in written["bits_per_byte"]


def test_accuracy_files_are_answered_by_three_models(models, tmp_path):
    corpus = write_corpus(tmp_path / "corpus", {"test": HELDOUT})
    (tmp_path / "accuracy").mkdir()
    lines = [{"question": f"Sual {number}?", "choices": ["bəli", "xeyr", "bəlkə"], "answer": 1} for number in range(6)]
    lines.append({"question": TRAIN[0][:-8], "choices": ["yoxdur.", "vardır."], "answer": "yoxdur."})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "accuracy" / "questions.jsonl").write_text(text)
    evaluation, _ = run({**models, "accuracy": tmp_path / "accuracy"}, corpus, tmp_path / "out", CONFIG)
    assert evaluation.accuracy is not None
    task = evaluation.accuracy["questions"]
    assert (task.kind, task.items, task.chance) == ("choice", 7, pytest.approx((6 / 3 + 1 / 2) / 7))
    for found in (task.base, task.pretrained, task.candidate):
        assert found.plain.share == found.plain.right / 7
        assert found.plain.ci95[0] <= found.plain.share <= found.plain.ci95[1]
    assert evaluation.contamination.accuracy["questions"].model_dump() == {
        "texts": 1, "contaminated": 1, "share": 1.0, "too_short": 6,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("documents", "message"),
    [([], "test split: 0 documents of 0 bytes; limit at least 2"), (["", ""], "test split: 2 documents of 0 bytes")],
)
def test_a_test_set_without_bytes_is_refused(documents, message, models, tmp_path):
    corpus = write_corpus(tmp_path / "corpus", {"test": documents})
    with pytest.raises(StepError, match=message):
        run(models, corpus, tmp_path / "out", CONFIG)


def test_a_champion_of_another_size_and_tokenizer(models, tmp_path, make_tiny_tokenizer, make_tiny_llama):
    tokenizer = make_tiny_tokenizer(vocab_size=290)
    save_model(make_tiny_llama(290, seed=9, hidden_size=64, num_hidden_layers=1), tokenizer, tmp_path / "champion")
    corpus = write_corpus(tmp_path / "corpus", {"test": HELDOUT})
    config = CONFIG.model_copy(update={"champion_present": True, "context_bytes": 400})
    evaluation, _ = run({**models, "champion": tmp_path / "champion"}, corpus, tmp_path / "out", config)
    assert evaluation.champion.bits_per_byte == pytest.approx(direct_bits_per_byte(tmp_path / "champion", HELDOUT))


def test_a_champion_that_cannot_be_loaded_is_one_line(models, tmp_path):
    corpus = write_corpus(tmp_path / "corpus", {"test": HELDOUT})
    config = CONFIG.model_copy(update={"champion_present": True})
    broken = tmp_path / "champion"
    shutil.copytree(models["champion"], broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5_000])
    with pytest.raises(StepError, match=r"champion: .*safetensors: damaged"):
        run({**models, "champion": broken}, corpus, tmp_path / "out", config)
    with pytest.raises(StepError, match=r"champion: .*: no tokenizer\.json"):
        run({**models, "champion": tmp_path / "absent"}, corpus, tmp_path / "out2", config)
    settings = json.loads((models["champion"] / "config.json").read_text())
    shutil.copy(models["champion"] / "model.safetensors", weights)
    (broken / "config.json").write_text(json.dumps({**settings, "hidden_size": 64}))
    with pytest.raises(StepError, match="champion: "):
        run({**models, "champion": broken}, corpus, tmp_path / "out3", config)


def test_a_base_model_without_bos(models, tmp_path, capsys):
    base = tmp_path / "base_model"
    shutil.copytree(models["base_model"], base)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (base / name).is_file():
            settings = json.loads((base / name).read_text())
            settings.pop("bos_token", None)
            (base / name).write_text(json.dumps(settings))
    corpus = write_corpus(tmp_path / "corpus", {"test": HELDOUT})
    evaluation, _ = run({**models, "base_model": base}, corpus, tmp_path / "out", CONFIG)
    assert evaluation.bits_per_byte.base > 0
    assert (
        capsys.readouterr().err.count("warning: no-bos-token: base: <|end_of_text|> stands before each document") == 1
    )


def test_help_lists_folders_and_settings():
    command = [sys.executable, "-m", "steps.evaluate_model", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0
    assert "--champion DIR" in done.stdout
    assert "--context_bytes=VALUE" in done.stdout
