import jinja2
import pytest

from flm.errors import InvalidRequestError, ModelFileError
from flm.text import jinja
from flm.text.jinja import TemplateRefusalError, compile_template, environment, run


def _run(source: str, **variables: object) -> str:
    return run(compile_template(environment(), source), variables)


def test_a_refusal_keeps_its_words() -> None:
    with pytest.raises(TemplateRefusalError, match=r"^no system$"):
        _run("{{ raise_exception('no system') }}")


def test_the_length_of_a_prompt_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jinja, "MAX_RENDERED_LEN", 100)
    with pytest.raises(InvalidRequestError, match="more than 100 characters"):
        _run("{% for i in range(60) %}{{ 'ab' }}{% endfor %}")


def test_a_failure_names_the_kind_of_error_and_is_short() -> None:
    with pytest.raises(InvalidRequestError, match="ZeroDivisionError") as caught:
        _run("{{ 1 / 0 }}")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(InvalidRequestError) as caught:
        _run("{{ x.y.z }}", x="a" * 10_000)
    assert len(caught.value.message) < 600


@pytest.mark.parametrize("source", ["{{", "{% x %}", "{% generation %}", "{{ a b }}"])
def test_a_broken_source(source: str) -> None:
    with pytest.raises(ModelFileError):
        compile_template(environment(), source)


def test_values_of_the_request_cannot_be_changed() -> None:
    for source in ("{{ x.append(1) }}", "{{ x.clear() }}", "{% do x %}"):
        with pytest.raises((InvalidRequestError, ModelFileError)):
            _run(source, x=[1])


def test_tojson_is_json_and_no_markup() -> None:
    assert _run("{{ x | tojson }}", x="<a> & 'é' \"") == '"<a> & \'é\' \\""'
    assert _run("{{ x | tojson(indent=2) }}", x=[1]) == "[\n  1\n]"
    assert _run("{{ x | tojson(ensure_ascii=true) }}", x="é") == '"\\u00e9"'
    assert not isinstance(_run("{{ x | tojson }}", x="a"), jinja2.nodes.Node)
