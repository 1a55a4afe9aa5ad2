"""This package is the command line, ``windlass``.

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
        "demo": "See Windlass work on this computer, in about 15 seconds.",
        "init": "Write a first configuration file.",
        "run": "Run the controller of a cluster.",
        "down": "Drain and end every machine of a cluster.",
    },
    ("Jobs", "jobs"): {
        "submit": "Put a command into the queue; with --wait, wait for it.",
        "jobs": "List the jobs in the queue and their progress.",
        "logs": "Print the output of a job.",
        "cancel": "Cancel a job: start no more tasks, and end the running ones.",
    },
    ("Inspect", "look"): {
        "status": "Show what the cluster is doing now.",
        "why": "Explain a job, a machine or a group, now or in the past.",
        "events": "List what happened, and why.",
        "doctor": "Check everything that a cluster needs.",
        "top": "Watch the cluster live in the terminal.",
        "cost": "Show what was spent, by group, job or account.",
        "serve": "Serve the dashboard and the API without a controller.",
        "open": "Open the dashboard in a browser.",
    },
    ("Operate", "operate"): {
        "freeze": "Stop buying and releasing machines of one group or of all.",
        "resume": "Undo a freeze.",
        "drain": "Wait for the work of a machine, and release it.",
        "token": "Create, list and revoke tokens of the server.",
        "config": "Check, explain or import a configuration.",
        "bootstrap": "Print the script that prepares a remote machine.",
        "kubernetes": "Print what a Kubernetes cluster needs for Windlass.",
    },
    ("What if", "whatif"): {
        "plan": "Show what it would do for a file or a live cluster.",
        "offers": "List cloud machines that fit, with prices.",
        "replay": "Repeat recorded decisions, with the same or other settings.",
        "compare": "Run one trace of jobs under several policies.",
        "simulate": "Run traces of jobs, or random faults, in a simulated cluster.",
        "shadow": "Show what a shadow controller would have done.",
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
    """An autoscaler: it decides how many machines a cluster needs, starts and ends them, and explains why."""


def main() -> None:
    """The console script."""
    # The planner's matrices are small; with one thread, numpy imports in half the time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(
        50_000
    )  # imports make tens of thousands of objects, and collecting them takes a tenth of the start-up time
    try:
        windlass.main(prog_name="windlass", standalone_mode=False)
        gc.freeze()  # the process ends here; a last collection would only take time
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except click.UsageError as error:
        error.show()
        sys.exit(64)  # the usage error of sysexits.h; 1 means a wrong file, and 2 means "there are changes"
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as leaving:
        sys.exit(leaving.exit_code)
