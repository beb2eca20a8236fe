"""Artifacts in a folder: renewed by touching them, swept by their age."""

import os
import time

from tickwork.ports.artifacts import digest_of
from tickwork.system.clock import FolderArtifacts

TODAY = int(time.time()) // 86_400


async def nobody(digests):
    return frozenset()


def age(folder, digest, days):
    then = time.time() - days * 86_400
    os.utime(folder / digest[:2] / digest[2:], (then, then))


async def test_what_nobody_needed_since_goes_and_the_rest_stays(tmp_path):
    artifacts = FolderArtifacts(tmp_path)
    old, renewed, again, named, young = [await artifacts.put(name) for name in (b"o", b"r", b"a", b"n", b"y")]
    for digest in (old, renewed, again, named):
        age(tmp_path, digest, 20)
    assert await artifacts.renew([renewed, "f" * 64]) == {renewed}
    await artifacts.put(b"a")

    async def kept(digests):
        assert young not in digests
        return frozenset({named}) & frozenset(digests)

    assert await artifacts.sweep(before=TODAY - 10, named=kept) == 1
    assert await artifacts.sweep(before=TODAY - 10, named=kept) == 0
    assert [await artifacts.get(one) for one in (old, renewed, again, named, young)] == [None, b"r", b"a", b"n", b"y"]


async def test_what_somebody_needs_in_the_last_moment_stays(tmp_path):
    artifacts = FolderArtifacts(tmp_path)
    digest = await artifacts.put(b"late")
    age(tmp_path, digest, 20)

    async def renews_it(digests):
        assert digests == [digest]
        await artifacts.put(b"late")
        return frozenset()

    assert await artifacts.sweep(before=TODAY - 10, named=renews_it) == 0
    assert await artifacts.get(digest) == b"late"
    assert [one.name for one in (tmp_path / digest[:2]).iterdir()] == [digest[2:]]


async def test_a_folder_that_is_not_there_yet_has_nothing_to_sweep(tmp_path):
    artifacts = FolderArtifacts(tmp_path / "nowhere")

    assert await artifacts.sweep(before=TODAY + 1, named=nobody) == 0
    assert await artifacts.renew([digest_of(b"x")]) == frozenset()
