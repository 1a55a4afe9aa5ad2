"""The command line: ``windlass``.

Each command has a module in a folder of ``commands``. A module is imported only when its command is called, so that a
quick command starts quickly.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

import click

from windlass import __version__

SECTIONS = {
    ("Start", "start"): {
        "demo": "See it work on this computer, in about 15 seconds.",
        "init": "Write a first configuration file.",
        "run": "Run the controller of a cluster.",
        "down": "Drain and end every machine of a cluster.",
    },
    ("Jobs", "jobs"): {
        "submit": "Put a command into the queue; with --wait, wait for it.",
        "jobs": "List the jobs in the queue and how far they are.",
        "logs": "Show what a job has written.",
        "cancel": "Start no task of a job any more, and end those that run.",
    },
    ("Look", "look"): {
        "status": "What the cluster is doing now.",
        "why": "Why a job, a machine or a group is as it is, now or earlier.",
        "events": "What happened, and why.",
        "doctor": "Check everything that a cluster needs.",
        "top": "Watch the cluster live in the terminal.",
        "cost": "What was spent, by group, job or account.",
        "serve": "Serve the dashboard and the API from the journal alone.",
        "open": "Open the dashboard in a browser.",
    },
    ("Operate", "operate"): {
        "freeze": "Buy and release nothing, in a group or at all.",
        "resume": "Go on after a freeze.",
        "drain": "Empty a machine and give it back.",
        "token": "Create, list and revoke tokens of the server.",
        "config": "Check, explain or import a configuration.",
        "bootstrap": "Print how machines elsewhere are prepared.",
        "kubernetes": "Print what a Kubernetes cluster needs for Windlass.",
    },
    ("Ask before it acts", "whatif"): {
        "plan": "What would be done about a file or a live cluster, and why.",
        "offers": "List machines that clouds sell, with prices, and the one that fits.",
        "replay": "Decide again what was recorded, with the same or other settings.",
        "compare": "Run one trace of jobs under several policies.",
        "simulate": "Run the controller in a simulated cluster with faults.",
        "shadow": "What a shadow controller would have done.",
    },
}
"""The commands by heading and folder, in the order of ``windlass --help``."""
COMMANDS = {name: folder for (_, folder), commands in SECTIONS.items() for name in commands}


class _LazyGroup(click.Group):
    """A group of commands that imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"{__name__}.commands.{COMMANDS[cmd_name]}.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name in ("-c", "--config"):
                ctx.fail("put -c FILE after the command, such as: windlass status -c FILE")
            raise

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
        width = max(map(len, COMMANDS))
        for (title, _), commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: windlass demo",
)
@click.version_option(__version__, prog_name="windlass")
def windlass() -> None:
    """Decides how many machines a cluster needs, starts and ends them, and explains why."""


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
