"""Which page a run gets: by the command that its settings name, else by its tables."""

from dataclasses import replace

import pytest
from tests.report.synthetic import manifest, write_run
from tests.report.synthetic_geometry import write_geometry
from tests.report.synthetic_image import write_images
from tests.report.synthetic_replica import write_replicas

from flowscope.records import Manifest, Run
from flowscope.report import audit_page, heads_page, image_page, sync_page
from flowscope.report.choice import PAGES, page_of

WRITTEN = [
    (write_run, audit_page.PAGE),
    (write_geometry, heads_page.PAGE),
    (write_replicas, sync_page.PAGE),
    (write_images, image_page.PAGE),
]


@pytest.mark.parametrize(("write", "page"), WRITTEN)
def test_the_command_decides(tmp_path, write, page):
    assert page_of(write(tmp_path / "run")) is page
    empty = Run.create(tmp_path / "empty", Manifest(config_resolved={"command": page.command}))
    assert page_of(empty) is page


@pytest.mark.parametrize(("write", "page"), WRITTEN)
def test_without_a_command_the_tables_decide(tmp_path, write, page):
    whole = write(tmp_path / "run")
    given = whole.read_manifest()
    settings = {name: v for name, v in given.config_resolved.items() if name != "command"}
    run = Run.create(tmp_path / "old", replace(given, config_resolved=settings))
    for name in whole.tables():
        run.write_table(name, whole.read_table(name))
    assert page_of(run) is page


def test_a_run_that_nothing_identifies_is_an_audit(tmp_path):
    assert page_of(Run.create(tmp_path / "empty", Manifest())) is audit_page.PAGE
    unknown = Run.create(tmp_path / "unknown", Manifest(config_resolved={"command": "else"}))
    assert page_of(unknown) is audit_page.PAGE


def test_a_table_of_the_audit_outweighs_those_of_others(tmp_path):
    run = Run.create(tmp_path / "run", manifest(False))
    images = write_images(tmp_path / "images")
    for name in ("rotation", "parity"):
        run.write_table(name, images.read_table(name))
    assert page_of(run) is image_page.PAGE
    run.write_table("layers", write_run(tmp_path / "audit").read_table("layers"))
    assert page_of(run) is audit_page.PAGE


def test_a_telling_table_belongs_to_one_page():
    telling = [name for page in PAGES for name in page.telling]
    assert len(telling) == len(set(telling))
    assert all(set(page.telling) <= set(page.purposes) for page in PAGES)
