"""A real browser for tests of the relay's page: the system's Chromium, driven by Playwright."""

import json
import os
import shutil
import time
from contextlib import contextmanager

from playwright.sync_api import sync_playwright

from support.processes import PATIENCE_SECONDS

BAD = ("error", "warning")
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser():
    for name in NAMES:
        if path := shutil.which(name):
            return path
    raise RuntimeError(f"tests of the page need one of {', '.join(NAMES)} on the PATH: apt-get install chromium")


@contextmanager
def start_browser():
    """The browser, for the length of a block."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to be root with one
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=sandbox)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """One look at a page, in a window of its own; what went wrong in it, and whom it asked."""

    def __init__(self, browser, **window):
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **window})
        self.page = self.context.new_page()
        self.errors, self.hosts = [], set()
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type in BAD else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "request", lambda request: self.hosts.add(request.url.split("/")[2]) if "//" in request.url else None
        )

    def text(self, selector):
        return self.page.inner_text(selector)

    def wait(self, condition):
        """Wait until this JavaScript says that it is so. (The page's policy forbids Playwright's own way.)"""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.page.evaluate(condition):
            assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS} s: {condition}; errors: {self.errors}"
            self.page.wait_for_timeout(50)

    def wait_text(self, selector, pattern):
        """Wait until the text of what is there matches: figures on a page come as they are known."""
        self.wait(
            f"RegExp({json.dumps(pattern)}).test(document.querySelector({json.dumps(selector)})?.innerText ?? '')"
        )

    def close(self):
        self.context.close()
