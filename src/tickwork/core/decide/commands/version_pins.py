"""Pins: a run that is pinned to a version of an application uses its definition, and only workers of that version."""

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.state.state import Tenant


def pin_of(application: str, version: str) -> str:
    return f"{application}@{version}"


def pinned(tenant: Tenant, workflow: str, version: str) -> tuple[str, str]:
    """Return the label and the definition's hash of a run with this version, `version` or `application@version`."""
    requested, _, name = version.rpartition("@")
    matches = [
        (application, versions[name].workflows[workflow])
        for application, versions in sorted(tenant.applications.items())
        if requested in ("", application) and name in versions and workflow in versions[name].workflows
    ]
    if not matches:
        message = f"no version {shortened(version, 128)!r} with a workflow {shortened(workflow, 128)!r} is registered"
        raise Refused("unknown_version", message, path="version")
    if len(matches) > 1:
        known = " or ".join(pin_of(application, name) for application, _ in matches)
        raise Refused("which_version", f"several applications have this version; say {known}", path="version")
    application, definition = matches[0]
    return pin_of(application, name), definition
