"""The commands of live bandits: serve, ask, tell, and what an operator needs besides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .common import Command, common_options, importing, print_json, progress_bar, say

if TYPE_CHECKING:
    from .exporting import ExportFormat

_PATH = click.Path(path_type=Path)
_COUNT = click.IntRange(min=1)
_STORAGE = (
    "Where the journals are: sqlite:///FILE, postgresql://…, or http://… for a service."
)
_SPEC = "The policy by registry names, .json or .toml; see `superarm show`."
_ARMS = "The arms on offer, .json or .csv; default: the named arms."
_STRUCTURE = "The constraints of this round, .json."
_SCOPE = "What the token allows. May be repeated; default: read, ask, tell."


def _storage(command: Command) -> Command:
    return click.option(
        "--storage",
        required=True,
        envvar="SUPERARM_STORAGE",
        show_envvar=True,
        metavar="URL",
        help=_STORAGE,
    )(command)


def _place(command: Command) -> Command:
    """Add ``--storage`` and ``--token``."""
    add_token = click.option(
        "--token",
        envvar="SUPERARM_TOKEN",
        show_envvar=True,
        help="The token of a service.",
    )
    return _storage(add_token(command))


@click.command()
@_storage
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    help="The port to listen on; 0: any that is free.",
)
@click.option(
    "--host-name",
    "hosts",
    multiple=True,
    help="A further name by which clients address the service. May be repeated.",
)
@click.option(
    "--address",
    metavar="URL",
    help="Where other processes on the same PostgreSQL reach this one; default: host and port.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.0, min_open=True),
    help="Requests a second of one tenant; default: any number.",
)
@click.option("--max-body", type=_COUNT, default=16 * 2**20, help="Bytes of a body.")
@click.option("--max-arms", type=_COUNT, default=100_000, help="Arms in a request.")
@click.option("--max-dimension", type=_COUNT, default=1000, help="Features of an arm.")
@click.option("--max-bandits", type=_COUNT, default=1000, help="Bandits in memory.")
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
@_place
@common_options
@importing
def bandits_create(name: str, spec: Path, as_json: bool, **options: Any) -> None:
    """Create a bandit."""
    from .living import open_place, read_spec

    with open_place(options) as place:
        bandit = place.create_bandit(name, spec=read_spec(spec))
    if as_json:
        print_json({"name": bandit.name})
    else:
        say(f"Created {bandit.name}.")


@bandits.command("list")
@_place
@common_options
def bandits_list(as_json: bool, **options: Any) -> None:
    """List all bandits by name."""
    from .living import open_place

    with open_place(options) as place:
        names = place.bandits()
    if as_json:
        print_json({"bandits": names})
    else:
        say("\n".join(names) or "There are no bandits.")


@bandits.command("show")
@click.argument("name")
@_place
@common_options
@importing
def bandits_show(name: str, as_json: bool, **options: Any) -> None:
    """Show a bandit: its spec, and how far it is."""
    from .living import open_place, print_details

    with open_place(options) as place:
        bandit = place.load_bandit(name)
        details = {
            "name": name,
            "events": bandit.seq,
            "pending": len(bandit.pending),
            "spec": bandit.spec.as_json(),
        }
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
@_place
@common_options
@importing
def ask(
    bandit: str,
    arms: Path | None,
    structure: Path | None,
    time: float | None,
    decision_id: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Ask BANDIT which arms to choose."""
    from .living import answer_json, open_place, print_answer, read_arms, read_structure

    with open_place(options) as place:
        answer = place.load_bandit(bandit).ask(
            read_arms(arms),
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
@_place
@common_options
@importing
def tell(
    bandit: str,
    decision: str,
    rewards: tuple[str, ...],
    observation_id: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Tell BANDIT the rewards of a decision's arms."""
    from .living import open_place, read_rewards

    with open_place(options) as place:
        is_new = place.load_bandit(bandit).tell(
            decision, read_rewards(rewards), observation_id=observation_id
        )
    if as_json:
        print_json({"new": is_new})
    else:
        say("Learned." if is_new else "Known already: nothing changed.")


@click.command()
@click.argument("bandit")
@click.argument("decision")
@_place
@common_options
@importing
def explain(bandit: str, decision: str, as_json: bool, **options: Any) -> None:
    """Explain why BANDIT decided as it did."""
    from .living import explanation_json, open_place, print_explanation

    with open_place(options) as place:
        explanation = place.load_bandit(bandit).explain(decision)
    if as_json:
        print_json(explanation_json(explanation))
    else:
        print_explanation(explanation)


@click.command()
@click.argument("bandit")
@click.option(
    "--verify", is_flag=True, help="Decide everything again, and compare the decisions."
)
@_storage
@common_options
@importing
def replay(bandit: str, verify: bool, storage: str, quiet: bool, as_json: bool) -> None:
    """Fold the journal of BANDIT from its first event, without a snapshot.

    With --verify it exits with 1 if a decision comes out differently.
    """
    from .living import print_replay, replay_journal

    with progress_bar("events", quiet) as report:
        result = replay_journal(storage, bandit, verify, report)
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
@click.option("--features", is_flag=True, help="Write the features of arms, too.")
@_storage
@common_options
@importing
def export(
    bandit: str,
    out: Path,
    export_format: ExportFormat,
    features: bool,
    storage: str,
    as_json: bool,
    **_: Any,
) -> None:
    """Write the journal of BANDIT as tables."""
    from .exporting import export_journal

    written = export_journal(storage, bandit, out, export_format, features)
    if as_json:
        print_json({"files": written.files, "rows": written.rows})
        return
    for name, path in written.files.items():
        rows = written.rows.get(name)
        say(path if rows is None else f"{path}: {rows} rows")


# --- tokens --------------------------------------------------------------------------------


@click.group()
def token() -> None:
    """Create, list and remove the tokens of a service."""


@token.command("create")
@click.argument("name")
@click.option("--tenant", default="", help="Whose bandits it opens; default: nobody's.")
@click.option("--scope", "scopes", multiple=True, help=_SCOPE)
@_storage
@common_options
def token_create(
    name: str, tenant: str, scopes: tuple[str, ...], as_json: bool, **options: Any
) -> None:
    """Create a token and print it. It is stored nowhere: keep it."""
    from .living import create_token

    secret = create_token(options["storage"], tenant, name, scopes)
    if as_json:
        print_json({"name": name, "tenant": tenant, "token": secret})
    else:
        say(secret)


@token.command("list")
@_storage
@common_options
def token_list(storage: str, as_json: bool, **_: Any) -> None:
    """List all tokens, without what is secret."""
    from .living import list_tokens

    rows = list_tokens(storage)
    if as_json:
        print_json({"tokens": rows})
        return
    for row in rows:
        say(f"{row['tenant'] or '-'}  {row['name']}  {' '.join(row['scopes'])}")


@token.command("remove")
@click.argument("name")
@click.option("--tenant", default="", help="Whose token it is.")
@_storage
@common_options
def token_remove(name: str, tenant: str, storage: str, as_json: bool, **_: Any) -> None:
    """Remove a token: it opens nothing from now on."""
    from .living import remove_token

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
    """Look for damage in the storage URL. Exits with 1 if there is any."""
    from .living import check_storage

    faults = check_storage(url)
    if as_json:
        print_json({"sound": not faults, "faults": faults})
    else:
        say("\n".join(faults) or "No damage found.")
    if faults:
        raise SystemExit(1)


@storage.command("backup")
@click.argument("url")
@click.argument("file", type=_PATH)
@common_options
def storage_backup(url: str, file: Path, as_json: bool, **_: Any) -> None:
    """Copy the storage URL to FILE, which must not exist."""
    from .living import back_up

    back_up(url, file)
    if as_json:
        print_json({"file": str(file)})
    else:
        say(f"Copied to {file}.")


@storage.command("upgrade")
@click.argument("url")
@common_options
def storage_upgrade(url: str, as_json: bool, **_: Any) -> None:
    """Bring the storage URL of an earlier version up to date. Make a backup first."""
    from superarm.live import Storage
    from superarm.live.journal import SCHEMA

    Storage(url, upgrade=True).close()
    if as_json:
        print_json({"schema": SCHEMA})
    else:
        say(f"The storage has schema {SCHEMA}.")


COMMANDS = (serve, bandits, ask, tell, explain, replay, export, token, storage)
"""The commands of this file."""
