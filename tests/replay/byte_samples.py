"""Fixed values of every stored and transmitted format that no golden journal holds, and the names that users see.

Each `Sample` encodes a value with today's code. `tests/replay/samples/` has the bytes that the first release wrote;
`test_bytes` compares. Structs are built with keywords where two neighbouring fields have one type, so that exchanging
such fields changes the bytes.
"""

import io
import sys
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args

import msgspec

import tickwork
from replay.golden_tool import golden
from tickwork.api.app import TABLE
from tickwork.api.http import cursors
from tickwork.api.openapi import document as openapi_document
from tickwork.cli.command_table import GROUPS, commands
from tickwork.cli.main import make_app
from tickwork.cluster import multiplexed_connection as node_frames
from tickwork.core.base.values import EncryptedValue as SealedValue
from tickwork.core.base.values import Ref
from tickwork.core.definition.document import canonical, json_schema, parse
from tickwork.core.definition.model import Definition, TaskNode
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import capture
from tickwork.core.state import inputs
from tickwork.core.state.events import StepsAppended
from tickwork.core.state.history import StepEntry
from tickwork.core.state.inputs import Input
from tickwork.core.state.schedule import FateRange
from tickwork.core.state.state import LogicalClock, Run, Settings
from tickwork.journal import export, reproduction
from tickwork.journal.record import GENESIS, Row, SealedRow, unseal
from tickwork.ports import broker
from tickwork.ports.leases import HeldLease, Member
from tickwork.ports.store import CacheRow, ChildRow, InboxRow, LogChunk, RunRow
from tickwork.ports.store_maintenance import ArchiveObject, TableBatch
from tickwork.protocol import child_messages as child
from tickwork.protocol import worker_messages as worker
from tickwork.protocol.http_models import AssetUpdateRequest, MailboxRequest, ScheduleRequest, Signal, Submission
from tickwork.protocol.task_commands import GiveEvent, MarkUpdated, StartRun, decode_commands, encode_commands
from tickwork.runtime.maintenance import backup
from tickwork.runtime.partition.write_behind import AttemptRecord, attempts_decoder, attempts_encoder
from tickwork.runtime.storage import archive, run_records
from tickwork.runtime.storage.payloads import decode_value, value_encoder
from tickwork.stores import checksums, run_blocks
from tickwork.worker.log_shipper import LogLine

FOLDER = Path(__file__).parent / "samples"
SEQ = 660  # of the golden journal: schedules, backfills, maps, signals and retries are live here
REF = Ref(digest="sha256:ab", size=70_000, items=12, place="artifact")


class Sample(NamedTuple):
    """A value and its bytes. `plain` gives the bytes without compression, which may differ between zlib versions."""

    value: Any
    data: bytes
    decode: Callable[[bytes], Any]
    plain: Callable[[bytes], bytes] = bytes


# ---- messages between worker, server, child process and node

