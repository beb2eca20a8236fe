"""Names: what workflows, nodes, queues, labels and tenants may be called.

An allowlist of ASCII, so a name is safe in a path, a log line, a query and a shell, and two names
that look the same are the same.
"""

import re

from tickwork.core.base.errors import Refused

TENANT = "default"  # of a request that names none
NAME_CHARACTERS_MAX = 128
KEY_CHARACTERS_MAX = 255  # of submissions, events and groups
RESERVED_NODE_IDS = frozenset(
    ("inputs", "nodes", "item", "index", "iteration", "previous", "run", "clock", "events", "results", "outcome")
)

RUN_ID_CHARACTERS_MAX = 8_192  # a given id has at most 255; the id of a child contains those of all its parents

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+~@=-]*", re.ASCII)
# Controls, soft hyphen, bidi marks, zero-width, line and paragraph ends, surrogates, tags. Spelled out, because
# the tables of Unicode change from one Python to the next and the answer must not.
_HIDDEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def check_name(text: object, *, path: str, kind: str) -> str:
    """The name itself, or `Refused`. `kind` is the word for people; "node" also refuses reserved words."""
    if not isinstance(text, str):
        raise Refused("wrong_type", f"a {kind} name is text, not {type(text).__name__}", path=path)
    if not text:
        raise Refused("name_empty", f"a {kind} name is missing; give it at least one character", path=path)
    if len(text) > NAME_CHARACTERS_MAX:
        message = f"a {kind} name has at most {NAME_CHARACTERS_MAX} characters, this one has {len(text)}"
        raise Refused("name_too_long", message, path=path)
    if not _NAME.fullmatch(text):
        raise Refused(*_character_refusal(text, kind), path=path)
    if ".." in text:
        raise Refused("name_characters", f"the {kind} name {text!a} has two dots in a row; use one", path=path)
    if kind == "node" and text.lower() in RESERVED_NODE_IDS:
        raise Refused(
            "name_reserved", f"{text!a} has a meaning of its own in expressions; choose another id", path=path
        )
    return text


def is_run_id(text: str) -> bool:
    """Whether a run may have this id: given, scheduled or of a child. Stores are queried for such ids only."""
    return len(text) <= RUN_ID_CHARACTERS_MAX and _RUN_ID.fullmatch(text) is not None


def check_line(text: str, *, path: str, kind: str, characters_max: int) -> str:
    """Free text on one line, for what is not ours to name: a handler, an approver, a header value."""
    if not text.strip():
        raise Refused("text_empty", f"the {kind} is empty", path=path)
    if len(text) > characters_max:
        message = f"the {kind} has at most {characters_max} characters, this one has {len(text)}"
        raise Refused("text_too_long", message, path=path)
    if _HIDDEN.search(text):
        raise Refused("text_characters", f"the {kind} contains control or invisible characters; remove them", path=path)
    return text


def _character_refusal(text: str, kind: str) -> tuple[str, str]:
    allowed = "use letters a-z, digits, '_', '-' and '.'"
    if text[0] in "-.":
        return "name_start", f"the {kind} name {text!a} starts with {text[0]!a}; start with a letter, a digit or '_'"
    wrong = next(letter for letter in text if not _NAME.fullmatch("a" + letter))
    return "name_characters", f"the {kind} name {text!a} contains {wrong!a}; {allowed}"
