"""``linkwright attach``: a Target made from options, applied like one from a file."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from .. import output as out

if TYPE_CHECKING:
    from linkwright.model.documents import Target


@click.command("attach")
@click.argument("target")
@click.option("--policy", required=True, metavar="NAME", help="The policy whose port it gets an interface of.")
@click.option("--container", metavar="NAME", help="Podman container; default: one named like the target.")
@click.option("--netns", metavar="PATH", help="A network namespace instead, e.g. /run/netns/blue.")
@click.option("--interface", default="net1", show_default=True, metavar="NAME", help="Its name in the target.")
@click.option(
    "--address", "addresses", multiple=True, metavar="CIDR", help="Address, e.g. 10.9.0.1/24; repeatable."
)
@click.option("--fabric", metavar="NAME", help="Take a port on this fabric.")
@click.option("--rdma-name", metavar="NAME", help="Name of the RDMA device in the target, e.g. mlx5_0.")
@click.option("--group", metavar="NAME", help="Targets of one group talk to each other: one mode, one fabric.")
@click.option("--yes", is_flag=True, help="Agree to what the plan interrupts; without it you are asked.")
@click.option("--why", default="", metavar="TEXT", help="A reason, kept in the history.")
@click.option("--no-wait", is_flag=True, help="Return as soon as the target is stored.")
@out.output_option
@click.pass_context
def attach(ctx: click.Context, /, output: str, yes: bool, why: str, no_wait: bool, **options: Any) -> None:
    """Give TARGET an interface of a port of the policy, and wait for it.

    The target is stored: it gets its interface back after each restart of its container or of the host, until
    it is detached. The container may be started later. A target of this name with other options is replaced.

    \b
    Examples:
      linkwright attach trainer-0 --policy training --address 10.9.0.1/24
      linkwright attach web --policy office --container nginx --interface net0
      linkwright attach blue --policy training --netns /run/netns/blue
    """
    from .apply import carry_out

    target = target_of(**options)
    command = shlex.join(["linkwright", "attach", *_words(options), "--yes"])
    ctx.exit(carry_out([(target, "")], command, yes=yes, why=why, wait=not no_wait, output=output))


def target_of(
    *,
    target: str,
    policy: str,
    container: str | None,
    netns: str | None,
    interface: str,
    addresses: tuple[str, ...],
    fabric: str | None,
    rdma_name: str | None,
    group: str | None,
) -> Target:
    """The document, checked like one from a file; raises InvalidInput naming the option's field."""
    from linkwright.model.documents import API_VERSION, Target
    from linkwright.model.load import documents_from_json

    if container is not None and netns is not None:
        raise click.UsageError("Give --container or --netns, not both.")
    entry: dict[str, Any] = {"name": interface, "addresses": list(addresses)}
    entry |= {key: value for key, value in (("fabric", fabric), ("rdmaName", rdma_name)) if value is not None}
    spec: dict[str, Any] = {
        "policy": policy,
        "container": {"netns": netns} if netns is not None else {"name": container or target},
        "interfaces": [entry],
    }
    if group is not None:
        spec["group"] = group
    (document,) = documents_from_json(
        [{"apiVersion": API_VERSION, "kind": "Target", "metadata": {"name": target}, "spec": spec}]
    )
    assert isinstance(document, Target)
    return document


def _words(options: dict[str, Any]) -> list[str]:
    words = [options["target"]]
    for key, value in options.items():
        name = {"addresses": "--address"}.get(key, f"--{key.replace('_', '-')}")
        if key == "target" or value is None or (key == "interface" and value == "net1"):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words += [name, each]
    return words
