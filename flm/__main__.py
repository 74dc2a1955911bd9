"""``python -m flm``: the same as ``flm``."""

from flm.cli.main import main

main()
