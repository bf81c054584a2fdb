"""The entry point: a group whose commands are imported when they are used, and one place where errors are shown.

Click rather than Typer: Typer 0.29 imports pydantic as soon as it reads an argument, which makes each
command 100 ms slower than the rest of it. Commands of other packages (``lab``) come from the entry-point
group ``linkwright.commands``; theirs may be a click command or a Typer application.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

# name -> (module under linkwright.cli.commands, what it does in a few words), in the order of --help
COMMANDS = {
    "nics": ("nics", "Adapters, ports, functions, the four readings of the link mode, who uses what."),
    "plan": ("plan", "What would happen: exact commands, restarts, who is interrupted. Changes nothing."),
    "apply": ("apply", "The same, then does it; asks before it interrupts anything."),
    "delete": ("delete", "Delete policies and targets by name."),
    "attach": ("attach", "Give a container an interface of a policy's port."),
    "detach": ("detach", "Take a target's interfaces back."),
    "status": ("status", "Policies, targets, mode changes in progress, and why something waits."),
    "approve": ("approve", "Say yes to what waits for it."),
    "retry": ("retry", "Try a failed mode change once more, with a reason."),
    "freeze": ("freeze", "Stop every change on this host at the next safe point."),
    "unfreeze": ("freeze", "Let changes go on."),
    "adapter": ("adapter", "Accept a card in the place of another one."),
    "host": ("host", "Files of this host that keep its network managers off the functions."),
    "history": ("history", "Who changed what, when, why."),
    "audit": ("audit", "What was left behind: leaked functions, names, marks, stale records; --repair."),
    "uninstall": ("uninstall", "What leaves this host as it was found; --restore does it."),
    "capture": ("capture", "A scrubbed copy of what this host shows, which the lab can replay."),
    "agent": ("agent", "The daemon of this host."),
    "version": ("version", "Versions of Linkwright and of what it works with."),
}
# Words for --help about commands of other packages, which are not imported for it.
ELSEWHERE = {"lab": "Emulated hosts, for demonstrations and trying things out (linkwright[lab])."}

GROUP_HELP = """Gives containers a direct interface on an RDMA NIC, InfiniBand or RoCE as their policy says.

\b
Examples:
  linkwright nics                           what is in this host, read-only
  linkwright plan -f training.yaml          what a policy would do
  linkwright apply -f training.yaml         do it
  linkwright attach trainer-0 --policy training
  linkwright status --watch                 how it goes

\b
Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 refused by a safety rule, 4 waits for a person.
"""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports only the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *sorted(set(_elsewhere()) - set(COMMANDS))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in COMMANDS:
            module = importlib.import_module(f"linkwright.cli.commands.{COMMANDS[cmd_name][0]}")
            command = getattr(module, cmd_name)
            assert isinstance(command, click.Command)
            return command
        entry = _elsewhere().get(cmd_name)
        return None if entry is None else _foreign(cmd_name, entry)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            words = COMMANDS[name][1] if name in COMMANDS else ELSEWHERE.get(name, "A command of another package.")
            rows.append((name, words))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx) if args and args[0] not in COMMANDS else []
        if known and args[0] not in known and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


def _elsewhere() -> dict[str, Any]:
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group="linkwright.commands")}


def _foreign(name: str, entry: Any) -> click.Command:
    """Another package's command. It is called with the arguments as they are: it reads them itself."""

    def call(arguments: tuple[str, ...]) -> None:
        from linkwright.model.errors import LinkwrightError

        try:
            loaded = entry.load()
        except ImportError as error:
            raise LinkwrightError(
                f"the command {name} cannot be loaded: {error}",
                code="extra-missing",
                next_step=f"Install it: pip install 'linkwright[{name}]'",
            ) from error
        if not callable(getattr(loaded, "main", None)):  # a Typer application, not yet a command
            import typer.main

            loaded = typer.main.get_command(loaded)
        code = loaded.main(args=list(arguments), prog_name=f"linkwright {name}", standalone_mode=False)
        if isinstance(code, int) and code:
            raise click.exceptions.Exit(code)

    return click.Command(
        name,
        callback=call,
        add_help_option=False,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from linkwright import __version__

        click.echo(f"linkwright {__version__}")
        ctx.exit()


cli = LazyGroup(
    "linkwright",
    help=GROUP_HELP,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_version,
            help="Show the version and exit.",
        )
    ],
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0 done, 1 failed, 2 wrong usage or input, 3 refused, 4 waits."""
    try:
        code = cli.main(args=None if argv is None else list(argv), prog_name="linkwright", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader (head, less) has seen enough
        sys.stderr.close()
        return 0
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    """Show an error on stderr in the manner of every message; a fault of ours keeps its traceback."""
    from linkwright.model.errors import LinkwrightError

    from .output import screen_of, show

    if isinstance(error, LinkwrightError):
        from .render.errors import error_lines

        show(error_lines(error, screen_of(sys.stderr).width), sys.stderr)
        return error.exit_code
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, (click.Abort, EOFError)):
        print("Stopped.", file=sys.stderr)
        return 130
    shown = getattr(error, "show", None)  # Typer carries its own copy of click, with its own exceptions
    if callable(shown):
        shown()
        return int(getattr(error, "exit_code", 1))
    if type(error).__name__ in ("Exit", "Abort"):
        return int(getattr(error, "exit_code", 130))
    raise error


if __name__ == "__main__":
    sys.exit(main())
