"""``windlass kubernetes`` prints the objects to install in a Kubernetes cluster."""

from __future__ import annotations

import re

import click

from windlass.kubernetes_api.names import NAMESPACE
from windlass.workloads.kubernetes.install.manifests import manifests, text


@click.group("kubernetes")
def command() -> None:
    """Set up a Kubernetes cluster for Windlass."""


@command.command("install", epilog="Exit status: 0 printed.")
@click.option("--print", "printed", is_flag=True, help="Print the YAML. Nothing is changed in any cluster.")
@click.option(
    "--namespace", default=NAMESPACE, metavar="NAME", show_default=True, help="The namespace of the controller."
)
@click.option("--image", metavar="IMAGE", help="The controller's container image.  [default: windlass:VERSION]")
@click.option("--crds-only", is_flag=True, help="Only the definitions of NodeProvisioner and NodeClaim.")
@click.option(
    "--shadow", is_flag=True, help="A controller that observes and plans, with a role that cannot change anything."
)
def install(printed: bool, namespace: str, image: str | None, crds_only: bool, shadow: bool) -> None:
    """Print the objects that a cluster needs: definitions, namespace, service account, roles and deployment.

    \b
    Example:
      windlass kubernetes install --print | kubectl apply --server-side -f -
    """
    if not printed:
        raise click.UsageError("windlass does not change the cluster: add --print, and pipe the output into kubectl")
    if re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", namespace) is None:
        raise click.BadParameter("must be lower-case letters, digits and dashes", param_hint="--namespace")
    click.echo(text(manifests(namespace, image, crds_only=crds_only, shadow=shadow)), nl=False)
