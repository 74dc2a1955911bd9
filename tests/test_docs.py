"""The documentation is held to the code: flags, settings, links, commands and doors."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import asdict, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import models_doc
import pytest
import requests_doc
import typer
from markdown_it import MarkdownIt
from markdown_it.token import Token
from typer.testing import CliRunner

from flm.cli.main import app
from flm.config import OPTIONS_BY_NAME, ServeConfig
from flm.models.catalog import load_catalog
from flm.server.routes.ollama import INSTEAD
from flm.server.schemas import anthropic
from flm.server.schemas.anthropic import MessagesBody
from flm.server.schemas.cancel import CancelBody
from flm.server.schemas.chat import ChatBody
from flm.server.schemas.common import CommonBody
from flm.server.schemas.completions import CompletionBody
from flm.server.schemas.conversation import ConversationBody
from flm.server.schemas.llama import UNREAD, DetokenizeBody, LlamaBody, TokenizeBody
from flm.server.schemas.ollama import OllamaBody, OllamaChatBody, OllamaGenerateBody
from flm.server.schemas.ollama_options import UNREAD_OPTIONS, Options
from flm.server.schemas.ollama_show import ShowBody
from flm.server.schemas.open_responses import ResponsesBody
from flm.sticky import SAMPLING_FIELDS
from tests.support.architecture import ANY
from tests.test_architecture import DOORS, TORCH_ROOMS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELLS = {"bash", "sh", "shell", "console"}
SCRIPTS = {"serve", "setup", "test", "bench", "judge"}


@cache
def tokens_of(path: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(path.read_text("utf-8"))


@cache
def all_text() -> str:
    return "\n".join(path.read_text("utf-8") for path in PAGES)


# --- reading pages -----------------------------------------------------------------------------


def links(tokens: list[Token]) -> Iterator[str]:
    for token in tokens:
        for child in token.children or []:
            if child.type == "link_open":
                yield str(child.attrs["href"])
            elif child.type == "image":
                yield str(child.attrs["src"])


def anchors(tokens: list[Token]) -> set[str]:
    """The anchors that GitHub gives to headings."""
    found: set[str] = set()
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            text = re.sub(r"[^\w\- ]", "", inline.content.lower())
            base = slug = text.strip().replace(" ", "-")
            number = 0
            while slug in found:
                number += 1
                slug = f"{base}-{number}"
            found.add(slug)
    return found


def broken_links(path: Path) -> list[str]:
    broken = []
    for link in links(tokens_of(path)):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / parts.path).resolve() if parts.path else path
        if not target.exists() or not target.is_relative_to(ROOT):
            broken.append(f"{path.name}: {link} leads nowhere")
        elif parts.fragment and parts.fragment not in anchors(tokens_of(target)):
            broken.append(f"{path.name}: {link} names no heading")
    return broken


def shell_lines(path: Path) -> Iterator[str]:
    """Commands of the shell blocks; of a console block the lines with a prompt."""
    for token in tokens_of(path):
        language = token.info.split()[0] if token.type == "fence" and token.info else ""
        if language not in SHELLS:
            continue
        lines = token.content.replace("\\\n", " ").splitlines()
        if language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        yield from lines


# --- commands ----------------------------------------------------------------------------------


@cache
def commands() -> dict[str, set[str]]:
    """Every command of flm with its flags."""
    group = typer.main.get_command(app)
    found = {}
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        opts = {opt for param in command.params for opt in [*param.opts, *param.secondary_opts]}
        found[name] = {opt for opt in opts if opt.startswith("-")} | {"-h", "--help"}
    return found


def wrong_commands(line: str) -> list[str]:
    """What a line of shell says of our programs that is not true."""
    # Several commands in a line, and heredocs and quotes that shlex cannot read alone.
    wrong = []
    for part in re.split(r"&&|\|\||[;|]", line):
        try:
            words = shlex.split(part, comments=True)
        except ValueError:
            words = part.split()
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words:
            wrong += _wrong_words(words)
    return wrong


def _wrong_words(words: list[str]) -> list[str]:
    program = words[0].removeprefix("./")
    if program.startswith("scripts/"):
        name = program.removeprefix("scripts/")
        if name not in SCRIPTS or not (ROOT / "scripts" / name).is_file():
            return [f"there is no {program}"]
        return _wrong_flags("serve", words[1:]) if name == "serve" else []
    if program not in ("flm", ".venv/bin/flm") or len(words) == 1:
        return []
    if words[1] in ("--version", "-v", "--help", "-h"):
        return []
    if words[1] not in commands():
        return [f"flm has no command {words[1]}"]
    return _wrong_flags(words[1], words[2:])


def _wrong_flags(command: str, arguments: list[str]) -> list[str]:
    flags = [word.partition("=")[0] for word in arguments if re.match(r"--?[a-z]", word)]
    return [f"{command} has no {flag}" for flag in flags if flag not in commands()[command]]


# --- the project -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    assert broken_links(path) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_exist(path: Path) -> None:
    wrong = [f"{line}: {text}" for line in shell_lines(path) for text in wrong_commands(line)]
    assert wrong == []


def test_the_readme_opens_with_the_two_commands() -> None:
    lines = list(shell_lines(ROOT / "README.md"))
    assert lines.index("scripts/serve") < 4
    assert "scripts/test" in lines


@pytest.mark.parametrize("flag", sorted(commands()["serve"] - {"-h", "--help"}))
def test_every_flag_of_serve_is_documented(flag: str) -> None:
    assert re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", all_text())


@pytest.mark.parametrize("name", [item.name for item in fields(ServeConfig)])
def test_every_setting_is_documented(name: str) -> None:
    option = OPTIONS_BY_NAME[name]
    assert option.env in all_text()
    if name != "model":
        assert option.flag in commands()["serve"]


def test_the_table_of_doors_is_the_one_that_is_checked() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = page.split("## The doors")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| (.+) \|$", section, re.MULTILINE)
    written = {room: _targets(cell) for room, cell in rows}
    checked = {room: targets for room, targets in DOORS.rooms.items() if room != "__main__"}
    assert written == checked
    named = set(re.findall(r"`([\w.]+)`", section.split("torch may be imported")[1].split(";")[0]))
    assert named == set(TORCH_ROOMS)


def _targets(cell: str) -> tuple[str, ...]:
    return (ANY,) if cell == "anything" else tuple(re.findall(r"`([\w.]+)`", cell))


# --- the checks themselves can fail ------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "scripts/sevre",
        "scripts/serve --prot 8000",
        "flm sevre",
        "FLM_PORT=1 .venv/bin/flm serve m --no-such-flag=3",
        "cd x && flm list --colour",
    ],
)
def test_a_wrong_command_is_found(line: str) -> None:
    assert len(wrong_commands(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "scripts/serve smollm2:135m --port 8000  # comment --x",
        "flm --version",
        "flm serve -p 80 --ctx-len=512",
        "curl -s http://127.0.0.1:52625/health | python -m json.tool --no-such",
        "",
        "echo 'flm is",
    ],
)
def test_a_right_command_is_not(line: str) -> None:
    assert wrong_commands(line) == []


def test_broken_links_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.test_docs.ROOT", tmp_path)
    (tmp_path / "b.md").write_text("# One two\n## One, two!\n")
    page = tmp_path / "a.md"
    page.write_text(
        "# Here\n[x](b.md) [x](b.md#one-two-1) [x](#here) [x](https://example.org/none)\n"
        "[x](c.md) [x](b.md#three) [x](#there) ![x](no.png) [x](../../etc/passwd)\n"
    )
    assert len(broken_links(page)) == 5


# --- requests ----------------------------------------------------------------------------------


def test_the_page_of_requests_is_what_the_schemas_say() -> None:
    found = requests_doc.TARGET.read_text(encoding="utf-8")
    assert found == requests_doc.page(), "run: .venv/bin/python scripts/requests_doc.py"


def test_the_page_of_models_is_what_the_catalogue_says() -> None:
    found = models_doc.TARGET.read_text(encoding="utf-8")
    assert found == models_doc.page(), "run: .venv/bin/python scripts/models_doc.py"


def test_the_page_of_models_has_those_that_are_listed(tmp_path: Path) -> None:
    env = {"FLM_MODEL_PATH": str(tmp_path)}
    names = CliRunner().invoke(app, ["list", "--quiet"], env=env).stdout.split()
    rows = re.findall(r"^\| `(\S+)` \|", models_doc.page().split("## Sampling")[0], re.MULTILINE)
    assert rows == names
    assert len(rows) == len(set(rows)) > 0


def test_every_field_of_llama_server_is_on_its_page() -> None:
    page = (ROOT / "docs" / "llama-server.md").read_text("utf-8")
    own = LlamaBody.model_fields.keys() - CommonBody.model_fields.keys() - {"prompt"}
    own |= UNREAD.keys() | TokenizeBody.model_fields.keys() | DetokenizeBody.model_fields.keys()
    missing = sorted(name for name in own if f"`{name}`" not in page and f'"{name}"' not in page)
    assert missing == []


def test_every_field_of_anthropic_is_on_its_page() -> None:
    page = (ROOT / "docs" / "anthropic.md").read_text("utf-8")
    fields = (MessagesBody.model_fields.keys() | anthropic.UNREAD.keys()) - set(SAMPLING_FIELDS)
    assert sorted(name for name in fields if f"`{name}`" not in page) == []


def test_every_field_of_a_response_is_on_its_page() -> None:
    page = (ROOT / "docs" / "responses.md").read_text("utf-8")
    own = ResponsesBody.model_fields.keys() - ConversationBody.model_fields.keys()
    missing = [name for name in (*own, *ResponsesBody.unread) if f"`{name}" not in page]
    assert missing == []


def test_every_field_of_ollama_is_on_its_page() -> None:
    page = (ROOT / "docs" / "ollama.md").read_text("utf-8")
    own = OllamaChatBody.model_fields.keys() | OllamaGenerateBody.model_fields.keys()
    own -= ConversationBody.model_fields.keys() - {"think", "model"}
    own |= Options.model_fields.keys() | UNREAD_OPTIONS.keys() | ShowBody.model_fields.keys()
    own |= {name for name in OllamaBody.unread if "." not in name and name not in own}
    missing = sorted(name for name in own if f"`{name}`" not in page and f"`{name}:" not in page)
    assert missing == []
    assert not [path for _, path, _ in INSTEAD if f"`{path}`" not in page]


def test_every_field_has_a_meaning() -> None:
    schemas = (
        ChatBody,
        CompletionBody,
        ResponsesBody,
        MessagesBody,
        LlamaBody,
        TokenizeBody,
        DetokenizeBody,
        CancelBody,
        OllamaChatBody,
        OllamaGenerateBody,
        Options,
        ShowBody,
    )
    for schema in schemas:
        described = schema.model_json_schema()["properties"]
        empty = [name for name, field in described.items() if not str(field).count("description")]
        assert not empty, f"{schema.__name__}: {empty}"


def test_the_defaults_of_every_family_are_documented() -> None:
    page = (ROOT / "docs" / "sampling.md").read_text("utf-8")
    table = page.partition("| family |")[2].partition("\n\n")[0]
    header, _, *lines = [[cell.strip() for cell in line.split("|")] for line in table.split("\n")]
    names = [cell.strip("`") for cell in header if cell]
    told = {
        family: dict(zip(names, map(float, line[2:]), strict=False))
        for line in lines
        for family in line[1].split(", ")
    }
    zeros = {"frequency_penalty": 0.0, "presence_penalty": 0.0, "repeat_last_n": 64}
    for entry in load_catalog().entries:
        assert {**told[entry.family], **zeros} == asdict(entry.sampling), entry.name
    assert set(told) == {entry.family for entry in load_catalog().entries}
