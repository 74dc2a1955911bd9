"""What every test runs under: a hermetic environment, no silent skips, bounded hypothesis."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from flm.config import model_dir
from flm.errors import FlmError

PRIVATE_PREFIXES = ("FLM_", "OPENAI_", "HF_", "HUGGING")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY")
SMOLLM2 = "smollm2:135m"
# Read before the caller's variables are taken away from the tests.
MODELS_DIR = model_dir()
IN_CI = bool(os.environ.get("CI"))
SKIPS = pytest.StashKey[list[str]]()


def make_hermetic() -> None:
    """Take the caller's settings and proxies away, for this process and those it starts."""
    for name in list(os.environ):
        if name.upper().startswith(PRIVATE_PREFIXES) or name.upper() in PROXIES:
            del os.environ[name]
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    # A fixed number of threads keeps the order of sums, so equalities hold from run to run.
    os.environ.setdefault("OMP_NUM_THREADS", str(min(2, os.cpu_count() or 1)))


make_hermetic()


# --- hypothesis --------------------------------------------------------------------------------

settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "full", parent=settings.get_profile("ci"), derandomize=False, max_examples=600, print_blob=True
)


# --- options and rules of the session ----------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("flm")
    group.addoption("--full", action="store_true", help="also run the tests marked full")
    group.addoption(
        "--forbid-skips",
        action="store_true",
        default=IN_CI,
        help="a skipped or expectedly failing test fails the session (always so in CI)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SKIPS] = []
    if config.getoption("--hypothesis-profile", default=None) is None:
        settings.load_profile("full" if config.getoption("--full") else "ci")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without --full, take the long tests out: deselected, which is not a skip."""
    if config.getoption("--full"):
        return
    long = [item for item in items if item.get_closest_marker("full")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


class SkipRule:
    """Collects what was not really run and fails the session for it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # An expected failure that passes has outcome "passed" and the attribute too.
        if report.skipped or hasattr(report, "wasxfail"):
            self._note(report.nodeid, getattr(report, "wasxfail", None) or report.longrepr)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._note(report.nodeid, report.longrepr)

    def _note(self, nodeid: str, reason: object) -> None:
        text = reason[2] if isinstance(reason, tuple) else reason
        self._config.stash[SKIPS].append(f"{nodeid}: {text}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._config.stash[SKIPS] and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._config.stash[SKIPS]:
            terminalreporter.section("skips are forbidden here", red=True)
            for line in self._config.stash[SKIPS]:
                terminalreporter.line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.getoption("--forbid-skips"):
        session.config.pluginmanager.register(SkipRule(session.config), "forbid-skips")


# --- fixtures ----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """The caller's store of models, for tests that run the real one. Not to be written to."""
    return MODELS_DIR


@pytest.fixture(scope="session")
def smollm2_gguf(models_dir: Path) -> Path:
    """The GGUF file of the installed default model; a missing one is a failure, not a skip."""
    from flm.models.catalog import load_catalog
    from flm.models.store import ModelStore

    try:
        return ModelStore(models_dir, load_catalog()).resolve(SMOLLM2).path
    except FlmError as error:
        pytest.fail(f"{SMOLLM2} is not in {models_dir}; run: flm pull {SMOLLM2} ({error})")
