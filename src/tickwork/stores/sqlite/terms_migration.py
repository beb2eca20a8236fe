"""Ended runs of before migration `terms` get the entries by which they are found."""

from typing import Any

import apsw

from tickwork.stores.run_blocks import entries_of, reach_of, stretch_of
from tickwork.stores.sqlite.run_blocks import RunBlocks
from tickwork.stores.sqlite.statements import queries

NAME = "terms"  # of the migration


def add_terms(connection: apsw.Connection) -> None:
    blocks, add = RunBlocks(connection), queries()["add_clue"]
    firsts: list[Any] = connection.execute("select first from run_blocks order by first").fetchall()
    for stretch in dict.fromkeys(stretch_of(first) for (first,) in firsts):
        rows = list(blocks.walk(*reach_of(stretch)))
        connection.executemany(add, entries_of(rows))
