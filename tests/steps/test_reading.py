"""Reading: three kinds of file, three forms of each, one file or a folder; damage is named."""

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from steps.contract import StepError
from steps.text.reading import read_records, text_files

TEXTS = ["Birinci sənəd buradadır.", "İkinci sənəd: ı, i, ə, ğ, ş, ç, ö, ü.", "Üçüncü sətir."]


def content(kind: str, tmp_path: Path) -> bytes:
    if kind == "jsonl":
        return "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in TEXTS).encode()
    if kind == "txt":
        return "\n\n".join(TEXTS).encode()
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), tmp_path / "plain.parquet")
    data = (tmp_path / "plain.parquet").read_bytes()
    (tmp_path / "plain.parquet").unlink()
    return data


COMPRESS = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}


@pytest.mark.parametrize("kind", ["jsonl", "txt", "parquet"])
@pytest.mark.parametrize("compression", list(COMPRESS))
@pytest.mark.parametrize("as_folder", [False, True])
def test_every_form_gives_the_same_documents(tmp_path: Path, kind: str, compression: str, as_folder: bool) -> None:
    file = tmp_path / "in" / f"text.{kind}{compression}"
    file.parent.mkdir()
    file.write_bytes(COMPRESS[compression](content(kind, tmp_path)))
    records = list(read_records(file.parent if as_folder else file, "text"))
    assert [(record.text or "").strip() for record in records] == TEXTS


@pytest.mark.parametrize("name", ["text.jsonl.gz", "text.jsonl.zst", "text.parquet", "text.parquet.gz"])
def test_a_file_cut_in_half_is_named(tmp_path: Path, name: str) -> None:
    kind, compression = (
        name.split(".", 2)[1],
        name[len("text.jsonl") :] if "jsonl" in name else name[len("text.parquet") :],
    )
    whole = COMPRESS[compression](content(kind, tmp_path))
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StepError, match=f"{name}: cannot be read"):
        list(read_records(tmp_path / name, "text"))


def test_zstd_frames_after_one_another(tmp_path: Path) -> None:
    compress = zstandard.ZstdCompressor().compress
    (tmp_path / "a.txt.zst").write_bytes(compress(b"one\n\n") + compress(b"two\n"))
    assert [record.text for record in read_records(tmp_path / "a.txt.zst", "text")] == ["one\n", "two\n"]


def test_faulty_lines_are_records_with_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(
        b'{"text": "ok"}\nno json\n{"other": 1}\n\xff\xfe\n\n{"text": 3}\n{"text": "\\ud83d"}\n'
    )
    records = list(read_records(tmp_path / "a.jsonl", "text"))
    assert [record.fault for record in records] == [
        None,
        "not JSON",
        'no text field "text"',
        "invalid UTF-8",
        'no text field "text"',
        "invalid Unicode",
    ]
    assert records[3].number == 4


def test_a_parquet_row_that_is_no_text_is_a_record_with_a_fault(tmp_path: Path) -> None:
    rows = pyarrow.array([b"whole", b"\xff\xfe"]).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"text": rows}), tmp_path / "a.parquet")
    records = list(read_records(tmp_path / "a.parquet", "text"))
    assert [(record.text, record.fault) for record in records] == [("whole", None), (None, "invalid UTF-8")]


def test_unknown_kind_and_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(b"x")
    with pytest.raises(StepError, match="unknown kind of file"):
        list(read_records(tmp_path / "a.docx", "text"))
    with pytest.raises(StepError, match="no text files in it"):
        list(read_records(tmp_path, "text"))


def test_the_share_of_bad_lines_in_txt_is_one_of_lines(tmp_path: Path) -> None:
    """Paragraphs of forty lines: half a percent of the lines is no fifth of the documents."""
    lines = [b"Bak\xc4\xb1 paytaxtd\xc4\xb1r.\n" * 40 + b"\n"] * 250 + [b"\xff\xfe\xff\n"] * 5
    file = tmp_path / "text.txt"
    file.write_bytes(b"".join(lines))
    records = list(read_records(file, "text"))
    assert sum(record.lines for record in records) >= 250 * 40
    assert sum(record.fault is not None for record in records) == 5


def test_a_zstd_file_that_grows_a_ten_thousandfold_is_read_in_seconds(tmp_path: Path) -> None:
    file = tmp_path / "text.jsonl.zst"
    file.write_bytes(zstandard.compress(b'{"text": "a"}\n' * 500_000))
    assert sum(1 for _ in read_records(file, "text")) == 500_000


def test_what_other_programs_put_into_a_folder_is_no_text(tmp_path):
    folder = tmp_path / ".kept" / "corpus"
    for name in ("a.txt", ".git/b.txt", "__MACOSX/c.txt", "part/._d.txt", "part/e.txt", ".f.jsonl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("Salam")
    assert [file.relative_to(folder).as_posix() for file in text_files(folder)] == ["a.txt", "part/e.txt"]
    assert text_files(folder / ".git" / "b.txt") == [folder / ".git" / "b.txt"]
    (folder / "a.txt").unlink()
    (folder / "part" / "e.txt").unlink()
    with pytest.raises(StepError, match="no text files in it; limit"):
        text_files(folder)


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"bir\riki\r\r\xc3\xbc\xc3\xa7\r", ["bir\riki\r", "üç\r"]),
        (b"bir\r\niki\r\n\r\n\xc3\xbc\xc3\xa7", ["bir\r\niki\r\n", "üç"]),
        (b"bir\r\r\niki\rson\n", ["bir\r\r\niki\rson\n"]),
    ],
    ids=["old Mac", "Windows", "stray"],
)
def test_line_ends_of_a_txt(tmp_path, content, texts):
    (tmp_path / "a.txt").write_bytes(content)
    assert [record.text for record in read_records(tmp_path, "text")] == texts
