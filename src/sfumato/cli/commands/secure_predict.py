"""``sfumato secure predict``: the steps of an encrypted prediction, each from files to files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

import sfumato as sf
from sfumato.cli.options import Command, check_output, file_options, force_option, print_json
from sfumato.cli.terminal import echo
from sfumato.errors import FileError, InputError, ProtocolError

__all__ = ["predict"]

_OUTPUT = click.option("-o", "--output", metavar="FILE", required=True, help="The file to write.")
_SECRET = click.option("--secret", metavar="FILE", required=True, help="The client's secret key.")
_MOST = 1 << 32


@click.group(invoke_without_command=True, no_args_is_help=False)
@click.pass_context
def predict(ctx: click.Context) -> None:
    """Let a server answer records that it cannot read.

    The server has a model, the client the records. The server publishes what a client
    must know of the model (no weights); the client makes keys, and sends the public ones
    and encrypted records; the server answers; the client decrypts.

    \b
    server  sfumato secure predict question MODEL -o question.json
    client  sfumato secure predict keys question.json -o client
    client  sfumato secure predict encrypt rows.csv question.json --secret client.secret -o rows.bin
    server  sfumato secure predict answer MODEL client.public rows.bin -o answers.bin
    client  sfumato secure predict decrypt answers.bin question.json --secret client.secret
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@predict.command(cls=Command)
@click.argument("model", metavar="MODEL")
@force_option
@_OUTPUT
def question(model: str, force: bool, output: str, as_json: bool) -> None:
    """Write what a client must know of MODEL, a release of 'sfumato train': sizes and classes, no weights."""
    check_output(output, force=force)

    from sfumato.data.io.files import atomic_path
    from sfumato.federation import Question

    circuit = _circuit(model)
    classes = None if circuit.classes is None else list(circuit.classes)
    plain = {"format": "sfumato question 1", "question": Question.of(circuit).to_dict(), "classes": classes}
    with atomic_path(output) as temporary:
        temporary.write_text(json.dumps(plain, indent=1) + "\n")
    if as_json:
        print_json({"file": output, **plain})
    echo(f"{output} is what clients need; it has no weights", err=True)


@predict.command(cls=Command)
@click.argument("question_file", metavar="QUESTION")
@click.option("-o", "--output", metavar="NAME", required=True, help="NAME.secret and NAME.public are written.")
def keys(question_file: str, output: str, as_json: bool) -> None:
    """Make a client's keys: NAME.secret, which only you can read, and NAME.public for the server."""
    from sfumato.data.io.files import atomic_path
    from sfumato.federation import Client

    asked, _ = _question(question_file)
    secret, public = Path(f"{output}.secret"), Path(f"{output}.public")
    client = Client(asked)
    try:
        number = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise FileError(f"'{secret}' exists, and a key is never overwritten", hint="choose another name") from None
    except OSError as error:
        raise FileError(f"'{secret}' cannot be written: {error.strerror}") from error
    with os.fdopen(number, "wb") as file:
        file.write(client.secret_key)
    with atomic_path(public) as temporary:
        temporary.write_bytes(client.public_keys)
    if as_json:
        print_json({"secret": str(secret), "public": str(public), "bytes": len(client.public_keys)})
    echo(f"{secret} is your secret key; send {public} to the server", err=True)


@predict.command(cls=Command)
@file_options
@click.argument("question_file", metavar="QUESTION")
@_SECRET
@force_option
@_OUTPUT
def encrypt(question_file: str, secret: str, force: bool, output: str, as_json: bool, **options: Any) -> None:
    """Encrypt the rows of FILE: records as the model was trained on, with its columns in any order.

    For a model of images, FILE has a column for each input of the model, in its order and scaled to its bound.
    """
    check_output(output, force=force)

    from sfumato.cli.tables import read_table
    from sfumato.data.io.files import atomic_path
    from sfumato.federation import Client, inputs_of
    from sfumato.federation.wire import encode

    asked, _ = _question(question_file)
    client, table = Client(asked, secret=_bytes(secret)), read_table(schema=None, **options)
    rows = _rows(table) if asked.records is None or asked.records.features is None else inputs_of(asked, table)
    records = [client.encrypt(row) for row in rows]
    with atomic_path(output) as temporary:
        temporary.write_bytes(encode({"records": records}))
    if as_json:
        print_json({"file": output, "records": len(records), "bytes": Path(output).stat().st_size})
    echo(f"{len(records):,} encrypted records are in {output}", err=True)


