"""``sfumato pseudonymize``: replace identifiers by tokens, and back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sfumato.cli.options import (
    Command,
    Number,
    check_not_input,
    check_output,
    escape_option,
    force_option,
    names_option,
    print_json,
    reading_options,
)
from sfumato.cli.progress import note_if_slow
from sfumato.cli.terminal import echo
from sfumato.errors import OptionError

if TYPE_CHECKING:
    from sfumato.pseudonyms.pseudonymize import Replaced
    from sfumato.pseudonyms.tokens import Tokens

__all__ = ["pseudonymize"]


@click.command(cls=Command)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@names_option("--columns", "The columns that identify a person; every file must have them.")
@click.option(
    "--method",
    type=click.Choice(["keyed", "random", "encrypted"]),
    default="keyed",
    show_default=True,
    help="How tokens are made.",
)
@click.option("--key", metavar="FILE", help="The key file; make one with 'sfumato key new'.")
@click.option("--mapping", metavar="FILE", help="The encrypted file that stores random tokens; created or extended.")
@click.option("--passphrase", is_flag=True, help="Encrypt the mapping with a passphrase instead of --key.")
@click.option("--space", metavar="NAME", help="A common name for columns that identify the same people.")
@click.option("--length", type=Number(is_whole=True), help="Characters of a token (keyed, random).  [default: 20]")
@click.option("--reverse", is_flag=True, help="Turn tokens back into identifiers (random, encrypted).")
@reading_options
@escape_option
@force_option
@click.option(
    "-o", "--output", metavar="OUT", required=True, help="A file, - for stdout, or for several FILEs a new folder."
)
def pseudonymize(
    files: tuple[str, ...],
    as_json: bool,
    columns: list[str],
    method: str,
    key: str | None,
    mapping: str | None,
    passphrase: bool,
    space: str | None,
    length: int | None,
    reverse: bool,
    escape_formulas: bool,
    force: bool,
    output: str,
    **reading: Any,
) -> None:
    """Replace identifiers by tokens, the same in all tables.

    Equal identifiers get equal tokens in every file, now and later, so tables can still
    be joined. keyed: tokens are made with the key and cannot be reversed. random: an
    encrypted mapping stores the tokens. encrypted: the key reverses them. Pseudonymized
    data is still personal data.

    \b
    sfumato key new pseudonyms.key
    sfumato pseudonymize patients.csv visits.csv --columns patient_id --key pseudonyms.key -o shared/
    """
    if not columns:
        raise OptionError("no identifier column is named", hint="name the columns that identify a person: --columns")
    for written in (output, mapping):
        check_not_input(written, *files, key)
    check_not_input(output, mapping)
    targets = _targets(files, output, force)

    from sfumato.cli.tables import read_table
    from sfumato.data.io.encodings import bom_encoding, is_utf8
    from sfumato.data.io.folders import atomic_folder
    from sfumato.pseudonyms.pseudonymize import replace_identifiers

    chosen = _method(method, key, mapping, passphrase, length)
    with note_if_slow("Working ..."):
        tables = [(f"'{file}'" if len(files) > 1 else "", read_table(file, None, **reading)) for file in files]
        done = replace_identifiers(tables, chosen, columns, space, back=reverse)
    if len(files) == 1:
        done[0].write(output, escape_formulas=escape_formulas)
    else:
        with atomic_folder(output) as folder:
            for name, one in zip(targets, done, strict=True):
                one.write(folder / name, escape_formulas=escape_formulas)
    if as_json:
        print_json({"files": [_plain(*one) for one in zip(files, done, strict=True)], "method": method})
    else:
        _print(files, done, reverse)
    for one in done:
        text = None if one.file is None or not one.file.is_text else one.file.text
        if text is not None and not reverse and not is_utf8(text.encoding) and not bom_encoding(text.beginning):
            echo(f"To restore it, give --encoding {text.encoding} on the way back", err=True)
    echo(f"The {'identifiers' if reverse else 'tokens'} are in {output}", err=True)


def _targets(files: Sequence[str], output: str, force: bool) -> list[str]:
    """Return the names of the files to write, or refuse before the work."""
    from sfumato.data.io.files import FORMATS, refuse_only_read

    names = [output] if len(files) == 1 else [Path(file).name for file in files]
    for name, file in zip(names, files, strict=True):
        if len(files) > 1 and "://" in file:
            raise OptionError("several tables must be files", hint="pseudonymize the table of a database alone")
        refuse_only_read(name)
        if names.count(name) > 1:
            raise OptionError(f"two files are called '{name}'", hint="rename one of them")
    check_output(output, force=force, folder=len(files) > 1, instead="name a file, or a folder for several files")
    if len(files) > 1 and Path(output).suffix.lower() in FORMATS and not output.endswith(("/", "\\")):
        raise OptionError(f"{len(files)} files do not fit into '{output}'", hint="name a new folder with -o")
    return names


def _method(name: str, key: str | None, mapping: str | None, passphrase: bool, length: int | None) -> Tokens:
    """Return the method with its options; refuse an option that is not for it."""
    from sfumato.pseudonyms import EncryptedTokens, KeyedTokens, RandomTokens

    if name != RandomTokens.name:
        if mapping is not None or passphrase:
            option = "--mapping" if mapping is not None else "--passphrase"
            raise OptionError(f"{option} is for random tokens", hint="give --method random too")
        if key is None:
            raise OptionError("--key is missing", hint="make a key with 'sfumato key new FILE'")
    if name == EncryptedTokens.name:
        if length is not None:
            raise OptionError("--length is for keyed and random tokens", hint="encrypted ones are as long as needed")
        return EncryptedTokens(key or "")
    given = {} if length is None else {"length": length}
    if name == KeyedTokens.name:
        return KeyedTokens(key or "", **given)
    if mapping is None:
        raise OptionError("--mapping is missing", hint="random tokens are stored in this file")
    if (key is None) != passphrase:
        raise OptionError("a mapping is encrypted with a key or a passphrase", hint="give --key or --passphrase")
    return RandomTokens(mapping, key, _read_passphrase(new=not Path(mapping).exists()) if passphrase else None, **given)


def _read_passphrase(new: bool) -> str:
    """Ask for the passphrase on a terminal; otherwise read the first line of the input."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    text: str = click.prompt("Passphrase", hide_input=True, confirmation_prompt=new, err=True)
    return text


def _plain(file: str, done: Replaced) -> dict[str, Any]:
    columns = {name: {"distinct": distinct} for name, distinct in done.distinct.items()}
    return {"file": file, "rows": done.table.rows, "columns": columns}


def _print(files: Sequence[str], done: Sequence[Replaced], reverse: bool) -> None:
    what = "tokens turned back" if reverse else "identifiers replaced"
    for file, one in zip(files, done, strict=True):
        for name, distinct in one.distinct.items():
            echo(f"{file}: {distinct:,} different {what} in column '{name}', {one.table.rows:,} rows")
