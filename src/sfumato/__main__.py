"""Run the command line as ``python -m sfumato``."""

from sfumato.cli.main import main

main()
