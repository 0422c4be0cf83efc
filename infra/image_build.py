"""What the image build is made of: its context, the tag that its inputs give, the commands of CodeBuild."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import containers

CONTEXT = Path(containers.__file__).parent
# What containers/.dockerignore lets into a build, and what says how.
CONTEXT_FILES = ("*.py", "requirements-*.txt", "Dockerfile", ".dockerignore")
ECR_IMAGE = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/(?P<name>[^:@]+)")


def context_files() -> dict[str, bytes]:
    """The image's build context: content by name."""
    names = sorted(path.name for pattern in CONTEXT_FILES for path in CONTEXT.glob(pattern))
    return {name: (CONTEXT / name).read_bytes() for name in names}


def image_tag(files: Mapping[str, bytes], base: str, target: str) -> str:
    """A tag that is another one exactly when another image would be built."""
    digest = hashlib.sha256(json.dumps([base, target]).encode())
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{target}-{digest.hexdigest()[:40]}"


def build_specification(base: str) -> dict[str, Any]:
    """What CodeBuild runs. A base in ECR is in a registry of its own, which asks for another login."""
    logins = [_login("$AWS_REGION", "$REPOSITORY")]
    if found := ECR_IMAGE.match(base):
        logins.append(_login(found["region"], "$BASE"))
    return {
        "version": "0.2",
        "phases": {
            "pre_build": {"commands": logins},
            "build": {
                "commands": [
                    'docker build --target "$TARGET" --build-arg "$BASE_ARGUMENT=$BASE" -t "$REPOSITORY:$TAG" .',
                    'docker push "$REPOSITORY:$TAG"',
                ]
            },
        },
    }


def arns_in_ecr(partition: str, image: str) -> list[str]:
    """ARN of the repository that an image lies in, none for one outside of ECR."""
    found = ECR_IMAGE.match(image)
    if found is None:
        return []
    return [f"arn:{partition}:ecr:{found['region']}:{found['account']}:repository/{found['name']}"]


def _login(region: str, image: str) -> str:
    """A command that logs Docker in to the registry of an image."""
    registry = f'"$(echo "{image}" | cut -d/ -f1)"'
    return f'aws ecr get-login-password --region "{region}" | docker login --username AWS --password-stdin {registry}'
