"""What AWS refuses, as one line that says what to mend: the credentials, an action of a role, the network."""

from __future__ import annotations

import re
from typing import Any, Literal

from steps.contract import StepError

Kind = Literal["credentials", "permission", "throttled", "unreachable", "not_found", "fault", "refused"]

CREDENTIALS_CODES = frozenset({
    "ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId", "UnrecognizedClientException",
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidSignatureException", "MissingAuthenticationToken",
    "TokenRefreshRequired", "InvalidToken",
})  # fmt: skip
EXPIRED_CODES = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
PERMISSION_CODES = frozenset({
    "AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError", "403", "Forbidden",
})  # fmt: skip
THROTTLED_CODES = frozenset({
    "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "TooManyRequestsException",
    "RequestLimitExceeded", "RequestThrottledException", "SlowDown", "BandwidthLimitExceeded",
})  # fmt: skip
NOT_FOUND_CODES = frozenset({
    "ResourceNotFound", "ResourceNotFoundException", "NoSuchKey", "NoSuchBucket", "NoSuchEntity", "404",
    "RepositoryNotFoundException", "ImageNotFoundException", "NotFound",
})  # fmt: skip
# Exceptions of botocore itself, by their class's name: nothing was answered.
NO_CREDENTIALS = frozenset({
    "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError",
    "SSOTokenLoadError", "UnauthorizedSSOTokenError", "SSOError", "NoAuthTokenError", "ProfileNotFound",
    "ConfigParseError", "InvalidConfigError", "RefreshWithMFAUnsupportedError", "LoginRefreshRequired",
    "LoginTokenLoadError",
})  # fmt: skip
UNREACHABLE = frozenset({
    "EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError", "SSLError",
    "ProxyConnectionError", "HTTPClientError", "ResponseStreamingError", "ConnectionError", "IncompleteReadError",
})  # fmt: skip
# Actions that are not named like the operation that needs them.
ACTIONS = {
    ("s3", "HeadObject"): "s3:GetObject",
    ("s3", "ListObjectsV2"): "s3:ListBucket",
    ("s3", "HeadBucket"): "s3:ListBucket",
    ("s3", "CreateMultipartUpload"): "s3:PutObject",
    ("s3", "UploadPart"): "s3:PutObject",
    ("s3", "CompleteMultipartUpload"): "s3:PutObject",
}
# Beyond what any service says, and short of an HTML page.
SHOWN_CHARACTERS = 1_000
SERVICE_PREFIXES = {"service-quotas": "servicequotas"}
# `User: ARN is not authorized to perform: ACTION on resource: ARN because ...`
_DENIED = re.compile(r"(?:User: (?P<caller>\S+) )?is not authorized to perform: (?P<action>[\w:-]+)")
_MISSING = re.compile(r"does not exist|could not (be found|find)", re.IGNORECASE)
_RESOURCE = re.compile(r"on resource: (?P<resource>\S+)")


class AwsError(StepError):
    """A request that AWS did not answer as asked.

    kind: what to do about it, in one word.  code: the service's own, or the class of botocore's error.
    action, caller: of a missing permission, the action asked for and the ARN of who asked; empty where not known.
    """

    def __init__(self, subject: str, value: object, *, remedy: str, kind: Kind, code: str, action: str = "",
                 caller: str = "") -> None:  # fmt: skip
        super().__init__(subject, value, remedy=remedy)
        self.kind, self.code, self.action, self.caller = kind, code, action, caller

    @property
    def may_pass(self) -> bool:
        """Whether the same request may go well later, nothing being changed."""
        return self.kind in ("throttled", "unreachable", "fault")


def aws_error(error: Any, service: str, operation: str, region: str, caller: str = "") -> AwsError:
    """The AwsError of a ClientError, or of a BotoCoreError, that one operation of one service in a region gave."""
    subject = f"{service} {operation}" if operation != "Configure" else "AWS configuration"
    if (response := getattr(error, "response", None)) is not None:
        return _answered(response, subject, service, operation, region, caller)
    name, message = type(error).__name__, _sentence(str(error))
    if name in NO_CREDENTIALS:
        return AwsError("AWS credentials", message, remedy=_credentials_remedy(name), kind="credentials", code=name)
    if any(cls.__name__ in UNREACHABLE for cls in type(error).__mro__):
        remedy = f"Check the network, the proxy, AWS_ENDPOINT_URL and aws.region {region}."
        return AwsError(subject, message, remedy=remedy, kind="unreachable", code=name)
    return AwsError(subject, message, remedy="Correct what it names.", kind="refused", code=name)


def _answered(
    response: dict[str, Any], subject: str, service: str, operation: str, region: str, caller: str
) -> AwsError:
    """The error of a request that was answered with one."""
    code = str(response.get("Error", {}).get("Code", ""))
    message = _sentence(str(response.get("Error", {}).get("Message", ""))) or "no message"
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in CREDENTIALS_CODES:
        value = f"{code}: {message}"
        return AwsError("AWS credentials", value, remedy=_credentials_remedy(code), kind="credentials", code=code)
    if code in PERMISSION_CODES:
        return _denied(message, subject, service, operation, code, caller)
    if code in THROTTLED_CODES:
        value = f"{code}: {message} after all attempts"
        return AwsError(subject, value, remedy="Try again in a minute.", kind="throttled", code=code)
    # SageMaker tells a missing thing by a ValidationException, too.
    if code in NOT_FOUND_CODES or _MISSING.search(message):
        remedy = f"Check the name, and aws.region {region}."
        return AwsError(subject, f"{code}: {message}", remedy=remedy, kind="not_found", code=code)
    if status >= 500:
        value = f"{code}: {message} after all attempts"
        return AwsError(subject, value, remedy="A fault of the service: try again later.", kind="fault", code=code)
    return AwsError(subject, f"{code}: {message}", remedy="Correct what it names.", kind="refused", code=code)


def _denied(message: str, subject: str, service: str, operation: str, code: str, caller: str) -> AwsError:
    """The error of a missing permission, with action, resource and caller as far as the message tells them."""
    told, resource = _DENIED.search(message), _RESOURCE.search(message)
    named = ACTIONS.get((service, operation), f"{SERVICE_PREFIXES.get(service, service)}:{operation}")
    action = told["action"] if told else named
    who = (told["caller"] if told else None) or caller
    value = f"{who or 'the caller'} may not {action}"
    if resource:
        value += f" on {resource['resource'].rstrip('.,')}"
    remedy = f"Allow {action} in its policies."
    if action == "s3:GetObject":
        # S3 does not tell who may not list a bucket that an object is missing.
        remedy = "Allow s3:GetObject, and s3:ListBucket: without it a missing object is answered so, too."
    if "explicit deny" in message:
        remedy = f"A policy denies {action} explicitly: take that statement out."
    return AwsError(subject, value, remedy=remedy, kind="permission", code=code, action=action, caller=who)


def _credentials_remedy(code: str) -> str:
    if code in EXPIRED_CODES or "SSO" in code or code.startswith("Login"):
        return "Sign in again (such as `aws sso login`), or renew the session's keys."
    if code == "ProfileNotFound":
        return "Name an existing profile in AWS_PROFILE."
    if code in CREDENTIALS_CODES:
        return "Check the keys: AWS_PROFILE, or AWS_ACCESS_KEY_ID and its kin, may be of another account."
    return "Sign in (`aws sso login`, `aws configure`), or set AWS_PROFILE."


def _sentence(text: str) -> str:
    """A message in one line, without the full stop that our line sets itself; of a proxy's whole page the beginning."""
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"
