-- What made this store: a migration that was edited after its use is noticed. The default and the function were other ones
-- for a while.

alter table migrations add column digest text collate "C" not null default '';
alter table payloads alter column day set default today();
drop function put_runs;

-- Ended runs; called in the same statement, or where some of them were taken away first.
create function put_runs(
    block_first bigint[], block_held bytea[], block_marks bytea[], block_data bytea[],
    clue bigint[], clue_stretch bigint[],
    group_tenant text[], group_stretch bigint[], group_state integer[], group_workflow text[], group_schedule text[],
    key_tenant text[], key_key text[], key_number bigint[]
) returns boolean language plpgsql as $body$
#variable_conflict use_column
begin
    insert into run_blocks (first, held, marks, data)
    select * from unnest(block_first, block_held, block_marks, block_data);
    insert into run_clues (clue, stretch) select * from unnest(clue, clue_stretch) on conflict do nothing;
    insert into run_groups (tenant, stretch, state, workflow, schedule)
    select * from unnest(group_tenant, group_stretch, group_state, group_workflow, group_schedule)
    on conflict do nothing;
    if cardinality(key_number) > 0 then
        insert into run_keys (tenant, key, number) select * from unnest(key_tenant, key_key, key_number)
        on conflict do nothing;
    end if;
    return true;
end
$body$;
