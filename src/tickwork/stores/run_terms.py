"""What runs are found by besides their id: entries of `run_clues` that lead to ranges of 256 runs.

An entry is a number. Those of ids are below 2**61. Then come times, in steps of about 70 minutes and of about three
days: one entry for each step in which a run of the range was submitted, started or ended. From 2**62 on are hashes of
tags, searchable inputs, versions and words of errors. A filter needs an entry of each of its groups, and whatever is in
such a range is compared itself, so two things with one hash cost time and give nothing wrong.

Words with digits have no entry: they are nearly always numbers and ids, and each would be met once.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from operator import attrgetter

from tickwork.ports.run_filter import RunFilter, TimeRange, query_words, versions_of, words_of
from tickwork.ports.store import RunRow

TIMES, HASHES = 1 << 61, 1 << 62
FINE_BITS, COARSE_BITS = 22, 28  # of milliseconds
STEPS_MAX = 4_000  # of one time range: a longer one is compared run by run
WORD_CHARACTERS_MAX = 64
SCAN_MAX = 256  # ranges of runs that one page opens to find runs that fit

SUBMITTED, STARTED, ENDED = range(3)
_times = attrgetter("submitted_ms", "started_ms", "ended_ms")
_labels = attrgetter("tenant", "tags", "fields", "version", "error")


def terms_of(runs: Sequence[RunRow]) -> set[int]:
    """The entries of runs, without those of their ids. Every run that ends comes by here, and most are alike: what is
    the same in many is looked at once."""
    times = set(map(_times, runs))
    terms = {
        *_steps(SUBMITTED, {submitted_ms >> FINE_BITS for submitted_ms, _, _ in times}),
        *_steps(STARTED, {started_ms >> FINE_BITS for _, started_ms, _ in times if started_ms}),
        *_steps(ENDED, {ended_ms >> FINE_BITS for _, _, ended_ms in times}),
    }
    parts: set[tuple[str, ...]] = set()
    for tenant, tags, fields, version, error in set(map(_labels, runs)):
        parts.update(("tag", tenant, tag) for tag in tags)
        parts.update(("field", tenant, name, value) for name, value in fields)
        parts.update(("version", tenant, name) for name in versions_of(version))
        if error:
            parts.update(("word", tenant, word) for word in words_of(error) if _is_indexed(word))
    terms.update(_hash(*part) for part in parts)
    return terms


def groups_of(criteria: RunFilter) -> list[list[int]]:
    """Of each group, a range with a matching run has at least one entry. None: the filter names nothing of the kind."""
    tenant = criteria.tenant
    words = sorted(filter(_is_indexed, query_words(criteria.error)))
    groups = [[_hash("field", tenant, name, value)] for name, value in criteria.fields]
    groups += [[_hash("tag", tenant, tag)] for tag in criteria.tags]
    groups += [[_hash("word", tenant, word)] for word in words]
    groups += [[_hash("version", tenant, criteria.version)]] if criteria.version else []
    ranges = ((SUBMITTED, criteria.submitted), (STARTED, criteria.started), (ENDED, criteria.ended))
    groups += [steps for kind, times in ranges if times.given and (steps := _steps_of(kind, times))]
    return list({tuple(group): group for group in groups}.values())


def _is_indexed(word: str) -> bool:
    return len(word) <= WORD_CHARACTERS_MAX and not any(map(str.isdigit, word))


def _hash(*parts: str) -> int:
    """One text of all parts: where two texts are the same by chance, some rows more are compared."""
    digest = blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return HASHES | int.from_bytes(digest, "big") >> 2


def _steps(kind: int, fine: Iterable[int]) -> Iterable[int]:
    steps = set(fine)
    yield from (_step(kind, 0, step) for step in steps)
    yield from (_step(kind, 1, step) for step in {step >> COARSE_BITS - FINE_BITS for step in steps})


def _step(kind: int, coarse: int, step: int) -> int:
    return TIMES | kind << 58 | coarse << 57 | step


def _steps_of(kind: int, times: TimeRange) -> list[int]:
    """The entries that cover a range: large steps inside, small ones at both ends. Empty: there are too many."""
    ratio = 1 << COARSE_BITS - FINE_BITS
    first, last = times.from_ms >> FINE_BITS, max(times.from_ms, times.to_ms - 1) >> FINE_BITS
    inner = range(-(-first // ratio), (last + 1) // ratio)
    if len(inner) > STEPS_MAX:
        return []
    if not inner:
        return [_step(kind, 0, step) for step in range(first, last + 1)]
    ends = (*range(first, inner[0] * ratio), *range((inner[-1] + 1) * ratio, last + 1))
    return [*(_step(kind, 0, step) for step in ends), *(_step(kind, 1, step) for step in inner)]
