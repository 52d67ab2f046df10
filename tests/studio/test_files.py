"""The files of the studio: nothing outside its folder, and nobody else in it."""

from __future__ import annotations

import io
import os
import resource
import stat
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sfumato.errors import FileError
from sfumato.studio.files import MOST_UPLOADED, private_folder, safe_name
from sfumato.studio.workspace import Workspace
from tests.effort import effort
from tests.studio.client import Browser


@pytest.mark.parametrize(
    "given",
    [
        "../../etc/cron.csv",
        "/etc/passwd.csv",
        r"..\..\x.csv",
        "..csv",
        ".csv",
        "a\x00b.csv",
        "a\nb.csv",
        "x" * 5000 + ".csv",
    ],
)
def test_an_uploaded_name_never_leads_out_of_the_folder(browser: Browser, tmp_path: Path, given: str) -> None:
    answer = browser.post("/upload", files={"file": (given, b"age,sex\n30,f\n40,m\n")})
    assert answer.status_code in (303, 400)
    outside = [one for one in tmp_path.rglob("*") if one.is_file() and not one.is_relative_to(tmp_path / "work")]
    assert not outside
    for project in Workspace(tmp_path / "work"):
        path = Path(project.source["path"])
        assert path.parent == project.folder
        assert path.name == path.name.strip(" .")
        assert len(path.name) <= 100


def test_hostile_names_become_plain_ones() -> None:
    assert safe_name("a/../b c.csv") == "b c.csv"
    assert safe_name("<img onerror=x>.csv.gz") == "_img onerror_x_.csv.gz"
    with pytest.raises(FileError):
        safe_name("evil.py")


def test_an_upload_is_written_with_its_content_for_its_owner_alone(browser: Browser, tmp_path: Path) -> None:
    content = b"age,sex\n" + b"30,f\n" * 1000
    answer = browser.post("/upload", files={"file": ("people.csv", content)})
    assert answer.status_code == 303
    (project,) = Workspace(tmp_path / "work")
    path = Path(project.source["path"])
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not list((tmp_path / "work" / "uploads").iterdir())


def test_a_form_without_a_file_and_a_damaged_one_are_refused(browser: Browser, tmp_path: Path) -> None:
    assert browser.post("/upload", data={"file": "x"}).status_code == 400
    headers = {"content-type": "multipart/form-data; boundary=b"}
    long = {"content-type": f"multipart/form-data; boundary={'b' * 5000}"}
    assert browser.post("/upload", content=b"x", headers=long).status_code == 400
    for content in (b"", b"--b", b"--b\r\nrubbish\r\n\r\n", b"\x00" * 100):
        assert browser.post("/upload", content=content, headers=headers).status_code == 400
    assert not list(Workspace(tmp_path / "work"))


def test_an_upload_that_says_it_is_too_large_is_refused_at_once(browser: Browser) -> None:
    headers = {"content-type": "multipart/form-data; boundary=b", "content-length": str(5 * 2**30)}
    answer = browser.post("/upload", content=b"", headers=headers)
    assert answer.status_code == 400
    assert "larger than 4 GB" in answer.text


def test_a_large_upload_goes_to_the_disk_and_memory_stays_flat(browser: Browser, tmp_path: Path) -> None:
    megabytes = effort(32, 5 * 1024)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def body() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="big.csv"\r\n\r\nage\n'
        for _ in range(megabytes):
            yield b"12345678\n" * (2**20 // 9)
        yield b"\r\n--b--\r\n"

    answer = browser.post("/upload", content=body(), headers={"content-type": "multipart/form-data; boundary=b"})
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 24
    if megabytes * 2**20 > MOST_UPLOADED:
        assert answer.status_code == 400
        assert not list((tmp_path / "work" / "uploads").iterdir())
    else:
        assert answer.status_code == 303


@pytest.mark.parametrize("given", ["/etc/passwd", "nowhere.csv", "/", "/dev/zero", "a.py"])
def test_what_is_not_a_table_is_not_opened(browser: Browser, tmp_path: Path, given: str) -> None:
    assert browser.post("/open", data={"path": given}).status_code == 400
    assert not list(Workspace(tmp_path / "work"))


def test_a_link_is_not_opened(browser: Browser, table: Path) -> None:
    link = table.with_name("link.csv")
    link.symlink_to(table)
    answer = browser.post("/open", data={"path": str(link)})
    assert answer.status_code == 400
    assert "a link is not followed" in answer.text


def test_an_address_never_leads_out_of_the_folder(browser: Browser, table: Path) -> None:
    place = browser.open(table)
    for name in ("..%2f..", "%2e%2e", "0123456789ab", "project.json", "..%2f..%2fetc", "%00", "%2fetc%2fpasswd"):
        for address in (f"/p/{name}/columns", f"{place}/jobs/{name}", f"{place}/jobs/{name}/report", f"/static/{name}"):
            assert browser.get(address).status_code in (303, 403, 404)
        assert browser.get(f"{place}/jobs/0001-look/report/{name}").status_code in (403, 404)
        assert browser.get(f"{place}/release.zip?release={name}").status_code in (400, 404)


def test_a_link_in_the_work_folder_is_not_followed(browser: Browser, table: Path, tmp_path: Path) -> None:
    place = browser.open(table)
    (project,) = Workspace(tmp_path / "work")
    (project.folder / "jobs" / "0001-look" / "report.html").symlink_to(table)
    assert browser.get(f"{place}/jobs/0001-look/report").status_code == 404
    (tmp_path / "work" / "projects" / "abcdefabcdef").symlink_to(project.folder)
    assert browser.get("/p/abcdefabcdef/columns").status_code == 404
    (tmp_path / "linked").symlink_to(tmp_path / "work")
    with pytest.raises(FileError, match="link"):
        private_folder(tmp_path / "linked")


def test_the_work_folder_is_for_its_owner_alone(browser: Browser, table: Path, tmp_path: Path) -> None:
    browser.open(table)
    for folder in (tmp_path / "work", *(one for one in (tmp_path / "work").rglob("*") if one.is_dir())):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (tmp_path / "wide").mkdir(0o755)
    assert stat.S_IMODE(private_folder(tmp_path / "wide").stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    with pytest.raises(FileError, match="another user"):
        Workspace(tmp_path / "theirs")


def test_an_archive_holds_the_release_and_no_link(tmp_path: Path) -> None:
    from sfumato.studio.files import zip_folder

    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "table.csv").write_text("age\n30\n", encoding="utf-8")
    (tmp_path / "release" / "passwd").symlink_to("/etc/passwd")
    archive = zip_folder(tmp_path / "release", tmp_path / "release.zip")
    assert zipfile.ZipFile(io.BytesIO(archive.read_bytes())).namelist() == ["release/table.csv"]
