"""AdaptVocabulary as a step: folders in, a model folder and adaptation.json out."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from steps.adapt_vocabulary import FOLDERS, adapt_vocabulary
from steps.configs.adapt_vocabulary import AdaptVocabularyConfig
from steps.contract import EXIT_USER_ERROR, StepConfig, StepFolders, read_seal, run_step, seal, write_json
from steps.modeling.bits_per_byte import score_documents
from steps.modeling.loading import load_model, load_tokenizer, save_model
from steps.schemas.adaptation import Adaptation
from steps.schemas.corpus import CorpusSummary, SplitSummary

ENGLISH = ("the quick brown fox jumps over the lazy dog and then the other dogs rest in the shade of the tree. " * 3,)
DOCUMENTS = ["Bakı şəhərində qış axşamları uzun olur.", "Şəhərin küçələrində külək əsir.", "İşıqlar yanır."]


def sealed(folder):
    seal(StepFolders(output=folder), "test", StepConfig(), {}, 0.0)
    return folder


@pytest.fixture
def step_arguments(make_tiny_tokenizer, make_tiny_llama, tmp_path):
    base = tmp_path / "base_model"
    save_model(make_tiny_llama(320), make_tiny_tokenizer(ENGLISH, 310), base)
    (tmp_path / "tokenizer").mkdir()
    make_tiny_tokenizer(DOCUMENTS, 300).save_pretrained(tmp_path / "tokenizer" / "tokenizer")
    corpus = tmp_path / "corpus"
    (corpus / "validation").mkdir(parents=True)
    lines = [json.dumps({"id": str(index), "text": text}, ensure_ascii=False) for index, text in enumerate(DOCUMENTS)]
    (corpus / "validation" / "part-00000.jsonl").write_text("\n".join(lines) + "\n")
    split = SplitSummary(shards=["validation/part-00000.jsonl"], documents=3, words=12, bytes=100)
    (corpus / "train").mkdir()
    train = split.model_copy(update={"shards": ["train/part-00000.jsonl"]})
    (corpus / "train" / "part-00000.jsonl").write_text("\n".join(lines * 3) + "\n")
    summary = CorpusSummary(splits={"validation": split, "train": train}, sources={})
    write_json(corpus / "corpus.json", summary.model_dump(mode="json"))
    sealed(tmp_path / "tokenizer")
    sealed(corpus)
    return [
        f"--base_model={base}",
        f"--tokenizer={tmp_path / 'tokenizer'}",
        f"--corpus={corpus}",
        f"--output={tmp_path / 'output'}",
        "--device=cpu",
    ]


def test_writes_the_model_of_the_chosen_initialiser_and_measures_each(step_arguments, tmp_path):
    arguments = [*step_arguments, '--compared_initialisers=["normal","copy+mean"]', "--measured_documents=2"]
    assert run_step(adapt_vocabulary, AdaptVocabularyConfig, FOLDERS, arguments=arguments) == 0
    output = tmp_path / "output"
    adaptation = Adaptation.model_validate_json((output / "adaptation.json").read_bytes())
    assert list(adaptation.bits_per_byte_at_step_0) == ["normal", "copy+mean", "copy+subtoken_mean"]
    model, tokenizer = load_model(output), load_tokenizer(output)
    again = score_documents(model, tokenizer, DOCUMENTS[:2], context_bytes=2_048, batch_tokens=64).bits_per_byte
    assert adaptation.bits_per_byte_at_step_0["copy+subtoken_mean"] == pytest.approx(again, rel=1e-6)
    assert adaptation.rows_copied + adaptation.rows_composed == adaptation.vocabulary_rows == 320
    assert adaptation.parameters_after == sum(weight.numel() for weight in model.parameters())
    assert adaptation.base_vocabulary_rows == 320
    assert adaptation.tied_embeddings
    assert (adaptation.initialiser, adaptation.reason) == ("copy+subtoken_mean", "named in the configuration")
    assert adaptation.row_lengths["embedding"].smallest > 0
    assert set(adaptation.row_lengths) == {"base_embedding", "embedding"}
    assert tokenizer.chat_template
    assert read_seal(output).metrics["bits_per_byte_at_step_0"] == pytest.approx(again, rel=1e-6)


def test_keeps_the_dtype_of_the_base_model(step_arguments, tmp_path, make_tiny_llama, make_tiny_tokenizer):
    base = make_tiny_llama(320, dtype=torch.bfloat16).to(torch.bfloat16)
    save_model(base, make_tiny_tokenizer(ENGLISH, 310), tmp_path / "base_model")
    assert run_step(adapt_vocabulary, AdaptVocabularyConfig, FOLDERS, arguments=step_arguments) == 0
    written = load_model(tmp_path / "output", dtype=torch.bfloat16)
    assert json.loads((tmp_path / "output" / "config.json").read_text())["dtype"] == "bfloat16"
    for name, value in base.state_dict().items():
        if ".layers." in name:
            assert torch.equal(written.state_dict()[name], value)


def run(arguments) -> int:
    return run_step(adapt_vocabulary, AdaptVocabularyConfig, FOLDERS, arguments=arguments)


def test_best_keeps_the_model_with_the_fewest_bits_and_says_why(step_arguments, tmp_path):
    """Three of them, in any order; which one wins is the measurement's to say."""
    names = ["focus", "copy+mean", "copy+subtoken_mean", "normal"]
    assert run([*step_arguments, "--initialiser=best", f"--compared_initialisers={json.dumps(names)}"]) == 0
    output = tmp_path / "output"
    adaptation = Adaptation.model_validate_json((output / "adaptation.json").read_bytes())
    bits = adaptation.bits_per_byte_at_step_0
    assert list(bits) == names
    best, following = sorted(names, key=bits.get)[:2]
    assert adaptation.initialiser == best == read_seal(output).metrics["initialiser"]
    assert adaptation.reason == (
        f"fewest bits per byte at step 0 of 4 measured: {bits[best]:.4f}, next {following} with {bits[following]:.4f}"
    )
    model, tokenizer = load_model(output), load_tokenizer(output)
    again = score_documents(model, tokenizer, DOCUMENTS, context_bytes=2_048, batch_tokens=64).bits_per_byte
    assert bits[best] == pytest.approx(again, rel=1e-6)


