"""``python -m tileforge`` is the ``tileforge`` command."""

from tileforge.cli import main

main()
