"""Models of endpoints: URLs that are called when their Governor says so."""

from typing import Any

from tickwork.protocol.http_models.base import Model, RequestModel
from tickwork.protocol.http_models.schedules import Fates, Hints, SchedulePreview


class EndpointRun(Model, frozen=True, kw_only=True):
    """One call of an endpoint and its answer, with the tries that it took."""

    id: str
    source: str  # the Governor's: baseline-cron, baseline-interval, ai-interval …; or trigger, test
    by: str = ""
    state: str  # completed is a success, failed a failure; otherwise it goes on, or a person ended it
    attempt: int = 0  # which of the tries it was that ended it; 0: none began
    status: int | None = None  # of the answer; None: there was none
    duration_ms: int | None = None
    body: Any = None
    cut: bool = False  # the answer had more
    error: str = ""
    message: str = ""
    scheduled_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None


class EndpointRuns(Model, frozen=True, kw_only=True):
    """Newest first. `next` is the cursor of the following page; absent on the last."""

    runs: tuple[EndpointRun, ...]
    next: str = ""


class Endpoint(Model, frozen=True, kw_only=True):
    """A URL that is called when its Governor says so: its request, and its state."""

    name: str
    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: Any = None
    timeout: str = "30s"
    body_limit: int = 100_000
    success: str = ""
    retries: int = 0
    retry_delay: str = "1s"
    sign: str = ""
    cron: str = ""
    every: str = ""
    timezone: str = "UTC"
    min_interval: str = ""
    max_interval: str = ""
    max_duration: str = ""
    queue: str = ""
    group: str = ""
    description: str = ""
    pause_after: int = 0
    says: str = ""  # when, in words
    workflow: str = ""  # under which its runs are found
    next_at: str | None = None
    source: str = ""  # why then
    candidates: tuple[tuple[str, str], ...] = ()  # source, time
    failures: int = 0  # in a row
    hints: Hints | None = None
    etag: str = ""  # for `If-Match`; of an endpoint that is shown alone
    running: bool = False
    paused: bool = False
    pause_reason: str = ""
    paused_until: str | None = None
    archived: bool = False
    last_fired_at: str | None = None
    last_success_at: str | None = None
    fates: Fates = Fates()
    last: EndpointRun | None = None  # without its body; of an endpoint that is shown alone


class EndpointPage(Model, frozen=True, kw_only=True):
    endpoints: tuple[Endpoint, ...]
    next: str | None = None  # cursor of the next page


class EndpointPreview(SchedulePreview, frozen=True, kw_only=True):
    """What was put, in words. `next` are the times of the baseline; `next_at` is what the Governor has decided."""

    next_at: str | None = None
    source: str = ""


class EndpointPreviews(Model, frozen=True, kw_only=True):
    endpoints: dict[str, EndpointPreview]


class EndpointRequest(RequestModel, frozen=True, kw_only=True):
    """A URL to call, by cron or at an interval, within the limits for its Governor."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}  # as they stand: no place for secrets
    body: Any = None  # text as it is, everything else as JSON
    timeout: str = "30s"  # of one try; 30m at most
    body_limit: int = 100_000  # bytes of the answer that are kept
    success: str = ""  # CEL over status and body; "": any 2xx
    retries: int = 0  # within one run
    retry_delay: str = "1s"  # before the first of them; doubled for each further one
    sign: str = ""  # name of a secret of the worker
    cron: str = ""
    every: str = ""
    timezone: str = "UTC"
    min_interval: str = ""
    max_interval: str = ""
    max_duration: str = ""  # of a run, all of its tries included; "": 5m, or as long as its tries may take
    queue: str = ""
    group: str = ""
    description: str = ""
    pause_after: int = 0  # failed runs in a row; 0: never


class EndpointSet(RequestModel, frozen=True, kw_only=True):
    """Several endpoints, all or none. Others are left alone."""

    endpoints: dict[str, EndpointRequest]
