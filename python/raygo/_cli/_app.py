"""The commands that ask a running engine, with click and rich."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from raygo import _memory
from raygo._cli import _run, _show
from raygo._cli._session import Engine, find
from raygo._version import __version__

KINDS = ("tasks", "actors", "objects", "workers", "nodes", "jobs", "placement-groups")
LIMIT = 10_000

address_option = click.option("--address", metavar="FOLDER", help="A session's folder; the newest session by default.")


def app(words: Sequence[str]) -> int:
    """Run the command line and return the exit status."""
    try:
        code = cli.main(args=list(words), prog_name="raygo", standalone_mode=False)
    except click.Abort:
        print("interrupted", file=sys.stderr)
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads any more; Python would complain of that on its way out
        return 141
    return code if isinstance(code, int) else 0


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="raygo", message="%(prog)s %(version)s")
def cli() -> None:
    """Look at the raygo engine that runs on this machine, or run a Ray script on one."""


@cli.command()
@address_option
def status(address: str | None) -> None:
    """Show nodes, resources, what runs and what waits."""
    with Engine(address) as engine:
        session = engine.session
        total, free = engine.call("resources.total"), engine.call("resources.available")
        nodes = engine.call("nodes")
        task_rows = engine.state("tasks", LIMIT, [], detail=True)
        actors = Counter(row.get("state", "?") for row in engine.state("actors", LIMIT, []))
        store = engine.call("store.stats")
    out = _show.console()
    out.print(f"[bold]raygo {__version__}[/bold]  session {session['folder']}  engine pid {session.get('pid', '?')}")
    out.print(f"\n[bold]Nodes[/bold]  {sum(bool(node.get('Alive')) for node in nodes)} alive, {len(nodes)} in all")
    for node in nodes:
        out.print(f"  {node.get('NodeID', '')[:12]}  {node.get('NodeManagerHostname') or node.get('NodeManagerAddress', '')}", highlight=False)
    out.print("\n[bold]Resources[/bold]  used of total")
    rows = [name for name in sorted(total) if not name.startswith("node:") and name != "object_store_memory"]
    for name in rows:
        used = total[name] - free.get(name, 0.0)
        out.print(f"  {name:22} {_show.amount(name, used)} / {_show.amount(name, total[name])}", highlight=False)
    out.print(f"  {'object_store_memory':22} {_show.store(store)}", highlight=False)
    demands = Counter(_demand(row) for row in task_rows if row.get("state") == "PENDING_NODE_ASSIGNMENT")
    if demands:
        out.print("\n[bold]Waiting for resources[/bold]")
    for demand, count in demands.most_common(10):
        out.print(f"  {count} × {demand}", highlight=False)
    tasks = Counter(row.get("state", "?") for row in task_rows)
    for title, counts in (("Tasks", tasks), ("Actors", actors)):
        text = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none"
        out.print(f"\n[bold]{title}[/bold]  {text}", highlight=False)


@cli.command()
@click.option("--group-by", type=click.Choice(list(_memory.GROUPS)), default="NODE_ADDRESS", show_default=True, help="Groups with a summary each.")
@click.option("--sort-by", type=click.Choice(list(_memory.SORTS)), default="OBJECT_SIZE", show_default=True, help="Within a group; the largest size first.")
@click.option("--units", type=click.Choice(list(_memory.UNITS)), help="Unit of sizes; by default each in the one that suits it.")
@click.option("--no-format", is_flag=True, help="One line for each reference, with tabs, for other programs.")
@click.option("--stats-only", is_flag=True, help="Only how full the store is.")
@click.option("--stats", is_flag=True, help="Only the store's figures, all of them.")
@click.option("--num-entries", "--n", type=click.IntRange(min=0), help="At most so many references of each group.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@address_option
def memory(
    group_by: str, sort_by: str, units: str | None, no_format: bool, stats_only: bool, stats: bool, num_entries: int | None, form: str, address: str | None
) -> None:
    """Show which objects there are, who made and who keeps them, and how full the store is."""
    with Engine(address) as engine:
        rows = [] if stats or stats_only else engine.state("objects", LIMIT, [], detail=True)
        found = {} if stats or stats_only else engine.call("objects.totals")
        store = engine.call("store.stats")
    if form == "json":
        shown = sorted(rows, key=_memory.SORTS[sort_by])[:num_entries]
        said = {"store": store} if stats or stats_only else {"objects": shown, "totals": found, "store": store}
        click.echo(json.dumps(_show.plain(said), indent=2))
        return
    if stats:
        click.echo(_memory.figures_text(store, units))
        return
    if not stats_only:
        click.echo(_memory.references_text(rows, group_by, sort_by, units, not no_format, num_entries) + "\n")
        if cut := _memory.cut_text(rows, found, units):
            click.echo(cut + "\n")
    click.echo(_memory.store_text(store, units))


@cli.command("list")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("-f", "--filter", "filters", multiple=True, metavar="KEY=VALUE", help="Only rows where it holds; KEY!=VALUE too. May be repeated.")
@click.option("--limit", default=100, show_default=True)
@click.option("--detail", is_flag=True, help="Every column.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@address_option
def list_(kind: str, filters: tuple[str, ...], limit: int, detail: bool, form: str, address: str | None) -> None:
    """List tasks, actors, objects, workers, nodes, jobs or placement groups."""
    name = kind.replace("-", "_")
    with Engine(address) as engine:
        rows = engine.state(name, limit, [_parse_filter(text) for text in filters], detail)
    if form == "json":
        click.echo(json.dumps(_show.plain(rows), indent=2))
        return
    out = _show.console()
    _print_rows(out, name, rows, detail)
    if len(rows) == limit:
        out.print(f"… there may be more than {limit} (--limit)")


@cli.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("number", metavar="ID")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@address_option
def get(kind: str, number: str, form: str, address: str | None) -> None:
    """Show all that is known of one task, actor, object, worker, node, job or placement group."""
    name = kind.replace("-", "_")
    key = f"{name.removesuffix('s')}_id"
    with Engine(address) as engine:
        rows = engine.state(name, LIMIT, [[key, "=", number]], True)
    if not rows:
        raise click.ClickException(f"there is none among the {kind} whose {key} is {number}; `raygo list {kind}` shows them")
    if form == "json":
        click.echo(json.dumps(_show.plain(rows), indent=2))
        return
    for row in rows:  # an object has one for each process that holds it
        _show.console().print(_show.table([{"": column, " ": value} for column, value in row.items()], ["", " "]))


@cli.command()
@click.argument("kind", type=click.Choice(["tasks", "actors", "objects"]))
@address_option
def summary(kind: str, address: str | None) -> None:
    """Count tasks by function and state, actors by class and state, or objects by call site."""
    key = {"tasks": "name", "actors": "class_name", "objects": "call_site"}[kind]
    with Engine(address) as engine:
        rows = engine.state(kind, LIMIT, [], detail=True)
    groups: dict[str, Counter[str]] = {}
    bytes_of: Counter[str] = Counter()
    for row in rows:
        group = str(row.get(key) or "-")
        groups.setdefault(group, Counter())[str(row.get("state") or row.get("reference_type") or "-")] += 1
        bytes_of[group] += int(row.get("object_size") or 0)
    table_rows: list[dict[str, Any]] = []
    for group, counts in sorted(groups.items(), key=lambda item: -sum(item[1].values())):
        made: dict[str, Any] = {key: group, "count": sum(counts.values())}
        if kind == "objects":
            made["object_size"] = bytes_of[group]
        made["states"] = ", ".join(f"{count} {state}" for state, count in counts.most_common())
        table_rows.append(made)
    out = _show.console()
    out.print(_show.table(table_rows, (key, "count", "object_size", "states")) if table_rows else f"no {kind}")


@cli.command()
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write; raygo-timeline-TIME.json here by default.")
@address_option
def timeline(output: Path | None, address: str | None) -> None:
    """Write what ran when, for chrome://tracing or Perfetto."""
    with Engine(address) as engine:
        events = engine.call("timeline")
    path = output or Path(f"raygo-timeline-{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
    path.write_text(json.dumps(_show.plain(events)), encoding="utf-8")
    click.echo(f"{len(events)} events in {path}: open it in chrome://tracing or ui.perfetto.dev")


@cli.command()
@click.argument("pattern", required=False)
@click.option("--tail", default=100, show_default=True, help="The last lines of each file; -1 for all.")
@address_option
def logs(pattern: str | None, tail: int, address: str | None) -> None:
    """List the session's log files, or print those that match PATTERN (as *.err)."""
    # Only the folder is read: logs are most wanted when the engine is gone.
    folder = Path(find(address, running=False)["folder"]) / "logs"
    files = sorted(path for path in folder.rglob(pattern or "*") if path.is_file())
    if not files:
        raise click.ClickException(f"no log file{f' matches {pattern!r}' if pattern else ''} in {folder}")
    for path in files:
        name = path.relative_to(folder)
        if pattern is None:
            click.echo(f"{_memory.amount(path.stat().st_size):>10}  {name}")
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        if len(files) > 1:
            click.echo(f"==> {name} <==")
        click.echo("\n".join(lines if tail < 0 else lines[max(len(lines) - tail, 0) :]))


@cli.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}, add_help_option=False)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def run(words: tuple[str, ...]) -> int:
    """Run a Ray script, unchanged, on raygo."""
    return _run.run(words)


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(f"raygo {__version__}")


def _demand(row: dict[str, Any]) -> str:
    """Return what a task asks for, in words."""
    resources = row.get("required_resources") or {}
    return ", ".join(f"{_show.amount(name, value)} {name}" for name, value in sorted(resources.items())) or "nothing"


def _parse_filter(text: str) -> list[str]:
    """Return ``[key, operator, value]`` of ``key=value`` or ``key!=value``."""
    key, equals, value = text.partition("=")
    if not equals or not key.rstrip("!"):
        raise click.BadParameter(f"{text!r} is not KEY=VALUE or KEY!=VALUE", param_hint="--filter")
    return [key[:-1], "!=", value] if key.endswith("!") else [key, "=", value]


def _print_rows(out: Any, name: str, rows: list[dict[str, Any]], detail: bool = False) -> None:
    if not rows:
        out.print(f"no {name.replace('_', ' ')}")
        return
    columns = dict.fromkeys(_show.COLUMNS[name])
    if detail or not any(column in row for row in rows for column in columns):
        columns |= dict.fromkeys(key for row in rows for key in row)
    out.print(_show.table(rows, columns))
