"""`python -m sheafed` is the command line."""

from sheafed.cli import main

main()
