"""docs/configuration.md lists every field as the configuration's models have it."""

from configuration_page import PAGE, page

from pipeline.config import PipelineConfig


def test_the_page_is_that_of_the_models() -> None:
    assert PAGE.read_text("utf-8") == page(), "give: python tests/helpers/configuration_page.py"


def test_every_field_is_there_and_described() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert not [row for row in rows if row.endswith("|  |")]
    text = "\n".join(rows)
    for section, info in PipelineConfig.model_fields.items():
        fields = getattr(info.annotation, "model_fields", {}) if section != "compute" else {}
        assert all(f"| `{section}.{field}` |" in text for field in fields)
    for field in ("managed_spot", "max_wait_seconds", "volume_gib", "compute.max_attempts", "preset", "ablation"):
        assert f"| `{field}` |" in text
