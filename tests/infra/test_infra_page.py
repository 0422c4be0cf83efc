"""infra/README.md names every field of an environment, every option's resources and every construct."""

from environments import ROOT

from infra import environment_options
from infra.environment import EnvironmentConfig

PAGE = (ROOT / "infra/README.md").read_text(encoding="utf-8")


def test_every_field_of_an_environment_stands_on_the_page():
    fields = set(EnvironmentConfig.model_fields)
    assert not {field for field in fields if f"`{field}`" not in PAGE}
    options = [kind for name, kind in vars(environment_options).items() if name.endswith("Option")]
    assert len(options) == 7
    assert not {field for kind in options for field in kind.model_fields if f"`{field}`" not in PAGE}


def test_every_construct_stands_on_the_page():
    helpers = {"__init__.py", "python_function.py", "handler_function.py", "watching.py", "looking.py"}
    constructs = {path.name for path in (ROOT / "infra/constructs").glob("*.py")} - helpers
    assert not {name for name in constructs if f"`{name}`" not in PAGE}
