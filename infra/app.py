"""The app: `python -m infra.app` and `cdk synth` give the same templates, offline and without credentials.

The environments, and how they differ, are infra/environments/*.yaml; each is one stack.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.environment import load_environment
from steps.contract import EXIT_USER_ERROR, ConfigError

FOLDER = Path(__file__).parent
ENVIRONMENTS = FOLDER / "environments"


def context() -> dict[str, Any]:
    """The context of cdk.json, which the command line hands over and Python alone would not read."""
    return json.loads((FOLDER / "cdk.json").read_text(encoding="utf-8"))["context"]


def environment_files(folder: Path = ENVIRONMENTS) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def build_app(files: list[Path], settings: Mapping[str, Any] | None = None) -> Any:
    """The app with a stack for each environment's file. Raises ConfigError before anything is synthesised."""
    environments = [load_environment(file) for file in files]
    from aws_cdk import App, Validations
    from cdk_nag import AwsSolutionsChecks

    from infra.stack import LangadaptStack

    app = App(context={**context(), **(settings or {})}, analytics_reporting=False, auto_synth=False)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    for environment in environments:
        LangadaptStack(app, environment.name, environment=environment)
    return app


def main() -> int:
    try:
        build_app(environment_files()).synth()
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
