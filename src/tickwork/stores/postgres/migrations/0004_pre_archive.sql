-- What ended long ago is kept elsewhere.

create table archives (  -- objects in the artifact store
    object text collate "C" primary key,
    kind text collate "C" not null,
    partition_id integer not null,
    first bigint not null,
    last bigint not null,
    rows bigint not null,
    size bigint not null,
    before bytea not null,
    hash bytea not null,
    tick bigint not null,
    from_ms bigint not null,
    to_ms bigint not null,
    written_ms bigint not null
);
create index archives_by_place on archives (partition_id, kind, last);
create index archives_by_age on archives (to_ms);

create table archived (  -- where a run is that is no longer in `runs`
    tenant text collate "C" not null,
    id text collate "C" not null,
    number bigint not null,
    object text collate "C" not null,
    primary key (tenant, id)
);
create index archived_by_object on archived (object);

create index log_chunks_by_digest on log_chunks (digest);
