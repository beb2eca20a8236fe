-- What ended long ago is kept elsewhere.

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

create table archived (  -- where a run is that is no longer in `runs`
    tenant text not null,
    id text not null,
    number integer not null,
    object text not null,
    primary key (tenant, id)
) strict, without rowid;
create index archived_by_object on archived (object);

create index log_chunks_by_digest on log_chunks (digest);
