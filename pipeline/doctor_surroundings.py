"""What surrounds a run: AWS credentials, other programs, the locale, variables."""

from __future__ import annotations

import locale
import os
import shutil
import sys
from collections.abc import Iterator

from pipeline.doctor_finding import MISSING, OK, WARNING, Finding

# What our own variables do; those that a run sets for its steps are of no use to a person.
VARIABLES = {
    "LANGADAPT_CACHE": "where the sample is kept",
    "LANGADAPT_REGISTRY": "the registry of `models` and `run`",
    "LANGADAPT_REAL_TEXT": "the text that `make verify` and `make results` read",
    "LANGADAPT_TENSORBOARD": "where a step that is started alone writes TensorBoard events",
}
TOOLS = {
    "node": "the CDK commands of a later version",
    "docker": "building and testing the environment image",
}
NOT_NEEDED = "a local run and compile need none; deploying and starting on SageMaker, in a later version, do"


def check_aws() -> Iterator[Finding]:
    """Credentials and region as boto3 would find them. No key is shown, and no service, role or program is asked."""
    try:
        import botocore.exceptions
        import botocore.session
    except ImportError:
        # The line of the library itself says how to get it.
        yield Finding("AWS credentials", MISSING, "boto3 is not installed", brings=NOT_NEEDED)
        return
    session = botocore.session.Session()
    try:
        profile, region = session.get_scoped_config(), session.get_config_variable("region")
    except (botocore.exceptions.ProfileNotFound, botocore.exceptions.ConfigParseError) as error:
        yield Finding("AWS credentials", WARNING, str(error), remedy="Correct AWS_PROFILE or the file.")
        return
    source = credentials_source(profile, session.get_config_variable("profile") or "default")
    if source:
        yield Finding("AWS credentials", OK, f"from {source}; not tried")
    else:
        yield Finding("AWS credentials", MISSING, "none in variables or files", brings=NOT_NEEDED)
    if region:
        yield Finding("AWS region", OK, region)
    else:
        yield Finding("AWS region", MISSING, "none", brings="a configuration's aws.region serves in its place")


def credentials_source(profile: dict, name: str) -> str:
    """Where boto3 would take credentials from, by what is set; empty where only an instance's role is left to ask."""
    if os.environ.get("AWS_ACCESS_KEY_ID") and "AWS_PROFILE" not in os.environ:
        return "the environment"
    kinds = {
        "aws_access_key_id": "its keys", "role_arn": "its role", "sso_session": "single sign-on",
        "sso_start_url": "single sign-on", "credential_process": "its program",
    }  # fmt: skip
    for setting, kind in kinds.items():
        if profile.get(setting):
            return f"profile {name} ({kind})"
    if os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return "a web identity token"
    names = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
    return "the container's role" if any(os.environ.get(name) for name in names) else ""


def check_tools() -> Iterator[Finding]:
    """Programs that a local run goes without."""
    for name, brings in TOOLS.items():
        path = shutil.which(name)
        yield Finding(name, OK, path) if path else Finding(name, MISSING, "not on the path", brings=f"brings {brings}")


def check_locale() -> Finding:
    """Encodings of files' names, of text files and of the terminal: all of them should hold every letter."""
    encodings = {
        "file names": sys.getfilesystemencoding(), "files": locale.getpreferredencoding(False),
        "output": sys.stdout.encoding or "none",
    }  # fmt: skip
    found = ", ".join(f"{name} {encoding}" for name, encoding in encodings.items())
    if all(encoding.lower().replace("-", "") == "utf8" for encoding in encodings.values()):
        return Finding("encoding", OK, found)
    return Finding("encoding", WARNING, found, remedy="Set LANG=C.UTF-8: letters may be shown as \\u codes.")


def check_variables() -> Iterator[Finding]:
    """Variables of ours that are set; one that nothing reads is most likely misspelt."""
    for name in sorted(name for name in os.environ if name.startswith("LANGADAPT_")):
        value = os.environ[name]
        if name in VARIABLES:
            yield Finding(name, OK, f"{value} ({VARIABLES[name]})")
        else:
            known = ", ".join(VARIABLES)
            yield Finding(name, WARNING, f"{value}: nothing that you start reads it", remedy=f"Known: {known}.")
