-- Names have other clues, which SQL cannot work out: a backup, made by the program that wrote them, can be restored by this
-- one.

create table ended (
    runs integer,
    constraint "runs ended under an older program: make a backup with that, and restore it with this one" check (runs = 0)
) strict;
insert into ended (runs) select count(*) from (select 1 from run_clues where clue < 0 limit 1);
drop table ended;
