"""A model's own code (see steps/contract/remote_code.py): run where the user trusts it, told of, its faults named.

transformers' own way, trust_remote_code=True, is not taken: it knows code by the name of its folder, so that a second
model of one process may get the code of the first, and it would also run what a folder has for generating text.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, dynamic_module_utils
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.models.auto.auto_factory import add_generation_mixin_to_remote_model

from steps.contract import StepError, mendable_error, table_digest, warn
from steps.contract.faults import shortened
from steps.contract.model_folder import check_folder_code, own_classes
from steps.contract.remote_code import describe_code

MODULES_VARIABLE = "HF_MODULES_CACHE"


def own_class(folder: Path, kind: str, *, trust_remote_code: bool) -> Any:
    """The class of the folder's own code that it names for AutoConfig, AutoModelForCausalLM or AutoTokenizer; None
    where it names none. What is made of it and saved carries its code along.

    Warns by the name `remote-code`, once for folders with the same code. Raises StepError where code may not run (see
    check_folder_code), and for whatever it raises.
    """
    files = check_folder_code(folder, trust_remote_code=trust_remote_code)
    if files:
        warn("remote-code", f"runs the model's own code on this machine: {describe_code(files)}")
    name = own_classes(folder).get(kind)
    if name is None:
        return None
    with naming_code_faults(folder, ImportError, AttributeError):
        found: Any = get_class_from_dynamic_module(name, str(_copied(folder, files)), local_files_only=True)
        found.register_for_auto_class(kind)
    return add_generation_mixin_to_remote_model(found) if issubclass(found, PreTrainedModel) else found


@contextmanager
def naming_code_faults(folder: Path, *more: type[Exception]) -> Iterator[None]:
    """Within it what a model's own code raises is a StepError with file and line; so are errors of the kinds `more`.

    Anything else goes on as it is, as does what the machine is to blame for.
    """
    try:
        yield
    except Exception as error:
        # Such code may raise anything.
        place = _place_in_code(error)
        if mendable_error(error, folder) is not None or (place is None and not isinstance(error, more)):
            raise
        value = f"its own code failed{place or ''} ({type(error).__name__}: {shortened(str(error))})"
        raise StepError(str(folder), value, remedy="Mend the model's code, or install what it needs.") from error


@functools.cache
def modules_folder() -> Path:
    """Where code is copied to before it runs: a folder of this process, in the job's own where launch.py names one;
    gone at its end.

    Not the user's home, where it would stay; and not one folder for all processes, as the copies are not atomic: one
    process may read what another is writing.
    """
    place = os.environ.get(MODULES_VARIABLE)
    if place:
        Path(place).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="remote-code-", dir=place)).resolve()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # The library reads the variable once, at import, for all processes alike.
    dynamic_module_utils.HF_MODULES_CACHE = str(folder)
    return folder


def _copied(folder: Path, files: Mapping[str, str]) -> Path:
    """A copy of a folder's code under a name by its content: transformers goes by the folder's name."""
    copy = modules_folder() / "copied" / f"code_{table_digest(files)[:16]}"
    copy.mkdir(parents=True, exist_ok=True)
    for name in files:
        shutil.copyfile(folder / name, copy / name)
    return copy


def _place_in_code(error: BaseException) -> str | None:
    """Where in a model's own code an error came from, innermost; None where no such code took part."""
    own = f"{dynamic_module_utils.HF_MODULES_CACHE}/"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(own)]
    return f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else None
