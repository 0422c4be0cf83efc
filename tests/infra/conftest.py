"""One synthesis a session, shared by all test processes."""

import pytest
from environments import synthesised_once, templates


@pytest.fixture(scope="session")
def assembly(tmp_path_factory, worker_id):
    """The cloud assembly's folder: langadapt-full (every option on), langadapt-bare (off), langadapt-dev."""
    base = tmp_path_factory.getbasetemp()
    return synthesised_once((base if worker_id == "master" else base.parent) / "synthesised")


@pytest.fixture(scope="session")
def stack_templates(assembly):
    """Templates by name of the stack."""
    return templates(assembly)
