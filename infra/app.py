"""The app: `python -m infra.app [FILE]...` and `cdk synth` give the same templates, offline and without credentials.

The environments, and all in which they differ, are infra/environments/*.yaml; each is one stack.
"""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from infra.environment import EnvironmentConfig, endpoint_name, load_environment
from steps.contract import EXIT_DONE, EXIT_USER_ERROR, ConfigError

FOLDER = Path(__file__).parent
ENVIRONMENTS = FOLDER / "environments"


def context() -> dict[str, Any]:
    """The context of cdk.json, which the command line hands over and Python alone would not read."""
    return json.loads((FOLDER / "cdk.json").read_text(encoding="utf-8"))["context"]


def environment_files(folder: Path = ENVIRONMENTS) -> list[Path]:
    return sorted(folder.glob("*.yaml"))


def build_app(files: list[Path]) -> Any:
    """The app with a stack for each environment's file. Raises ConfigError before anything is synthesised."""
    environments = [load_environment(file) for file in files]
    names = [environment.name for environment in environments]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError("name", name, limit="one environment of a name", remedy="Give each a name of its own.")
    check_endpoints(environments)
    for environment in environments:
        if (environment.image.base or "").endswith("@sha256:" + "0" * 64):
            line = f"{environment.name}: image.base is the placeholder it is shipped with, which no image is built on"
            print(f"warning: {line}", file=sys.stderr)
    require_cdk()
    from aws_cdk import App, Validations
    from cdk_nag import AwsSolutionsChecks

    from infra.stack import LangadaptStack

    app = App(context=context(), analytics_reporting=False, auto_synth=False)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    for environment in environments:
        LangadaptStack(app, environment.name, environment=environment)
    return app


def check_endpoints(environments: list[EnvironmentConfig]) -> None:
    """Raises ConfigError where two environments of one account and region would steer one endpoint."""
    steered: dict[tuple[str, str, str], str] = {}
    for environment in environments:
        name = endpoint_name(environment)
        if name is None:
            continue
        first = steered.setdefault((environment.account, environment.region, name), environment.name)
        if first != environment.name:
            remedy = f"Give {environment.name} another one than {first}."
            raise ConfigError("approval.endpoint_name", name, limit="one environment of an endpoint", remedy=remedy)


def require_cdk() -> None:
    """Raises ConfigError for what CDK needs of this machine and does not find."""
    if find_spec("aws_cdk") is None:
        raise ConfigError("aws-cdk-lib", "not installed", remedy="Install it: pip install '.[infra]'")
    if shutil.which("node") is None:
        raise ConfigError("node", "not on the path", remedy="Install Node.js, which CDK runs on.")


def main(arguments: list[str]) -> int:
    """arguments: environments' files; none: all of infra/environments/."""
    try:
        app = build_app([Path(name) for name in arguments] or environment_files())
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    return synthesised(app)


def synthesised(app: Any) -> int:
    """Writes the templates; the exit code. What a checker finds in one is told, a line for each resource."""
    try:
        app.synth()
    except RuntimeError as error:
        # As jsii hands over what CDK throws; the report's path ends it.
        if not str(error).startswith("ValidationFailed"):
            raise
        for line in finding_lines(Path(str(error).rpartition(": ")[2])):
            print(f"error: {line}", file=sys.stderr)
        return EXIT_USER_ERROR
    return EXIT_DONE


def finding_lines(report: Path) -> list[str]:
    """What a checker has found in a template, a line for each resource. report: validation-report.json of CDK."""
    found = json.loads(report.read_text(encoding="utf-8"))
    return [
        f"{resource['constructPath']}: {violation['ruleName']}. {violation['description']}"
        for plugin in found["pluginReports"]
        for violation in plugin["violations"]
        for resource in violation["violatingConstructs"]
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
