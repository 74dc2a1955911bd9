"""The switches of reasoning models: what sticks, and what holds for one request."""

from typing import TYPE_CHECKING, Any

from flm.server.records import Records
from flm.server.schemas.conversation import conversation_of
from flm.server.schemas.generation import EFFORT_ALIASES, GenerationBody
from flm.types import Settings

if TYPE_CHECKING:
    from flm.service import LoadedModel

_NO_REASONING = "This model does not reason."
_ALWAYS = "This model always reasons; that cannot be switched off."


def sent_switches(
    body: GenerationBody, model: "LoadedModel", in_force: Settings, records: Records
) -> dict[str, Any]:
    """The sticky switches the body carries. The effort decides where both are sent, because it
    says more: none is off, every other one is on."""
    if not model.reasons:
        _drop_all(body, records)
        return {}
    if model.think == "always":
        return _sent_to_always(body, model, in_force, records)
    asked: bool | None = body.sticky_value("think")
    effort = _effort(body, in_force, records)
    if effort is not None:
        think = effort != "none"
        if asked is not None and asked != think:
            reason = f"{body.own_name('reasoning_effort')} {effort} was sent too and decides."
            records.substituted(body.own_name("think"), reason, asked, think)
        return {"think": think, "reasoning_effort": effort}
    if asked is None:
        return {}
    if asked and in_force.reasoning_effort == "none":
        # An effort of none would contradict what was just asked.
        default = model.store.defaults.reasoning_effort
        return {"think": True, "reasoning_effort": None if default == "none" else default}
    return {"think": asked}


def _drop_all(body: GenerationBody, records: Records) -> None:
    for name in ("think", "reasoning_effort"):
        if body.sticky_value(name) is not None:
            records.dropped(body.own_name(name), _NO_REASONING, body.asked_value(name))


def _sent_to_always(
    body: GenerationBody, model: "LoadedModel", in_force: Settings, records: Records
) -> dict[str, Any]:
    """What sticks on a model that always reasons: how much, if its template passes that on."""
    if body.sticky_value("think") is False:
        records.dropped(body.own_name("think"), _ALWAYS, body.asked_value("think"))
    name, asked = body.own_name("reasoning_effort"), body.sticky_value("reasoning_effort")
    if not model.reads_effort:
        if asked is not None:
            reason = "This model always reasons, and has no levels of it."
            records.dropped(name, reason, asked)
        return {}
    effort = _effort(body, in_force, records)
    if effort == "none":
        records.dropped(name, _ALWAYS, asked)
        return {}
    return {} if effort is None else {"reasoning_effort": effort}


def _effort(body: GenerationBody, in_force: Settings, records: Records) -> str | None:
    name, asked = body.own_name("reasoning_effort"), body.sticky_value("reasoning_effort")
    if asked is None:
        return None
    effort = EFFORT_ALIASES.get(asked)
    if effort is None:
        kept = in_force.reasoning_effort
        reason = (
            f"{name} must be one of {', '.join(EFFORT_ALIASES)}; "
            f"{'the default' if kept is None else kept} is kept."
        )
        records.dropped(name, reason, asked)
        records.warnings.append(f"{name} {asked[:40]!r} is ignored: {reason}")
    elif effort != asked:
        records.substituted(name, f"It acts as {effort}.", asked, effort)
    return effort


def request_switch(
    body: GenerationBody, model: "LoadedModel", sent: dict[str, Any], records: Records
) -> dict[str, Any]:
    """Template variables of this request; ``enable_thinking`` among them acts as ``think``,
    and so does the template's own name for it."""
    chat = conversation_of(body)
    if chat is None:
        return {}
    given = chat.chat_template_kwargs if chat.chat_template_kwargs is not None else {}
    kwargs = {name: value for name, value in given.items() if value is not None}
    inner, inner_name = _inner_switch(kwargs, model.thinking_switch, records)
    outer = chat.enable_thinking
    if model.think in ("none", "always"):
        reason = _NO_REASONING if model.think == "none" else _ALWAYS
        for name, value in (
            ("enable_thinking", outer),
            (inner_name, inner),
        ):
            if value is not None and not (value and model.think == "always"):
                records.dropped(name, reason, value)
        return {name: value for name, value in kwargs.items() if name != "enable_thinking"}
    if inner is not None and outer is not None and inner != outer:
        reason = f"{inner_name} was sent too and decides."
        records.substituted("enable_thinking", reason, outer, inner)
    switch = inner if inner is not None else outer
    if switch is None:
        return kwargs
    if sent.get("think", switch) != switch:
        name = body.own_name("think")
        reason = f"enable_thinking decides this request; {name} is kept for later ones."
        records.substituted(name, reason, sent["think"], switch)
    return {**kwargs, "enable_thinking": switch}


def _inner_switch(
    kwargs: dict[str, Any], own_name: str, records: Records
) -> tuple[bool | None, str]:
    """The switch in ``chat_template_kwargs`` and its field, the template's own name for it taken
    out."""
    inner, field = kwargs.get("enable_thinking"), "chat_template_kwargs.enable_thinking"
    own, own_field = kwargs.get(own_name), f"chat_template_kwargs.{own_name}"
    if own_name == "enable_thinking" or not isinstance(own, bool):
        return inner, field
    del kwargs[own_name]
    if inner is None:
        return own, own_field
    if inner != own:
        records.substituted(own_field, f"{field} was sent too and decides.", own, inner)
    return inner, field
