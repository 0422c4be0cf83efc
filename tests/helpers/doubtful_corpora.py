"""The sample's corpus, each time spoilt in one plausible way, under the name of the warning that it must bring."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

SAMPLE = Path(__file__).parents[2] / "steps" / "sample_data" / "corpus.jsonl"

ENGLISH = [
    "The ferry leaves the harbour at dawn and comes back before supper.",
    "My aunt keeps her seeds in old tea tins, each with the year written on the lid.",
    "Nobody could say which of the two clocks in the hall was telling the truth.",
    "When the river rises, the baker moves his flour to the upper floor.",
    "She taught us to read maps by walking the same hill from every side.",
    "The library closes early on Fridays because the heating is turned off.",
    "After the storm we found the roof of the shed in the neighbour's garden.",
    "A good knife, he used to say, is worth more than three bad ones.",
]
TURKISH = [
    "Vapur sabah erkenden iskeleden ayrılır ve akşam yemeğinden önce geri döner.",
    "Teyzem tohumlarını eski çay kutularında saklar, her kapağın üstüne yılını yazar.",
    "Salondaki iki saatten hangisinin doğruyu gösterdiğini kimse söyleyemedi.",
    "Irmak yükseldiği zaman fırıncı ununu üst kata taşır ve suyun çekilmesini bekler.",
    "Bize harita okumayı aynı tepeye her yönden yürüterek öğretti.",
    "Kütüphane cuma günleri erken kapanıyor, çünkü kalorifer o gün söndürülüyor.",
    "Fırtınadan sonra kulübenin çatısını komşunun bahçesinde bulduk.",
    "İyi bir bıçak, derdi hep, üç kötü bıçaktan daha değerlidir.",
]
RUSSIAN = [
    "Паром уходит из гавани на рассвете и возвращается к ужину.",
    "Тётя хранит семена в старых банках из-под чая и пишет год на каждой крышке.",
    "Никто не мог сказать, какие из двух часов в прихожей показывают правду.",
    "Когда река поднимается, пекарь переносит муку на верхний этаж.",
    "Она учила нас читать карты, обходя один и тот же холм со всех сторон.",
    "По пятницам библиотека закрывается рано, потому что отключают отопление.",
    "После бури мы нашли крышу сарая в соседском саду.",
    "Хороший нож, говорил он, стоит больше трёх плохих.",
]
WITHOUT_DIACRITICS = str.maketrans("əıöüçşğƏİÖÜÇŞĞ", "eioucsgEIOUCSG")
Build = Callable[[Path, list[str]], dict[str, Path]]


def sample_texts() -> list[str]:
    """Documents of the sample's corpus, as many as how much is spoilt below is made for."""
    return [json.loads(line)["text"] for line in SAMPLE.read_text("utf-8").splitlines()[:54]]


def write_texts(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts), "utf-8")
    return path


def foreign(sentences: list[str], documents: int) -> list[str]:
    """Distinct documents of sixty of the sentences' words: in sentences, eight of them would repeat as boilerplate."""
    generator = random.Random(7)
    words = " ".join(sentences).split()
    return [" ".join(generator.choices(words, k=60)) for _ in range(documents)]


def part(texts: list[str], change: Callable[[str], str], of: int = 4) -> list[str]:
    """Every fourth document changed."""
    return [change(text) if number % of == 0 else text for number, text in enumerate(texts)]


def corpus_of(change: Callable[[list[str]], list[str]]) -> Build:
    return lambda folder, texts: {"corpus": write_texts(folder / "corpus.jsonl", change(texts))}


def with_held_out(held_out: Callable[[list[str]], list[str]]) -> Build:
    return lambda folder, texts: {
        "corpus": write_texts(folder / "corpus.jsonl", texts),
        "extra_heldout": write_texts(folder / "held_out.jsonl", held_out(texts)),
    }


def with_source(source: Callable[[list[str]], list[str]]) -> Build:
    return lambda folder, texts: {
        "corpus": write_texts(folder / "corpus.jsonl", texts[:40]),
        "source_corpus": write_texts(folder / "source.jsonl", source(texts)),
    }


