"""Conversations looked at before a run: what a person can mend comes as one line, and nothing else does."""

import os

import pytest

from pipeline.config import load_config
from pipeline.local.check_inputs import check_inputs
from pipeline.local.run import package_path
from steps.contract import StepError


def test_conversations_in_a_place_that_the_system_refuses_are_the_users_error(tmp_path):
    path = tmp_path / ("x" * 300)
    with pytest.raises(StepError) as caught:
        check_inputs(load_config("laptop"), {"conversations": path}, package_path())
    assert str(caught.value).startswith(f"data.conversations: {path}: File name too long. ")


def test_a_check_that_dies_of_an_error_of_our_own_says_so(tmp_path):
    """Python's exit code for an error that nobody caught is that of a user's error: the package is broken here."""
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps" / "check_data.py").write_text("raise KeyError('ours')")
    with pytest.raises(RuntimeError, match=r"ended with 1: (.|\n)*KeyError: 'ours'"):
        check_inputs(load_config("laptop"), {"conversations": tmp_path}, {**os.environ, "PYTHONPATH": str(tmp_path)})
