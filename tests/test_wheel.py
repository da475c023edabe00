"""What is published is whole: the sdist holds the checkout, its wheel runs without the checkout."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PACKAGE = Path("src", "flowscope")

# Resolves the settings of every study; its titles come from its file.
RESOLVE_STUDIES = """
import json
import flowscope
from flowscope.lab.registry import studies

titles = {name: study.resolved({}).title for name, study in studies().items()}
print(json.dumps({"file": flowscope.__file__, "titles": titles}))
"""


def study_titles() -> dict[str, str]:
    """Title of every study of the checkout, from its YAML."""
    files = (ROOT / PACKAGE).rglob("*.yaml")
    contents = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    return {content["study"]: content["title"] for content in contents if "study" in content}


def files_in(folder: Path) -> set[str]:
    """Files of a folder by relative path, without what Python compiled."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {
        file.relative_to(folder).as_posix() for file in files if "__pycache__" not in file.parts
    }


def build(target: str, checkout: Path, folder: Path) -> Path:
    """The archive that hatchling makes of a checkout."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=checkout, check=True, capture_output=True)
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def unpacked_sdist(tmp_path_factory):
    archive = build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    (checkout,) = folder.iterdir()
    return checkout


@pytest.fixture(scope="module")
def wheel(unpacked_sdist, tmp_path_factory):
    return build("wheel", unpacked_sdist, tmp_path_factory.mktemp("wheel"))


def test_sdist_holds_every_file_of_the_package_and_every_study(unpacked_sdist):
    assert files_in(ROOT / PACKAGE) - files_in(unpacked_sdist / PACKAGE) == set()
    settings = [file for file in files_in(unpacked_sdist / PACKAGE) if file.endswith(".yaml")]
    assert len(settings) == len(study_titles()) > 0
    assert {"LICENSE", "README.md", "constraints.txt"} <= files_in(unpacked_sdist)


def test_wheel_holds_every_file_of_the_package(unpacked_sdist, wheel):
    expected = {f"flowscope/{file}" for file in files_in(unpacked_sdist / PACKAGE)}
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
    assert expected - names == set()
    assert {"flowscope/py.typed", "flowscope/report/page.css", "flowscope/report/page.js"} <= names
    assert {Path(name).suffix for name in names} >= {".yaml", ".safetensors"}


def test_wheel_resolves_every_study_without_the_checkout(wheel, tmp_path):
    packages, elsewhere = tmp_path / "installed" / "packages", tmp_path / "elsewhere"
    elsewhere.mkdir()
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile", "--target", str(packages)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(wheel)], check=True)
    # Before the editable install of the checkout, which would otherwise answer.
    environment = os.environ | {"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", RESOLVE_STUDIES]
    answer = subprocess.run(
        command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    installed = json.loads(answer.stdout)
    assert Path(installed["file"]).is_relative_to(packages)
    assert installed["titles"] == study_titles()
    assert "track_i" in installed["titles"]
