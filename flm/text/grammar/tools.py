"""The grammar of replies that call tools."""

from collections.abc import Sequence

from flm.text.grammar.lark import literal, markup, regex
from flm.text.grammar.layouts import ToolSignature, argument_rules, escaped, holding, text_rules
from flm.text.grammar.schema import SchemaError
from flm.text.grammar.strings import ANY_TEXT
from flm.text.grammar.syntax import ToolSyntax
from flm.text.grammar.vocabulary import Vocabulary

_MAX_ASIDES = 2
"""Messages of reasoning, or of commentary, before what a reply in channels is for."""
_MESSAGE_MARKS = ("<|start|>", "<|end|>", "<|return|>", "<|call|>")


class ToolError(ValueError):
    """The arguments of a tool cannot be enforced; ``param`` is the field that says so."""

    def __init__(self, tool: ToolSignature, problem: str) -> None:
        super().__init__(f"{tool.name}: {problem}")
        self.param = tool.param


def tool_grammar(
    tools: Sequence[ToolSignature],
    vocabulary: Vocabulary,
    *,
    syntax: ToolSyntax,
    at_most: int | None,
    free_text: bool = False,
    answer: str | None = None,
) -> str:
    """A Lark grammar of replies with one call to ``at_most`` calls.

    With ``free_text``, text may stand before them, or alone if it does not begin a call. With
    ``answer``, the body of a rule, such an answer may stand in their place; only then may there be
    no tools.

    Raises:
        ToolError: the arguments of a tool cannot be enforced in this dialect.
    """
    assert at_most is None or at_most >= 1
    assert tools or answer is not None
    rules = [
        rule
        for index, tool in enumerate(tools)
        for rule in _tool_rules(index, tool, syntax, vocabulary)
    ]
    if answer is not None:
        rules.append(f"answer: {answer}")
    if tools:
        rules += _call_rules(len(tools), syntax, vocabulary, at_most)
    if syntax.has_channels:
        rules += _in_channels(vocabulary, has_calls=bool(tools), free_text=free_text, answer=answer)
    else:
        rules += _plain(syntax, vocabulary, free_text=free_text, answer=answer)
    return "\n".join(rules)


def _tool_rules(
    index: int, tool: ToolSignature, syntax: ToolSyntax, vocabulary: Vocabulary
) -> list[str]:
    name = f"arguments_{index}"
    try:
        arguments = argument_rules(name, tool, syntax, vocabulary)
    except SchemaError as error:
        raise ToolError(tool, str(error)) from error
    after_name = markup(syntax.after_name, vocabulary)
    return [f"tool_{index}: {literal(tool.name)} {after_name} {name}", *arguments]


def _call_rules(
    num_tools: int, syntax: ToolSyntax, vocabulary: Vocabulary, at_most: int | None
) -> list[str]:
    """``rest``: the calls behind the trigger of the first."""
    names = " | ".join(f"tool_{index}" for index in range(num_tools))
    begin = syntax.section_begin + syntax.call_begin
    assert begin.startswith(syntax.trigger)
    limits = [limit for limit in (at_most, syntax.max_calls) if limit is not None]
    most = min(limits) - 1 if limits else ""
    more = "" if most == 0 else f"next{{0,{most}}}"
    return [
        f"rest: {markup(begin[len(syntax.trigger) :], vocabulary)} body {more} "
        f"{markup(syntax.section_end, vocabulary)}",
        f"body: ({names}) {markup(syntax.call_end, vocabulary)}",
        f"next: {markup(syntax.separator + syntax.call_begin, vocabulary)} body",
    ]


def _plain(
    syntax: ToolSyntax, vocabulary: Vocabulary, *, free_text: bool, answer: str | None
) -> list[str]:
    """The start of a reply that is text, then calls."""
    (first,) = vocabulary.split(syntax.trigger)
    head = f"<[{first}]>" if isinstance(first, int) else literal(first)
    if answer is not None:
        return [f"start: {head} rest | answer"]
    if not free_text:
        return [f"start: {head} rest"]
    if syntax.stands_alone:
        like_a_call = regex(f"(?:{syntax.call_like})(?s:.*)")
        return [f"start: {head} rest | FREE", f"FREE: {ANY_TEXT} & ~{like_a_call}"]
    # Even where the trigger is one token: who reads the reply sees characters.
    free = f"FREE: {ANY_TEXT} & ~{holding(syntax.trigger)}"
    if isinstance(first, int):
        return [f"start: FREE {head} rest | FREE", free]
    known = regex(f"(?s:.*){escaped(first)}")
    return ["start: head rest | FREE", f"head[lazy]: {known}", free]


def _in_channels(
    vocabulary: Vocabulary, *, has_calls: bool, free_text: bool, answer: str | None
) -> list[str]:
    """The start of a reply in Harmony's channels; the prompt has begun its first message."""

    def written(text: str) -> str:
        return markup(text, vocabulary)

    goals = ["called"] if has_calls else []
    rules = [f"called: {written('<|channel|>')} rest"] if has_calls else []
    if free_text or answer is not None:
        said = "answer" if answer is not None else "FREE"
        goals.append("final")
        rules.append(f"final: {written('<|channel|>final<|message|>')} {said}")
        rules += [] if answer is not None else [f"FREE: {ANY_TEXT} & ~{holding(*_MESSAGE_MARKS)}"]
    # Commentary is shown as content, which a reply of calls alone does not have.
    names = '("analysis" | "commentary")' if free_text else '"analysis"'
    channel = f"{written('<|channel|>')} {names} {written('<|message|>')}"
    return [
        f"start: aside{{0,{_MAX_ASIDES}}} ({' | '.join(goals)})",
        f"aside: {channel} aside_text {written('<|start|>assistant')}",
        *text_rules("aside_text", ANY_TEXT, "<|end|>", vocabulary, guards=_MESSAGE_MARKS),
        *rules,
    ]
