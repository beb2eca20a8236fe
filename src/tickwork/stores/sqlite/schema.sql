-- Today's truth; migrations/ is how to get there.
-- `checksum` is over the row's bytes as they were given: SQLite finds damage to its own structure, not to what it holds.

create table migrations (  -- which of them made this schema
    number integer primary key,
    name text not null,
    digest text not null
) strict;

create table founded (  -- one row, for good
    one integer primary key check (one = 1),
    cluster text not null,
    partitions integer not null,
    checksum integer not null default 0
) strict;

create table routes (
    tenant text primary key,
    home integer not null,
    spread integer not null,
    checksum integer not null default 0
) strict, without rowid;

create table inbox (
    partition_id integer not null,
    id text not null,
    tenant text not null,
    data blob not null,
    by text not null,
    checksum integer not null,
    primary key (partition_id, id)
) strict, without rowid;

create table partitions (  -- one small row, because every commit writes it
    id integer primary key,
    epoch integer not null,
    owner text not null,
    seq integer not null,
    tick integer not null,
    hash blob not null,
    watermark integer not null,
    watermark_hash blob not null,
    checksum integer not null  -- of id, epoch and owner; seq, tick and hash are vouched for by the journal
) strict;

create table machines (  -- beside `partitions`, because a header can be large
    partition_id integer primary key,
    settings blob not null,
    settings_checksum integer not null,
    header blob not null,
    header_checksum integer not null
) strict;

create table journal (
    partition_id integer not null,
    seq integer not null,
    epoch integer not null,
    tick integer not null,
    hash blob not null,
    data blob not null,
    primary key (partition_id, seq)
) strict;

create table payloads (
    digest text primary key,
    data blob not null,
    checksum integer not null,
    day integer not null default 0,  -- the last on which somebody said that it is needed; 0: it is not known
    day_again integer not null default 0  -- the same: a flipped bit in one of them is noticed, and nothing goes by it
) strict;
create index payloads_by_day on payloads (day);

create table renewals (  -- when all that a partition names was last said to be needed
    partition_id integer primary key,
    day integer not null,
    checksum integer not null default 0
) strict;

create table live_runs (
    number integer primary key,  -- those of a partition are neighbours: a load reads them from end to end
    data blob not null,
    checksum integer not null
) strict;

create table live_tasks (
    number integer primary key,
    data blob not null,
    checksum integer not null
) strict;

create table definitions (
    tenant text not null,
    hash text not null,
    partition_id integer not null,
    name text not null,
    document blob not null,
    put_ms integer not null,
    checksum integer not null,
    primary key (tenant, hash, partition_id)
) strict;

create table run_blocks (  -- those of a stretch of 256 numbers are neighbours
    first integer primary key,
    held blob not null,
    marks blob not null,
    outline_checksum integer not null,  -- of the three before
    data blob not null,
    checksum integer not null
) strict;

create table run_clues (  -- in which stretches an id may be; with a rowid, so that a check compares the two trees
    clue integer not null,
    stretch integer not null,
    primary key (clue, stretch)
) strict;

create table run_keys (  -- with a rowid for the same reason
    tenant text not null,
    key text not null,
    number integer not null,
    primary key (tenant, key, number)
) strict;

create table run_groups (  -- what runs there are in a stretch
    tenant text not null,
    stretch integer not null,
    state integer not null,
    workflow text not null,
    schedule text not null,
    primary key (tenant, stretch, state, workflow, schedule)
) strict, without rowid;
create index run_groups_by_state on run_groups (tenant, state, stretch);
create index run_groups_by_workflow on run_groups (tenant, workflow, stretch);
create index run_groups_by_schedule on run_groups (tenant, schedule, stretch) where schedule <> '';

create table attempts (  -- in the order in which they were written
    place integer primary key,
    run integer not null,
    data blob not null,
    checksum integer not null
) strict;
create index attempts_by_run on attempts (run);

create table children (
    run integer not null,
    step integer not null,
    child integer not null,
    value blob not null,
    checksum integer not null,
    primary key (run, step, child)
) strict;

create table cache (
    key text primary key,
    value blob not null,
    kept_ms integer not null,
    checksum integer not null
) strict;

create table log_chunks (
    task integer not null,
    attempt integer not null,
    chunk integer not null,
    first integer not null,
    lines integer not null,
    size integer not null,
    digest text not null,
    written_ms integer not null,
    checksum integer not null default 0,
    primary key (task, attempt, chunk)
) strict, without rowid;

create table schedules (
    number integer primary key,
    data blob not null,
    checksum integer not null
) strict;

create table fates (  -- ranges of occurrences that share a fate; they outlive runs and schedules
    tenant text not null,
    schedule text not null,
    from_ms integer not null,
    number integer not null,  -- of the schedule: the same name may come again
    backfill integer not null,
    to_ms integer not null,
    data blob not null,
    checksum integer not null,
    primary key (tenant, schedule, from_ms, number, backfill)
) strict, without rowid;

create table backfills (  -- those that ended
    number integer primary key,
    tenant text not null,
    schedule text not null,
    data blob not null,
    checksum integer not null
) strict;
create index backfills_by_tenant on backfills (tenant);

create table archives (  -- objects in the artifact store
    object text primary key,
    kind text not null,
    partition_id integer not null,
    first integer not null,
    last integer not null,
    rows integer not null,
    size integer not null,
    before blob not null,
    hash blob not null,
    tick integer not null,
    from_ms integer not null,
    to_ms integer not null,
    written_ms integer not null,
    checksum integer not null
) strict;
create index archives_by_place on archives (partition_id, kind, last);
create index archives_by_age on archives (to_ms);

create table archived (  -- where a run is that is no longer in a block
    tenant text not null,
    id text not null,
    number integer not null,
    object text not null,
    checksum integer not null default 0,
    primary key (tenant, id)
) strict, without rowid;
create index archived_by_object on archived (object);

create index log_chunks_by_digest on log_chunks (digest);

create table journal_index (  -- which rows of the journal concern a subject, and what they alone do not say
    partition_id integer not null,
    kind integer not null,
    subject integer not null,
    seq integer not null,
    data blob not null,
    checksum integer not null,
    primary key (partition_id, kind, subject, seq)
) strict, without rowid;
create index journal_index_by_seq on journal_index (partition_id, seq);