SPEC = worker.NodeSpec(
    id=7, kind="task", workflow="etl", node="load", definition="d1", handler="app:load", handler_version="v2",
    attempts_max=3, running_ms=60_000, silent_ms=30_000, document=b"{}",
)  # fmt: skip
WORK = worker.AttemptJob(
    task=11, attempt=2, spec=7, tenant="acme", run_id="r-1", args=b"\x81\xa1a\x01", child=4, checkpoint=REF,
    fetch=(worker.ArtifactArgument(name="rows", digest="sha256:cd", walk=("a", "0")),), scheduled_ms=1_000,
    submitted_ms=900,
)  # fmt: skip
PROFILE = worker.WorkerProfile(
    queues=("default", "gpu"), labels={"zone": "a"}, slots=8, cpu_milli=4_000, memory_mb=2_048, gpu=1, host="h",
    pid=42, version="0.1.0", protocol=1, process="boot:42",
)  # fmt: skip
STEP = worker.StepEntry(
    position=3, name="book", digest="0a", value=b"\x01", error="Refused", message="full", at_ms=7, took_ms=2, tries=2,
    retry=(3, 1_000, 60_000, 200),
)  # fmt: skip
AWAIT = worker.Await(
    position=4, kind="event", name="paid", digest="0b", delay_ms=500, until_ms=9, key="k", value=REF, line="app.py:3",
    names=("assign",),
)  # fmt: skip
REPLIES = (
    worker.UpdateReply(update="u-1", value=b"\x01"),
    worker.UpdateReply(update="u-2", refused=True, reason="full"),
)
PUBLISHED = (worker.PublishedValue(name="nodes", digest="0c", value=REF),)
REPORTS = (
    worker.Succeeded(task=11, attempt=2, value=b"\x01", started_ms=5, ended_ms=6),
    worker.Succeeded(task=12, attempt=1, value=REF),
    worker.Succeeded(task=19, attempt=1, commands=b"\x90"),
    worker.Failed(
        task=13, attempt=3, error="ValueError", message="no", permanent=True, exit_code=9, started_ms=5, ended_ms=6
    ),
    worker.Started(task=14, attempt=1, started_ms=5),
    worker.Checkpointed(task=15, attempt=1, value=b"\x02"),
    worker.HandedBack(task=16, attempt=1, begun=True),
    worker.Progressed(task=17, attempt=1, done=3, total=9, message="reading"),
    worker.Taken(task=18, attempt=1),
    worker.StepsRecorded(
        task=19, attempt=1, steps=(STEP,), versions=(("split", 2),), replies=REPLIES, published=PUBLISHED
    ),
    worker.Suspended(
        task=20, attempt=2, steps=(STEP,), awaits=(AWAIT,), withdrawn=(1,), together=((2, 3),),
        versions=(("split", 2),),
        started_ms=5, ended_ms=6, replies=REPLIES, published=PUBLISHED,
    ),
    worker.Continued(task=21, attempt=2, value=b"\x80", started_ms=5, ended_ms=6),
)  # fmt: skip
CALL = worker.Call(
    worker="w-1", session="s-1", seq=3, credit=16, wait_ms=20_000, reports=REPORTS, held=((11, 2), (12, 1)),
    profile=PROFILE, goodbye=True, via="node-2", lost=True, share=True, store="st-1",
)  # fmt: skip
REPLY = worker.Reply(
    seq=3, work=(WORK,), specs=(SPEC,), stop=((1, 1),), fenced=((2, 1),), resync=True, refused="an old protocol",
    later=((3, 1),), waiting_tasks=5, store="st-1",
)  # fmt: skip
TIMETABLE = worker.DeclaredSchedule(
    name="nightly",
    wanted=ScheduleRequest(workflow="etl", cron="0 3 * * *", inputs={"day": 1}),
    place="app.py:12",
)
CATALOG = worker.Catalog(
    documents=(b"{}",),
    schedules=(TIMETABLE,),
    handlers=("load",),
    application="shop",
    version="v2",
    mailboxes=(worker.DeclaredMailbox("reply", MailboxRequest(keep="1d", max=2, fields={"text": {"type": "string"}})),),
)
LOG_PIECE = worker.LogPiece(
    task=11, attempt=2, chunk=3, first=40, lines=b"{}\n", run="r-1", worker="w-1", session="s-1", store="st-1"
)
COMMANDS = [
    StartRun(Submission(workflow="etl", inputs={"day": 1}, id="r-2", key="k", delay_ms=5, priority=3), place="3.0"),
    GiveEvent(Signal(event="paid", key="k", payload={"sum": 5})),
    MarkUpdated("sales", AssetUpdateRequest(partition="2026-01-02", details={"rows": 3})),
]
STEPS_WITH_COMMANDS = (
    worker.StepsRecorded(task=22, attempt=1, steps=(STEP,), commands=encode_commands(COMMANDS)),
    worker.StepsRecorded(task=22, attempt=2, steps=(STEP,), commands=REF),
)
PUBLISHING = Definition(
    name="etl", nodes=(TaskNode(id="load", handler="app:load"),), publish={"rows": ("inputs.rows", "nodes.load")}
)  # fmt: skip
JOB = child.LargeAttemptJob(
    work=WORK, args_file="args", checkpoint_file="checkpoint", fetched=(("sha256:cd", "file"),)
)  # fmt: skip
ORDERS = (child.CheckpointDurable(task=11, attempt=2), child.Cancel(task=12, attempt=1), child.Retire())
SAYINGS = [
    *(one for one in REPORTS if isinstance(one,
    worker.Succeeded | worker.Failed | worker.Checkpointed | worker.Progressed | worker.StepsRecorded
    | worker.Suspended | worker.Continued)),
    child.AppLoaded(
        pid=42, handlers=(("load", "process"),), documents=(b"{}",), schedules=(TIMETABLE,), application="shop",
        version="v2",
    ),
    child.LoadFailed(error="ImportError", message="app.py:1"),
    child.SpilledResult(
        task=11, attempt=2, path="result", size=100_001, items=3, checkpoint=True, started_ms=5, ended_ms=6
    ),
    child.OutputLines((child.OutputLine(task=11, attempt=2, stream="stdout", text="hello", at_ms=7),)),
    child.WorkDirCreated(task=11, attempt=2),
    child.PacketDone(packet=9, ran=2, took_us=150),
    child.Retired(),
]  # fmt: skip
UP = node_frames.ClientFrame((node_frames.CallFrame(id=1, partition=3, call=CALL),), (7, 8))
DOWN = (
    node_frames.ReplyFrame(id=1, reply=REPLY),
    node_frames.ReplyFrame(id=2, code="not_found", detail="no such partition"),
)
ENVELOPE = broker.Envelope(
    tenant="acme", queue="default", labels=(("zone", "a"),), priority=5, task=11, attempt=2, key="k",
    retries_left=1, traceparent="00-0", sent_ms=8, body=msgspec.msgpack.encode(broker.DispatchBody(WORK, SPEC)),
    store="st-1",
)  # fmt: skip


