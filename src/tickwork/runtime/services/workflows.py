"""Versions of applications: what is registered, which one is the latest, and what waits for one that nobody has."""

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.decide.versions import pin_of, pinned, stranded, version_of
from tickwork.core.definition.plan import Plan
from tickwork.core.evolve.versions import declared_puts, latest_of
from tickwork.core.state import inputs as inp
from tickwork.core.state.ready_queues import PIN_LABEL
from tickwork.core.state.state import State, Tenant
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import TENANT
from tickwork.runtime.services.schedules import ScheduleService
from tickwork.runtime.views.text import instant


class WorkflowService(ScheduleService):
    def versions(self, application: str = "", *, tenant: str = TENANT) -> list[wire.AppVersion]:
        """Newest first; of one application, or of all."""
        owner = self.tenant(tenant)
        if application and application not in owner.applications:
            raise Refused(
                "unknown_application", f"there is no application {shortened(application, 128)!r}", path="application"
            )
        waiting = {pin: count for tenant_id, pin, count in stranded(self.state) if tenant_id == tenant}
        having: dict[str, int] = {}
        for worker in self.state.workers.values():
            pin = worker.labels.get(PIN_LABEL, "")
            having[pin] = having.get(pin, 0) + 1
        found = []
        for name, versions in sorted(owner.applications.items()):
            latest = latest_of(versions)
            for one in versions.values() if application in ("", name) else ():
                pin = pin_of(name, one.name)
                view = wire.AppVersion(
                    application=name,
                    version_id=one.number,
                    version_name=one.name,
                    version_timestamp=instant(one.timestamp_ms),
                    created_at=instant(one.created_ms),
                    latest=one is latest,
                    workers=having.get(pin, 0),
                    stranded=waiting.get(pin, 0),
                    kept=one.declared is not None,
                )
                found.append((one.timestamp_ms, one.number, view))
        return [view for *_, view in sorted(found, key=lambda row: row[:2], reverse=True)]

    def workflows_of(self, application: str, *, tenant: str = TENANT) -> list[str]:
        """What the latest version of an application declares, in its order."""
        owner = self.state.tenants.get(tenant)
        latest = latest_of(owner.applications.get(application, {})) if owner is not None else None
        return [] if latest is None else list(latest.workflows)

    def latest_version(self, application: str = "", *, tenant: str = TENANT) -> wire.AppVersion:
        application = self._application(application, tenant)
        return next(one for one in self.versions(application, tenant=tenant) if one.latest)

    def latest_version_name(self, application: str, *, tenant: str = TENANT) -> str:
        return latest_name(self.tenant(tenant), application)

    async def set_latest_version(
        self, version: str, application: str = "", *, by: str, tenant: str = TENANT
    ) -> wire.AppVersion:
        """Its definitions and schedules are those of the application from now on."""
        application = self._application(application, tenant)
        wanted = version_of(self.tenant(tenant), application, version)
        puts = declared_puts(wanted.declared, by) if wanted.declared is not None else []
        await self.command(inp.SetLatestVersion(by, tenant, application, version, puts))
        return self.latest_version(application, tenant=tenant)

    def _application(self, application: str, tenant: str) -> str:
        known = sorted(self.tenant(tenant).applications)
        if application:
            if application not in known:
                message = f"there is no application {shortened(application, 128)!r}"
                raise Refused("unknown_application", message, path="application")
            return application
        if len(known) != 1:
            message = f"say which application: {', '.join(known)}" if known else "no application has a version yet"
            raise Refused("which_application" if known else "unknown_application", message, path="application")
        return known[0]

    def _pinned(self, submission: wire.Submission, tenant: str) -> wire.Submission:
        """A run that is pinned to a version has its definition too."""
        if not submission.version:
            return submission
        if submission.definition:
            raise Refused("version_and_definition", "give a version or a definition, not both", path="definition")
        pin, definition = pinned(self.tenant(tenant), submission.workflow, submission.version)
        return msgspec.structs.replace(submission, version=pin, definition=definition)


def latest_name(owner: Tenant | None, application: str) -> str:
    """Empty where the application has no versions."""
    latest = latest_of(owner.applications.get(application, {})) if owner is not None else None
    return "" if latest is None else latest.name


def stranded_words(state: State) -> list[str]:
    """What would wait for ever, said in a line for each version."""
    return [
        f"stranded: {count} ready task{'s' if count != 1 else ''} of {tenant} wait for {pin}, which no worker has: "
        f"start a worker of that version, or cancel the runs"
        for tenant, pin, count in stranded(state)
    ]


def registration(publication: wire.Publication, plans: list[Plan], whole: inp.ApplySchedules) -> inp.RegisterVersion:
    return inp.RegisterVersion(
        whole.by,
        whole.tenant,
        publication.application,
        publication.version,
        {plan.name: plan.hash for plan in plans},
        whole.puts,
        publication.latest,
    )
