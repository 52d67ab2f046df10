"""What the studio costs: its start, its memory, and the CPU time of each page, apart from the work itself.

    python benchmarks/studio.py [PICTURE.png]

Prints rows for RESULTS.md. With a name, a picture of the page of guarantees is taken for the documentation.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import Any

import polars as pl

STEPS = ["cost?k=10&l=2&t=0.3", "columns", "risk", "guarantees", "hierarchies", "lattice", "methods", "attack"]
STEPS += ["explore", "release", "train", "synthesize", "budget"]
ROUNDS = 20
TICK = os.sysconf("SC_CLK_TCK")


class Client:
    """Asks a studio that runs in a process of its own."""

    def __init__(self, folder: Path) -> None:
        began = time.monotonic()
        command = [sys.executable, "-m", "sfumato", "studio", "--no-browser", "--json", "--folder", str(folder)]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.server.stdout is not None
        self.address = json.loads(self.server.stdout.readline())["address"]
        parts = urllib.parse.urlsplit(self.address)
        self.host, self.root, self.cookie = parts.netloc, parts.path.rstrip("/"), ""
        answer, _ = self.ask("GET", f"/?{parts.query}")
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        self.ask("GET", "/")
        self.first_page = time.monotonic() - began

    def ask(self, method: str, place: str, **form: str) -> tuple[Any, str]:
        """Send a request, and return the answer with its text."""
        connection = http.client.HTTPConnection(self.host)
        headers = {"Cookie": self.cookie, "Origin": f"http://{self.host}"}
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, self.root + place, urllib.parse.urlencode(form) if form else None, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def wait(self, place: str) -> None:
        """Wait until nothing runs on a page."""
        while 'id="work"' in self.ask("GET", place)[1]:
            time.sleep(0.5)

    @property
    def cpu(self) -> float:
        """The CPU seconds of the server so far."""
        fields = Path(f"/proc/{self.server.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    @property
    def memory(self) -> float:
        """The resident memory of the server, in MB."""
        lines = Path(f"/proc/{self.server.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def opened(client: Client, path: str) -> str:
    """Open a table, measure its risk, and return the address of the project."""
    answer, _ = client.ask("POST", "/open", path=path)
    place = str(answer.headers["location"]).removeprefix(client.root).removesuffix("/columns")
    client.wait(f"{place}/columns")
    client.ask("POST", f"{place}/columns", run="risk")
    client.wait(f"{place}/risk")
    client.ask("POST", f"{place}/guarantees", settings="1", k="10", l="2", t="0.3")
    client.ask("POST", f"{place}/lattice", settings="1", what="measure", suppress="0.05", run="lattice")
    client.wait(f"{place}/lattice")
    return place


def cpu_of(client: Client, place: str) -> float:
    """Return the CPU seconds of a page, the mean of some rounds."""
    client.ask("GET", place)
    before = client.cpu
    for _ in range(ROUNDS):
        assert client.ask("GET", place)[0].status == 200
    return (client.cpu - before) / ROUNDS


def picture(client: Client, place: str, path: str) -> None:
    from playwright.sync_api import sync_playwright

    name, _, value = client.cookie.partition("=")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1100, "height": 760})
        context.add_cookies([{"name": name, "value": value, "domain": "127.0.0.1", "path": f"{client.root}/"}])
        page = context.new_page()
        page.goto(f"http://{client.host}{client.root}{place}/guarantees")
        page.wait_for_selector("input[type=range]")
        page.screenshot(path=path)
        browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        client = Client(Path(folder) / "work")
        print(f"| studio: first page after the start | {client.first_page:.1f} s, {client.cpu:.2f} CPU s | under 2 s |")
        print(f"| studio: memory of the server before work starts | {client.memory:.0f} MB | under 150 MB |")
        wide = Path(folder) / "wide.csv"
        pl.DataFrame({f"column {at}": [at, at + 1, at] for at in range(500)}).write_csv(wide)
        place = opened(client, "adult")
        pages = {step: cpu_of(client, f"{place}/{step}") for step in STEPS}
        pages["start"] = cpu_of(client, "/")
        slowest = max(pages, key=lambda one: pages[one])
        answer, _ = client.ask("POST", "/open", path=str(wide))
        at = str(answer.headers["location"]).removeprefix(client.root)
        client.wait(at)
        print(
            f"| studio: a page of Adult, the slowest of {len(pages)} ({slowest}) | {1000 * pages[slowest]:.0f} ms CPU "
            f"(all: {', '.join(f'{name} {1000 * one:.0f}' for name, one in pages.items())}) | under 200 ms CPU |"
        )
        wide_page = f"{1000 * cpu_of(client, at):.0f} ms CPU"
        print(f"| studio: the columns of a table of 500 columns | {wide_page} | under 200 ms CPU |")
        print(f"| studio: memory of the server after that work | {client.memory:.0f} MB |  |")
        if len(sys.argv) > 1:
            picture(client, place, sys.argv[1])
        client.server.terminate()
        client.server.wait()


if __name__ == "__main__":
    main()
