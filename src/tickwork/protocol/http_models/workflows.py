"""Models of workflows, the versions of applications, and what an application publishes."""

from typing import Any

import msgspec

from tickwork.protocol.http_models.base import Model, RequestModel
from tickwork.protocol.http_models.schedules import ScheduleRequest


class Workflow(Model, frozen=True, kw_only=True):
    name: str
    definition: str  # hash of the latest version
    description: str = ""
    versions: int = 1
    paused: bool = False
    schedules: tuple[str, ...] = ()


class WorkflowDetail(Workflow, frozen=True, kw_only=True):
    document: Any = None


class Workflows(Model, frozen=True, kw_only=True):
    workflows: tuple[Workflow, ...]
    latest_version: str = ""  # of the application that was published


class AppVersion(Model, frozen=True, kw_only=True):
    application: str
    version_id: int
    version_name: str
    version_timestamp: str  # the highest is the latest
    created_at: str
    latest: bool = False
    workers: int = 0  # that have it now
    stranded: int = 0  # ready tasks that are pinned to it while no worker has it
    kept: bool = True  # what it declares is still known, so that it can be set latest


class AppVersions(Model, frozen=True, kw_only=True):
    versions: tuple[AppVersion, ...]  # newest first


class LatestRequest(RequestModel, frozen=True, kw_only=True):
    version: str
    application: str = ""  # "": the only one there is


class DagRequest(RequestModel, frozen=True, kw_only=True):
    """A workflow: its name, and the document without it."""

    name: str
    definition: dict[str, Any]


class DagScheduleRequest(ScheduleRequest, frozen=True, kw_only=True):
    workflow: str = ""  # the path names it
    name: str = ""  # of the schedule; "": that of the workflow


class DagTriggerRequest(RequestModel, frozen=True, kw_only=True):
    time: str = ""  # RFC 3339; "": now
    inputs: dict[str, Any] = {}


class MailboxRequest(RequestModel, frozen=True, kw_only=True):
    """A mailbox: events of its name are kept for their key until a run takes them."""

    keep: str = "7d"  # how long: "12h", "P7D"
    max: int = 100  # messages of one key
    fields: dict[str, Any] = {}  # what a payload has, like the inputs of a workflow; none: any payload fits


class Mailbox(Model, frozen=True, kw_only=True):
    name: str
    keep: str
    max: int
    fields: dict[str, Any] = {}
    kept: int = 0  # messages that wait
    keys: int = 0  # that have such messages
    taken: int = 0
    expired: int = 0
    refused: int = 0


class Mailboxes(Model, frozen=True, kw_only=True):
    mailboxes: tuple[Mailbox, ...] = ()


class MailboxMessage(Model, frozen=True, kw_only=True):
    id: str  # its number
    key: str
    fate: str  # kept, taken, expired or refused
    by: str
    came_at: str
    expires_at: str | None = None  # of a kept one
    ended_at: str | None = None  # when it got its fate
    run: str = ""  # that took it
    payload: Any = None  # of a kept one that is small enough to show
    payload_size: int = 0


class MailboxMessages(Model, frozen=True, kw_only=True):
    """Kept messages in the order in which they are taken, then the latest fates, newest first."""

    messages: tuple[MailboxMessage, ...] = ()


class Publication(RequestModel, frozen=True, kw_only=True):
    """Definitions and schedules of an application, all or none."""

    documents: tuple[Any, ...] = ()
    schedules: dict[str, ScheduleRequest] = {}
    mailboxes: dict[str, MailboxRequest] = {}
    application: str = ""  # whose schedules these are; those it no longer declares end. "": no owner
    version: str = ""  # of the application; one that is known and not the latest moves nothing
    latest: bool = False  # make it the latest all the same


class Publications(msgspec.Struct, frozen=True, kw_only=True):
    """All that a tenant has, in the order in which it is published elsewhere."""

    publications: tuple[Publication, ...] = ()
