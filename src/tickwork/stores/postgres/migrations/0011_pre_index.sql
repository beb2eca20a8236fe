-- `why` reads the rows that concern a run, and no others: they are listed here while they are written.

create table journal_index (  -- which rows of the journal concern a subject, and what they alone do not say
    partition_id integer not null,
    kind integer not null,
    subject bigint not null,
    seq bigint not null,
    data bytea not null,
    checksum bigint not null,
    primary key (partition_id, kind, subject, seq)
);
create index journal_index_by_seq on journal_index (partition_id, seq);

-- Index entries, each in place of one of the same kind, subject and seq; called in the same statement.
create function put_index(
    of_partition integer, entry_kind integer[], entry_subject bigint[], entry_seq bigint[], entry_data bytea[],
    entry_checksum bigint[]
) returns boolean language plpgsql as $body$
#variable_conflict use_column
begin
    insert into journal_index (partition_id, kind, subject, seq, data, checksum)
    select of_partition, * from unnest(entry_kind, entry_subject, entry_seq, entry_data, entry_checksum)
    on conflict (partition_id, kind, subject, seq) do update set data = excluded.data, checksum = excluded.checksum;
    return true;
end
$body$;
