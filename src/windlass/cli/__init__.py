"""The command line: ``windlass``.

Each command lives in its own module, which is loaded only when the command is called: a quick command starts quickly.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

import click

from windlass import __version__

COMMANDS = {
    "plan": "What would be done about a scenario or a live cluster, and why.",
    "demo": "See it work on this machine, in less than a minute.",
    "run": "Run the controller of a cluster.",
    "submit": "Put commands into the queue of a cluster.",
    "jobs": "What became of the commands in the queue.",
    "status": "What the cluster is doing now.",
    "why": "Why a slice, a demand or a group is as it is, now or at an earlier time.",
    "events": "What happened, and why.",
    "freeze": "Launch and release nothing, in a group or at all.",
    "resume": "Go on after a freeze.",
    "drain": "Empty a slice and give it back.",
    "doctor": "Check that everything a cluster needs is well.",
    "replay": "What was recorded, decided again; or what it would have come to under other settings.",
    "compare": "One trace of jobs under several policies.",
    "shadow": "What a shadow would have done.",
    "simulate": "Run the controller in a made-up world, with faults, and check every promise.",
    "config": "Check, explain or import a configuration.",
    "kubernetes": "Print what a Kubernetes cluster needs for Windlass.",
}


class _LazyGroup(click.Group):
    """Knows its commands by name and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"{__name__}.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from windlass.core.model.reasons import nearest_name

            meant = nearest_name(args[0], COMMANDS)
            if meant is not None:
                ctx.fail(f"No such command {args[0]!r}; did you mean {meant}?")
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: windlass plan --help",
)
@click.version_option(__version__, prog_name="windlass")
def windlass() -> None:
    """Decides how many machines a cluster needs, and tells you why."""


def main() -> None:
    """The console script."""
    # The planner's matrices are small; one thread halves what importing numpy costs.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(50_000)  # importing makes tens of thousands of objects: collecting them takes a tenth of the time
    try:
        windlass.main(prog_name="windlass", standalone_mode=False)
        gc.freeze()  # what is left dies with the process
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.UsageError as error:
        error.show()
        sys.exit(64)  # sysexits' usage error: 1 is a wrong file, 2 is "there are changes"
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as leaving:
        sys.exit(leaving.exit_code)
