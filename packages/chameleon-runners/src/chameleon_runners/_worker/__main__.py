"""Entry point of a worker: ``python -m chameleon_runners._worker COMMANDS REPLIES``.

Both arguments are numbers of inherited file descriptors.
"""

from __future__ import annotations

import os
import sys

from chameleon_runners._worker.protocol import Decoder, receive, send


def main() -> int:
    """Answer commands until the pipe of commands is closed."""
    commands, replies = (int(argument) for argument in sys.argv[1:3])
    # Programs that a candidate starts must not hold the pipes open.
    os.set_inheritable(commands, False)
    os.set_inheritable(replies, False)
    # Imported here, because a worker whose runner has ended should end at once.
    from chameleon_runners._worker.command_handler import CommandHandler  # noqa: PLC0415

    own = os.getpid()
    handler = CommandHandler()
    decoder = Decoder()
    while (messages := receive(commands, decoder)) is not None:
        for message in messages:
            reply = handler.answer(message)
            if os.getpid() != own:
                # A child process that a candidate forked must not continue as a worker.
                os._exit(0)
            sys.stdout.flush()
            sys.stderr.flush()
            send(replies, reply)
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except MemoryError:  # outside of a stage's own code, which answers with its errors
        os.write(2, b"memory_mib of the runner is too small for a worker")
        status = 1
    # Skip finalisers, because those of a candidate's libraries may hang or crash.
    os._exit(status)
