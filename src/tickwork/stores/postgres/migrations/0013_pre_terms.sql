-- Ended runs are found by what is in their rows. SQL cannot open a block: the program adds the entries to `run_clues`.

select 1;