def _rows(table: sf.Table) -> Any:
    """Return rows of numbers as they are."""
    frame = table.frame
    if not all(kind.is_numeric() for kind in frame.dtypes) or sum(frame.null_count().row(0)):
        raise InputError("the rows to encrypt must be numbers, and none may be missing")
    return frame.to_numpy()


@predict.command(cls=Command)
@click.argument("model", metavar="MODEL")
@click.argument("public", metavar="PUBLIC")
@click.argument("records_file", metavar="RECORDS")
@force_option
@_OUTPUT
def answer(model: str, public: str, records_file: str, force: bool, output: str, as_json: bool) -> None:
    """Answer encrypted RECORDS with MODEL and the client's PUBLIC keys, without being able to read anything."""
    check_output(output, force=force)

    from sfumato.data.io.files import atomic_path
    from sfumato.federation import Server
    from sfumato.federation.wire import encode

    server = Server(_circuit(model))
    session = server.connect(_bytes(public))
    answers = [server.answer(session, one) for one in _parts(records_file, "records")]
    with atomic_path(output) as temporary:
        temporary.write_bytes(encode({"answers": answers}))
    if as_json:
        print_json({"file": output, "answers": len(answers), "bytes": Path(output).stat().st_size})
    echo(f"{len(answers):,} encrypted answers are in {output}", err=True)


@predict.command(cls=Command)
@click.argument("answers_file", metavar="ANSWERS")
@click.argument("question_file", metavar="QUESTION")
@_SECRET
def decrypt(answers_file: str, question_file: str, secret: str, as_json: bool) -> None:
    """Decrypt ANSWERS, and print the class of each record with its scores; of a regression, the scores are the values.

    Do not show the scores to the server: their last digits depend on your key.
    """
    from sfumato.federation import Client

    asked, classes = _question(question_file)
    client = Client(asked, secret=_bytes(secret))
    found: list[dict[str, Any]] = []
    for one in _parts(answers_file, "answers"):
        scores = [float(score) for score in client.decrypt(one)]
        if classes is None:
            found.append({"scores": scores})
            continue
        best = int(scores[0] > 0) if len(scores) == 1 else max(range(len(scores)), key=scores.__getitem__)
        if best >= len(classes):
            raise InputError("the answers have more scores than the question has classes")
        found.append({"class": classes[best], "scores": scores})
    if as_json:
        print_json({"answers": found})
        return
    for row in found:
        name = f"{row['class']!s:<12} " if "class" in row else ""
        echo(f"{name}{', '.join(f'{one:.6g}' for one in row['scores'])}")


def _circuit(model: str) -> Any:
    from sfumato.federation import to_circuit

    release = sf.load(model)
    fitted = getattr(release.artifact, "model", None)
    if fitted is None:
        raise InputError(f"'{model}' is not a release of a model", hint="sfumato train ... -o FOLDER makes one")
    return to_circuit(release)


def _question(path: str) -> tuple[Any, list[Any] | None]:
    from sfumato.data.certificate import read_plain
    from sfumato.federation import Question

    try:
        plain = read_plain(Path(path))
        if plain["format"] != "sfumato question 1" or not isinstance(plain["classes"], list | None):
            raise ValueError("format")
        return Question.from_dict(plain["question"]), plain["classes"]
    except (OSError, KeyError, TypeError, ValueError, ProtocolError) as error:
        raise FileError(
            f"'{path}' is not a question", hint="the server makes it with sfumato secure predict question"
        ) from error


def _parts(path: str, name: str) -> list[bytes]:
    from sfumato.federation.wire import decode

    found = decode(_bytes(path)).get(name)
    if not isinstance(found, list):
        raise FileError(f"'{path}' has no {name}")
    return found


def _bytes(path: str) -> bytes:
    try:
        if Path(path).stat().st_size > _MOST:
            raise FileError(f"'{path}' is too large")
        return Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"'{path}' cannot be read: {error.strerror}") from error
