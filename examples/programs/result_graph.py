"""Nested fan-out, joined: for each letter its words, for each word its length, and the sum of all.

tickwork run examples/programs/result_graph.py:total_length -i 'letters=["a", "b"]'
"""

import tickwork as tw


@tw.task
def words_with(letter: str) -> list[str]:
    return [letter * count for count in (1, 2, 3)]


@tw.task
def length(word: str) -> int:
    return len(word)


@tw.task
def add(numbers: list[int]) -> int:
    return sum(numbers)


@tw.workflow
def length_of_words(letter: str) -> int:
    return add(length.map(words_with(letter)))


@tw.workflow
def total_length(letters: list[str] = ["a", "b", "c"]) -> int:
    return add(length_of_words.map(letters))
