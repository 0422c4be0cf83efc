"""The import closure of a step and its archive: complete, deterministic, and no larger than what the step can run."""

import ast
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from pipeline.code_archive import STEPS_FOLDER, code_archive, import_closure, statements

STEP_MODULES = (
    "prepare_corpus",
    "train_tokenizer",
    "tokenize_corpus",
    "adapt_vocabulary",
    "continued_pretraining",
    "fine_tune",
    "evaluate_model",
)

MADE_UP = {
    "__init__.py": "",
    "start.py": (
        "import json\nfrom works.near import value\n\n"
        "def run():\n    from .deep.far import other\n    return value + other\n"
    ),
    "near.py": "value = 1\n",
    "unused.py": "value = 2\n",
    "deep/__init__.py": "from . import sibling\n",
    "deep/far.py": "from ..above import other\n",
    "deep/sibling.py": "import works.deep.leaf\n",
    "deep/leaf.py": "",
    "above.py": "other = 10\n",
}


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "works"
    for name, text in MADE_UP.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_an_import_is_found_wherever_a_statement_may_stand():
    """In this project's own sources, and inside each statement that holds others."""
    nested = """
try:
    import a
except (A, B) as error:
    with c as d:
        import b
else:
    for e in f:
        import g
    else:
        while h:
            import i
        else:
            import j
finally:
    match k:
        case 1:
            import l
async def m():
    async with n:
        if o:
            import p
        elif q:
            class R:
                import s
        else:
            async for t in u:
                import v
try:
    pass
except* W:
    import w
"""
    for source in [nested, *(path.read_text() for path in sorted(STEPS_FOLDER.rglob("*.py")))]:
        tree = ast.parse(source)
        found = [{id(node) for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))}
                 for nodes in (statements(tree), ast.walk(tree))]  # fmt: skip
        assert found[0] == found[1]


def test_closure_of_a_made_up_package(package):
    """Absolute, relative and late imports are followed, and packages' own imports; other modules stay out."""
    assert import_closure("start", package) == [
        "works/__init__.py",
        "works/above.py",
        "works/deep/__init__.py",
        "works/deep/far.py",
        "works/deep/leaf.py",
        "works/deep/sibling.py",
        "works/near.py",
        "works/start.py",
    ]


def test_unknown_module_is_refused(package):
    with pytest.raises(FileNotFoundError, match=r"no module works\.absent"):
        import_closure("absent", package)


def test_digest_names_the_content_and_changes_with_the_closure_alone(package):
    before = code_archive("start", package)
    assert before.digest == hashlib.sha256(before.content).hexdigest()
    os.utime(package / "near.py", (0, 0))
    (package / "unused.py").write_text("value = 3\n")
    assert code_archive("start", package) == before
    (package / "above.py").write_text("other = 11\n")
    assert code_archive("start", package).digest != before.digest


def test_archive_is_stored_sorted_and_without_a_time(package):
    with zipfile.ZipFile(io.BytesIO(code_archive("start", package).content)) as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == import_closure("start", package)
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}


def test_writing_leaves_one_file_and_mends_a_damaged_one(package, tmp_path):
    archive = code_archive("start", package)
    path = archive.write(tmp_path / "code")
    assert path.name == f"{archive.digest}.zip"
    path.write_bytes(b"half")
    assert archive.write(tmp_path / "code").read_bytes() == archive.content
    assert [entry.name for entry in (tmp_path / "code").iterdir()] == [path.name]


def test_archive_of_a_made_up_step_runs_on_its_own(package, tmp_path):
    path = code_archive("start", package).write(tmp_path / "code")
    command = [
        sys.executable,
        "-I",
        "-c",
        f"import sys; sys.path.insert(0, {str(path)!r}); from works.start import run; print(run())",
    ]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "11\n"


@pytest.mark.parametrize("step", STEP_MODULES)
def test_archive_of_a_real_step_holds_its_module_and_the_contract(step):
    archive = code_archive(step)
    assert {f"steps/{step}.py", "steps/__init__.py", "steps/contract/__init__.py"} <= set(archive.paths)
    assert all((STEPS_FOLDER.parent / path).is_file() for path in archive.paths)
    others = {f"steps/{other}.py" for other in STEP_MODULES if other != step}
    assert not others & set(archive.paths), "a step that imports another step reruns with it"
    assert code_archive(step) == archive


@pytest.mark.parametrize("step", STEP_MODULES)
def test_settings_of_other_steps_are_not_in_a_steps_archive(step):
    settings = {path for path in code_archive(step).paths if path.startswith("steps/configs/")}
    assert settings == {"steps/configs/__init__.py", f"steps/configs/{step}.py"}


WITH_TREE = "import sys; sys.path.insert(0, sys.argv[1]); from pipeline.code_archive import code_archive"
DIGESTS = f"{WITH_TREE}; print([code_archive(step).digest for step in sys.argv[2:]])"
ARCHIVE = f"{WITH_TREE}; sys.stdout.buffer.write(code_archive(sys.argv[2]).content)"


@pytest.fixture
def checkouts():
    """Two copies of the sources as two people may have them: another place, other times, other permissions."""
    with tempfile.TemporaryDirectory() as name:
        # Another user reads below it, which pytest's own folders do not allow.
        Path(name).chmod(0o755)
        copies = [Path(name) / "home" / "ayla" / "langadapt", Path(name) / "srv" / "çıxış ü" / "la"]
        for copy, mode, time in zip(copies, (0o644, 0o444), (1_000_000_000, 1_700_000_000), strict=True):
            for package in ("steps", "pipeline"):
                shutil.copytree(STEPS_FOLDER.parent / package, copy / package, ignore=shutil.ignore_patterns("*.pyc"))
            for path in copy.rglob("*"):
                path.chmod(0o755 if path.is_dir() else mode)
                os.utime(path, (time, time))
        yield copies


def test_two_machines_make_the_same_bytes_of_every_step(checkouts):
    first, second = checkouts
    one = made_by(DIGESTS, first, *STEP_MODULES, zone="UTC", seed="0", umask=0o022)
    other = made_by(DIGESTS, second, *STEP_MODULES, zone="Asia/Baku", seed="4711", umask=0o077, user=NOBODY)
    assert one == other
    assert ast.literal_eval(one.decode()) == [code_archive(step).digest for step in STEP_MODULES]
    # Not the digests alone: what is uploaded.
    ends = [
        made_by(ARCHIVE, tree, "fine_tune", zone=zone, seed=seed, umask=0o027)
        for tree, zone, seed in ((first, "America/St_Johns", "1"), (second, "Pacific/Chatham", "random"))
    ]
    assert ends[0] == ends[1] == code_archive("fine_tune").content


# The user with no rights; only root may become another.
NOBODY = 65_534 if os.geteuid() == 0 else None


def made_by(program, tree, *arguments, zone, seed, umask, user=None):
    """What a fresh Python prints, with these surroundings."""
    surroundings = {"TZ": zone, "PYTHONHASHSEED": seed, "LC_ALL": "C", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable, "-c", program, str(tree)]
    made = subprocess.run(
        [*command, *arguments], capture_output=True, env=surroundings, umask=umask, user=user, cwd="/", check=True
    )
    return made.stdout


def test_importing_the_module_needs_the_standard_library_only():
    """launch.py's counterpart must stay quick: nothing but the standard library and the package itself."""
    command = [sys.executable, "-c", "import sys, pipeline.code_archive; print('pydantic' in sys.modules)"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=STEPS_FOLDER.parent).stdout
    assert output == "False\n"