def misread(encoding: str) -> Callable[[str], str]:
    """UTF-8 taken for another encoding; a byte that the encoding lacks becomes U+FFFD."""
    return lambda text: text.encode().decode(encoding, "replace")


def personal(number: int) -> str:
    phone = f"+994 50 555 01 {number:02d}"
    return f"Müraciət üçün: {phone}, kart 4111 1111 1111 1111, elnare{number}@example.az, FİN: 5ABC1D2."


# Warning -> a corpus that must bring it. Several of one warning are told apart by what stands after the colon.
SPOILT: dict[str, Build] = {
    "other-language:English": corpus_of(lambda texts: [*texts, *foreign(ENGLISH, 14)]),
    "other-language:Turkish": corpus_of(lambda texts: [*texts, *foreign(TURKISH, 20)]),
    "mixed-script": corpus_of(lambda texts: [*texts, *foreign(RUSSIAN, 14)]),
    "letters-missing:all": corpus_of(lambda texts: part(texts, lambda text: text.translate(WITHOUT_DIACRITICS))),
    "letters-missing:schwa": corpus_of(
        lambda texts: part(texts, lambda text: text.replace("ə", "e").replace("Ə", "E"))
    ),
    "mojibake:cp1252": corpus_of(lambda texts: part(texts, misread("cp1252"))),
    "mojibake:cp1254": corpus_of(lambda texts: part(texts, misread("cp1254"))),
    "mojibake:latin-1": corpus_of(lambda texts: part(texts, misread("latin-1"))),
    "mojibake:twice": corpus_of(lambda texts: part(texts, lambda text: misread("cp1252")(misread("cp1252")(text)))),
    "html-markup": corpus_of(lambda texts: part(texts, lambda text: f'<div class="body">{text}</div>&nbsp;')),
    "repeated-boilerplate": corpus_of(
        lambda texts: [f"{text}\n\n© 2024 Bütün hüquqlar qorunur. Baxış: {number}" for number, text in enumerate(texts)]
    ),
    "repeated-boilerplate:flattened": corpus_of(
        lambda texts: [f"Ana səhifə Xəbərlər İdman Mədəniyyət Əlaqə Axtarış {text}" for text in texts]
    ),
    "one-document-dominates": lambda folder, texts: {"corpus": one_long_text(folder, texts)},
    "mostly-duplicates": corpus_of(lambda texts: [f"{text} {copy}" for text in texts for copy in range(3)]),
    "many-short-documents": corpus_of(lambda texts: [*texts, *(f"{number}-ci sətir" for number in range(70))]),
    "all-capitals": corpus_of(lambda texts: part(texts, str.upper, of=3)),
    "soft-hyphens": corpus_of(lambda texts: part(texts, lambda text: text.replace("lar", "\u00adlar"))),
    "private-use-characters": corpus_of(lambda texts: part(texts, lambda text: "\uf0b7 " + text)),
    "zero-width-characters": corpus_of(lambda texts: part(texts, lambda text: text.replace(" ", " \u200b"))),
    "control-characters": corpus_of(lambda texts: part(texts, lambda text: text.replace("\n", "\x0b"))),
    "personal-data": corpus_of(
        lambda texts: [f"{text}\n{personal(n)}" if n < 3 else text for n, text in enumerate(texts)]
    ),
    "heldout-in-training:whole": with_held_out(lambda texts: texts[:5] + [text[::-1] for text in texts[5:8]]),
    "heldout-in-training:passages": with_held_out(lambda texts: [text[300:800] for text in texts[:5]]),
    "heldout-other-language": with_held_out(lambda texts: foreign(ENGLISH, 10)),
    "source-corpus-same-language:identical": with_source(lambda texts: texts[:40]),
    "source-corpus-same-language:other texts": with_source(lambda texts: texts[40:]),
}


def one_long_text(folder: Path, texts: list[str]) -> Path:
    """A .txt with the blank lines missing in most of it."""
    path = folder / "corpus.txt"
    merged = "\n".join(text.replace("\n\n", "\n") for text in texts[:40])
    path.write_text("\n\n".join([merged, *(text.replace("\n\n", "\n") for text in texts[40:])]), "utf-8")
    return path
