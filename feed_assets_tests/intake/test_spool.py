"""The spool: synced frames are read back completely despite kills, full disks and second receivers."""

import errno
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from feed_assets.core.errors import DiskFull, HomeBusy, InvalidSetting, SpoolBroken
from feed_assets.intake import spool as module
from feed_assets.intake.spool import Frame, Gap, Piece, Spool, frames, frames_and_gaps
from feed_assets_tests.support.each_case import each_case


def frame(number: int, size: int = 1) -> Frame:
    lines = b'{"n": %d}\n' % number * size
    return Frame("a/b/v1.0", (Piece("2026-01-01-15:00", 1767279600, size, len(lines)),), lines, key=f"k{number}")


@pytest.fixture
def spool(tmp_path):
    opened = Spool(tmp_path / "spool")
    yield opened
    opened.close()


def kept(spool: Spool) -> list[Frame]:
    spool.seal()
    return [each for segment in spool.sealed() for each in frames(segment)]


def test_frames_are_read_back_as_they_were_written(spool):
    written = [
        frame(1),
        frame(2, 100),
        Frame("c/v1.0", (), b"", (("{", "malformed"),), "k", "digest", '{"accepted": 0}'),
    ]
    spool.append(written[:2])
    spool.append(written[2:])
    assert kept(spool) == written


def test_only_the_owner_may_read_the_spool(spool):
    spool.append([frame(1)])
    assert {path.stat().st_mode & 0o777 for path in [spool.folder, *spool.folder.iterdir()]} == {0o700, 0o600}


def test_a_truncated_segment_yields_exactly_its_complete_frames(spool, tmp_path):
    spool.append([frame(1), frame(2), frame(3)])
    spool.seal()
    whole = spool.sealed()[0].read_bytes()
    ends = [len(b"".join(frame(number).encoded() for number in range(1, count + 1))) for count in range(4)]
    for size in range(len(whole) + 1):
        (tmp_path / "cut.spool").write_bytes(whole[:size])
        expected = sum(end <= size for end in ends) - 1
        assert [*frames_and_gaps(tmp_path / "cut.spool")] == [frame(number) for number in range(1, expected + 1)]


@pytest.mark.parametrize("at", [0, 8, 9, 20, -1, -3])
def test_a_last_frame_that_the_disk_has_changed_is_kept_as_one_that_was_acknowledged(spool, tmp_path, at):
    first, last = frame(1).encoded(), bytearray(frame(2).encoded())
    last[at] ^= 64
    (tmp_path / "changed.spool").write_bytes(first + last)
    assert [*frames(tmp_path / "changed.spool")] == [frame(1)]
    assert [*frames_and_gaps(tmp_path / "changed.spool")][1:] == [Gap(len(first), len(first + last))]


def test_a_folder_of_which_more_than_the_last_level_is_missing_is_mistyped(tmp_path, capsys):
    with pytest.raises(InvalidSetting, match=f"the spool cannot be made at .*: there is no {tmp_path}/mout"):
        Spool(tmp_path / "mout" / "spool")
    Spool(tmp_path / "spool").close()
    assert f"made the spool {tmp_path}/spool" in capsys.readouterr().err


def test_a_partial_frame_from_a_full_disk_is_truncated(spool, monkeypatch):
    spool.append([frame(1)])
    write = os.write

    def full(file, data):
        write(file, data[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", full)
        with pytest.raises(DiskFull, match="Make room"):
            spool.append([frame(2)])
    spool.append([frame(3)])
    assert kept(spool) == [frame(1), frame(3)]


@each_case("call", ["open", "fsync", "write", "fdatasync", "close"])
def test_a_full_disk_at_any_call_keeps_exactly_accepted_frames(call):
    """Let the second frame meet a full disk, in its own segment; the third one finds room again."""
    real = getattr(os, call)

    def full(*args, **_):
        if call == "close":  # The folder's own is that of its sync.
            is_folder = stat.S_ISDIR(os.fstat(args[0]).st_mode)
            real(*args)
            if is_folder:
                return
        raise OSError(errno.ENOSPC, "No space left on device")

    with TemporaryDirectory() as folder:
        opened = Spool(Path(folder) / "spool", segment_bytes=1)
        opened.append([frame(1)])
        accepted, said = [frame(1)], "Make room: accepted events are kept"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module.os, call, full)
            try:
                opened.append([frame(2)])
                accepted.append(frame(2))
            except DiskFull as error:
                said = str(error)
        assert "Make room: accepted events are kept" in said
        opened.append([frame(3)])
        assert (opened.broken, kept(opened)) == ("", [*accepted, frame(3)])
        opened.close()


@each_case("call", ["fsync", "rename"])
def test_a_first_start_on_a_full_disk_is_refused_until_there_is_room(call):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        with patch.context() as once:
            once.setattr(*((module.os, call, full) if call == "fsync" else (Path, call, full)))
            with pytest.raises(DiskFull, match="Make room"):
                Spool(Path(folder) / "spool")
        Spool(Path(folder) / "spool").close()


def test_a_sync_that_fails_is_no_success_and_leaves_no_frame(spool, monkeypatch):
    def fails(_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fdatasync", fails)
        with pytest.raises(SpoolBroken, match="No event of this request was accepted"):
            spool.append([frame(1)])
    assert kept(spool) == []


def test_a_spool_that_cannot_truncate_accepts_nothing_more(spool, monkeypatch):
    def fails(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "fdatasync", fails)
        patch.setattr(module.os, "ftruncate", fails)
        with pytest.raises(SpoolBroken):
            spool.append([frame(1)])
    with pytest.raises(SpoolBroken, match="and the unfinished write cannot be undone"):
        spool.append([frame(2)])


def test_a_segment_is_sealed_by_its_size_and_by_its_age(tmp_path):
    spool = Spool(tmp_path / "spool", segment_bytes=2000)
    spool.append([frame(1)])
    spool.seal(older_than=3600)
    assert spool.sealed() == []
    spool.append([frame(2, 400)])
    assert len(spool.sealed()) == 1
    spool.append([frame(3)])
    spool.seal(older_than=0)
    assert len(spool.sealed()) == 2
    assert spool.size == sum(path.stat().st_size for path in spool.sealed())
    spool.close()


def test_a_spool_belongs_to_one_receiver_and_never_reuses_segment_names(tmp_path):
    first = Spool(tmp_path / "spool")
    first.append([frame(1)])
    with pytest.raises(HomeBusy, match="one receiver per folder"):
        Spool(tmp_path / "spool")
    first.close()
    again = Spool(tmp_path / "spool")
    again.append([frame(2)])
    again.seal()
    assert again.receiver == first.receiver
    assert len({path.name for path in again.sealed()}) == 2
    other = Spool(tmp_path / "other")
    assert other.receiver != first.receiver
    again.close()
    other.close()
