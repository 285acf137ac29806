"""`python -m payasync` is the `payasync` command."""

from payasync.cli import main

if __name__ == "__main__":
    main()
