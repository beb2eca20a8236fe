"""Models of what operators set: policies, limits of tenants and labels, settings, dead letters, alarms."""

from tickwork.protocol.http_models.base import Model, Reason, RequestModel
from tickwork.protocol.http_models.runs import Page, Run


class PolicyRequest(RequestModel, frozen=True, kw_only=True):
    """A gate before each step that names the policy."""

    allow: str  # CEL over inputs, results, run, outcome, events and clock
    reason: str = ""  # what people read where it denies
    action: str = "fail"  # what follows a denial: pause, fail or skip_with_log
    pause: str = ""  # with pause: resume and ask again after this time; "": a person resumes the run


class Policy(Model, frozen=True, kw_only=True):
    name: str
    allow: str
    reason: str = ""
    action: str = "fail"
    pause: str = ""
    workflows: tuple[str, ...] = ()  # whose latest version names it


class Policies(Model, frozen=True, kw_only=True):
    policies: tuple[Policy, ...]


class PolicyTestRequest(RequestModel, frozen=True, kw_only=True):
    """Which recorded runs a policy is held against, newest first. With `allow`, that expression is tested instead of
    the policy's own."""

    allow: str = ""
    workflow: str = ""  # "": each workflow whose latest version names the policy
    limit: int = 100  # runs


class PolicyVerdict(Model, frozen=True, kw_only=True):
    """What the policy would have said before one recorded step."""

    run: str
    workflow: str
    node: str
    at: str
    allowed: bool
    reason: str = ""  # of a denial
    recorded: str = ""  # what it said then: allowed or denied; "": it was not asked


class PolicyTest(Model, frozen=True, kw_only=True):
    runs: int  # that were looked at
    steps: int  # of them, before which the policy was held
    denied: int
    changed: int  # denied where the step went on, and allowed where the policy stopped it
    unread: int = 0  # steps before which the policy reads a value that the journal does not hold
    verdicts: tuple[PolicyVerdict, ...] = ()  # those that differ from what happened; the newest runs first, 500 at most


class TenantRequest(RequestModel, frozen=True, kw_only=True):
    """The share and the limits of a tenant; what is left out is unlimited."""

    weight: int = 1  # its share where tenants compete: 1 to 100
    limit: int | None = None  # concurrent tasks
    rate: int | None = None  # starts
    per: str = "1s"
    burst: int | None = None
    window: str = "bucket"  # or sliding
    max_live_runs: int | None = None  # unfinished runs; more are refused


class Tenant(Model, frozen=True, kw_only=True):
    name: str
    weight: int = 1
    limit: int | None = None
    rate: int | None = None
    per: str = ""
    burst: int | None = None
    window: str = ""
    max_live_runs: int | None = None
    paused: bool = False
    ready: int = 0
    running: int = 0
    live_runs: int = 0


class Tenants(Model, frozen=True, kw_only=True):
    tenants: tuple[Tenant, ...]


class LabelLimitRequest(RequestModel, frozen=True, kw_only=True):
    limit: int  # concurrent tasks that require this label


class LabelLimit(Model, frozen=True, kw_only=True):
    label: str
    value: str
    limit: int
    running: int = 0


class LabelLimits(Model, frozen=True, kw_only=True):
    limits: tuple[LabelLimit, ...]


class SettingsRequest(RequestModel, frozen=True, kw_only=True):
    """Settings to change, by name; all others stay."""

    settings: dict[str, int]


class Setting(Model, frozen=True, kw_only=True):
    name: str
    value: int
    default: int
    does: str
    changeable: bool = False  # while the server runs; the others are fixed when a store is created
    low: int | None = None
    high: int | None = None


class Settings(Model, frozen=True, kw_only=True):
    """The settings in force of the machine that decides."""

    settings: tuple[Setting, ...]


class DeadLetter(Run, frozen=True, kw_only=True):
    """A failed run that nobody has brought back or dropped."""

    nodes: tuple[str, ...] = ()  # that failed
    attempts: int = 0  # the highest number of attempts of one of them


class DeadLetters(Page, frozen=True, kw_only=True):
    runs: tuple[DeadLetter, ...]


class DeadLetterRequest(Reason, frozen=True, kw_only=True):
    """Which dead letters: these runs, or the newest of a workflow."""

    runs: tuple[str, ...] = ()
    workflow: str = ""
    limit: int = 1_000  # of a workflow, in one call


class RedriveRequest(DeadLetterRequest, frozen=True, kw_only=True):
    per_second: int = 10  # runs that go on in any second, at most


class DeadLetterProblem(Model, frozen=True, kw_only=True):
    run: str
    code: str
    detail: str


class DeadLetterResult(Model, frozen=True, kw_only=True):
    done: tuple[str, ...] = ()
    refused: tuple[DeadLetterProblem, ...] = ()
    more: bool = False  # the workflow has more of them: call again


class Alarm(Model, frozen=True, kw_only=True):
    """Something that an operator should know."""

    at: str
    kind: str
    text: str
    count: int = 1
    partition: int = 0


class Alarms(Model, frozen=True, kw_only=True):
    alarms: tuple[Alarm, ...]  # newest first


class TickRun(Model, frozen=True, kw_only=True):
    number: str
    id: str = ""  # "": it is no longer known


class TickTrace(Model, frozen=True, kw_only=True):
    """What one tick of a partition did."""

    partition: int
    tick: int
    seq: int
    at: str
    rules: str
    inputs: dict[str, int] = {}  # by kind
    events: dict[str, int] = {}
    visited: tuple[TickRun, ...] = ()  # the runs that it processed, in order


class RunIds(Model, frozen=True, kw_only=True):
    ids: tuple[str, ...]
    more: bool = False  # there are more than these
