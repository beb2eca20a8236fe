"""From a path to a database that may be used, or to words that say why not.

Nothing is repaired here: a file that is damaged, foreign, newer than this program or on a file system that cannot
lock is left as it is, for a person to look at.
"""

import contextlib
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from tickwork.ports.store import StoreUnusable
from tickwork.stores.sqlite import checksum_migration as signing
from tickwork.stores.sqlite import terms_migration
from tickwork.stores.sqlite.file_lock import FileLock
from tickwork.stores.sqlite.schema_repair import mend, shape
from tickwork.stores.sqlite.statements import migrations, schema, unrecorded
from tickwork.system.private_files import private_file, private_folder

VERSION_MIN = 3_051_003  # earlier ones can lose committed pages when a checkpoint meets a restart of the WAL
APPLICATION_ID = 0x7469636B
FULL_CHECK_BYTES_MAX = 256 * 1024 * 1024
BUSY_MS = 5_000  # only for the moments in which the last user of a WAL tidies up
# One thread uses a connection at a time, so SQLite need not take a mutex per call.
FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_NOMUTEX
CACHE_KIB = 64 * 1024
READER_CACHE_KIB = 16 * 1024
LOG_BYTES = 6 * 1024 * 1024  # a little more than the checkpointer lets it grow to
LOG_SHARE_MIN = 64  # nothing is reserved where more than this part of the free space would go
NETWORK = frozenset(
    ["9p", "afs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.gcsfuse", "fuse.rclone", "fuse.s3fs",
     "fuse.sshfs", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb2", "smb3", "smbfs"]
)  # fmt: skip


def require_version(number: int = apsw.SQLITE_VERSION_NUMBER) -> None:
    if number < VERSION_MIN:
        raise StoreUnusable(
            f"SQLite {number // 1_000_000}.{number // 1000 % 1000}.{number % 1000} can lose data: "
            "install a newer apsw, which brings SQLite 3.51.3 or later"
        )


def lock_file(path: Path, *, network_allowed: bool) -> FileLock:
    """Check that the folder can hold the file, and that no other program or file has its name."""
    try:
        private_folder(path.parent)
        if path.exists() and not path.is_file():
            raise StoreUnusable(f"{path} is not a file: name a file for the database")
        _refuse_network(path, allowed=network_allowed)
        with contextlib.suppress(FileExistsError):
            os.close(private_file(path))  # empty; what SQLite puts beside it gets the same rights
        return FileLock.take(path.with_name(f"{path.name}.lock"))
    except OSError as error:
        raise StoreUnusable(
            f"{path.parent} cannot hold the database ({_reason(error)}): name a folder that this user may write"
        ) from None


def _refuse_network(path: Path, *, allowed: bool) -> None:
    kind = file_system(path.parent, Path("/proc/self/mountinfo"))
    if kind in NETWORK and not allowed:
        raise StoreUnusable(
            f"{path} is on a network file system ({kind}), where SQLite's locks cannot be trusted: "
            "use a local disk, or allow it explicitly if only one machine ever mounts it"
        )


def file_system(folder: Path, mountinfo: Path) -> str:
    """The type of the mount that holds this folder; empty where it cannot be known."""
    try:
        lines = mountinfo.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    resolved, best, kind = folder.resolve(), -1, ""
    for line in lines:
        mount, _, source = line.partition(" - ")
        point = Path(_unescaped(mount.split(" ")[4]))
        # A later mount on the same point hides the earlier one.
        if resolved.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), source.split(" ")[0]
    return kind


def _unescaped(text: str) -> str:
    for code, plain in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, plain)
    return text


def connect_reader(path: Path, synchronous: str) -> apsw.Connection:
    connection = connect(path, synchronous, cache_kib=READER_CACHE_KIB)
    connection.pragma("query_only", True)
    return connection


def connect(path: Path, synchronous: str, *, cache_kib: int = CACHE_KIB) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=FLAGS)
    connection.set_busy_timeout(BUSY_MS)
    connection.pragma("synchronous", synchronous)
    connection.pragma("cache_size", -cache_kib)
    connection.wal_autocheckpoint(0)  # the checkpointer does that, so that no commit waits for it
    return connection


def reserve_log(path: Path) -> None:
    """Fill the log with zeros up to where it starts over. A commit then overwrites what is there, and the file system
    has nothing of its own to write with it: a sync takes half the time. Zeros are not a frame: they are never read."""
    with suppress(OSError), open(f"{path}-wal", "r+b", buffering=0) as log:
        missing = LOG_BYTES - log.seek(0, os.SEEK_END)
        space = os.fstatvfs(log.fileno())
        if missing > 0 and space.f_bavail * space.f_frsize > LOG_BYTES * LOG_SHARE_MIN:
            log.write(bytes(missing))
            os.fsync(log.fileno())


