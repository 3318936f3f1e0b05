"""The commands of live bandits: serve, ask, tell, explain; tokens and storages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .common import Command, common_options, importing, print_json, progress_bar, say

if TYPE_CHECKING:
    from .exporting import ExportFormat

_PATH = click.Path(path_type=Path)
_COUNT = click.IntRange(min=1)
_STORAGE = "The storage: sqlite:///FILE or postgresql://USER@HOST/DATABASE."
_OR_SERVICE = f"{_STORAGE} Or a service: http://HOST:PORT."
_SPEC = "The spec by registry names, .json or .toml; see `superarm show`."
_ARMS = "The arms on offer, .json or .csv; default: all named arms."
_STRUCTURE = "The constraints of this round, .json."
_TENANT = "The tenant whose bandits the token can use; default: those without a tenant."
_WHOSE = "The tenant that owns the bandits; default: the bandits without a tenant."
_SCOPE = "What the token allows: read, ask, tell or admin; may be repeated. Default: all but admin."


def _storage_option(description: str) -> Callable[[Command], Command]:
    return click.option(
        "--storage",
        required=True,
        envvar="SUPERARM_STORAGE",
        show_envvar=True,
        metavar="URL",
        help=description,
    )


_storage = _storage_option(_STORAGE)


def _limit(name: str, default: int, description: str) -> Callable[[Command], Command]:
    """An option for a limit of the service."""
    return click.option(
        name,
        type=_COUNT,
        default=default,
        show_default=True,
        help=description,
    )


_tenant = click.option("--tenant", default="", metavar="NAME", help=_WHOSE)


def _storage_or_service(command: Command) -> Command:
    """Add ``--storage``, ``--tenant`` and ``--token``."""
    add_token = click.option(
        "--token",
        envvar="SUPERARM_TOKEN",
        show_envvar=True,
        help="The token of a service.",
    )
    return _storage_option(_OR_SERVICE)(_tenant(add_token(command)))


@click.command()
@_storage
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="The address to listen on."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    help="The port to listen on; 0 takes any free port.",
)
@click.option(
    "--host-name",
    "hosts",
    multiple=True,
    help="Another host name of the service, such as a proxy's; may be repeated.",
)
@click.option(
    "--address",
    metavar="URL",
    help="Where other processes on the same PostgreSQL reach this one; default: host and port.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.0, min_open=True),
    help="The most requests per second of a tenant; each line of a batch counts. Default: no limit.",
)
@_limit("--max-body", 16 * 2**20, "The largest body of a request, in bytes.")
@_limit("--max-arms", 100_000, "The most arms in a request.")
@_limit("--max-dimension", 1000, "The most features of an arm, also after encoding.")
@_limit("--max-numbers", 10_000_000, "The most features of all arms in a request.")
@_limit("--max-bandits", 1000, "The most bandits in memory.")
@_limit("--max-tenant-bandits", 10_000, "The most bandits of a tenant.")
@_limit("--max-tenant-threads", 64, "The most concurrent requests of a tenant.")
@_limit("--max-streams", 1000, "The most open streams of events.")
@_limit("--max-tenant-streams", 100, "The most open streams of a tenant.")
@click.option("--open-metrics", is_flag=True, help="Serve /metrics without a token.")
@common_options
@importing
def serve(**options: Any) -> None:
    """Serve bandits over HTTP.

    On addresses other than loopback the service needs tokens: `superarm token create`.
    """
    from .serving import serve

    serve(**options)


# --- bandits -------------------------------------------------------------------------------


@click.group()
def bandits() -> None:
    """Create, list and show live bandits."""


@bandits.command("create")
@click.argument("name")
@click.option("--spec", type=_PATH, required=True, help=_SPEC)
@_storage_or_service
@common_options
@importing
def bandits_create(
    name: str,
    spec: Path,
    storage: str,
    tenant: str,
    token: str | None,
    as_json: bool,
    **_: Any,
) -> None:
    """Create a bandit. An SQLite file is created if it does not exist."""
    from .bandit_files import read_spec
    from .bandits import Location, open_bandits

    table = read_spec(spec)
    with open_bandits(Location(storage, tenant, token), create=True) as bandits:
        bandits.create_bandit(name, spec=table)
    if as_json:
        print_json({"name": name})
    else:
        say(f"Created {name}.")


@bandits.command("list")
@_storage_or_service
@common_options
def bandits_list(
    storage: str, tenant: str, token: str | None, as_json: bool, **_: Any
) -> None:
    """List the names of all bandits."""
    from .bandits import Location, open_bandits

    with open_bandits(Location(storage, tenant, token)) as bandits:
        names = bandits.bandits()
    if as_json:
        print_json({"bandits": names})
    else:
        say("\n".join(names) or "There are no bandits.")


@bandits.command("show")
@click.argument("name")
@_storage_or_service
@common_options
@importing
def bandits_show(
    name: str, storage: str, tenant: str, token: str | None, as_json: bool, **_: Any
) -> None:
    """Show a bandit: its events, pending decisions and spec."""
    from .bandits import Location, details_json, open_bandit, print_details

    with open_bandit(name, Location(storage, tenant, token)) as bandit:
        details = details_json(bandit)
    if as_json:
        print_json(details)
    else:
        print_details(details)


@click.command()
@click.argument("bandit")
@click.option("--arms", type=_PATH, help=_ARMS)
@click.option("--structure", type=_PATH, help=_STRUCTURE)
@click.option("--time", type=float, help="Physical time, for rewards that drift.")
@click.option("--id", "decision_id", help="An id of your own for the decision.")
@_storage_or_service
@common_options
@importing
def ask(
    bandit: str,
    arms: Path | None,
    structure: Path | None,
    time: float | None,
    decision_id: str | None,
    storage: str,
    tenant: str,
    token: str | None,
    as_json: bool,
    **_: Any,
) -> None:
    """Ask BANDIT which arms to choose."""
    from .bandit_files import read_arms, read_structure
    from .bandits import Location, answer_json, open_bandit, print_answer

    with open_bandit(bandit, Location(storage, tenant, token)) as opened:
        answer = opened.ask(
            read_arms(arms, opened),
            structure=read_structure(structure),
            time=time,
            decision_id=decision_id,
        )
    if as_json:
        print_json(answer_json(answer))
    else:
        print_answer(answer)


@click.command()
@click.argument("bandit")
@click.argument("decision")
@click.argument("rewards", nargs=-1, required=True, metavar="ARM=REWARD …")
@click.option("--id", "observation_id", help="An id of your own for these rewards.")
@_storage_or_service
@common_options
@importing
def tell(
    bandit: str,
    decision: str,
    rewards: tuple[str, ...],
    observation_id: str | None,
    storage: str,
    tenant: str,
    token: str | None,
    as_json: bool,
    **_: Any,
) -> None:
    """Tell BANDIT the rewards of a decision's arms.

    Rewards may come late, in parts and in any order. Repeating them changes nothing.
    """
    from .bandit_files import read_rewards
    from .bandits import Location, open_bandit

    reward_by_arm = read_rewards(rewards)
    with open_bandit(bandit, Location(storage, tenant, token)) as opened:
        is_new = opened.tell(decision, reward_by_arm, observation_id=observation_id)
    if as_json:
        print_json({"new": is_new})
    elif is_new:
        say("Recorded.")
    else:
        say("Recorded before; nothing changed.")


@click.command()
@click.argument("bandit")
@click.argument("decision")
@_storage_or_service
@common_options
@importing
def explain(
    bandit: str,
    decision: str,
    storage: str,
    tenant: str,
    token: str | None,
    as_json: bool,
    **_: Any,
) -> None:
    """Explain why BANDIT decided as it did."""
    from .bandits import (
        Location,
        explanation_json,
        open_bandit,
        print_explanation,
    )

    with open_bandit(bandit, Location(storage, tenant, token)) as opened:
        explanation = opened.explain(decision)
    if as_json:
        print_json(explanation_json(explanation))
    else:
        print_explanation(explanation)


@click.command()
@click.argument("bandit")
@click.option("--verify", is_flag=True, help="Repeat every decision and compare.")
@_storage
@_tenant
@common_options
@importing
def replay(
    bandit: str, verify: bool, storage: str, tenant: str, quiet: bool, as_json: bool
) -> None:
    """Replay the journal of BANDIT from its first event.

    With --verify, the exit code is 1 if a decision differs from the recorded one.
    """
    from .storages import print_replay, replay_journal

    with progress_bar(bandit, quiet, unit="events") as report:
        result = replay_journal(storage, tenant, bandit, verify, report)
    print_replay(result, verify, as_json)


@click.command()
@click.argument("bandit")
@click.option("--out", type=_PATH, required=True, help="The folder for the files.")
@click.option(
    "--format",
    "export_format",
    type=click.Choice(["csv", "parquet", "open-bandit"]),
    default="csv",
    show_default=True,
    help="Flat tables, or CSV in the layout of the Open Bandit Dataset.",
)
@click.option("--features", is_flag=True, help="Also write the features of arms.")
@_storage
@_tenant
@common_options
@importing
def export(
    bandit: str,
    out: Path,
    export_format: ExportFormat,
    features: bool,
    storage: str,
    tenant: str,
    as_json: bool,
    **_: Any,
) -> None:
    """Write the journal of BANDIT as tables."""
    from superarm.lab.results.formats import count_text

    from .exporting import export_journal

    written = export_journal(storage, tenant, bandit, out, export_format, features)
    if as_json:
        print_json({"files": written.files, "rows": written.rows})
        return
    for name, path in written.files.items():
        rows = written.rows.get(name)
        say(path if rows is None else f"{path}: {count_text(rows, 'row')}")


# --- tokens --------------------------------------------------------------------------------


@click.group()
def token() -> None:
    """Create, list and remove the tokens of a service."""


@token.command("create")
@click.argument("name")
@click.option("--tenant", default="", help=_TENANT)
@click.option("--scope", "scopes", multiple=True, help=_SCOPE)
@_storage
@common_options
def token_create(
    name: str,
    tenant: str,
    scopes: tuple[str, ...],
    storage: str,
    as_json: bool,
    **_: Any,
) -> None:
    """Create a token and print it.

    The storage contains only its hash, so it cannot be printed again.
    """
    from .storages import create_token

    secret = create_token(storage, tenant, name, scopes)
    if as_json:
        print_json({"name": name, "tenant": tenant, "token": secret})
    else:
        say(secret)


@token.command("list")
@_storage
@common_options
def token_list(storage: str, as_json: bool, **_: Any) -> None:
    """List all tokens: tenant, name and scopes."""
    from .storages import list_tokens

    rows = list_tokens(storage)
    if as_json:
        print_json({"tokens": rows})
        return
    if not rows:
        say("There are no tokens.")
    for row in rows:
        tenant = row["tenant"] or "-"
        say(f"{tenant}  {row['name']}  {' '.join(row['scopes'])}")


@token.command("remove")
@click.argument("name")
@click.option("--tenant", default="", help="The tenant of the token; default: none.")
@_storage
@common_options
def token_remove(name: str, tenant: str, storage: str, as_json: bool, **_: Any) -> None:
    """Remove a token. A running service refuses it within seconds."""
    from .storages import remove_token

    remove_token(storage, tenant, name)
    if as_json:
        print_json({"removed": name})
    else:
        say(f"Removed {name}.")


# --- storage -------------------------------------------------------------------------------


@click.group()
def storage() -> None:
    """Check, back up and upgrade a storage."""


@storage.command("check")
@click.argument("url")
@common_options
def storage_check(url: str, as_json: bool, **_: Any) -> None:
    """Check a storage for damage. If there is any, the exit code is 1."""
    from .storages import check_storage

    faults = check_storage(url)
    if as_json:
        print_json({"sound": not faults, "faults": faults})
    else:
        say("\n".join(faults) or "No damage found.")
    if faults:
        sys.exit(1)


@storage.command("backup")
@click.argument("url")
@click.argument("file", type=_PATH)
@common_options
def storage_backup(url: str, file: Path, as_json: bool, **_: Any) -> None:
    """Copy a storage to FILE, which must not exist."""
    from .storages import back_up

    back_up(url, file)
    if as_json:
        print_json({"file": str(file)})
    else:
        say(f"Copied to {file}.")


@storage.command("upgrade")
@click.argument("url")
@common_options
def storage_upgrade(url: str, as_json: bool, **_: Any) -> None:
    """Upgrade a storage of an earlier version.

    First copy the file, or dump the database.
    """
    from .storages import upgrade_storage

    schema = upgrade_storage(url)
    if as_json:
        print_json({"schema": schema})
    else:
        say(f"The storage has schema {schema}.")


COMMANDS = (serve, bandits, ask, tell, explain, replay, export, token, storage)
"""The commands of this file."""
