"""One synthesis a session, shared by all test processes."""

import shutil

import pytest
from environments import synthesised_once, templates


@pytest.fixture(scope="session")
def assembly(tmp_path_factory, worker_id):
    """The cloud assembly's folder: langadapt-full (every option on), langadapt-bare (off), langadapt-dev."""
    if shutil.which("node") is None:
        reason = "no node on the path: CDK runs on it"
        print(f"skipped: {reason}")
        pytest.skip(reason)
    base = tmp_path_factory.getbasetemp()
    return synthesised_once((base if worker_id == "master" else base.parent) / "synthesised")


@pytest.fixture(scope="session")
def stack_templates(assembly):
    """Templates by name of the stack."""
    return templates(assembly)
