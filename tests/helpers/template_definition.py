"""The pipeline's definition inside a template, as the service would get it: the account's names in their places."""

import hashlib
import json

from environments import resources
from policy_simulation import ResolvedTemplate

BUILT_IMAGE = f"123456789012.dkr.ecr.eu-west-1.amazonaws.com/langadapt-built@sha256:{'e' * 64}"


def definition_text(template):
    """JSON text. What the image build would tell is a sample, as all names that CloudFormation gives are."""
    resolved = ResolvedTemplate(template)
    [pipeline] = resolved.of_type("AWS::SageMaker::Pipeline").values()
    return built(template, pipeline["PipelineDefinition"]["PipelineDefinitionBody"])


def built(template, text):
    """A resolved text with a sample of what the image build would tell."""
    for name in resources(template, "Custom::EnvironmentImage"):
        text = text.replace(f"{name}.ImageUri", BUILT_IMAGE)
    return text


def names_of(template):
    """bucket and function's ARN, as the definition names them."""
    resolved = ResolvedTemplate(template)
    bucket = resolved.resolved({"Ref": resolved.only("AWS::S3::Bucket", "StorageBucket")})
    return bucket, resolved.arn(resolved.only("AWS::Lambda::Function", "ResolveInputs"))


def placed_archives(assembly, template):
    """Content of the archives that the stack would place, by file name, as they lie in the function's code."""
    [request] = resources(template, "Custom::CodeArchives").values()
    [folder] = [
        path
        for path in assembly.glob("asset.*/archives")
        if {one.name for one in path.iterdir()} == set(request["Names"])
    ]
    archives = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    assert all(name == f"{hashlib.sha256(content).hexdigest()}.zip" for name, content in archives.items())
    return archives


def definition(template):
    return json.loads(definition_text(template))
