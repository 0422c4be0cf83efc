"""Requests of CloudFormation to custom resources, and the answers that it would get."""

import json


def request(kind, **properties):
    return {
        "RequestType": kind,
        "ResponseURL": "https://answers.example/signed?X-Amz-Signature=1",
        "StackId": "stack",
        "RequestId": "request-1",
        "LogicalResourceId": "Image",
        "ResourceProperties": properties,
    }


class KeptAnswers:
    """kept: address and content of each answer."""

    def __init__(self):
        self.kept = []

    def send(self, url, body):
        self.kept.append((url, json.loads(body)))
