"""What is published is whole: the sdist holds the checkout, its wheel runs without the checkout."""

import importlib.util
import json
import os
import re
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
    for name in ("study.yaml", "small.yaml"):
        settings = [file for file in files_in(unpacked_sdist / PACKAGE) if file.endswith(name)]
        assert len(settings) == len(study_titles()) > 0
    expected = {"LICENSE", "NOTICE", "CITATION.cff", "README.md", "constraints.txt"}
    assert expected <= files_in(unpacked_sdist)


def test_wheel_holds_every_file_of_the_package(unpacked_sdist, wheel):
    expected = {f"flowscope/{file}" for file in files_in(unpacked_sdist / PACKAGE)}
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
    assert expected - names == set()
    assert {"flowscope/py.typed", "flowscope/report/page.css", "flowscope/report/page.js"} <= names
    assert {Path(name).suffix for name in names} >= {".yaml", ".safetensors"}
    assert wheel.stat().st_size <= 60e6


def test_wheel_names_the_licence_of_everything_that_it_holds(wheel):
    """Sources of the prompts, and of what the bundled models were trained on."""
    with zipfile.ZipFile(wheel) as content:
        (name,) = [n for n in content.namelist() if n.endswith("dist-info/licenses/NOTICE")]
        notice = content.read(name).decode()
        prompts = content.read("flowscope/nets/prompts.jsonl").decode().splitlines()
        training = json.loads(content.read("flowscope/nets/language/training.json"))
        folders = {name.split("/")[2] for name in content.namelist() if "training.json" in name}
    lines = [" ".join(line.split()) for line in notice.splitlines()]
    assert folders >= {"language", "image", "denoiser"}
    assert not [folder for folder in folders if f"src/flowscope/nets/{folder} " not in notice]
    for prompt in map(json.loads, prompts):
        assert f"{prompt['source'].split(';')[0]} {prompt['licence']}" in lines
    licences = re.findall(r'"licence": "([^"]+)"', json.dumps(training))
    assert licences
    assert not [licence for licence in licences if licence not in notice]


@pytest.mark.parametrize("url", ["", "https://example.org/flowscope"])
def test_the_readme_of_an_index_has_no_link_that_leads_nowhere(url):
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)]+)\)", hook.published(readme, url))
    assert not [target for target in targets if not target.startswith(("https://", "http://", "#"))]
    assert bool(hook.addresses(url)) == bool(url)
    base = f"{url}/blob/main/"
    pages = [target.removeprefix(base) for target in targets if url and target.startswith(base)]
    assert not [page for page in pages if not (ROOT / page.split("#")[0]).exists()]
    assert bool(pages) == bool(url)


def test_the_citation_names_the_version_that_is_built(wheel):
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert wheel.name.startswith(f"flowscope-{citation['version']}-")
    assert citation["license"] == "Apache-2.0"


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
