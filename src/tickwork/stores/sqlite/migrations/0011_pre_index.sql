-- `why` reads the rows that concern a run, and no others: they are listed here while they are written.

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
