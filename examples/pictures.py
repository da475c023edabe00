"""Make the picture of the README: the top of the report of an audit of the bundled model.

Run it from the root of a clone, with Debian's chromium or another Chromium on the path:
``python examples/pictures.py [RUN]``. Without the folder of a finished run it makes one first.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

import flowscope

PICTURE = Path("docs/images/report-findings.png")
WIDTH, HEIGHT = 1280, 1010


def main() -> None:
    """Write the report of a run and photograph its first screen."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    result = flowscope.open_run(folder) if folder else flowscope.audit(out="out/pictures")
    page = result.report()
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        sys.exit("No Chromium was found on the path. Install it, e.g. apt-get install chromium.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        view.goto(page.absolute().as_uri())
        view.wait_for_timeout(1500)
        view.screenshot(path=str(PICTURE))
        browser.close()


if __name__ == "__main__":
    main()
