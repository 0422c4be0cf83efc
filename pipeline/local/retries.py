"""Retry policies of a definition. What went wrong is put into the service's error classes; the first policy that lists
the class decides, and each policy counts its own retries.

    Step.SERVICE_FAULT            a Lambda function or the registry cannot be reached: ConnectionError, TimeoutError,
                                  or a file system that lost its server (ESTALE, EHOSTDOWN, EHOSTUNREACH)
    Step.THROTTLING               a Lambda function raised what AWS raises for too many requests
                                  (ThrottlingException, TooManyRequestsException, ...)
    SageMaker.JOB_INTERNAL_ERROR  the job was killed by a signal: out of memory, a lost machine
    SageMaker.CAPACITY_ERROR      the system has no memory to start the job (ENOMEM)
    SageMaker.RESOURCE_LIMIT      a limit of this user keeps the job from starting: processes, open files
                                  (EAGAIN, EMFILE, ENFILE)

In no class, and so never retried: an error that the step itself reports, whatever its kind, and a step that reached its
time limit (the service calls that job Stopped, and no policy covers it): it would end the same way.

The service sees a step that is killed inside a healthy container as an AlgorithmError, which no policy retries; it
knows lost machines apart from that. Here both look alike, and on a machine that does other work the first kill is most
often an accident: memory that somebody else took, a restart. So it is retried, from its checkpoints where it writes
some, but once, whatever the policy allows: a second kill means that the step does not fit this machine, and hours of
further attempts would end the same way. A wait is cut to 5 s: here nobody waits for the capacity of a cloud. Without a
policy nothing is retried.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SERVICE_FAULT = "Step.SERVICE_FAULT"
THROTTLING = "Step.THROTTLING"
JOB_INTERNAL_ERROR = "SageMaker.JOB_INTERNAL_ERROR"
CAPACITY_ERROR = "SageMaker.CAPACITY_ERROR"
RESOURCE_LIMIT = "SageMaker.RESOURCE_LIMIT"
# What the service takes where a policy does not say.
DEFAULT_INTERVAL_SECONDS, DEFAULT_BACKOFF_RATE, DEFAULT_MAX_ATTEMPTS = 1, 2.0, 5
MOST_RETRIES_OF_KILLED = 1
LONGEST_WAIT_SECONDS = 5.0
UNREACHABLE = frozenset({errno.ESTALE, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH})
THROTTLING_CODES = frozenset(
    {"Throttling", "ThrottlingException", "ThrottledException", "TooManyRequestsException", "RequestLimitExceeded",
     "RequestThrottled", "RequestThrottledException", "SlowDown", "ProvisionedThroughputExceededException"}
)  # fmt: skip
START_ERRORS = {errno.ENOMEM: CAPACITY_ERROR, errno.EAGAIN: RESOURCE_LIMIT, errno.EMFILE: RESOURCE_LIMIT,
                errno.ENFILE: RESOURCE_LIMIT}  # fmt: skip


class Retries:
    """The retries of one step, over all of its attempts. clock: seconds, monotonic; its first reading is the start."""

    def __init__(self, policies: Sequence[Mapping[str, Any]], clock: Callable[[], float] = time.monotonic) -> None:
        self._policies, self._clock, self._began = policies, clock, clock()
        self._counts: dict[int, int] = {}
        self._kills = 0

    @property
    def count(self) -> int:
        """Retries so far."""
        return sum(self._counts.values())

    def next_wait_seconds(self, error_class: str) -> float | None:
        """Counts one more failure: the seconds to wait before the next attempt, None where there is to be none."""
        self._kills += error_class == JOB_INTERNAL_ERROR
        number = next(
            (index for index, policy in enumerate(self._policies) if error_class in policy["ExceptionType"]), None
        )
        if number is None or self._kills > MOST_RETRIES_OF_KILLED:
            return None
        policy, retries = self._policies[number], self._counts.get(number, 0)
        expires = policy.get("ExpireAfterMin")
        if expires is not None and self._clock() - self._began > expires * 60:
            return None
        # A policy has one of the two; with neither the service's number of attempts holds.
        most = policy.get("MaxAttempts", DEFAULT_MAX_ATTEMPTS if expires is None else None)
        if most is not None and retries >= most:
            return None
        self._counts[number] = retries + 1
        interval = policy.get("IntervalSeconds", DEFAULT_INTERVAL_SECONDS)
        return min(interval * policy.get("BackoffRate", DEFAULT_BACKOFF_RATE) ** retries, LONGEST_WAIT_SECONDS)

    def told(self, step: str, why: str, wait_seconds: float, error_class: str) -> str:
        """The line about the attempt to come. why: the line of the one before."""
        why = why.removeprefix("error: ").rstrip(".")
        return f"{step}: {why}; trying again in {wait_seconds:g} s ({error_class}, retry {self.count})"


def call_error_class(error: Exception) -> str:
    """The class of what a Lambda function or the registry raised; empty where it is in none."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping) and isinstance(details := response.get("Error"), Mapping):
        return THROTTLING if details.get("Code") in THROTTLING_CODES else ""
    if isinstance(error, ConnectionError | TimeoutError):
        return SERVICE_FAULT
    return SERVICE_FAULT if isinstance(error, OSError) and error.errno in UNREACHABLE else ""


def start_error_class(error: OSError) -> str:
    """The class of what kept a process from starting; empty where it is in none."""
    return START_ERRORS.get(error.errno or 0, "")
