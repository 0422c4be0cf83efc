"""Proofs about the corpus: its forms give one result, near-duplicates keep apart, what is odd is warned of by name."""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from doubtful_corpora import SPOILT, sample_texts, write_texts
from workplace import prove

from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.contract import EXIT_DONE, content_digest, read_seal, run_step
from steps.prepare_corpus import FOLDERS, REPORTS, prepare_corpus
from steps.text.corpus import read_findings, read_split, read_summary
from steps.text.deduplication import jaccard, shingles
from steps.text.personal_data import mask_personal_data

pytestmark = pytest.mark.verify

REAL_TEXT = Path(os.environ.get("LANGADAPT_REAL_TEXT", Path(__file__).parents[3] / "shared" / "data"))
KINDS = ("jsonl", "txt", "parquet")
COMPRESS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}
LANGUAGES = ("en", "tr", "fi", "ka", "km", "hi", "az")


def prepare(output: Path, *more: str, **inputs: Path) -> Path:
    """Runs PrepareCorpus in this process; returns its output folder."""
    arguments = [f"--{name}={path}" for name, path in inputs.items()]
    arguments += [f"--output={output}", "--test_share=0.1", "--validation_share=0.1", *more]
    assert run_step(prepare_corpus, PrepareCorpusConfig, FOLDERS, reports=REPORTS, arguments=arguments) == EXIT_DONE
    return output


def warnings_of(output: Path) -> list[str]:
    return [warning.name for warning in read_seal(output).warnings]


def file_content(kind: str, texts: list[str]) -> bytes:
    if kind == "jsonl":
        return "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts).encode()
    if kind == "txt":
        return "\n\n".join(texts).encode()
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), sink)
    return sink.getvalue().to_pybytes()


def all_forms(folder: Path, texts: list[str]) -> Iterator[Path]:
    """18 inputs of the same documents: 3 kinds, 3 compressions, one file or a folder of three; and 5 mixed folders."""
    generator = random.Random(1)
    for kind in KINDS:
        for compression, compress in COMPRESS.items():
            order = generator.sample(texts, len(texts))
            single = folder / f"one.{kind}{compression}"
            single.write_bytes(compress(file_content(kind, order)))
            yield single
            several = folder / f"{kind}{compression}"
            (several / "deep").mkdir(parents=True)
            for place, name in enumerate(["b", "a", "deep/c"]):
                (several / f"{name}.{kind}{compression}").write_bytes(compress(file_content(kind, order[place::3])))
            yield several
    for number in range(5):
        mixed = folder / f"mixed{number}"
        mixed.mkdir()
        order = generator.sample(texts, len(texts))
        forms = [(kind, compression) for kind in KINDS for compression in COMPRESS]
        for place, (kind, compression) in enumerate(generator.sample(forms, len(forms))):
            file = mixed / f"{place}.{kind}{compression}"
            file.write_bytes(COMPRESS[compression](file_content(kind, order[place :: len(forms)])))
        yield mixed


def test_every_form_of_the_same_documents_gives_one_corpus(tmp_path: Path) -> None:
    texts = [text.replace("\n\n", "\n") for text in sample_texts()]
    (tmp_path / "in").mkdir()
    digests = [
        content_digest(prepare(tmp_path / f"out{number}", corpus=form))
        for number, form in enumerate(all_forms(tmp_path / "in", texts))
    ]
    found = f"{len(set(digests))} corpus digest of {len(digests)} inputs, {digests[0][:12]}"
    prove("3 kinds x plain / gz / zst x file / folder, and 5 mixed folders", found, "1", len(set(digests)) == 1)


def chains(seed: int) -> list[str]:
    """Documents of 100 words, each with copies of copies: every link changes a word or two of the one before it."""
    generator = random.Random(seed)
    vocabulary = [f"söz{number}" for number in range(3_000)]
    texts = []
    for _ in range(40):
        words = generator.choices(vocabulary, k=100)
        for _ in range(generator.randrange(1, 8)):
            texts.append(" ".join(words))
            for _ in range(generator.randrange(1, 3)):
                words[generator.randrange(100)] = generator.choice(vocabulary)
    return generator.sample(texts, len(texts))


def test_planted_near_duplicates_never_straddle_train_and_test(tmp_path: Path) -> None:
    highest, planted, dropped = 0.0, 0, 0
    seeds = 20
    for seed in range(seeds):
        texts = chains(seed)
        corpus = write_texts(tmp_path / f"{seed}.jsonl", texts)
        output = prepare(tmp_path / f"out{seed}", "--test_share=0.3", corpus=corpus)
        train, test = ([shingles(text, 5) for text in read_split(output, split)] for split in ("train", "test"))
        highest = max(highest, *(jaccard(one, other) for one in train for other in test))
        planted += len(texts)
        dropped += read_summary(output).sources["corpus"].dropped.get("near duplicate", 0)
    claim = (
        f"highest similarity of a train and a test document, {seeds} seeds, {planted:,} documents in chains of copies"
    )
    prove(claim, f"{highest:.3f} ({dropped:,} near-duplicates dropped)", "below 0.8", 0 < highest < 0.8)


