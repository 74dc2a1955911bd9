"""From what an answer must be to the grammar its sequences follow."""

from flm.service.models import LoadedModel, Prepared
from flm.text.grammar import CompiledGrammar, GrammarMatcher
from flm.types import OutputConstraint


def compiled(model: LoadedModel, constraint: OutputConstraint | None) -> CompiledGrammar | None:
    """The grammar of a constraint; None without one. Blocks for as long as a compilation takes.

    Raises:
        InvalidRequestError: it cannot be enforced; the message names what is at fault.
    """
    if constraint is None:
        return None
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
    model: LoadedModel, prepared: Prepared, eos_ids: frozenset[int]
) -> GrammarMatcher | None:
    """A matcher for one choice. It waits for the end of a reasoning block, where there is one:
    opened by the prompt, or by the model itself."""
    if prepared.grammar is None:
        return None
    start_after_ids: tuple[int, ...] | None = None
    open_ids: tuple[int, ...] = ()
    style, rendered = model.reasoning, prepared.rendered
    if style is not None and rendered is not None and _may_reason(prepared):
        start_after_ids = tuple(model.tokenizer.encode(style.close_tag, control=True))
        if not rendered.rstrip().endswith(style.open_tag):
            open_ids = tuple(model.tokenizer.encode(style.open_tag, control=True))
    return prepared.grammar.matcher(
        vocab_size=model.vocab_size,
        eos_ids=eos_ids,
        start_after_ids=start_after_ids,
        open_ids=open_ids,
    )


def _may_reason(prepared: Prepared) -> bool:
    request = prepared.request
    switch = request.template_kwargs.get("enable_thinking")
    return (request.settings.think if switch is None else switch) is not False
