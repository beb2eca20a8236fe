"""`tickwork workflows`: what is published, and how it gets there and leaves."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

workflows = App(name="workflows", help_format="plaintext")


@workflows.default
def listed(*, to: ClientOptions = TO) -> int:
    """List the workflows that the server knows."""
    from tickwork.cli.output import console, print_json, safe, table
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        listing = tuple(client.workflows())
    if to.json:
        print_json(wire.Workflows(workflows=listing))
        return Exit.OK
    rows = [
        (safe(flow.name), str(flow.versions), f"{safe(flow.definition[:19])}…", safe(", ".join(flow.schedules)),
         "[yellow]paused[/]" if flow.paused else "", safe(flow.description))
        for flow in listing
    ]  # fmt: skip
    console().print(table(("workflow", ">versions", "definition", "schedules", "", ""), rows))
    return Exit.OK


@workflows.command
def show(name: str, /, *, document: Annotated[bool, Parameter(negative="")] = False, to: ClientOptions = TO) -> int:
    """Show the latest version of a workflow with its nodes.

    Parameters
    ----------
    name
        Its name.
    document
        Print its document alone, as YAML that workflows put takes.
    """
    import yaml

    from tickwork.cli.output import console, print_json, safe

    with to.client() as client:
        flow = client.workflow(name)
    if to.json:
        print_json(flow)
        return Exit.OK
    if document:
        print(yaml.safe_dump(flow.document, sort_keys=False, allow_unicode=True), end="")
        return Exit.OK
    screen = console()
    paused = " [yellow]paused[/]" if flow.paused else ""
    screen.print(f"{safe(flow.name)} {safe(flow.definition)}{paused}", soft_wrap=True)
    if flow.description:
        screen.print(safe(flow.description), soft_wrap=True)
    policies = [*flow.document.get("policy", ())]
    if policies:
        screen.print(f"policies: {safe(', '.join(policies))}", soft_wrap=True)
    for node in flow.document["nodes"]:
        needs = f" after {safe(', '.join(node['needs']))}" if node.get("needs") else ""
        gates = f" [policy {safe(', '.join(node['policy']))}]" if node.get("policy") else ""
        screen.print(f"  {safe(node['kind'])} {safe(node['id'])}{needs}{gates}", soft_wrap=True, markup=False)
    return Exit.OK


@workflows.command
def put(*files: Path, to: ClientOptions = TO) -> int:
    """Publish workflow documents, all or none. Identical documents change nothing.

    Parameters
    ----------
    files
        YAML, JSON or TOML: a document, a list of documents, or a list under `workflows`.
    """
    from tickwork.cli.commands.resource_file import read_workflows
    from tickwork.cli.output import console, print_json, safe

    if not files:
        raise CommandExit(Exit.USAGE, "name a file with a workflow document")
    documents = [document for file in files for document in read_workflows(file)]
    with to.client() as client:
        client.put_workflows(*documents)
    names = [document["name"] for document in documents]
    if to.json:
        print_json({"workflows": names})
    else:
        console().print(f"published: {safe(', '.join(names))}", soft_wrap=True)
    return Exit.OK


@workflows.command
def pause(name: str, /, *, reason: str = "", to: ClientOptions = TO) -> int:
    """Pause a workflow: start none of its tasks until it is resumed.

    Parameters
    ----------
    name
        Its name.
    reason
        The reason; it is recorded.
    """
    with to.client() as client:
        client.pause_workflow(name, reason=reason)
    return _print_result(name, "paused", to)


@workflows.command
def resume(name: str, /, *, to: ClientOptions = TO) -> int:
    """Resume a paused workflow.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.resume_workflow(name)
    return _print_result(name, "resumed", to)


@workflows.command
def delete(name: str, /, *, to: ClientOptions = TO) -> int:
    """Delete a workflow that no schedule and no other workflow starts. Unfinished runs go on, and ended runs stay.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.delete_workflow(name)
    return _print_result(name, "deleted", to)


def _print_result(name: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    if to.json:
        print_json({"workflow": name})
    else:
        console().print(f"workflow {safe(name)}: {what}", soft_wrap=True)
    return Exit.OK
