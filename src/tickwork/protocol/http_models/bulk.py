"""Models of bulk operations: an action on each run of a frozen selection."""

from tickwork.protocol.http_models.base import Model, RequestModel
from tickwork.protocol.http_models.runs import Run, RunSearch


class BulkPreviewRequest(RequestModel, frozen=True, kw_only=True):
    action: str  # cancel, pause, resume, retry or rerun
    search: RunSearch


class BulkPreview(Model, frozen=True, kw_only=True):
    """The runs that fit now, frozen. An operation names the selection and the same search."""

    action: str
    search: RunSearch
    selection: str  # "" where no run fits
    count: int
    states: dict[str, int] = {}
    sample: tuple[Run, ...] = ()  # the newest ones
    as_of: dict[str, int] = {}  # the row of the journal at which each partition was searched


class BulkRequest(RequestModel, frozen=True, kw_only=True):
    action: str
    search: RunSearch  # that of the preview
    selection: str  # of the preview
    reason: str = ""
    per_second: int = 50  # runs acted on, 1 to 1000


class BulkRefusal(Model, frozen=True, kw_only=True):
    run: str
    code: str


class BulkOperation(Model, frozen=True, kw_only=True):
    id: str
    action: str
    state: str  # running, done or cancelled
    by: str
    reason: str = ""
    search: RunSearch
    count: int  # runs in the selection
    done: int = 0
    changed: int = 0  # no longer what they were when they were selected: somebody was first
    refused: dict[str, int] = {}  # by code
    refused_runs: tuple[BulkRefusal, ...] = ()  # the first ones
    left: int = 0
    per_second: int = 0
    cancelled: str = ""  # by whom and why
    started_at: str
    ended_at: str | None = None


class BulkOperations(Model, frozen=True, kw_only=True):
    operations: tuple[BulkOperation, ...]
