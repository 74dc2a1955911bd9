"""From what an answer must be to the grammar its sequences follow."""

from flm.service.models import LoadedModel, Prepared
from flm.service.thinking import may_reason
from flm.text.grammar import (
    Closing,
    CompiledGrammar,
    GrammarMatcher,
    ToolSignature,
    ToolSyntax,
    tool_syntax,
)
from flm.types import CallRules, GenerationRequest, OutputConstraint


def compiled(model: LoadedModel, request: GenerationRequest) -> CompiledGrammar | None:
    """The grammar that a reply follows; None when it is free. Blocks for as long as a compilation
    takes.

    Raises:
        InvalidRequestError: it cannot be enforced; the message names what is at fault.
    """
    constraint, calls = request.constraint, request.calls
    if calls is not None and calls.is_forced:
        constraint = None
    answer = None if constraint is None else _answer(model, constraint)
    if calls is not None or (constraint is not None and _has_channels(model, request)):
        return _reply(model, calls, constraint)
    return answer


def _reply(
    model: LoadedModel, calls: CallRules | None, answer: OutputConstraint | None
) -> CompiledGrammar:
    """Calls, or an answer in their place; where neither must be, free text."""
    tools = [
        ToolSignature(tool.name, tool.parameters, tool.param, is_open=not tool.is_enforced)
        for tool in (() if calls is None else calls.tools)
    ]
    assert answer is None or answer.kind != "grammar"  # the schema refuses that
    return model.grammars.compile_tool_calls(
        tools,
        syntax=_syntax(model),
        at_most=None if calls is None else calls.at_most,
        free_text=answer is None and calls is not None and not calls.is_forced,
        answer=None if answer is None else (answer.kind, answer.value),
        param=answer.param if answer is not None else "tools" if calls is None else calls.param,
    )


def _has_channels(model: LoadedModel, request: GenerationRequest) -> bool:
    """True when the reply is messages in Harmony's channels, and its grammar says so. A grammar
    that the request brings is followed by itself."""
    constraint = request.constraint
    is_own = constraint is not None and constraint.kind == "grammar"
    return model.output.tools == "harmony" and request.is_chat and not is_own


def _answer(model: LoadedModel, constraint: OutputConstraint) -> CompiledGrammar:
    grammars, value, param = model.grammars, constraint.value, constraint.param
    match constraint.kind:
        case "json":
            return grammars.compile_json(value, param=param)
        case "regex":
            return grammars.compile_regex(value, param=param)
        case "choice":
            return grammars.compile_choice(value, param=param)
        case "grammar":
            return grammars.compile_grammar(value, param=param)


def matcher(
    model: LoadedModel, prepared: Prepared, eos_ids: frozenset[int], max_new_tokens: int
) -> GrammarMatcher | None:
    """A matcher for one choice. It waits for the end of a reasoning block, where there is one:
    opened by the prompt, or by the model itself."""
    if prepared.grammar is None:
        return None
    start_after_ids: tuple[int, ...] | None = None
    open_ids: tuple[int, ...] = ()
    style, rendered = model.reasoning, prepared.rendered
    request = prepared.request
    # The grammar of a reply in channels has that of reasoning in it.
    is_outside = not _has_channels(model, request) and may_reason(model, request)
    if style is not None and rendered is not None and is_outside:
        start_after_ids = tuple(model.tokenizer.encode(style.close_tag, control=True))
        if not rendered.rstrip().endswith(style.open_tag):
            open_ids = tuple(model.tokenizer.encode(style.open_tag, control=True))
    return prepared.grammar.matcher(
        vocab_size=model.vocab_size,
        eos_ids=eos_ids,
        start_after_ids=start_after_ids,
        open_ids=open_ids,
        closing=_closing(model, request, max_new_tokens),
    )


def _closing(model: LoadedModel, request: GenerationRequest, max_new_tokens: int) -> Closing | None:
    """Of forced calls, none is begun any more when half of the tokens are used up. A model may make
    one call after another for ever, and the last one would be cut."""
    if request.calls is None or not request.calls.is_forced:
        return None
    end = _syntax(model).section_end
    return Closing(max_new_tokens // 2, tuple(model.tokenizer.encode(end, control=True)))


def _syntax(model: LoadedModel) -> ToolSyntax:
    return tool_syntax(model.output.tools, model.template.tool_source)
