-- Names have other clues, which SQL cannot work out: a backup, made by the program that wrote them, can be restored by this
-- one.

do $body$
begin
    if exists (select from run_clues where clue < 0) then
        raise exception 'runs ended under an older program: make a backup with that, and restore it with this one';
    end if;
end
$body$;
