"""What becomes of the settings that are not about sampling, tools and reasoning."""

from flm.router import CacheConfig, Config
from tests.router.setting_rows import NOTHING, OK, Cell, D, R, Row, at, cached, row

THINK = "chat_template_kwargs.enable_thinking"
CONTINUE = "continue_final_message"
GOES_ON = Cell({CONTINUE: True, "add_generation_prompt": False})

SWITCHES: list[Row] = [
    row("think", False, D, D, D, D, D, at(THINK), D, at("think")),
    Row(
        CONTINUE,
        Config(continue_final_message=True),
        CONTINUE,
        True,
        (OK, R, R, R, R, GOES_ON, R, at(CONTINUE)),
        ends_open=True,
    ),
]

CACHE: list[Row] = [
    cached(
        "key",
        CacheConfig(key="k"),
        "key",
        "k",
        D,
        at("prompt_cache_key"),
        at("prompt_cache_key"),
        D,
        at("prompt_cache_key"),
        D,
        D,
        at("prompt_cache_key"),
    ),
    cached(
        "long",
        CacheConfig(retention="long"),
        "retention",
        "long",
        NOTHING,
        *(at("prompt_cache_retention", "24h"),) * 2,
        D,
        at("prompt_cache_retention", "24h"),
        D,
        D,
        D,
    ),
    cached("short", CacheConfig(retention="short"), "retention", "short", *(NOTHING,) * 8),
    cached(
        "index",
        CacheConfig(prefix_until_index=0),
        "prefix_until_index",
        0,
        NOTHING,
        *(D,) * 7,
    ),
    cached(
        "cache_off",
        CacheConfig(mode="off"),
        "mode",
        "off",
        NOTHING,
        *(D,) * 6,
        at("cache_prompt", False),
    ),
    cached(
        "resource",
        CacheConfig(resource="cachedContents/1"),
        "resource",
        "cachedContents/1",
        R,
        R,
        R,
        at("cachedContent"),
        R,
        R,
        R,
        R,
    ),
]

ACCOUNT: list[Row] = [
    row(
        "service_tier",
        "flex",
        at("service_tier"),
        at("service_tier"),
        at("service_tier"),
        at("serviceTier"),
        at("service_tier"),
        at("service_tier"),
        at("service_tier"),
        D,
    ),
    row(
        "user_id",
        "u1",
        at("metadata.user_id"),
        at("safety_identifier"),
        at("user"),
        D,
        at("safety_identifier"),
        *(at("user"),) * 3,
    ),
    row("store", True, D, at("store"), at("store"), at("store"), R, at("store"), at("store"), D),
    Row(
        "not_stored",
        Config(store=False),
        "store",
        False,
        (OK, *(at("store"),) * 3, NOTHING, at("store"), at("store"), NOTHING),
    ),
    row("probabilities", "if_available", *(D,) * 8),
    Row("distributions", Config(probabilities="required"), "probabilities", "required", (R,) * 8),
    row("extensions", {"x_mine": [1]}, *(at("x_mine", [1]),) * 8),
]