def _framed(decode: Callable[[bytes], Any], frames: Callable[[], Any]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        (whole,) = frames().feed(data)
        return decode(whole)

    return read


def _messages() -> Iterator[tuple[str, Sample]]:
    encode = worker.encoder.encode
    yield "worker_call", Sample(CALL, encode(CALL), worker.call_decoder.decode)
    yield "worker_reply", Sample(REPLY, encode(REPLY), worker.reply_decoder.decode)
    beats = worker.Heartbeats(via="node-2", workers=("w-1", "w-2"))
    yield "worker_beats", Sample(beats, encode(beats), worker.beats_decoder.decode)
    yield "worker_log_piece", Sample(LOG_PIECE, encode(LOG_PIECE), _msgpack(worker.LogPiece))
    steps = worker.Call(worker="w-1", session="s-1", seq=4, credit=16, reports=STEPS_WITH_COMMANDS)
    yield "worker_steps_with_commands", Sample(steps, encode(steps), worker.call_decoder.decode)
    yield "task_commands", Sample(tuple(COMMANDS), encode_commands(COMMANDS), decode_commands)
    yield "worker_catalog", Sample(CATALOG, encode(CATALOG), _msgpack(worker.Catalog))
    line = LogLine(at=7, stream="stdout", text="hello")
    yield "worker_log_line", Sample(line, msgspec.json.encode(line), _json(LogLine))
    yield "child_orders", Sample(
        list(ORDERS), b"".join(map(child.frame, ORDERS)),
        lambda data: [child.order_decoder.decode(whole) for whole in child.FrameDecoder().feed(data)],
    )  # fmt: skip
    yield "child_sayings", Sample(
        SAYINGS, child.frame(SAYINGS), _framed(child.sayings_decoder.decode, child.FrameDecoder)
    )  # fmt: skip
    heads = child.head(SPEC)
    yield "child_packet", Sample((9, heads, [WORK], None), child.packet(9, heads, [WORK]), child.opened)
    yield "child_large_packet", Sample((9, heads, [WORK], JOB), child.large_packet(9, heads, JOB), child.opened)
    yield (
        "node_frame_up",
        Sample(UP, node_frames.frame(UP), _framed(_msgpack(node_frames.ClientFrame), node_frames.FrameBuffer)),
    )
    yield (
        "node_frame_down",
        Sample(
            DOWN,
            node_frames.frame(DOWN),
            _framed(_msgpack(tuple[node_frames.ReplyFrame, ...]), node_frames.FrameBuffer),
        ),
    )
    seal = broker.EnvelopeCodec("a token")
    yield "broker_envelope", Sample(ENVELOPE, seal.wrap(ENVELOPE), seal.unwrap)
    parcel = broker.DispatchBody(WORK, SPEC)
    yield "broker_parcel", Sample(parcel, ENVELOPE.body, _msgpack(broker.DispatchBody))


# ---- rows, archives and files

ATTEMPTS = [
    AttemptRecord(
        task=11, step=1, child=4, attempt=2, worker="w-1", dispatched_ms=5, state=3, ended_ms=9, started_worker_ms=6,
        ended_worker_ms=8, error="ValueError", message="no",
    )
]  # fmt: skip


def _run_row(number: int, record: bytes) -> RunRow:
    return RunRow(
        number=number, id=f"order-{number}", tenant="acme", workflow="etl", definition="d1", state=4, source="api",
        by="me", submitted_ms=1, started_ms=2, ended_ms=3, key="k", error="ValueError", schedule="nightly",
        record=record, output=value_encoder.encode(REF), attempts=attempts_encoder.encode(ATTEMPTS),
    )  # fmt: skip


CHILD_ROW = ChildRow(run=1, step=2, child=3, value=b"\xc4\x01\x01")
CHUNK = LogChunk(
    task=11, attempt=2, chunk=3, first=40, lines=2, size=6, digest="sha256:ef", written_ms=9
)  # fmt: skip
SETTINGS = Settings(clock=LogicalClock(origin_ms=1_800_000_000_000, resolution_ms=1), partition=3)
MEMBER = Member(
    session="s-1", node="n-1", address="http://n-1", version="0.1.0", protocol=1, started_ms=5, draining=True,
    engine=True, oldest=1, machine=1, unable=(3,), secrets=("x",),
)  # fmt: skip
SUBMISSION = Submission(workflow="etl", inputs={"day": 1}, id="r-1", key="k", delay_ms=5, priority=3, version="v2")
RECORDED = inputs.StepsRecorded(
    task=22, attempt=1, steps=(StepEntry(3, "book", "0a", b"\x01", at_ms=7, took_ms=2, cost=5),), sender="w-1",
    commands=(
        inputs.TaskCommand(inputs.Submit("task", "acme", "r-2", "etl", b"\x80", inputs.SubmitOptions(key="k"))),
        inputs.TaskCommand(inputs.Ingest("task", "acme", event="paid", key="k", payload=b"\x01"), partitions=(0, 3)),
        inputs.TaskCommand(inputs.UpdateAsset("task", "acme", asset="sales", partition="2026-01-02", details=b"\x80")),
    ),
)  # fmt: skip
REFUSED = inputs.StepsRecorded(task=22, attempt=2, steps=(), refused=("no_workflow", "there is no workflow x"))
ROW = Row(seq=1, tick=5, rules="1", inputs=[RECORDED, REFUSED], events=[StepsAppended(task=22, input=0)])
SPAN = FateRange(
    tenant="acme", name="nightly", schedule=5, version=2, from_ms=1, to_ms=9, count=3, fate=4, cause="paused",
    backfill=6,
)  # fmt: skip


@cache
def golden_state() -> reproduction.Reproduction:
    """The state of the golden journal after row `SEQ`, and the row behind it, as a reproduction."""
    rows, end = golden.load(golden.FILE)
    machine, head = Machine(settings=end.settings), GENESIS
    for sealed in rows[:SEQ]:
        row, head = unseal(sealed, head), sealed.hash
        machine.fold(row.tick, row.inputs, row.events)
    claim = reproduction.Divergence(was=unseal(rows[SEQ], head).events[0], text="event 0", broken="", taken=False)
    return reproduction.Reproduction(
        partition=0, rules=end.rules, zones="none", hash=head, before=reproduction.before(machine), row=rows[SEQ],
        claim=claim, inputs=[0],
    )  # fmt: skip


def _richest(machine: Machine) -> Run:
    return max(machine.state.runs.values(), key=lambda run: (len(run.results or ()), -run.number))


def _pieces(machine: Machine) -> list[Any]:
    header, documents, *rows = capture(machine.state)
    return [header, [list(document) for document in documents], *map(list, rows)]


def _rows() -> Iterator[tuple[str, Sample]]:
    before = golden_state().before
    machine = before.machine(golden.UTC_ONLY)
    pieces = [
        before.header, [list(document) for document in before.documents], before.runs, before.tasks, before.schedules
    ]  # fmt: skip
    yield "live_rows", _packed(pieces, msgspec.msgpack.encode(pieces), _restored)
    record = run_records.rest_of_run(_richest(machine))
    row = _run_row(600, record)
    yield "run_record", Sample(run_records.rest_of(row), record, lambda data: run_records.rest_of(_run_row(600, data)))
    yield "run_row", Sample(row, msgspec.msgpack.encode(row), _msgpack(RunRow))
    rows = [row, _run_row(601, b"\x90"), _run_row(603, b"\x90")]
    (block,) = run_blocks.blocks_of(rows)
    yield "run_block", Sample(rows, block.data, run_blocks.rows_of, zlib.decompress)
    outline = [*block.outline[:3], sorted(block.clues), sorted(block.groups)]
    yield "run_block_outline", _plain(outline)
    clues = [
        run_blocks.clue_of(run_id)
        for run_id in ("0190a000-0000-7000-8000-000000000001", "nightly-2026-01-02T03:00:00Z", "order-17", "plain")
    ]
    yield "run_block_clues", _plain(clues)
    yield "attempts", Sample(ATTEMPTS, attempts_encoder.encode(ATTEMPTS), attempts_decoder.decode)
    values = [b"\x01", REF, SealedValue(subject="s", key_id="k", data=b"\x02"), None]
    yield (
        "values",
        Sample(values, value_encoder.encode(values), lambda data: [decode_value(raw) for raw in _raws(data)]),
    )
    yield "settings", Sample(SETTINGS, msgspec.msgpack.encode(SETTINGS), _msgpack(Settings))
    yield "fate_range", Sample(SPAN, msgspec.msgpack.encode(SPAN), _msgpack(FateRange))
    yield "lease_member", Sample(MEMBER, msgspec.json.encode(MEMBER), _json(Member))
    holding = HeldLease(partition=3, session="s-1", node="n-1", address="http://n-1")
    yield "lease_holding", Sample(holding, msgspec.json.encode(holding), _json(HeldLease))
    yield "inbox_submission", Sample(SUBMISSION, msgspec.json.encode(SUBMISSION), _json(Submission))
    yield "row_checksums", _plain(_checksums(block.outline))


def _checksums(outline: run_blocks.BlockHeader) -> list[int]:
    archived = ArchiveObject(
        object="o", kind="runs", partition=3, first=1, last=2, rows=2, size=9, before=b"", hash=b"\x01", tick=5,
        from_ms=6, to_ms=7, written_ms=8,
    )  # fmt: skip
    return [
        checksums.of_row(CacheRow(key="acme/k", value=b"\x01", kept_ms=5)),
        checksums.of_row(InboxRow(id="r-1", partition=3, tenant="acme", data=b"{}", by="me")),
        checksums.of_row(archived),
        checksums.of_fields("acme", 3, b"\x01"),
        checksums.of_epoch(3, 7, "n-1"),
        checksums.of_outline(outline),
    ]


def _files() -> Iterator[tuple[str, Sample]]:
    bundles = [archive.RunBundle(row=_run_row(600, b"\x90"), attempts=[b"\x90"], children=[CHILD_ROW])]
    yield "archive_bundle", Sample(
        bundles, archive.packed(bundles), archive.unpacked, _behind(archive.MAGIC)
    )  # fmt: skip
    chunks = [archive.ArchivedLogChunk(row=CHUNK, lines=b"{}\n{}\n")]
    yield "archive_logs", Sample(
        chunks, archive.packed_logs(chunks), archive.unpacked_logs, _behind(archive.MAGIC_LOGS)
    )  # fmt: skip
    head = export.ExportHead(settings=SETTINGS, after=4, hash=b"\x01" * 32, last=4, last_hash=b"\x01" * 32)
    yield "export_head", Sample(head, export.write_head(head), lambda data: export.read([data])[0])
    made = golden_state()
    yield (
        "reproduction",
        Sample(made, reproduction.write(made), reproduction.read, lambda data: data[:4] + zlib.decompress(data[12:])),
    )
    batches = [TableBatch("routes", [("acme", 3, 1)]), TableBatch("counts", [("routes", 1)])]
    yield (
        "backup",
        Sample(
            batches[:1],
            backup.MAGIC + b"".join(map(backup.frame, batches)),
            lambda data: [
                msgspec.structs.replace(batch, rows=[tuple(row) for row in batch.rows])
                for batch in backup.read(io.BytesIO(data))
            ],
            _backup_plain,
        ),
    )
    row = SealedRow(seq=1, tick=5, hash=b"\x02" * 32, data=b"\x01\x95")
    yield "row_of_steps", Sample(ROW, msgspec.msgpack.encode(ROW, order="deterministic"), _msgpack(Row))
    yield "definition_publish", Sample(PUBLISHING, canonical(PUBLISHING), parse)
    yield "sealed_row_message", Sample(row, msgspec.msgpack.encode(row), _msgpack(SealedRow))
    yield "cursor", _cursor()


def _cursor() -> Sample:
    def request(cursor: str) -> Any:
        route = SimpleNamespace(path="/v1/runs")
        query = {"workflow": "etl", "cursor": cursor, "limit": 50}
        return SimpleNamespace(query=query, inner=False, route=route, scope={"path_params": {}})

    return Sample(
        "b17", cursors.following(request(""), "b17").encode(), lambda data: cursors.place_of(request(data.decode()))
    )


def _backup_plain(data: bytes) -> bytes:
    out, at = data[:4], 4
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        out += zlib.decompress(data[at + 8 : at + 8 + size])
        at += 8 + size
    return out


def _behind(magic: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[: len(magic)] + zlib.decompress(data[len(magic) :])


def _packed(value: Any, data: bytes, decode: Callable[[bytes], Any]) -> Sample:
    """Compressed here, to keep the file small; not part of the format."""
    return Sample(value, zlib.compress(data, 9), lambda stored: decode(zlib.decompress(stored)), zlib.decompress)


def _restored(data: bytes) -> Any:
    """The pieces of the machine that these pieces restore."""
    header, documents, *rows = msgspec.msgpack.decode(data)
    before = reproduction.StateBefore(header, [(name, body) for name, body in documents], *rows)
    return _pieces(before.machine(golden.UTC_ONLY))


def _plain(value: Any) -> Sample:
    data = msgspec.msgpack.encode(value)
    return Sample(msgspec.msgpack.decode(data), data, msgspec.msgpack.decode)


def _raws(data: bytes) -> list[bytes]:
    return [bytes(raw) for raw in msgspec.msgpack.decode(data, type=list[msgspec.Raw])]


def _msgpack(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.msgpack.Decoder(kind).decode


def _json(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind).decode


@cache
def samples() -> dict[str, Sample]:
    return dict([*_messages(), *_rows(), *_files()])


# ---- names that users see


def names() -> dict[str, str]:
    """Text of each file of names: a name, or a path of one, on each line."""
    return {
        "cli": "".join(f"{line}\n" for line in _cli()),
        "definition_schema": "".join(f"{name}\n" for name in sorted(json_schema()["$defs"])),
        "inputs": "".join(f"{kind.__struct_config__.tag} {kind.__name__}\n" for kind in get_args(Input)),
        "openapi": "".join(f"{line}\n" for line in _openapi()),
        "public": "".join(f"{name}\n" for name in sorted(tickwork.__all__)),
    }


def _openapi() -> Iterator[str]:
    """An operation or a schema on each line. Responses that all operations share are named once."""
    document = _without_prose(openapi_document(TABLE))
    paths, schemas = document["paths"], document["components"]["schemas"]
    shared = set.intersection(
        *({*_items(operation["responses"])} for path in paths.values() for operation in path.values())
    )
    yield f"everywhere {_responses(sorted(shared))}"
    for path, operations in paths.items():
        for method, operation in operations.items():
            own = _responses([item for item in _items(operation["responses"]) if item not in shared])
            yield f"{method} {path} {_compact(operation | {'responses': None})} {own}"
    for name, schema in schemas.items():
        yield f"{name} {_compact(schema)}"


def _items(responses: dict[str, Any]) -> list[tuple[str, str]]:
    return [(status, _compact(response)) for status, response in responses.items()]


def _responses(items: list[tuple[str, str]]) -> str:
    return " ".join(f"{status}: {response}" for status, response in items)


def _compact(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _without_prose(document: Any, *, named: bool = False) -> Any:
    """The document without the texts for people. `named`: its keys are names of users' fields."""
    if isinstance(document, list):
        return [_without_prose(part) for part in document]
    if not isinstance(document, dict):
        return document
    return {
        key: _without_prose(part, named=key in ("properties", "schemas", "paths"))
        for key, part in sorted(document.items())
        if named or not (key in ("description", "summary", "version") and isinstance(part, str))
    }


def _cli() -> Iterator[str]:
    for entries in GROUPS.values():
        for entry in entries:
            for path, command in commands(make_app(entry.name)[entry.name], entry.name):
                yield " ".join(path)
                for argument in command.assemble_argument_collection():
                    if argument.show:
                        yield f"  {' '.join(argument.names)}{' required' if argument.required else ''}"


# ---- files


def stored(name: str) -> bytes:
    return b64decode((FOLDER / f"{name}.b64").read_text())


def stored_names(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text()


def write(*, again: bool) -> list[str]:
    """Write the files that are missing, or all of them; return the names of what was written."""
    FOLDER.mkdir(exist_ok=True)
    texts = {f"{name}.b64": _lines(sample.data) for name, sample in samples().items()}
    texts |= {f"{name}.txt": text for name, text in names().items()}
    written = [name for name in texts if again or not (FOLDER / name).exists()]
    for name in written:
        (FOLDER / name).write_text(texts[name])
    return written


def _lines(data: bytes) -> str:
    text = b64encode(data).decode()
    return "".join(f"{text[at : at + 116]}\n" for at in range(0, len(text), 116))


if __name__ == "__main__":
    print("\n".join(write(again="--again" in sys.argv)))
