"""Encryption keys on the command line: where they come from, and `queen keys`."""

import os
from pathlib import Path
from typing import Final

import click

from queen.errors import Invalid
from queen.settings import Settings
from queen.store.keyring import NO_KEYS, KeyRing, add_key, key_name, new_key

KEY_VARIABLE: Final = "QUEEN_ENCRYPTION_KEY"


def encryption_keys(settings: Settings) -> KeyRing:
    """The keys that the operator gives (C4), in the environment or in a file. Never as an argument, which every user of
    the machine could read. Raises `Invalid` and `OSError`: a key that can't be used must not mean plain text."""
    given = os.environ.get(KEY_VARIABLE)
    if given is None:
        return KeyRing.from_file(Path(settings.encryption_key_file)) if settings.encryption_key_file else NO_KEYS
    if settings.encryption_key_file:
        raise Invalid(KEY_VARIABLE, "is set, and so is --encryption-key-file; give the keys in one of them")
    return KeyRing.from_text(given, KEY_VARIABLE)


@click.group()
def keys() -> None:
    """Make and list encryption keys."""


_KEY_FILE = click.option("--file", "file", type=click.Path(dir_okay=False, path_type=Path), help="the key file")


@keys.command("new")
@_KEY_FILE
def keys_new(file: Path | None) -> None:
    """Make a key: print it, or make it the current one of a key file, whose other keys stay."""
    key = new_key()
    if file is None:
        click.echo(key)
        return
    add_key(file, key)
    click.echo(f"{key_name(bytes.fromhex(key))} is the current key of {file}")


@keys.command("list")
@_KEY_FILE
def keys_list(file: Path | None) -> None:
    """Print the names of the keys in a key file, or else in QUEEN_ENCRYPTION_KEY: never the keys."""
    ring = encryption_keys(Settings(encryption_key_file=str(file or "")))
    for name in ring:
        click.echo(f"{name} {'current' if name == ring.current else 'for reading'}")
