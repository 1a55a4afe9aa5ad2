"""This module prints the least permissions that the provider needs, as an IAM policy."""

from __future__ import annotations

from typing import Any

READ = (
    "ec2:DescribeInstances",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "pricing:GetProducts",
    "ssm:GetParameters",
    "sts:GetCallerIdentity",
)


def least_policy(cluster: str = "*") -> dict[str, Any]:
    """Return a policy that allows launches with our tag, and changes only of what has the tag."""
    ours = {"aws:ResourceTag/windlass:cluster": cluster}
    new = {"aws:RequestTag/windlass:cluster": cluster}
    compare = "StringLike" if cluster == "*" else "StringEquals"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Sid": "Look", "Effect": "Allow", "Action": list(READ), "Resource": "*"},
            {
                "Sid": "LaunchWhatIsTagged",
                "Effect": "Allow",
                "Action": ["ec2:CreateFleet", "ec2:RunInstances"],
                "Resource": ["arn:aws:ec2:*:*:instance/*", "arn:aws:ec2:*:*:fleet/*"],
                "Condition": {compare: new},
            },
            {
                "Sid": "LaunchFrom",
                "Effect": "Allow",
                "Action": ["ec2:CreateFleet", "ec2:RunInstances"],
                "Resource": [
                    "arn:aws:ec2:*::image/*",
                    "arn:aws:ec2:*:*:launch-template/*",
                    "arn:aws:ec2:*:*:network-interface/*",
                    "arn:aws:ec2:*:*:security-group/*",
                    "arn:aws:ec2:*:*:subnet/*",
                    "arn:aws:ec2:*:*:volume/*",
                    "arn:aws:ec2:*:*:spot-instances-request/*",
                ],
            },
            {
                "Sid": "MakeTemplatesAndGroups",
                "Effect": "Allow",
                "Action": ["ec2:CreateLaunchTemplate", "ec2:CreateSecurityGroup"],
                "Resource": "*",
            },
            {
                "Sid": "TagAtCreation",
                "Effect": "Allow",
                "Action": "ec2:CreateTags",
                "Resource": "*",
                "Condition": {
                    "StringEquals": {
                        "ec2:CreateAction": [
                            "CreateFleet",
                            "RunInstances",
                            "CreateLaunchTemplate",
                            "CreateSecurityGroup",
                        ]
                    }
                },
            },
            {
                "Sid": "EndAndChangeOurs",
                "Effect": "Allow",
                "Action": [
                    "ec2:TerminateInstances",
                    "ec2:DeleteLaunchTemplate",
                    "ec2:AuthorizeSecurityGroupIngress",
                    "ec2:RevokeSecurityGroupIngress",
                ],
                "Resource": "*",
                "Condition": {compare: ours},
            },
        ],
    }
