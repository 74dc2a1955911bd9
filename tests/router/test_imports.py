"""Importing the router is cheap, and brings in httpx with the first request only."""

import subprocess
import sys

HEAVY = "('torch', 'transformers', 'fastapi', 'pydantic', 'numpy', 'httpx', 'flm.server')"
SCRIPT = f"""
import sys
import flm.router as r

def loaded():
    return [name for name in {HEAVY} if name in sys.modules]

assert loaded() == [], loaded()
router = r.LMRouter(r.RouterConfig(env={{}}))
request = r.Request(model="flm:m", messages=[r.Message.user("hi")])
assert router.plan(request) == ()
router.resolve("flm:m").describe()
stream = router.stream(request)
assert loaded() == [], loaded()
try:
    r.LMRouter(r.RouterConfig(base_urls={{"flm": "http://127.0.0.1:1/v1"}})).complete(request)
except r.TransportError:
    pass
assert loaded() == ["httpx"], loaded()
print("fine")
"""


def test_nothing_heavy_is_loaded() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert (found.stdout, found.stderr) == ("fine\n", "")
