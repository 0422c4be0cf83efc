"""What AWS and an endpoint refuse, as one line that tells how to mend it. Imports botocore, which takes its time."""

from __future__ import annotations

import botocore.eventstream
import botocore.exceptions as aws
import urllib3.exceptions

from steps.contract import StepError, UserError
from steps.contract.faults import shortened

SIGN_IN = "Sign in again (`aws sso login`, or new keys), then ask again."
CREDENTIALS = "Set them: `aws configure`, AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
ASK_AGAIN = "Ask again in a moment."
# By the service's code; the message that it sends is the value.
REMEDIES = {
    "ExpiredTokenException": SIGN_IN,
    "ExpiredToken": SIGN_IN,
    "RequestExpired": SIGN_IN,
    "UnrecognizedClientException": CREDENTIALS,
    "InvalidClientTokenId": CREDENTIALS,
    "InvalidSignatureException": CREDENTIALS,
    "MissingAuthenticationTokenException": CREDENTIALS,
    "AccessDeniedException": "Ask for the right to sagemaker:InvokeEndpointWithResponseStream on this endpoint.",
    "ThrottlingException": ASK_AGAIN,
    "ServiceUnavailable": ASK_AGAIN,
    "ServiceUnavailableException": ASK_AGAIN,
    "ModelNotReadyException": ASK_AGAIN,
    "InternalFailure": ASK_AGAIN,
    "InternalStreamFailure": ASK_AGAIN,
    "InternalDependencyException": ASK_AGAIN,
}
MODEL_REMEDY = "Look at the endpoint's log in CloudWatch; where the chat has grown too long, /reset shortens it."
CREDENTIAL_FAULTS = (
    aws.PartialCredentialsError, aws.CredentialRetrievalError, aws.ProfileNotFound, aws.InvalidConfigError,
    aws.ConfigParseError, aws.ConfigNotFound,
)  # fmt: skip
SIGN_IN_FAULTS = (
    aws.SSOError, aws.SSOTokenLoadError, aws.UnauthorizedSSOTokenError, aws.TokenRetrievalError,
    aws.RefreshWithMFAUnsupportedError,
)  # fmt: skip
CONNECTION_FAULTS = (aws.HTTPClientError, urllib3.exceptions.HTTPError, aws.IncompleteReadError, ConnectionError)


def endpoint_error(error: Exception, endpoint: str) -> UserError | None:
    """The one line of an error that a person can mend; None for any other, which is a bug of ours."""
    subject = f"endpoint {endpoint}"
    if isinstance(error, aws.NoCredentialsError):
        return StepError("AWS credentials", "none found", remedy=CREDENTIALS)
    if isinstance(error, aws.NoRegionError):
        return StepError("--region", "not given, and no default is set", remedy="Give --region, or set AWS_REGION.")
    if isinstance(error, SIGN_IN_FAULTS):
        return StepError("AWS credentials", shortened(str(error)), remedy=SIGN_IN)
    if isinstance(error, CREDENTIAL_FAULTS):
        return StepError("AWS credentials", shortened(str(error)), remedy=CREDENTIALS)
    if isinstance(error, aws.InvalidRegionError):
        return StepError("--region", shortened(str(error)), remedy="Name a region such as eu-central-1.")
    if isinstance(error, aws.ClientError):
        return _refused(error, subject)
    if isinstance(error, botocore.eventstream.ParserError):
        return StepError(subject, f"an answer that is none of SageMaker's ({error})", remedy=ASK_AGAIN)
    if isinstance(error, CONNECTION_FAULTS):
        remedy = "Look at the network and the region, then ask again."
        return StepError(subject, f"no connection ({shortened(str(error))})", remedy=remedy)
    return None


def _refused(error: aws.ClientError, subject: str) -> UserError:
    told = error.response.get("Error", {})
    code = told.get("Code") or type(error).__name__
    message = shortened(told.get("Message") or error.response.get("OriginalMessage") or "no message").rstrip(".")
    if code == "ValidationError":
        remedy = "Look at its name, the account and --region: `aws sagemaker list-endpoints`."
        return StepError(subject, message, remedy=remedy)
    if code in ("ModelError", "ModelStreamError"):
        own = shortened(error.response.get("OriginalMessage") or "")
        return StepError(subject, f"{code}: {own or message}", remedy=MODEL_REMEDY)
    return StepError(subject, f"{code}: {message}", remedy=REMEDIES.get(code, "Look the code up, then ask again."))