def test_focus_depends_on_nothing_but_its_inputs_and_the_seed(step_arguments, tmp_path):
    arguments = [argument for argument in step_arguments if not argument.startswith("--output")]
    written = []
    for place in ("first", "second"):
        assert run([*arguments, "--initialiser=focus", f"--output={tmp_path / place}"]) == 0
        written.append((tmp_path / place / "model.safetensors").read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        (["--initialiser=best"], "error: adapt_vocabulary.compared_initialisers: none; limit at least 2"),
        (["--initialiser=extend"], "error: initialiser extend: token "),
        (['--compared_initialisers=["extend"]'], "error: initialiser extend: token "),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(step_arguments, setting, line, capsys):
    assert run([*step_arguments, *setting]) == EXIT_USER_ERROR
    (last,) = [text for text in capsys.readouterr().err.splitlines() if text.startswith("error:")]
    assert last.startswith(line)


def test_extend_keeps_the_base_models_rows_and_head(step_arguments, tmp_path, make_tiny_llama, make_tiny_tokenizer):
    base = make_tiny_llama(320, tied=False)
    tokenizer = make_tiny_tokenizer(ENGLISH, 310)
    save_model(base, tokenizer, tmp_path / "base_model")
    tokenizer.add_tokens(["şəhər", "axşam"])
    shutil.rmtree(tmp_path / "tokenizer")
    tokenizer.save_pretrained(tmp_path / "tokenizer" / "tokenizer")
    sealed(tmp_path / "tokenizer")
    assert run([*step_arguments, "--initialiser=extend"]) == 0
    written = load_model(tmp_path / "output")
    for before, after in (
        (base.get_input_embeddings(), written.get_input_embeddings()),
        (base.get_output_embeddings(), written.get_output_embeddings()),
    ):
        size = len(tokenizer) - 2
        assert torch.equal(after.weight[:size], before.weight[:size])
        assert not torch.equal(after.weight[size], before.weight[size])
        assert torch.equal(after.weight[size + 2 :], before.weight[size + 2 :])
    adaptation = Adaptation.model_validate_json((tmp_path / "output" / "adaptation.json").read_bytes())
    assert set(adaptation.row_lengths) == {"base_embedding", "embedding", "base_head", "head"}
    assert not adaptation.tied_embeddings
