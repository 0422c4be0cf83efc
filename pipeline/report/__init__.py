"""`langadapt report`: a run on one page, as HTML that needs no network and no script, and the same as Markdown."""
