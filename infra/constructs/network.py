"""A network without a way to the internet: what jobs need of AWS they reach by endpoints inside it."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.policies import arn, service_trust

# What jobs call, or what the service calls for them: images, logs, metrics, encryption, credentials.
ENDPOINTS = {
    "EcrApi": ec2.InterfaceVpcEndpointAwsService.ECR,
    "EcrDocker": ec2.InterfaceVpcEndpointAwsService.ECR_DOCKER,
    "SageMakerApi": ec2.InterfaceVpcEndpointAwsService.SAGEMAKER_API,
    "Logs": ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS,
    "Metrics": ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_MONITORING,
    "Sts": ec2.InterfaceVpcEndpointAwsService.STS,
    "Kms": ec2.InterfaceVpcEndpointAwsService.KMS,
}


class Network(Construct):
    """One private subnet a zone; a security group of the jobs that suits EFA; flow logs."""

    def __init__(
        self, scope: Construct, construct_id: str, *, name: str, cidr: str, availability_zones: Sequence[str]
    ) -> None:
        """availability_zones: named, so that nothing has to be looked up in the account."""
        super().__init__(scope, construct_id)
        self.vpc = ec2.Vpc(
            self, "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(cidr), availability_zones=list(availability_zones), nat_gateways=0,
            subnet_configuration=[ec2.SubnetConfiguration(name="jobs", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)],
        )  # fmt: skip
        self._log_flows(name)
        self.subnets = [subnet.subnet_id for subnet in self.vpc.isolated_subnets]
        self.jobs = self._security_group_of_jobs()
        self.vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        endpoints = ec2.SecurityGroup(
            self, "Endpoints", vpc=self.vpc, description="langadapt: endpoints, asked by the jobs alone",
            allow_all_outbound=False,
        )  # fmt: skip
        endpoints.add_ingress_rule(self.jobs, ec2.Port.HTTPS, "the jobs")
        for endpoint, service in ENDPOINTS.items():
            self.vpc.add_interface_endpoint(
                endpoint, service=service, security_groups=[endpoints], open=False, private_dns_enabled=True
            )

    def _log_flows(self, name: str) -> None:
        """Who spoke with whom, for a month; written by a role of this account's flow logs alone."""
        group = logs.LogGroup(
            self, "FlowLogs", log_group_name=f"/langadapt/{name}/network", retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=RemovalPolicy.DESTROY,
        )  # fmt: skip
        source_arn = arn(self, service="ec2", resource="vpc-flow-log/*")
        role = iam.Role(
            self, "FlowLogsRole", description="langadapt: flow logs of the network",
            assumed_by=service_trust("vpc-flow-logs.amazonaws.com", source_arn=source_arn),
        )  # fmt: skip
        self.vpc.add_flow_log("FlowLog", destination=ec2.FlowLogDestination.to_cloud_watch_logs(group, role))

    def _security_group_of_jobs(self) -> ec2.SecurityGroup:
        """EFA asks that all traffic between members is allowed, in and out; beside it HTTPS out to the endpoints."""
        group = ec2.SecurityGroup(
            self, "Jobs", vpc=self.vpc, description="langadapt: jobs, all traffic among them and HTTPS to endpoints",
            allow_all_outbound=False,
        )  # fmt: skip
        group.connections.allow_internally(ec2.Port.all_traffic(), "among the hosts of a job, EFA")
        # S3's gateway has public addresses that differ by region. No route leads to any other address.
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.HTTPS, "endpoints, S3 by its gateway")
        return group
