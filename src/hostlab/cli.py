"""``linkwright lab``: emulated hosts by hand. Thin: everything is done by ``lab.Lab``.

Not wrapped in anything: ``exec`` and ``shell`` replace this process, so that terminal, signals and exit code are
those of the command in the host.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostlab.lab import Host, Lab
from linkwright.model.errors import LinkwrightError

if TYPE_CHECKING:
    from hostlab.real.cli import Commands

app = typer.Typer(
    name="lab",
    help="Emulated hosts with emulated RDMA NICs. Needs root; touches neither the machine's network nor its /sys.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

HostName = Annotated[str, typer.Argument(metavar="HOST", help="Name of the host.")]
Output = Annotated[str, typer.Option("-o", "--output", metavar="table|json", help="How to print the answer.")]


@app.command()
def up(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Host file, or the name of a packaged one.")
    ] = "gpu-01",
    output: Output = "table",
    real: Annotated[
        bool, typer.Option("--real", help="A whole Debian 13 under QEMU, with real SR-IOV; FILE is then its name.")
    ] = False,
) -> None:
    """Start a host and wait until it is ready. Without FILE: gpu-01, three adapters."""
    from hostlab import spec

    if real:
        from hostlab.real.cli import DEFAULT_NAME, Commands

        raise typer.Exit(Commands(DEFAULT_NAME if file == "gpu-01" else file).up())
    begun = time.monotonic()
    content = spec.load(spec.find(file))
    lab = Lab()
    host = lab.host(content["name"])
    if host.is_up and host.status()["state"] != "off":
        status = host.status()
        _show(status, output, f"{host.name} is up already (boot {status['boots']}).", _adapter_rows([status]))
        return
    status = host.boot() if host.is_up else lab.up(content).status()
    words = f"{host.name} is up after {time.monotonic() - begun:.1f} s."
    _show(status, output, words, _adapter_rows([status]))
    if output == "table":
        print(f"\nTry: linkwright lab exec {host.name} -- linkwright nics")


@app.command()
def down(
    hosts: Annotated[list[str] | None, typer.Argument(metavar="HOST…")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All hosts of this lab.")] = False,
    erase: Annotated[bool, typer.Option("--erase", help="Delete their disks, firmware and logs too.")] = False,
) -> None:
    """Stop hosts. What they have on disk and in firmware stays, unless --erase."""
    lab = Lab()
    names = hosts or ([host.name for host in lab.hosts()] if everything else [])
    if not names and not everything:
        raise typer.BadParameter(f"which one? {_known(lab)} or --all")
    for name in names:
        if (real := _real(name)) is not None:
            real.down(erase=erase)
        elif not lab.down(name, erase=erase) and not erase:
            print(f"{name} was not up.")
        else:
            print(f"{name} is down{' and erased' if erase else ''}.")


@app.command("list")
def list_hosts(output: Output = "table") -> None:
    """Hosts and their adapters."""
    lab = Lab()
    found = [_status(host) for host in lab.hosts()]
    if output == "json":
        _json(found)
    elif not found:
        print("No host is up. Start one: linkwright lab up")
    else:
        _table(("HOST", "STATE", "BOOT", "AGENT", "CPU", "UP SINCE"), [_host_row(status) for status in found])
        print()
        _table(*_adapter_rows(found))


@app.command(
    "exec",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
def execute(host: HostName, command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…")]) -> None:
    """Run a command in a host; its exit code is ours."""
    if (real := _real(host)) is not None:
        raise typer.Exit(real.execute(command[1:] if command[0] == "--" else command))
    _become(_existing(host).command_line(command[1:] if command[0] == "--" else command))


@app.command()
def shell(host: HostName) -> None:
    """A shell in a host."""
    if (real := _real(host)) is not None:
        raise typer.Exit(real.console())
    _become(_existing(host).command_line(["/bin/bash", "--norc"], {"PS1": f"root@{host}:\\w# "}))


@app.command()
def restart(host: HostName, output: Output = "table") -> None:
    """Restart a host in order; containers and agent are stopped, cards are reset. Returns when it is ready."""
    _power(_existing(host).restart(), output)


@app.command()
def crash(
    host: HostName,
    stay_off: Annotated[bool, typer.Option("--stay-off", help="Do not switch it on again.")] = False,
    at_next_restart: Annotated[
        bool, typer.Option("--at-next-restart", help="Not now: when the host next asks for a restart.")
    ] = False,
    output: Output = "table",
) -> None:
    """Pull the plug: everything is killed, writes that were not synced are lost."""
    if (real := _real(host)) is not None:
        real.crash(stay_off=stay_off)
        return
    if at_next_restart:
        _existing(host).crash_on_next_restart()
        print(f"The next restart of {host} will be a crash.")
        return
    _power(_existing(host).crash(back=not stay_off), output)


@app.command()
def boot(host: HostName, output: Output = "table") -> None:
    """Switch a host on that is off (lab crash --stay-off)."""
    _power(_existing(host).boot(), output)


@app.command()
def fault(
    host: HostName,
    where: Annotated[
        str, typer.Argument(metavar="ADAPTER|FABRIC|HOST", help="0000:3b:00, a fabric's name, or the host's.")
    ],
    name: Annotated[str, typer.Argument(metavar="FAULT", help="See: linkwright lab personas.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="false or 0 takes it away.")] = "true",
) -> None:
    """Make something fail, while the host runs."""
    from hostlab.spec import fault_value

    _existing(host).fault(where, name, fault_value(value))
    print(f"{host} {where}: {name} = {value}")


@app.command("personas")
def list_personas(output: Output = "table") -> None:
    """Kinds of cards for a host file, and the faults that there are."""
    from hostlab import faults, personas

    cards = [personas.load(name) for name in personas.names()]
    if output == "json":
        import msgspec

        _json({"personas": msgspec.to_builtins(cards), "faults": faults.known()})
        return
    rows = [
        (
            card.name,
            card.model,
            card.part_number,
            str(card.ports),
            " ".join(mode.value for mode in card.link_modes),
        )
        for card in cards
    ]
    _table(("PERSONA", "MODEL", "PART NUMBER", "PORTS", "DELIVERED AS"), rows)
    print()
    found = [(kind, name, meaning) for kind, names in faults.known().items() for name, meaning in names.items()]
    _table(("OF A", "FAULT", "VALUE AND MEANING"), found)


@app.command()
def log(
    host: HostName,
    supervisor: Annotated[bool, typer.Option("--supervisor", help="What the lab itself said.")] = False,
) -> None:
    """What a host's process 1 and its agent said since `up`; also of a host that is down."""
    dirs = Lab().host(host).dirs
    path = dirs.supervisor_log if supervisor else dirs.console_log
    if not path.exists():
        raise _unknown(host)
    sys.stdout.write(path.read_text(encoding="utf-8", errors="replace"))


