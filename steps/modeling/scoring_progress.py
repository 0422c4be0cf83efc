"""How much of all scoring is done, where several models or texts are scored one after another."""

from __future__ import annotations

from collections.abc import Callable

from steps.contract import report_progress


class ScoringProgress:
    """Counts documents over all scorings of a step; a document that is scored twice counts twice."""

    def __init__(self, documents: int) -> None:
        """documents: all that the step will score."""
        self.documents, self.done = documents, 0
        report_progress(0, documents, "documents")

    def next(self, documents: int) -> Callable[[float], None]:
        """What `score_documents` calls with the share of the next `documents` that is scored, 0 to 1."""
        before = self.done
        self.done += documents

        def tell(share: float) -> None:
            report_progress(before + int(share * documents), self.documents, "documents")

        return tell
