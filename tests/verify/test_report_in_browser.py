"""The report of a real run of the sample, opened in a headless Chromium: `apt-get install chromium` brings one."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Chromium, chromium, find_chromium
from page_checks import CONTRASTS, DRAWN, STICKING_OUT
from workplace import ROOT, prove

from steps.contract import EXIT_DONE

pytestmark = pytest.mark.verify

SCHEMES = ("light", "dark")
# A telephone, a small one, a tablet.
WIDTHS = (390, 320, 768)
SMALLEST_CONTRAST = 4.5


def langadapt(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pipeline", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `langadapt run` has finished, and once more with another limit, which closes the gate."""
    folder = tmp_path_factory.mktemp("reported")
    finished = langadapt(folder, "run")
    assert finished.returncode == EXIT_DONE, finished.stderr
    assert "report:         runs/laptop/report.html" in finished.stdout
    first = next((folder / "runs" / "laptop" / "executions").glob("*.json"))
    langadapt(folder, "run", "--param", "MaxBitsPerByte=1.0")
    compared = langadapt(folder, "report", str(first), "runs/laptop")
    assert compared.returncode == EXIT_DONE, compared.stderr
    written = langadapt(folder, "report", str(first), "--output", "first.html")
    assert written.returncode == EXIT_DONE, written.stderr
    return folder


@pytest.fixture(scope="module")
def pages(run: Path) -> dict[str, Path]:
    return {"registered": run / "first.html", "closed": run / "runs/laptop/report.html", "two": run / "comparison.html"}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    command = find_chromium()
    if command is None:
        reason = "no Chromium on this machine: apt-get install chromium"
        print(reason)
        pytest.skip(reason)
    with chromium(command, tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


@pytest.mark.parametrize("name", ["registered", "closed", "two"])
def test_a_page_in_chromium(browser: Chromium, pages: dict[str, Path], name: str) -> None:
    for scheme in SCHEMES:
        # So high that every text lies in the window: what is behind one is asked by its place.
        browser.open(pages[name], width=1200, height=15_000, scheme=scheme)
        drawn = browser.evaluate(DRAWN)
        least = {"svg": 7, "table": 5, ".token": 50, "section": 6}
        shown = all(seen == there >= least[kind] for kind, (seen, there) in drawn.items())
        prove(f"{name}, {scheme}: pictures, tables, tokens, sections drawn, and there", drawn, "all of them", shown)
        contrasts = browser.evaluate(CONTRASTS)
        smallest, text = contrasts[0]
        prove(f"{name}, {scheme}: smallest contrast of {len(contrasts)} texts", f"{smallest:.2f} ({text})",
              f"{SMALLEST_CONTRAST}", smallest >= SMALLEST_CONTRAST)  # fmt: skip
        prove(f"{name}, {scheme}: requests", browser.requests(), "the file alone",
              browser.requests() == [pages[name].as_uri()])  # fmt: skip
        prove(f"{name}, {scheme}: lines in the console", browser.complaints(), "none", not browser.complaints())
    for width in WIDTHS:
        browser.open(pages[name], width=width)
        measured = browser.evaluate(STICKING_OUT % width)
        fits = measured["width"] <= width and not measured["out"]
        prove(f"{name}, {width} px wide: the page's width and what sticks out", measured, f"{width}, nothing", fits)


def test_what_measures_would_notice(browser: Chromium, pages: dict[str, Path], tmp_path: Path) -> None:
    """A pale text, an image of a network, a script and a broad block are each seen, and the page's policy stops two."""
    whole = pages["registered"].read_text("utf-8")
    spoilt = tmp_path / "spoilt.html"
    more = (
        '<p style="color:#999;width:900px">pale</p><img src="http://127.0.0.1:9/x.png"><script>window.ran = 1</script>'
    )
    spoilt.write_text(whole.replace("</main>", f"{more}</main>"), "utf-8")
    browser.open(spoilt, width=1200, height=15_000)
    assert browser.evaluate(CONTRASTS)[0][0] < SMALLEST_CONTRAST
    assert len(browser.complaints()) >= 2
    prove("a script put into the page", browser.evaluate("String(window.ran)"), "does not run",
          browser.evaluate("String(window.ran)") == "undefined")  # fmt: skip
    assert [address for address in browser.requests() if not address.startswith("file:")]
    answers = [event["params"]["response"]["url"] for event in browser.events
               if event.get("method") == "Network.responseReceived"]  # fmt: skip
    prove("answers to what a page with an image of a network asks for", answers, "the file alone",
          answers in ([], [spoilt.as_uri()]))  # fmt: skip
    browser.open(spoilt, width=390)
    measured = browser.evaluate(STICKING_OUT % 390)
    assert measured["width"] > 390
    assert len(measured["out"]) == 1


def test_a_page_on_paper(browser: Chromium, pages: dict[str, Path], tmp_path: Path) -> None:
    browser.open(pages["registered"], width=1200)
    browser.print_pdf(tmp_path / "report.pdf")
    size = (tmp_path / "report.pdf").stat().st_size
    prove("the report as PDF, bytes", size, "at least 50,000", size >= 50_000)


def test_seconds_of_a_report(run: Path) -> None:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    written = langadapt(run, "report", "runs/laptop")
    taken = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert written.returncode == EXIT_DONE, written.stderr
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Of processors: the machine may be shared.
    prove(f"langadapt report, seconds of processors ({taken:.1f} by the clock)", round(seconds, 2), "3", seconds < 3)
