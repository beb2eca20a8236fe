"""The time since boot as a second opinion, on this machine's own clocks."""

import time

from tickwork.system.time_reference import BootTime


async def test_the_boot_clock_tells_the_time_again_after_a_restart_of_the_process(tmp_path):
    now_ms = time.time_ns() // 1_000_000
    await BootTime(tmp_path / "clock").record(now_ms)
    later = await BootTime(tmp_path / "clock").read_ms()

    assert later is not None and now_ms <= later < now_ms + 5_000
    assert (tmp_path / "clock").stat().st_mode & 0o777 == 0o600


async def test_another_boot_has_no_opinion(tmp_path):
    other = tmp_path / "boot_id"
    other.write_text("another")
    await BootTime(tmp_path / "clock", boot_id=other).record(1)

    assert await BootTime(tmp_path / "clock").read_ms() is None


async def test_a_damaged_record_is_no_opinion(tmp_path):
    (tmp_path / "clock").write_text("{")

    assert await BootTime(tmp_path / "clock").read_ms() is None


async def test_a_system_without_a_boot_id_records_nothing(tmp_path):
    reference = BootTime(tmp_path / "clock", boot_id=tmp_path / "missing")
    await reference.record(1)

    assert await reference.read_ms() is None and not (tmp_path / "clock").exists()
