"""Files that are not what their name says, damaged, cut, unreadable or endless: one line that names file and remedy."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from steps.configs.prepare_corpus import PrepareCorpusConfig
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, StepError, run_step
from steps.prepare_corpus import FOLDERS, prepare_corpus
from steps.schemas.corpus import FaultSummary
from steps.text.corpus import read_findings, read_summary
from steps.text.opening import MAX_LINE_BYTES, refusing_unreadable
from steps.text.reading import read_records

ROOT = Path(__file__).parents[2]
LINE = json.dumps({"text": "Salam, dünya! Bu, kifayət qədər uzun bir sənəddir."}, ensure_ascii=False).encode() + b"\n"


def parquet_bytes(**columns: object) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return sink.getvalue().to_pybytes()


PARQUET = parquet_bytes(text=["Salam, dünya!"] * 99)
OTHERWISE = {
    "utf16.txt": ("salam dünya".encode("utf-16"), "holds UTF-16 text; limit UTF-8 text. Save it as UTF-8."),
    "big.jsonl": (b"\xfe\xff" + "{}".encode("utf-16-be"), "holds UTF-16 text"),
    "utf32.txt": ("salam".encode("utf-32"), "holds UTF-32 text"),
    "plain.jsonl": (gzip.compress(LINE), "holds gzip data; limit UTF-8 text. Let its name end in .gz"),
    "twice.jsonl.gz": (gzip.compress(gzip.compress(LINE)), "holds gzip data"),
    "plain.txt": (zstandard.compress(LINE), "holds zstd data"),
    "named.jsonl": (PARQUET, "holds parquet data; limit UTF-8 text. Let its name end in .parquet."),
    "word.txt": (b"PK\x03\x04rest", "holds a zip archive or an office document"),
    "paper.txt": (b"%PDF-1.7\n", "holds a PDF"),
    "plain.jsonl.gz": (LINE, "cannot be read (BadGzipFile"),
    "half.jsonl.gz": (gzip.compress(os.urandom(4_000))[:2_000], "cannot be read (EOFError"),
    "plain.txt.zst": (LINE, "cannot be read (ZstdError"),
    "half.txt.zst": (zstandard.compress(os.urandom(4_000))[:2_000], "cannot be read (EOFError"),
    "half.parquet": (PARQUET[: len(PARQUET) // 2], "cannot be read (ArrowInvalid"),
    "bad.parquet": (b"XXXX" + PARQUET[4:-4] + b"XXXX", "cannot be read (ArrowInvalid"),
    "empty.parquet": (b"", "cannot be read (ArrowInvalid"),
    "other.parquet": (
        parquet_bytes(number=[1], content=["Salam"]),
        "columns number (int64), content (string); limit a text column named text. "
        "Set prepare_corpus.text_field, perhaps to content.",
    ),
    "numbers.parquet": (
        parquet_bytes(text=[1, 2]),
        "columns text (int64); limit a text column named text. Give a file with a text column.",
    ),
}


@pytest.mark.parametrize("name", list(OTHERWISE))
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, name: str) -> None:
    content, words = OTHERWISE[name]
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / name
    file.write_bytes(content)
    with pytest.raises(StepError) as caught:
        list(read_records(tmp_path / "folder", "text"))
    assert str(caught.value).startswith(f"{file}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_marks_line_ends_links_and_folders_with_a_files_name(tmp_path: Path) -> None:
    inner = tmp_path / "in" / "folder.jsonl"
    inner.mkdir(parents=True)
    (inner / "a.txt").write_bytes("\ufeffBir.\r\n\r\nİki,\r\niki.\r\n\r\n\r\n".encode())
    (tmp_path / "b.jsonl").write_bytes(b"\xef\xbb\xbf" + LINE.replace(b"\n", b"\r\n"))
    (tmp_path / "in" / "link.jsonl").symlink_to(tmp_path / "b.jsonl")
    records = list(read_records(tmp_path / "in", "text"))
    assert [(record.source, record.number, record.text) for record in records] == [
        ("folder.jsonl/a.txt", 1, "Bir.\r\n"),
        ("folder.jsonl/a.txt", 3, "İki,\r\niki.\r\n"),
        ("link.jsonl", 1, json.loads(LINE)["text"]),
    ]
    (tmp_path / "in" / "lost.jsonl").symlink_to("nothing.jsonl")
    with pytest.raises(StepError, match=r"lost\.jsonl: a link to nothing"):
        list(read_records(tmp_path / "in", "text"))


def test_a_folder_of_other_files_names_one(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(b"x")
    (tmp_path / "b.pdf").write_bytes(b"x")
    with pytest.raises(StepError, match=r"no text files in it among 2, such as a\.docx; limit \.jsonl, \.txt"):
        list(read_records(tmp_path, "text"))


def test_an_endless_line_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    """A gigabyte without a line end (a file with a hole), in a process of its own that takes less than 600 MB."""
    file = tmp_path / "long.jsonl"
    file.write_bytes(b'{"text": "')
    os.truncate(file, 2**30)
    script = (
        "import sys\nfrom pathlib import Path\nfrom steps.contract import StepError\n"
        "from steps.text.reading import read_records\n"
        "try:\n    list(read_records(Path(sys.argv[1]), 'text'))\nexcept StepError as error:\n    print(error)\n"
        # Not ru_maxrss, which a process inherits from the one that started it.
        "print(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", script, file], cwd=ROOT, capture_output=True, text=True)
    error, peak_kib = done.stdout.splitlines()
    assert f"{file} line 1: a line longer than 128 MiB" in error
    assert int(peak_kib) * 1_024 < 600e6


def test_a_text_file_without_blank_lines_is_refused(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.txt.gz", "wb", compresslevel=1) as stream:
        for _ in range(MAX_LINE_BYTES // 2**20 + 1):
            stream.write(b"x" * (2**20 - 1) + b"\n")
    with pytest.raises(StepError, match=r"a\.txt\.gz line 1: no blank line in 128 million characters"):
        list(read_records(tmp_path, "text"))


def run(corpus: Path, output: Path, *more: str) -> int:
    arguments = [f"--corpus={corpus}", f"--output={output}", "--test_share=0.2", "--validation_share=0.2", *more]
    return run_step(prepare_corpus, PrepareCorpusConfig, FOLDERS, arguments=arguments)


def documents(count: int) -> bytes:
    lines = [json.dumps({"text": f"{number} " * 4 + "kifayət qədər uzun sənəd"}) for number in range(count)]
    return ("\n".join(lines) + "\n").encode()


def test_faulty_lines_are_counted_by_file_and_first_line(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = tmp_path / "in"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(documents(40) + b'{"text": "caf\xe9"}\nno json\nno json\n')
    (folder / "deep" / "b.jsonl").write_bytes(b'{"content": "three words here"}\n{"text": "nul \x00 byte"}\n')
    assert run(folder, tmp_path / "out", "--max_bad_line_share=0.2") == EXIT_DONE
    source = read_summary(tmp_path / "out").sources["corpus"]
    assert read_findings(tmp_path / "out").sources["corpus"].faults == [
        FaultSummary(file="a.jsonl", fault="invalid UTF-8", lines=1, first_line=41),
        FaultSummary(file="a.jsonl", fault="not JSON", lines=2, first_line=42),
        FaultSummary(file="deep/b.jsonl", fault='no text field "text"', lines=1, first_line=1),
        FaultSummary(file="deep/b.jsonl", fault="NUL bytes", lines=1, first_line=2),
    ]
    assert sum(source.dropped.values()) == 5
    assert run(folder, tmp_path / "refused") == EXIT_USER_ERROR
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == (
        f"error: {folder}: 5 of 45 lines unreadable, first: a.jsonl line 41: invalid UTF-8; "
        "limit a share of 0.01. Mend the file or raise prepare_corpus.max_bad_line_share."
    )


def test_the_field_that_looks_like_the_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    lines = [json.dumps({"url": "https://example.az/a", "content": "Bu, mətnin özüdür."})] * 3
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    assert run(tmp_path / "a.jsonl", tmp_path / "out") == EXIT_USER_ERROR
    assert "Did you mean content? Then set prepare_corpus.text_field to it." in capsys.readouterr().err


@pytest.mark.parametrize("name", ["corpus", "extra_heldout", "source_corpus"])
def test_an_empty_input_is_named(tmp_path: Path, capsys: pytest.CaptureFixture, name: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(documents(40))
    (tmp_path / "empty.jsonl").write_bytes(b"\n\n")
    more = [] if name == "corpus" else [f"--{name}={tmp_path / 'empty.jsonl'}"]
    corpus = tmp_path / ("empty.jsonl" if name == "corpus" else "a.jsonl")
    assert run(corpus, tmp_path / "out", *more) == EXIT_USER_ERROR
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"error: {name}: no documents in {tmp_path / 'empty.jsonl'}; limit at least one.")


def test_few_open_files_suffice(tmp_path: Path) -> None:
    """512 shards and 256 buckets in a process that may open 64 files; macOS allows 256."""
    (tmp_path / "a.jsonl").write_bytes(documents(60))
    command = [sys.executable, "-m", "steps.prepare_corpus", f"--corpus={tmp_path / 'a.jsonl'}"]
    command += [f"--output={tmp_path / 'out'}", "--train_shards=512", "--test_share=0.2", "--validation_share=0.2"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    assert done.returncode == EXIT_DONE, done.stderr
    assert len(read_summary(tmp_path / "out").splits["train"].shards) == 512


def test_a_file_that_may_not_be_read_is_named() -> None:
    # Root may read everything: it becomes another user first.
    number = "65534" if os.geteuid() == 0 else ""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "a.jsonl").write_bytes(LINE)
        (folder / "a.jsonl").chmod(0)
        script = (
            "import os, sys\nfrom pathlib import Path\nfrom steps.contract import StepError\n"
            "from steps.text.reading import read_records\n"
            "os.setuid(int(sys.argv[2])) if sys.argv[2] else None\n"
            "try:\n    list(read_records(Path(sys.argv[1]), 'text'))\nexcept StepError as error:\n    print(error)\n"
        )
        done = subprocess.run([sys.executable, "-c", script, name, number], cwd=ROOT, capture_output=True, text=True)
    remedy = "Give this user the right to it, or name another place."
    assert done.stdout == f"{folder / 'a.jsonl'}: Permission denied. {remedy}\n", done.stderr


def test_what_the_system_refuses_is_not_told_as_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    refused = f"{path}: Too many open files. Raise the limit of open files"
    with pytest.raises(StepError, match=re.escape(refused)), refusing_unreadable(path):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(path))
    with pytest.raises(MemoryError), refusing_unreadable(path):
        raise pyarrow.ArrowMemoryError("malloc of size 64 failed")
    gone = r"FileNotFoundError: .*\)\. Look at the place where it lies\.$"
    with pytest.raises(StepError, match=gone), refusing_unreadable(path):
        path.read_bytes()


def test_a_full_temporary_folder_is_named_where_parquet_is_unpacked(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk."""
    pyarrow.parquet.write_table(pyarrow.table({"text": [os.urandom(30_000).hex()]}), tmp_path / "a.parquet")
    packed = tmp_path / "a.parquet.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    script = (
        "import resource, sys\nfrom pathlib import Path\nfrom steps.contract import StepError\n"
        "from steps.text.reading import read_records\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n    list(read_records(Path(sys.argv[1]), 'text'))\nexcept StepError as error:\n    print(error)\n"
    )
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    done = subprocess.run(
        [sys.executable, "-c", script, packed], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.stdout.startswith(f"{tmp_path / 'temporary'}: File too large. Raise the limit"), done.stderr
