"""An account inside the process for the handlers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from answered_calls import answered_calls
from automated_account import AutomatedAccount


@pytest.fixture
def account() -> Iterator[AutomatedAccount]:
    account = AutomatedAccount()
    with answered_calls(account):
        yield account
