"""Versions of applications: the registered ones, the latest one, and tasks that wait for a version without a worker."""

from collections.abc import Sequence

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT, check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.decide.commands.versions import stranded, version_of
from tickwork.core.definition.model import TaskNode
from tickwork.core.definition.plan import Plan, new_plan
from tickwork.core.evolve.versions import by_age, declared_puts, latest_of, pin_of, pinned
from tickwork.core.state import inputs as inp
from tickwork.core.state.ready_queues import PIN_LABEL
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.services.mailboxes import MailboxService
from tickwork.runtime.services.schedules import ScheduleService, new_ones
from tickwork.runtime.views import runs as reads
from tickwork.runtime.views.endpoints import PREFIX
from tickwork.runtime.views.text import instant
from tickwork.runtime.views.versions import latest_name


class WorkflowService:
    """Published workflows and the versions of applications."""

    def __init__(self, context: EngineContext, schedules: ScheduleService, mailboxes: MailboxService) -> None:
        self._context, self._schedules, self._mailboxes = context, schedules, mailboxes

    async def publish(self, publication: wire.Publication, *, by: str, tenant: str = TENANT) -> list[wire.Workflow]:
        """Publish definitions and schedules, all or none. Undeclared queues that they name are declared, too. The
        response lists only the published schedules."""
        if publication.application:
            check_name(publication.application, path="application", kind="application")
        documents = [msgspec.json.encode(document) for document in publication.documents]
        plans = [new_plan(document) for document in documents]
        taken = next((plan.name for plan in plans if plan.name.startswith(PREFIX)), None)
        if taken is not None:
            name = shortened(taken, 128)
            message = f"{name!r} is a name reserved for endpoints; choose another name, or put an endpoint"
            raise Refused("name_reserved", message, path="name")
        self._check_policies(plans)
        owner = self._context.tenant(tenant)
        queues = sorted(
            {queue for plan in plans for queue in _queues(plan)}
            - {name for name, queue in self._context.state.queues.items() if not queue.removed}
        )
        requests: list[inp.Input] = [inp.PutQueue(by, queue) for queue in queues]
        requests += self._mailboxes.puts(publication.mailboxes, by=by, tenant=tenant)
        versioned = bool(publication.application and publication.version)
        for plan, document in zip(plans, documents, strict=True):
            if versioned:
                if plan.hash not in owner.versions:
                    requests.append(inp.PutDefinition(by, tenant, document, False))
                continue
            latest = owner.plans.get(plan.name)
            if latest is None or latest.hash != plan.hash:
                requests.append(inp.PutDefinition(by, tenant, document))
        known = owner.plans | {plan.name: plan for plan in plans}
        if publication.application or publication.schedules:
            whole = self._schedules.set_of(
                publication.application, publication.schedules, known, by=by, tenant=tenant, queues=frozenset(queues)
            )
            if versioned:
                requests.append(registration(publication, plans, whole))
            else:
                requests += [whole] if publication.application else new_ones(owner, whole)
        await self._context.command_all(requests)
        return reads.workflows(self._context.state, tenant, among=publication.schedules)

    def _check_policies(self, plans: Sequence[Plan]) -> None:
        """Refuse a workflow that names a policy which does not exist: each of its runs would be denied and fail."""
        for plan in plans:
            named = {name for step in plan.steps for name in step.policies}
            missing = sorted(named - self._context.state.policies.keys())
            if missing:
                message = f"{plan.name}: the policy {missing[0]} does not exist, so every run would fail; put it first"
                raise Refused("policy_missing", f"{message}: tickwork policies put {missing[0]}", path="policy")

    async def remove(self, name: str, *, by: str, tenant: str = TENANT) -> None:
        """Nothing new runs under this name. Refused while a schedule starts it, or if it belongs to an endpoint."""
        if name.startswith(PREFIX):
            message = "it belongs to an endpoint; archive that endpoint instead"
            raise Refused("name_reserved", message, path="workflow")
        if name not in self._context.tenant(tenant).plans and not self._context.is_home(tenant):
            return  # deleted before
        for shard in self._context.tenant(tenant).schedules.shards:
            users = sorted(schedule.name for schedule in shard.values() if schedule.workflow == name)
            if users:
                message = f"the schedule {users[0]} starts it: delete that, or give it another workflow first"
                raise Refused("in_use", message, path="workflow")
        await self._context.command(inp.RemoveWorkflow(by, tenant, name))

    def published(self, *, tenant: str = TENANT) -> list[wire.Publication]:
        """What another partition needs to decide as this one does, in this order: the latest version of each workflow,
        then the versions of applications, the latest last. Schedules live at home."""
        owner, documents = self._context.tenant(tenant), self._context.state.documents
        plain = [plan.hash for plan in owner.plans.values() if not plan.name.startswith(PREFIX)]
        publications = [wire.Publication(documents=tuple(msgspec.json.decode(documents[digest]) for digest in plain))]
        for application, versions in sorted(owner.applications.items()):
            for version in by_age(versions):
                if version.declared is not None and all(
                    workflow in documents for workflow in version.workflows.values()
                ):
                    own = tuple(msgspec.json.decode(documents[workflow]) for workflow in version.workflows.values())
                    publications.append(wire.Publication(documents=own, application=application, version=version.name))
        return publications

    def versions(self, application: str = "", *, tenant: str = TENANT) -> list[wire.AppVersion]:
        """Return the versions of one application, or of all, newest first."""
        owner = self._context.tenant(tenant)
        if application and application not in owner.applications:
            raise Refused(
                "unknown_application", f"there is no application {shortened(application, 128)!r}", path="application"
            )
        waiting = {pin: count for tenant_id, pin, count in stranded(self._context.state) if tenant_id == tenant}
        having: dict[str, int] = {}
        for worker in self._context.state.workers.values():
            pin = worker.labels.get(PIN_LABEL, "")
            having[pin] = having.get(pin, 0) + 1
        rows = []
        for name, versions in sorted(owner.applications.items()):
            latest = latest_of(versions)
            for entry in versions.values() if application in ("", name) else ():
                pin = pin_of(name, entry.name)
                view = wire.AppVersion(
                    application=name,
                    version_id=entry.number,
                    version_name=entry.name,
                    version_timestamp=instant(entry.timestamp_ms),
                    created_at=instant(entry.created_ms),
                    latest=entry is latest,
                    workers=having.get(pin, 0),
                    stranded=waiting.get(pin, 0),
                    kept=entry.declared is not None,
                )
                rows.append((entry.timestamp_ms, entry.number, view))
        return [view for *_, view in sorted(rows, key=lambda row: row[:2], reverse=True)]

    def workflows_of(self, application: str, *, tenant: str = TENANT) -> list[str]:
        """What the latest version of an application declares, in its order."""
        owner = self._context.state.tenants.get(tenant)
        latest = latest_of(owner.applications.get(application, {})) if owner is not None else None
        return [] if latest is None else list(latest.workflows)

    def latest_version(self, application: str = "", *, tenant: str = TENANT) -> wire.AppVersion:
        application = self._application(application, tenant)
        return next(version for version in self.versions(application, tenant=tenant) if version.latest)

    def latest_version_name(self, application: str, *, tenant: str = TENANT) -> str:
        return latest_name(self._context.tenant(tenant), application)

    async def set_latest_version(
        self, version: str, application: str = "", *, by: str, tenant: str = TENANT
    ) -> wire.AppVersion:
        """Make this version's definitions and schedules those of the application."""
        application = self._application(application, tenant)
        target = version_of(self._context.tenant(tenant), application, version)
        puts = declared_puts(target.declared, by) if target.declared is not None else []
        await self._context.command(inp.SetLatestVersion(by, tenant, application, version, puts))
        return self.latest_version(application, tenant=tenant)

    def _application(self, application: str, tenant: str) -> str:
        known = sorted(self._context.tenant(tenant).applications)
        if application:
            if application not in known:
                message = f"there is no application {shortened(application, 128)!r}"
                raise Refused("unknown_application", message, path="application")
            return application
        if len(known) != 1:
            message = f"name the application: {', '.join(known)}" if known else "no application has a version yet"
            raise Refused("which_application" if known else "unknown_application", message, path="application")
        return known[0]

    def pin_submission(self, submission: wire.Submission, tenant: str) -> wire.Submission:
        """A run that is pinned to a version has its definition too."""
        if not submission.version:
            return submission
        if submission.definition:
            raise Refused("version_and_definition", "give a version or a definition, not both", path="definition")
        pin, definition = pinned(self._context.tenant(tenant), submission.workflow, submission.version)
        return msgspec.structs.replace(submission, version=pin, definition=definition)


def registration(publication: wire.Publication, plans: list[Plan], whole: inp.ApplySchedules) -> inp.RegisterVersion:
    return inp.RegisterVersion(
        whole.by,
        whole.tenant,
        publication.application,
        publication.version,
        {plan.name: plan.hash for plan in plans},
        whole.puts,
        publication.latest,
        carried=True,
    )


def _queues(plan: Plan) -> set[str]:
    steps = [step.body or step for step in plan.steps]
    return {step.requirement[0] for step in steps if isinstance(step.node, TaskNode) or step.kind == 0}
