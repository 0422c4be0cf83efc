"""What stands for the environment image on this machine, and what a run needs to be made again."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import containers
from pipeline.config import PipelineConfig
from pipeline.local.images import LocalImage

# All that pyproject.toml requires, and what can be used on top: where the version of one changes, results may. A list
# here, as a checkout that is not installed has no requirements to ask for.
DISTRIBUTIONS = (
    "sagemaker", "boto3", "torch", "transformers", "tokenizers", "datasets", "accelerate", "peft", "trl", "safetensors",
    "pydantic", "typer", "rich", "pyyaml", "numpy", "pyarrow", "zstandard", "regex", "rustbpe",
    "gigatoken", "sentencepiece", "matplotlib", "tensorboard", "liger-kernel", "bitsandbytes",
)  # fmt: skip
LAUNCHER_FOLDER = Path(containers.__file__).parent
# As `python3 -m containers.launch` in an image whose PYTHONPATH has the launcher: here in any folder, and no variable
# shows the step the launcher's place, with this checkout's own steps beside it.
START_LAUNCHER = (
    "import os, runpy, sys; sys.path.insert(0, os.path.dirname(os.path.dirname(sys.argv.pop(1)))); "
    "runpy.run_module('containers.launch', run_name='__main__', alter_sys=True)"
)


def local_image() -> LocalImage:
    """What stands for the environment image here: this Python with the launcher, known by the versions in it."""
    start = (sys.executable, "-P", "-c", START_LAUNCHER, str(LAUNCHER_FOLDER / "launch.py"))
    return LocalImage(start, environment_digest(installed_versions(DISTRIBUTIONS), launcher_texts()))


def launcher_texts() -> dict[str, str]:
    """The text of each of the launcher's modules, by the file's name."""
    return {path.name: path.read_text("utf-8") for path in sorted(LAUNCHER_FOLDER.glob("*.py"))}


def environment_digest(versions: Mapping[str, str | None], launcher: Mapping[str, str]) -> str:
    """sha256 over Python's version, those of the distributions, and the launcher's modules."""
    described = json.dumps([platform.python_version(), dict(versions), dict(launcher)], sort_keys=True)
    return hashlib.sha256(described.encode()).hexdigest()


def installed_versions(distributions: Iterable[str]) -> dict[str, str | None]:
    """The version of each distribution, None where it is not installed."""
    versions: dict[str, str | None] = {}
    for name in distributions:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def reproduction_texts(config: PipelineConfig) -> dict[str, str]:
    """What a registered version needs to be made again beside the run's own record: the whole configuration, which
    `langadapt run --config` takes, and the versions of all that was installed."""
    import yaml

    environment = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": installed_versions(DISTRIBUTIONS),
    }
    return {
        "config.yaml": yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
        "environment.json": json.dumps(environment, indent=2) + "\n",
    }
