"""AWS inside this process: every call of boto3 is held against botocore's model, noted, and answered by the test's
account. Nothing leaves the process.

An account is a class with a method `_<service>_<Operation>(parameters)` for each call that it answers; it gives the
answer, or raises `RefusedError`. Where a request is none of the service's, or an answer has a member that the service
does not give, that is a violation, of which the fixture asserts that there is none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import boto3
from account_stand_in import REGION
from answer_shapes import unknown_members

from pipeline.service_shapes import request_problems, service_model

ACCOUNT = "123456789012"


class RefusedError(Exception):
    """An error of the service in the place of an answer."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status


@dataclass(frozen=True)
class Call:
    service: str
    operation: str
    parameters: dict[str, Any]


class AnsweredAccount:
    """calls: of all services, in order. faults: by operation, what its next calls get in the place of an answer."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.faults: dict[str, list[RefusedError]] = {}
        self.violations: list[str] = []

    def sent(self, operation: str) -> list[dict[str, Any]]:
        return [call.parameters for call in self.calls if call.operation == operation]

    def answer(self, service: str, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(Call(service, operation, parameters))
        for path, value, limit in request_problems(service, operation, parameters):
            self.violations.append(f"{operation}.{path}: {value}; limit {limit}")
        if self.faults.get(operation):
            raise self.faults[operation].pop(0)
        answer = getattr(self, f"_{service.replace('-', '_')}_{operation}")(parameters)
        shape = service_model(service).operation_model(operation).output_shape
        self.violations += unknown_members(shape, answer, operation)
        return answer


class _Switch:
    """The one session of this process, so that the services' models are read once. current: who answers."""

    def __init__(self) -> None:
        self.current: AnsweredAccount | None = None
        self._given: list[dict[str, Any]] = []
        self.session = boto3.Session(aws_access_key_id="stand-in", aws_secret_access_key="stand-in", region_name=REGION)
        # As the caller gave them: other hooks of botocore add members of their own afterwards.
        self.session.events.register_first("provide-client-params", self._note)
        self.session.events.register("before-call", self._respond)

    def _note(self, params: dict[str, Any], **_: Any) -> None:
        self._given.append(dict(params))

    def _respond(self, model: Any, **_: Any) -> tuple[Any, dict[str, Any]]:
        assert self.current is not None, "a client outlived its account"
        metadata: Mapping[str, Any] = {"ResponseMetadata": {"HTTPStatusCode": 200}}
        try:
            answer = self.current.answer(model.service_model.service_name, model.name, self._given.pop())
            return SimpleNamespace(status_code=200), answer | metadata
        except RefusedError as refused:
            error = {"Error": {"Code": refused.code, "Message": refused.message}}
            return SimpleNamespace(status_code=refused.status), error | metadata


@functools.cache
def _switch() -> _Switch:
    return _Switch()


@contextmanager
def answered_calls(account: AnsweredAccount) -> Iterator[None]:
    """boto3's clients of this process speak with the account, those alone that are made meanwhile."""
    switch, before = _switch(), boto3.DEFAULT_SESSION
    switch.current, boto3.DEFAULT_SESSION = account, switch.session
    try:
        yield
    finally:
        switch.current, boto3.DEFAULT_SESSION = None, before
    assert account.violations == [], account.violations
