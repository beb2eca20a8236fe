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


class Publication(RequestModel, frozen=True, kw_only=True):
    """Definitions and schedules of an application, all or none."""

    documents: tuple[Any, ...] = ()
    schedules: dict[str, ScheduleRequest] = {}
    application: str = ""  # whose schedules these are; those it no longer declares end. "": nobody's
    version: str = ""  # of the application; one that is known and not the latest moves nothing
    latest: bool = False  # make it the latest all the same


class Publications(msgspec.Struct, frozen=True, kw_only=True):
    """All that a tenant has, in the order in which it is published elsewhere."""

    publications: tuple[Publication, ...] = ()
