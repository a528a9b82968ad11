"""``python -m ccpipe`` is the command ``ccpipe``."""

from ccpipe.cli import main

if __name__ == "__main__":
    main()
