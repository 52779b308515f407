"""What is uploaded: the source archive has all that the suite needs, the wheel all that a user needs."""

import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from importlib.metadata import version
from pathlib import Path

import pytest

import aclgrad

ROOT = Path(__file__).parents[1]
BUILD = "import sys, setuptools.build_meta as hooks; getattr(hooks, sys.argv[1])(sys.argv[2])"


def tracked():
    """Paths under version control, except those that begin with a dot."""
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a working copy")
    return [path for path in listed.splitlines() if not path.startswith(".") and (ROOT / path).is_file()]


def built(hook, source, folder):
    """The one file that the build backend makes; it is called as pip and build do, without installing anything."""
    done = subprocess.run([sys.executable, "-c", BUILD, hook, folder], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The unpacked source archive, made from a copy that has the tracked files alone."""
    if int(version("setuptools").partition(".")[0]) < 77:
        pytest.skip("this setuptools does not know licence expressions")
    copy, unpacked = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("unpacked")
    for path in tracked():
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes((ROOT / path).read_bytes())
    with tarfile.open(built("build_sdist", copy, tmp_path_factory.mktemp("sdist"))) as archive:
        archive.extractall(unpacked, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (folder,) = unpacked.iterdir()
    return folder


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    """The wheel, made from the source archive as pip makes it: {path: content}."""
    with zipfile.ZipFile(built("build_wheel", source, tmp_path_factory.mktemp("wheel"))) as archive:
        return {path: archive.read(path) for path in archive.namelist()}


def test_the_source_archive_has_every_file(source):
    assert [path for path in tracked() if not (source / path).is_file()] == []


def test_the_source_archive_has_no_rubbish(source):
    ours = set(tracked())
    found = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    surplus = {path for path in found - ours if ".egg-info/" not in path}
    assert surplus <= {"PKG-INFO", "setup.cfg"}


def test_the_wheel_has_the_package_and_nothing_else(wheel):
    ours = {path.removeprefix("src/") for path in tracked() if path.startswith("src/")}
    assert {"aclgrad/py.typed", "aclgrad/frontends/capi/boot.c", "aclgrad/ops/lstm/README.md"} <= ours
    assert {path for path in wheel if ".dist-info/" not in path} == ours


def test_the_metadata_says_who_where_and_what(wheel):
    (found,) = [content for path, content in wheel.items() if path.endswith("/METADATA")]
    metadata = message_from_bytes(found)
    assert (metadata["Name"], metadata["Version"]) == ("aclgrad", aclgrad.__version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    urls = dict(entry.split(", ") for entry in metadata.get_all("Project-URL"))
    assert urls.keys() == {"Homepage", "Documentation", "Issues", "Changelog"}
    python = metadata["Requires-Python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {python}" in metadata.get_all("Classifier")
    (commands,) = [content for path, content in wheel.items() if path.endswith("/entry_points.txt")]
    assert b"aclgrad = aclgrad.frontends.cli:main" in commands


def test_every_dependency_has_a_lower_bound(wheel):
    (found,) = [content for path, content in wheel.items() if path.endswith("/METADATA")]
    for requirement in message_from_bytes(found).get_all("Requires-Dist"):
        assert ">=" in requirement or requirement.startswith("aclgrad["), requirement
