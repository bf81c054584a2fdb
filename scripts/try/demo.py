"""The main job on one emulated host, step by step: what ``make try`` runs after the set-up.

The NICs are emulated; everything else is real: the distribution's own mstconfig, namespaces, network devices,
podman's containers, the daemon and its file. Every command is one that a person would type; every step is checked,
and the first check that fails ends it with exit code 1.
"""

from __future__ import annotations

import sys

import steps
from stage import HOST, Failed, Stage

from hostlab.lab import Lab
from linkwright.model.errors import LinkwrightError


def main() -> int:
    stage = Stage()
    clean_up(stage)
    try:
        steps.before_any_daemon(stage)
        steps.first_container(stage)
        steps.second_container(stage)
        steps.to_roce(stage)
        steps.crash_in_the_middle(stage)
    except (Failed, LinkwrightError) as error:
        stage.console.print("\n[red]FAILED[/red]", str(error), markup=True)
        stage.console.print("The host still runs. Look into it, and take it away:")
        for words in (f"exec {HOST} -- linkwright status", f"log {HOST}", f"down {HOST} --erase"):
            command = f"LINKWRIGHT_LAB={stage.folder} .venv/bin/linkwright lab {words}"
            stage.console.print(f"  {command}", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        clean_up(stage)
        stage.console.print("\nStopped; nothing is left running.")
        return 130
    clean_up(stage)
    stage.summary()
    return 0


def clean_up(stage: Stage) -> None:
    """Our own host only, also one that an interrupted run left."""
    Lab(stage.folder).down(HOST, erase=True)


if __name__ == "__main__":
    sys.exit(main())
