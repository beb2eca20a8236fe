from tickwork.core.base.shortened import shortened


def test_text_that_is_cut_ends_with_a_sign():
    assert shortened("abcd", 4) == "abcd"
    assert shortened("abcde", 4) == "abc…"
    assert shortened("", 4) == ""
