"""``linkwright delete``: policies and targets by name or from the files that declared them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from .. import output as out
from ..api import Agent

if TYPE_CHECKING:
    from ..render.text import Line
    from ..views import StatusView

KINDS = {"policy": "LinkPolicy", "linkpolicy": "LinkPolicy", "target": "Target"}
PATHS = {"LinkPolicy": "policies", "Target": "targets"}


@click.command("delete")
@click.argument("names", nargs=-1, metavar="[KIND/]NAME...")
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="Delete what these files declare.")
@click.option("--why", default="", metavar="TEXT", help="A reason, kept in the history.")
@click.option("--no-wait", is_flag=True, help="Return as soon as it is stored.")
@out.output_option
@click.pass_context
def delete(
    ctx: click.Context, names: tuple[str, ...], files: tuple[str, ...], why: str, no_wait: bool, output: str
) -> None:
    """Delete policies and targets. KIND is policy or target; it may be left out when one name has one meaning.

    A target gives its interfaces back. A policy that targets use is refused. With onDelete: Keep its ports stay as
    they are; with Restore they go back to the values from before, by an ordinary mode change.

    \b
    Examples:
      linkwright delete target/trainer-0 policy/training
      linkwright delete trainer-0
      linkwright delete -f training.yaml
    """
    if not names and not files:
        raise click.UsageError("Name something to delete, or give -f FILE.")
    wanted: list[tuple[str, str]] = []
    if names:
        from ..views import StatusView, read

        status = read(Agent.from_environment().get("/v1/status"), StatusView)
        wanted += [which(name, status) for name in names]
    if files:
        from ..documents import kind_of, read_files

        wanted += [(kind_of(document), document.name) for document, _ in read_files(files)]
    ctx.exit(remove(wanted, why=why, wait=not no_wait, output=output))


def which(text: str, status: StatusView) -> tuple[str, str]:
    """(kind, name) of ``policy/training`` or ``training``; raises InvalidInput when it could be two things."""
    from linkwright.model.errors import InvalidInput

    kind, slash, name = text.partition("/")
    if slash:
        if kind.lower() not in KINDS:
            raise InvalidInput(f"{kind!r} is no kind: policy or target", where=text)
        return KINDS[kind.lower()], name
    found = [("LinkPolicy", p.name) for p in status.policies if p.name == text]
    found += [("Target", t.name) for t in status.targets if t.name == text]
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInput(
            "is a policy and a target", where=text, next_step=f"Say which: policy/{text} or target/{text}"
        )
    raise InvalidInput(
        "there is no policy and no target of this name",
        code="not-found",
        where=text,
        next_step="Look: linkwright status",
    )


def deleted_lines(kind: str, name: str, answer: Any) -> list[Line]:
    """What was deleted, and of a policy what stays (onDelete: Keep) or where it goes back to (Restore)."""
    from ..render.text import line, paragraph

    said = [str(text) for text in answer.get("said") or ()] if isinstance(answer, dict) else []
    back = isinstance(answer, dict) and bool(answer.get("restoring"))
    if back:
        lines = [line(f"Policy {name} is deleted when it has gone back to what was there (onDelete: Restore).")]
    else:
        lines = [line(f"Deleted {'policy' if kind == 'LinkPolicy' else 'target'} {name}.")]
    for text in said:
        lines += paragraph(text, out.width(), indent=2)
    return lines


def remove(wanted: Sequence[tuple[str, str]], *, why: str, wait: bool, output: str) -> int:
    """Targets first, since a policy that targets use is refused; the exit code."""
    from .. import doing

    agent = Agent.from_environment()
    order = sorted(dict.fromkeys(wanted), key=lambda each: each[0] == "LinkPolicy")
    cursor: int | None = None
    for kind, name in order:
        query = f"?why={quote(why)}" if why else ""
        answer = agent.delete(f"/v1/{PATHS[kind]}/{quote(name, safe='')}{query}")
        cursor = doing.cursor_of(answer) if cursor is None else cursor
        out.show(deleted_lines(kind, name, answer), sys.stderr)
    if not wait or cursor is None:
        return 0
    return doing.follow(
        agent,
        cursor,
        policies=[name for kind, name in order if kind == "LinkPolicy"],
        targets=[name for kind, name in order if kind == "Target"],
        output=output,
    )
