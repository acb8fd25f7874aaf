"""`queen tokens`: add, list and revoke. Arguments in, one call, lines out."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from queen.clock import SystemClock
from queen.errors import Invalid, NoFolder, NotFound
from queen.names import SECOND, check_instant, instant_text, parse_instant
from queen.settings import DEFAULTS
from queen.tokens import FILE_NAME, Role, Token, add_token, digest_of, new_token, read_tokens, revoke_token

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN: Final = re.compile(r"(\d{1,9})([smhd])")

Command = TypeVar("Command", bound=Callable[..., Any])


def _where(command: Command) -> Command:
    data = click.option("--data", default=DEFAULTS.data, envvar="QUEEN_DATA", show_default=True, help="data folder")
    path = click.Path(dir_okay=False, path_type=Path)
    file = click.option(
        "--token-file", type=path, envvar="QUEEN_TOKEN_FILE", help="the file itself, where it isn't in the data folder"
    )
    return file(data(command))


def _file(data: str, token_file: Path | None) -> Path:
    """Where the tokens are kept. Raises `NoFolder`: a mistyped name must not look like a server that is open."""
    if token_file is not None:
        return token_file
    if not Path(data).is_dir():
        raise NoFolder(f"there is no data folder {data}")
    return Path(data) / FILE_NAME


@click.group()
def tokens() -> None:
    """Say who may use a server. It takes changes within a second, without a restart."""


@tokens.command("add")
@click.argument("name")
@click.option("--role", type=click.Choice([role.word for role in Role]), required=True, help="what it allows")
@click.option("--expires", help="when it ends: after 30s, 90m, 12h or 30d, or at an ISO 8601 time")
@click.option("--create", is_flag=True, help="make the data folder, for a server that has never been started")
@_where
def add(name: str, role: str, expires: str | None, create: bool, data: str, token_file: Path | None) -> None:
    """Make a token, print it once, and keep its hash. Once there is one, the server is closed to all who have none."""
    now = SystemClock().now()
    token = new_token()
    end = None if expires is None else _end(expires, now)
    if create and token_file is None:
        Path(data).mkdir(mode=0o700, parents=True, exist_ok=True)
    path = _file(data, token_file)
    add_token(path, Token(name, Role[role.upper()], digest_of(token.encode()), now, end))
    click.echo(token)
    click.echo(f"{name} may {role}; the token is not kept and can't be shown again", err=True)


@tokens.command("list")
@_where
def listed(data: str, token_file: Path | None) -> None:
    """Print names, roles and when each was made and ends; never a token or its hash."""
    path = _file(data, token_file)
    if not path.exists():
        raise NotFound(f"there is no token file {path}: the server is open")
    now = SystemClock().now()
    for token in read_tokens(path):
        end = "does not expire" if token.expires is None else f"until {instant_text(token.expires)}"
        over = " (expired)" if token.expired(now) else ""
        click.echo(f"{token.name} {token.role.word} since {instant_text(token.created)} {end}{over}")


@tokens.command("revoke")
@click.argument("name")
@_where
def revoke(name: str, data: str, token_file: Path | None) -> None:
    """Make a token useless. When the last one is revoked, nobody gets in."""
    path = _file(data, token_file)
    if not path.exists():
        raise NotFound(f"there is no token file {path}")
    revoke_token(path, name)
    click.echo(f"{name} is revoked")


def _end(text: str, now: int) -> int:
    span = _SPAN.fullmatch(text)
    try:
        end = now + int(span[1]) * _UNITS[span[2]] * SECOND if span else parse_instant(text)
    except ValueError:
        raise Invalid("--expires", "must be a span such as 30s, 90m, 12h or 30d, or an ISO 8601 time") from None
    check_instant(end, "--expires")
    if end <= now:
        raise Invalid("--expires", "lies in the past")
    return end
