"""`tickwork policies`: gates that are asked before each step that names them."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import App

from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions, Count

if TYPE_CHECKING:
    from tickwork.protocol import http_models as wire

VERDICTS_SHOWN = 40

policies = App(name="policies", help_format="plaintext")


@policies.default
def listed(*, to: ClientOptions = TO) -> int:
    """List policies, with the workflows that name each."""
    from tickwork.cli.output import console, print_json, safe, table
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        listing = tuple(client.policies())
    if to.json:
        print_json(wire.Policies(policies=listing))
        return Exit.OK
    if not listing:
        console(stderr=True).print("no policies; tickwork policies put creates one")
        return Exit.OK
    rows = [
        (safe(policy.name), safe(policy.allow), _action(policy), safe(policy.reason), safe(", ".join(policy.workflows)))
        for policy in listing
    ]
    console().print(table(("policy", "allow", "else", "reason", "workflows"), rows), soft_wrap=True)
    return Exit.OK


def _action(policy: "wire.Policy") -> str:
    return f"pause for {policy.pause}" if policy.pause else policy.action


@policies.command
def put(
    name: str,
    /,
    *,
    allow: str,
    reason: str = "",
    action: Literal["pause", "fail", "skip_with_log"] = "fail",
    pause: str | None = None,
    to: ClientOptions = TO,
) -> int:
    """Create or replace a policy. It is asked from the next step on, also in unfinished runs.

    Parameters
    ----------
    name
        Its name; a workflow or a node names it in policy=[...].
    allow
        CEL over inputs, results, run, outcome, events and clock. Where it does not hold, the action follows.
    reason
        What people read where it denies.
    action
        What happens to the step or the run where it denies.
    pause
        With --action pause: resume after this time and ask again (10m). Without it, a person resumes the run.
    """
    with to.client() as client:
        client.put_policy(name, allow, reason=reason, action=action, pause=pause)
    return _print_result(name, "put", to)


@policies.command
def apply(file: Path, /, *, to: ClientOptions = TO) -> int:
    """Create or replace the policies in a file; others are not affected.

    Parameters
    ----------
    file
        YAML, JSON or TOML: a mapping from names to allow, reason, action and pause.
    """
    from tickwork.cli.commands.resource_file import read_resources
    from tickwork.cli.output import console, print_json, safe
    from tickwork.protocol import http_models as wire

    requests = read_resources(file, "policies", wire.PolicyRequest)
    with to.client() as client:
        for name, request in requests.items():
            client.put_policy(
                name, request.allow, reason=request.reason, action=request.action, pause=request.pause or None
            )
    if to.json:
        print_json({"policies": sorted(requests)})
    else:
        console().print(f"policies put: {safe(', '.join(requests))}", soft_wrap=True)
    return Exit.OK


@policies.command
def delete(name: str, /, *, to: ClientOptions = TO) -> int:
    """Delete a policy that no workflow and no unfinished run names.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.delete_policy(name)
    return _print_result(name, "deleted", to)


@policies.command(name="test")
def hold(name: str, /, *, allow: str = "", workflow: str = "", limit: Count = 100, to: ClientOptions = TO) -> int:
    """Show what a policy would have changed in recorded runs. Nothing is changed.

    Parameters
    ----------
    name
        Its name. With --allow, a policy that does not exist yet can be tested.
    allow
        Another expression to test, instead of the policy's own.
    workflow
        Only runs of this workflow (those whose latest version names the policy). If it does not name the policy, all of
        its steps are looked at.
    limit
        Number of runs, newest first; at most 1000.
    """
    from tickwork.cli.output import console, print_json, safe, table, when

    with to.client() as client:
        result = client.test_policy(name, allow=allow, workflow=workflow, limit=limit)
    if to.json:
        print_json(result)
        return Exit.OK
    screen = console()
    counts = f"{result.denied} denied, {result.changed} different from what happened"
    screen.print(f"{result.runs} runs, {result.steps} steps: {counts}")
    if result.unread:
        screen.print(f"{result.unread} steps could not be told: the policy reads a value that is not in the journal")
    rows = [
        (safe(verdict.run), safe(verdict.node), when(verdict.at),
         f"{verdict.recorded or 'not asked'} → {'allowed' if verdict.allowed else 'denied'}", safe(verdict.reason))
        for verdict in result.verdicts[:VERDICTS_SHOWN]
    ]  # fmt: skip
    if rows:
        screen.print(table(("=run", "node", "at", "then → now", "reason"), rows), soft_wrap=True)
    if result.changed > len(rows):
        screen.print(f"… {result.changed - len(rows)} more (--json has up to 500)")
    return Exit.OK


def _print_result(name: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    if to.json:
        print_json({"policy": name})
    else:
        console().print(f"policy {safe(name)}: {what}", soft_wrap=True)
    return Exit.OK
