"""The two files of a report, written aside and renamed; and those that a run leaves behind."""

from __future__ import annotations

import traceback
from pathlib import Path

from pipeline.execution_record import RECORD_NAME, RunResult
from pipeline.report.blocks import Report
from pipeline.report.contents import report_of
from pipeline.report.markdown_text import markdown
from pipeline.report.page import page
from pipeline.report.reading import facts_of
from pipeline.streams import tell
from pipeline.summary import shown
from steps.contract import UserError, write_atomically

HTML_NAME, MARKDOWN_NAME = "report.html", "report.md"


def write_page(report: Report, path: Path) -> None:
    write_atomically(path, page(report))


def write_markdown(report: Report, path: Path) -> None:
    write_atomically(path, markdown(report))


def written_report(result: RunResult) -> str:
    """Writes report.html and report.md into the run's folder; the line of the summary that tells where.

    The run is over and recorded: whatever goes wrong with telling of it is warned about on standard error, and changes
    nothing of how the run ended.
    """
    try:
        facts = facts_of(result, result.run_folder)
        facts.recorded_at = (result.run_folder / RECORD_NAME).stat().st_mtime
        report = report_of(facts)
        write_page(report, result.run_folder / HTML_NAME)
        write_markdown(report, result.run_folder / MARKDOWN_NAME)
    except (UserError, OSError) as error:
        tell(f"warning: no report was written: {' '.join(str(error).split())}")
        return ""
    except Exception:
        # A fault of ours: with its traceback, as every such fault.
        tell(f"warning: no report was written: {traceback.format_exc().rstrip()}")
        return ""
    return f"report:         {shown(result.run_folder / HTML_NAME)}"
