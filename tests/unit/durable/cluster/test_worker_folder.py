import os

from retinue.durable.cluster import worker_folder as subject


def test_usable_folder_has_no_problem(tmp_path):
    assert subject.find_problem(tmp_path / "not" / "there") == ""
    assert list(tmp_path.iterdir()) == []


def test_file_in_its_place_is_a_problem(tmp_path):
    (tmp_path / "worker").write_text("")
    assert subject.find_problem(tmp_path / "worker") == "not a directory"


def test_little_room_is_a_problem(tmp_path, monkeypatch):
    told = os.statvfs(tmp_path)
    free = told.f_bavail * told.f_frsize
    monkeypatch.setattr(subject, "LEAST_BYTES", free * 2)
    assert subject.find_problem(tmp_path).endswith(" MiB are free")
    monkeypatch.setattr(subject, "LEAST_BYTES", 0)
    monkeypatch.setattr(subject, "LEAST_FILES", 1 << 62)
    assert "inodes" in subject.find_problem(tmp_path) or not told.f_files


def test_own_faults_are_known():
    assert subject.is_ours("cannot write /x: No space left on device")
    assert not subject.is_ours("the model is overloaded")


def test_folder_below_tmp_is_remarked(tmp_path, monkeypatch):
    monkeypatch.setattr(subject, "FEW_BYTES", 0)
    assert any("/tmp" in remark for remark in subject.list_remarks(subject.Path("/tmp/worker")))
