"""The command line: arguments, then one call for each command. No rules and no protocol here."""

import gc
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import click
import msgspec
import structlog
import trio

from queen.broker import Broker
from queen.cli_audit import COMMANDS, UNREADABLE, NumberRange, end
from queen.cli_backup import backup_command, restore_command
from queen.cli_keys import encryption_keys, keys
from queen.cli_resend import CAFILE, resend_command, trusting
from queen.cli_whatif import whatif_command
from queen.errors import FolderLocked, NoFolder, QueenError, Unavailable
from queen.logs import configure_logging
from queen.opening import open_broker
from queen.settings import DEFAULTS, SETTINGS, Setting, Settings
from queen.token_commands import tokens
from queen.web.process import raise_file_limit

log = structlog.get_logger("queen")

# LMDB gives the interpreter's lock back around each call; a busy main thread would keep it for 5 ms by default.
_SWITCH_INTERVAL: Final = 0.0005

# So many new partitions and parked pops are taken out of the collector's sight together, looked for so often.
_FREEZE_EVERY: Final = 500
_FREEZE_AFTER_S: Final = 1.0

Command = TypeVar("Command", bound=Callable[..., Any])


class _Commands(click.Group):
    """The commands, which end with one line for what an operator can mend."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (QueenError, OSError) as error:
            _explain(error)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """Queen, a durable message queue."""


def _settings_options(command: Command) -> Command:
    for setting in reversed(SETTINGS):
        command = _option(setting)(command)
    return command


def _option(setting: Setting) -> Callable[[Command], Command]:
    kind: Any = click.STRING
    flag = setting.flag
    if setting.choices:
        kind = click.Choice(setting.choices)
    elif setting.kind == "integer":
        kind = click.IntRange(int(setting.low), int(setting.high))
    elif setting.kind == "number":
        kind = NumberRange(setting.low, setting.high)
    elif setting.kind == "boolean":
        kind = click.BOOL
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    return click.option(
        flag,
        setting.name,
        type=kind,
        default=setting.default,
        envvar=setting.env,
        show_default=True,
        show_envvar=True,
        help=setting.meaning,
    )


@main.command()
@_settings_options
def serve(**values: Any) -> None:
    """Serve a data folder over HTTP until SIGTERM or Ctrl-C."""
    settings = Settings(**values | {"data": os.path.abspath(values["data"])})
    configure_logging(settings)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    raise_file_limit()
    try:
        trio.run(_serve, settings, strict_exception_groups=True)
    except BaseExceptionGroup as group:
        _explain(_only(group))


async def _serve(settings: Settings) -> None:
    serve_http = _server()
    keys = encryption_keys(settings)
    async with (
        open_broker(settings.data, reserve=settings.reserve, keys=keys, wait=False) as broker,
        trio.open_nursery() as nursery,
    ):

        async def serving(task_status: trio.TaskStatus[list[str]]) -> None:
            await serve_http(broker, settings, task_status=task_status)
            nursery.cancel_scope.cancel()

        # The port is open from the first moment on, and says 503 until the journal has been read.
        urls: list[str] = await nursery.start(serving)
        await broker.wait_started()
        nursery.start_soon(compact_every, broker, settings.compact_every)
        gc.collect()
        nursery.start_soon(_freeze, broker)
        log.info("listening", url=", ".join(urls), data=settings.data)
    log.info("stopped")


async def _freeze(broker: Broker) -> None:
    """What is here after the start stays, and so do partitions that are made later, and for long the pops that wait: no
    collection need look at them again, which would stop everything for a second where there are a million partitions,
    for half of one with 10,000 pops. What ends is mostly freed without one."""
    known = -_FREEZE_EVERY
    while True:
        health = broker.health()
        lasting = health.partitions + health.parked
        if lasting >= known + _FREEZE_EVERY:
            known = lasting
            gc.collect(1)
            gc.freeze()
        await trio.sleep(_FREEZE_AFTER_S)


def _server() -> Callable[..., Awaitable[None]]:
    """What serves a broker over HTTP. Its packages are an extra: a program that embeds Queen needs none of them."""
    try:
        from queen.web.serve import serve as serve_http
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: pip install 'queen-trio[server]'") from None
    return serve_http


async def compact_every(broker: Broker, hours: float) -> None:
    """Compact every so many hours, for ever; 0: never. One that is refused is left out."""
    while hours:
        await trio.sleep(hours * 3600)
        try:
            done = await broker.compact()
        except QueenError as error:
            log.warning("no compaction this time", reason=str(error))
        else:
            log.info("compacted", bytes_before=done.before, bytes_after=done.after)


@main.command()
@click.option("--data", default=DEFAULTS.data, envvar="QUEEN_DATA", show_default=True, help="folder that nobody serves")
@click.option("--url", help="of a server that runs: it does the work, and goes on serving")
@click.option("--token", envvar="QUEEN_TOKEN", show_envvar=True, help="the server's, of role admin")
@CAFILE
def compact(data: str, url: str | None, token: str | None, cafile: str | None) -> None:
    """Make the file of a data folder anew: deleted payloads are physically gone, and the disk gets their space."""
    if url is None and not Path(data).is_dir():
        raise NoFolder(f"there is no data folder {data}")
    before, after = trio.run(_compact_here, data) if url is None else _compact_at(url, token, trusting(cafile))
    click.echo(f"{before} bytes before, {after} bytes after")


async def _compact_here(data: str) -> tuple[int, int]:
    try:
        async with open_broker(data) as broker:
            return await broker.compact()
    except FolderLocked as error:
        raise FolderLocked(f"{error} Ask the server instead, with --url.") from None


def _compact_at(url: str, token: str | None, trust: SSLContext) -> tuple[int, int]:
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    asked = Request(url.rstrip("/") + "/api/v1/compact", b"{}", headers, method="POST")
    try:
        with urlopen(asked, context=trust) as reply:
            answer = msgspec.json.decode(reply.read())
    except HTTPError as error:
        with error:
            raise Unavailable(f"{url} answers {error.code}: {error.read().decode(errors='replace')}") from None
    except URLError as error:
        raise Unavailable(f"{url} can't be reached: {error.reason}") from None
    return answer["bytesBefore"], answer["bytesAfter"]


main.add_command(tokens)
main.add_command(keys)
for command in (*COMMANDS, backup_command, restore_command, resend_command, whatif_command):
    main.add_command(command)


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error inside nested groups of one, which is what a nursery makes of a failed start; else the group."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _explain(error: BaseException) -> None:
    """End with one line for what an operator can mend, and exit code 1, or 3 where the data folder is not there or in
    use, as the audit's commands do; a bug keeps its traceback."""
    if isinstance(error, FolderLocked | NoFolder):
        end(str(error), UNREADABLE)
    if isinstance(error, QueenError):
        raise click.ClickException(str(error)) from None
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        raise click.ClickException(f"{where}{error.strerror or error}") from None
    raise error