# -- helpers -----------------------------------------------------------------------------------------------------


def _real(name: str) -> Commands | None:
    """The same commands for a real host, which keeps its disk where no emulated host has one."""
    if not (Lab().host(name).dirs.lib / "disk.img").exists():
        return None
    from hostlab.real.cli import Commands

    return Commands(name)


def _existing(name: str) -> Host:
    host = Lab().host(name)
    if not host.is_up:
        raise _unknown(name)
    return host


def _unknown(name: str) -> LinkwrightError:
    return LinkwrightError(
        "is not up", code="host-not-up", where=name, next_step=f"{_known(Lab())}Start it: linkwright lab up FILE"
    )


def _known(lab: Lab) -> str:
    names = [host.name for host in lab.hosts() if host.is_up]
    return f"Up: {', '.join(names)}. " if names else "No host is up. "


def _become(command: list[str]) -> None:
    sys.stdout.flush()
    os.execvp(command[0], command)


def _status(host: Host) -> dict[str, Any]:
    try:
        return host.status()
    except LinkwrightError:
        return {"name": host.name, "state": "lost its supervisor", "adapters": []}


def _power(status: dict[str, Any], output: str) -> None:
    words = f"{status['name']} is {status['state']}"
    if status["boot_s"] is not None:
        words += f": boot {status['boots']}, ready after {status['boot_s']:.1f} s, boot id {status['boot_id']}"
    _show(status, output, words + ".", None)


def _show(status: dict[str, Any], output: str, words: str, table: tuple[Any, Any] | None) -> None:
    if output == "json":
        _json({name: value for name, value in status.items() if name != "environ"})
        return
    print(words)
    if table is not None:
        _table(*table)


def _host_row(status: dict[str, Any]) -> tuple[str, ...]:
    if "boots" not in status:
        return (status["name"], status["state"], "", "", "", f"clear: linkwright lab down {status['name']}")
    since = time.strftime("%H:%M:%S", time.localtime(status["started"]))
    agent = "ready" if status["agent_ready"] else "none"
    return (status["name"], status["state"], str(status["boots"]), agent, str(status["cpu"]), since)


def _adapter_rows(hosts: list[dict[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows: list[tuple[str, ...]] = []
    for status in hosts:
        for adapter in status["adapters"]:
            ports = ", ".join(
                f"{p['number']}: {p['mode']} → {p['fabric'] or 'no cable'}" for p in adapter["ports"]
            )
            wrong = ", ".join(f"{name}={value}" for name, value in adapter["faults"].items())
            if not adapter["present"]:
                wrong = ", ".join(filter(None, [wrong, "off the bus"]))
            rows.append((status["name"], adapter["address"], adapter["persona"], ports, wrong or "none"))
    return ("HOST", "ADAPTER", "PERSONA", "PORTS", "FAULTS"), rows


def _json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Plain columns; on a terminal too narrow the last one is cut, in a file nothing is."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1000
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


if __name__ == "__main__":
    app()
