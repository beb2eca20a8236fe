"""Names: the allowlist, and what is said about the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import RESERVED_NODE_IDS, check_line, check_name

E_ACUTE_NFC, E_ACUTE_NFD = "caf\u00e9", "cafe\u0301"


@pytest.mark.parametrize("text", ["a", "A-b_c.d", "_x", "0", "9lives", "a" * 128, "my.health", "ready", "a-"])
def test_a_plain_name_is_kept_as_it_is(text):
    assert check_name(text, path="name", kind="workflow") == text


@pytest.mark.proves("B5")
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "name_empty"),
        (None, "wrong_type"),
        (7, "wrong_type"),
        ("a" * 129, "name_too_long"),
        pytest.param("a" * 10_000_000, "name_too_long", id="10 MB"),
        ("-rf", "name_start"),
        ("--help", "name_start"),
        (".hidden", "name_start"),
        ("..", "name_start"),
        ("a..b", "name_characters"),
        ("a/b", "name_characters"),
        ("../etc", "name_start"),
        ("a\\b", "name_characters"),
        ("a b", "name_characters"),
        ("a ", "name_characters"),
        (" a", "name_characters"),
        ("a\n", "name_characters"),
        ("a\r\nSet-Cookie", "name_characters"),
        ("a\x00", "name_characters"),
        ("a\x1b[31m", "name_characters"),
        ("a\u202eb", "name_characters"),
        ("a\u200b", "name_characters"),
        ("\U0001f600", "name_characters"),
        (E_ACUTE_NFC, "name_characters"),
        (E_ACUTE_NFD, "name_characters"),
        ("\u0430bc", "name_characters"),  # a Cyrillic a
        ("\u0663", "name_characters"),  # a digit, but not ours
        ("a%2fb", "name_characters"),
        ("a;drop", "name_characters"),
        ("a*", "name_characters"),
    ],
)
def test_any_other_name_is_refused_and_the_message_is_plain_ascii(text, code):
    with pytest.raises(Refused) as caught:
        check_name(text, path="nodes[0].id", kind="queue")

    assert (caught.value.code, caught.value.path) == (code, "nodes[0].id")
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 1_000


@pytest.mark.proves("B5")
@pytest.mark.parametrize("word", sorted(RESERVED_NODE_IDS))
def test_words_with_a_meaning_in_expressions_are_no_node_ids_in_any_case(word):
    assert check_name(word, path="", kind="queue") == word

    for spelling in (word, word.upper()):
        with pytest.raises(Refused, match="choose another"):
            check_name(spelling, path="", kind="node")


@given(st.text(max_size=20))
def test_every_accepted_name_is_safe_to_put_anywhere(text):
    try:
        check_name(text, path="", kind="node")
    except Refused:
        return

    assert text.isascii()
    assert text.isprintable()
    assert not any(letter in text for letter in " /\\'\"$`;&|<>*?:%@")
    assert ".." not in text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "text_empty"),
        ("  ", "text_empty"),
        ("abcdefghijk", "text_too_long"),
        ("a\nb", "text_characters"),
        ("a\u202e", "text_characters"),
    ],
)
def test_free_text_stays_on_one_visible_line(text, code):
    with pytest.raises(Refused) as caught:
        check_line(text, path="p", kind="approver", characters_max=10)

    assert caught.value.code == code
    assert check_line("Zoë é 😀", path="p", kind="approver", characters_max=10) == "Zoë é 😀"