def bring_up(path: Path, synchronous: str, *, upgrade: bool = True) -> apsw.Connection:
    """The writer's connection: checked, and its schema up to date. `upgrade`: an older schema is brought up to date;
    else it is refused, because who only reads changes nothing."""
    try:
        size, log = _size(path), _size(Path(f"{path}-wal"))  # before SQLite makes one
        connection = connect(path, synchronous)
        try:
            _require_ours(connection, path)
            _check(connection, path, size, log)
            if connection.pragma("journal_mode", "wal") != "wal":
                raise StoreUnusable(f"{path}: this file system does not support a write-ahead log: use a local disk")
            if not upgrade:
                _require_upgraded(connection, path)
            _migrate(connection, path)
            _require_shape(connection, path)
        except BaseException:
            connection.close()
            raise
    except apsw.Error as error:
        raise StoreUnusable(_advice(path, error)) from error
    except UnicodeDecodeError:
        raise StoreUnusable(f"{path} is damaged (a text): restore a backup; keep this file for analysis") from None
    except OSError as error:
        raise StoreUnusable(f"{path} cannot be opened: {_reason(error)}") from None
    return connection


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _check(connection: apsw.Connection, path: Path, size: int, log: int) -> None:
    # Not `quick_check`: that does not compare indexes with their tables, and a run that is not found by its id would
    # be made a second time. A full check reads everything: two seconds for this much, minutes for a large file. Above
    # the bound only the header, the schema and one row of each table are read here; rows are vouched for
    # by their checksums and by the hash chain when they are used.
    if size <= FULL_CHECK_BYTES_MAX:
        verdict = str(connection.execute("pragma integrity_check(1)").get)
    else:
        verdict = _glance(connection)
    # With a log beside it, the file may rightly be shorter than the database.
    expected = connection.pragma("page_count") * connection.pragma("page_size")
    if verdict == "ok" and expected > size > 0 and not log:
        verdict = "it is truncated"
    if verdict != "ok":
        raise StoreUnusable(f"{path} is damaged ({verdict}): restore a backup; keep this file for analysis")


def _glance(connection: apsw.Connection) -> str:
    for (name,) in connection.execute("select name from sqlite_schema where type = 'table'").fetchall():
        connection.execute(f'select * from "{name}" limit 1').fetchall()  # noqa: S608 - a name from the schema itself
    return "ok"


def _require_ours(connection: apsw.Connection, path: Path) -> None:
    """Before anything is changed in it."""
    if not _is_empty(connection) and connection.pragma("application_id") != APPLICATION_ID:
        raise StoreUnusable(f"{path} is a database of another program: name another file")
    version, known = connection.pragma("user_version"), len(migrations())
    if version > known:
        raise StoreUnusable(
            f"{path} has schema {version}, this program knows {known}: run the newer program that wrote it"
        )


def _is_empty(connection: apsw.Connection) -> bool:
    return not connection.execute("select 1 from sqlite_schema limit 1").fetchall()


def _require_upgraded(connection: apsw.Connection, path: Path) -> None:
    version, known = connection.pragma("user_version"), len(migrations())
    if version < known and not _is_empty(connection):
        raise StoreUnusable(
            f"{path} has schema {version}, this program needs {known}. A command that only reads does not change it: "
            f"run `tickwork db upgrade --store {path.parent}` first, or start a server on it"
        )


def _migrate(connection: apsw.Connection, path: Path) -> None:
    known = migrations()
    connection.execute("begin immediate")
    try:
        version = connection.pragma("user_version")
        empty = _is_empty(connection)
        if empty:
            connection.execute(schema())
            connection.pragma("application_id", APPLICATION_ID)
        elif version < len(known):
            mend(connection, path, version)
            for migration in known[version:]:
                connection.execute(migration.sql)
                if migration.name == signing.NAME:
                    signing.sign(connection)
                if migration.name == terms_migration.NAME:
                    terms_migration.add_terms(connection)
        if version != len(known):
            connection.pragma("user_version", len(known))
        recorded = connection.execute("select number, name, digest from migrations").fetchall()
        for migration in unrecorded(recorded, version, str(path)):
            row = (migration.number, migration.name, migration.digest)
            connection.execute("insert into migrations (number, name, digest) values (?, ?, ?)", row)
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")


def _require_shape(connection: apsw.Connection, path: Path) -> None:
    """The schema is text inside the file: one damaged letter renames a column, and no check of pages sees it."""
    if shape(connection) != _expected_shape():
        raise StoreUnusable(f"{path} is damaged (its schema): restore a backup; keep this file for analysis")


@cache
def _expected_shape() -> dict[str, list[Any]]:
    fresh = apsw.Connection(":memory:")
    fresh.execute(schema())
    expected = shape(fresh)
    fresh.close()
    return expected


def _advice(path: Path, error: apsw.Error) -> str:
    match error:
        case apsw.NotADBError():
            return f"{path} is not a SQLite database, or its header is damaged: name another file, or restore a backup"
        case apsw.CorruptError():
            return f"{path} is damaged ({error}): restore a backup; keep this file for analysis"
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError():
            return f"{path} cannot be written: give this user write permission for the file and its folder"
        case apsw.FullError():
            return f"{path}: no space is left to open the database: free some space"
        case _:
            return f"{path} cannot be used: {error}"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