def test_a_cyrillic_schwa_inside_a_latin_word(tmp_path: Path) -> None:
    texts = sample_texts()
    planted = sum(text.count("ə") for text in texts[:10])
    spoilt = [text.replace("ə", "\u04d9") if number < 10 else text for number, text in enumerate(texts)]
    output = prepare(tmp_path / "spoilt", corpus=write_texts(tmp_path / "spoilt.jsonl", spoilt))
    clean = prepare(tmp_path / "clean", corpus=write_texts(tmp_path / "clean.jsonl", texts))
    mapped = read_seal(output).metrics["homoglyphs_repaired"]
    same = all(read_split(output, split) == read_split(clean, split) for split in ("train", "validation", "test"))
    prove("Cyrillic ә in Latin words, mapped and counted", mapped, f"{planted}, all", mapped == planted and same)


def test_spoilt_corpora_are_warned_of_by_name(tmp_path: Path) -> None:
    right = 0
    for name, build in SPOILT.items():
        folder = tmp_path / name.replace(":", "-")
        folder.mkdir()
        more = ["--max_document_bytes=2000"] if name == "one-document-dominates" else []
        found = warnings_of(prepare(folder / "out", *more, **build(folder, sample_texts())))
        print(f"  {name}: {', '.join(found)}")
        right += found == [name.partition(":")[0]]
    names = len({name.partition(":")[0] for name in SPOILT})
    claim = f"{len(SPOILT)} spoilt corpora of {names} kinds, each warned of by its name alone, in the manifest"
    prove(claim, right, f"{len(SPOILT)}", right == len(SPOILT) and names >= 12)


def test_the_clean_sample_brings_no_warning(tmp_path: Path) -> None:
    found = warnings_of(prepare(tmp_path / "out", corpus=write_texts(tmp_path / "a.jsonl", sample_texts())))
    prove("warnings of the clean sample", found, "none", found == [])


def real_texts(name: str, **fields: str) -> list[str]:
    if not REAL_TEXT.is_dir():
        print(f"\nnot measured: real text: no folder {REAL_TEXT}", flush=True)
        pytest.skip(f"no real text at {REAL_TEXT}")
    lines = map(json.loads, (REAL_TEXT / name).read_text("utf-8").splitlines())
    return [line["text"] for line in lines if all(line.get(field) == value for field, value in fields.items())]


def test_real_text_brings_no_false_warning(tmp_path: Path) -> None:
    inputs = {
        f"parallel, {language}": real_texts("parallel_7_languages.jsonl", lang=language) for language in LANGUAGES
    }
    inputs |= {name: real_texts(f"{name}.jsonl") for name in ("az_laws", "az_heldout_wiki", "az_fiction", "az_web")}
    found = {}
    for number, (name, texts) in enumerate(inputs.items()):
        found[name] = warnings_of(prepare(tmp_path / str(number), corpus=write_texts(tmp_path / "a.jsonl", texts)))
    # az_web quotes one e-mail address, twice.
    odd = {name: names for name, names in found.items() if names and (name, names) != ("az_web", ["personal-data"])}
    prove(f"false warnings of {len(found)} real texts", odd or 0, "0", not odd)


def test_no_number_of_the_laws_is_taken_for_personal_data() -> None:
    texts = real_texts("az_laws.jsonl")
    began = time.process_time()
    hit = sum(bool(mask_personal_data(text)[1]) for text in texts)
    seconds = time.process_time() - began
    digits = sum(character.isdigit() for text in texts for character in text)
    claim = f"paragraphs of {len(texts):,} of the legal codes, with {digits:,} digits, taken for personal data"
    prove(claim, f"{hit} ({seconds:.1f} s)", "0", hit == 0)


@pytest.mark.parametrize(("minority", "share"), [(m, s) for m in ("en", "tr", "hi") for s in (0.15, 0.3)])
def test_another_language_among_real_text(tmp_path: Path, minority: str, share: float) -> None:
    texts = real_texts("az_heldout_wiki.jsonl")
    others = real_texts("parallel_7_languages.jsonl", lang=minority)[: round(len(texts) * share / (1 - share))]
    output = prepare(tmp_path / "out", corpus=write_texts(tmp_path / "a.jsonl", [*texts, *others]))
    name = "mixed-script" if minority == "hi" else "other-language"
    found = read_findings(output).sources["corpus"].findings[name]
    told = f"{warnings_of(output)}, {found.documents} of {found.examined} documents in the sample"
    near = abs(found.documents / found.examined - share) < 0.04
    prove(f"{share:.0%} {minority} among Azerbaijani sentences", told, name, warnings_of(output) == [name] and near)
