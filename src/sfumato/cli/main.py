"""The command ``sfumato``: runs a command, and turns every error into one sentence.

Exit codes: 0 done, 1 a check failed, 2 bad usage or input, 128 + n stopped by signal n. Commands
are imported when they are called, so that ``sfumato --help`` is quick.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

import sfumato
from sfumato.cli.terminal import echo
from sfumato.errors import SfumatoError, did_you_mean

__all__ = ["main"]

_STDERR = 2
_OURS = Path(sfumato.__file__).parent
_MOST_NATIVE = 2**20  # bytes of native output that are kept

# name: (module in sfumato.cli, the line that --help shows)
_COMMANDS = {
    "assess": ("assess", "Measure how anonymous a table is."),
    "anonymize": ("anonymize", "Make a table anonymous, and lose as little as possible."),
    "train": ("train", "Train a model that does not reveal who it was trained on."),
    "synthesize": ("synthesize", "Synthesize rows like those of a table, with a guarantee."),
    "attack": ("attack", "Measure what an attacker learns from a release or a model."),
    "federate": ("federate", "Train one model with several holders who keep their records."),
    "explore": ("explore", "Compare protections on one table, and choose one."),
    "verify": ("verify", "Check every claim of a release on its data alone."),
    "mask": ("mask", "Perturb columns with noise or swapping, without a guarantee."),
    "pseudonymize": ("pseudonymize", "Replace identifiers by tokens, the same in all tables."),
    "key": ("key", "Make a secret key for pseudonyms."),
    "budget": ("budget", "Grant a data set a privacy budget, and show what was spent."),
    "query": ("query", "Ask a table for statistics, with noise, within its budget."),
    "perturb": ("perturb", "Perturb every record on its own, with a guarantee."),
    "estimate": ("estimate", "Estimate frequencies and means from perturbed records."),
    "secure": ("secure", "Compute together on rows that nobody may see."),
    "schema": ("schema", "Propose the role of each column of a table, with reasons."),
    "reproduce": ("reproduce", "Run published experiments again, printed figures beside ours."),
    "studio": ("studio", "Use all of this in a browser, on this machine alone."),
    "demo": ("demo", "Try it on a built-in census table."),
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = getattr(importlib.import_module(f"sfumato.cli.commands.{_COMMANDS[cmd_name][0]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _COMMANDS:
            raise click.UsageError(f"there is no command '{args[0]}' ({did_you_mean(args[0], _COMMANDS)})")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):  # without importing them
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=_Commands, no_args_is_help=False, invoke_without_command=True)
@click.version_option(sfumato.__version__, message="sfumato %(version)s")
@click.pass_context
def _sfumato(ctx: click.Context) -> None:
    """Release data and models about people without exposing the people.

    Start with 'sfumato demo', or with your own table:

        sfumato assess patients.csv --qi age,zip,sex --sensitive disease

    Every command has --help, prints JSON with --json, and shows the traceback of an
    error with --debug.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters shows ?
    signals: list[int] = []
    try:
        with _stopping(signals), _without_panics("--debug" in arguments), warnings.catch_warnings():
            warnings.showwarning = _shown_warning
            code = _sfumato.main(arguments, prog_name="sfumato", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        echo("Stopped.", error=True)
        sys.exit(128 + (signals[0] if signals else signal.SIGINT))
    except SystemExit:  # click exits so when the reader of our output has closed it
        sys.exit(141)
    except BaseException as error:  # noqa: BLE001 - no traceback reaches a user unasked, not even a panic of Polars
        if "--debug" in arguments:
            for line in "".join(traceback.format_exception(error)).split("\n"):
                echo(line, error=True)
        echo(f"Error: {' '.join(_message(error).split())}", error=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)


def _shown_warning(message: Warning | str, category: type[Warning], filename: str, *_: Any, **__: Any) -> None:
    """Print warnings of Sfumato as notes; those of other libraries are not for users."""
    if category is UserWarning and Path(filename).is_relative_to(_OURS):
        echo(f"Note: {message}", err=True)


@contextmanager
def _stopping(signals: list[int]) -> Iterator[None]:
    """Treat signals that would end the process like Ctrl-C, so that rows on the disk are removed first."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        signals.append(number)
        raise KeyboardInterrupt

    known = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))  # Windows has no SIGHUP
    handled = []
    if threading.current_thread() is threading.main_thread():
        # A signal that is ignored, as under nohup, or handled by the caller stays so.
        handled = [number for number in known if number and signal.getsignal(number) == signal.SIG_DFL]
    for number in handled:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _without_panics(debug: bool) -> Iterator[None]:
    """Keep the panics of native code off the terminal: a damaged file gets one sentence, not a Rust backtrace.

    What native code writes to stderr is held back until the command ends, and dropped if it panicked. What Python
    writes there is shown at once.
    """
    if debug or not isinstance(sys.stderr, io.TextIOWrapper) or sys.stderr.fileno() != _STDERR:
        yield
        return
    ours, native = sys.stderr, tempfile.TemporaryFile()  # noqa: SIM115 - it is closed below
    ours.flush()
    real = os.dup(_STDERR)
    sys.stderr = open(  # noqa: PTH123, SIM115 - of a number
        os.dup(_STDERR), "w", encoding=ours.encoding, errors=ours.errors, buffering=1
    )
    os.dup2(native.fileno(), _STDERR)
    try:
        yield
    finally:
        sys.stderr.close()
        sys.stderr = ours
        os.dup2(real, _STDERR)
        os.close(real)
        with native:
            native.seek(0)
            output = native.read(_MOST_NATIVE)
        if b"panicked at" not in output:
            ours.buffer.write(output)
            ours.flush()


def _message(error: BaseException) -> str:
    if isinstance(error, SfumatoError):
        return str(error)
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError) and error.filename is not None:  # a folder that may not be entered, say
        return f"'{os.fsdecode(error.filename)}' cannot be used: {error.strerror or type(error).__name__}"
    return f"something unexpected went wrong ({type(error).__name__}); run it again with --debug to see where"
