"""Programs that tests start and wait for."""

import subprocess


def completed(words, code=0, **more):
    """A program that has ended, and what it printed as text.

    Args:
        words: its name and arguments, texts or others.
        code: it has to end with; None for any.
        more: as ``subprocess.run`` takes it.
    """
    words = [str(word) for word in words]
    done = subprocess.run(words, check=False, capture_output=True, text=True, **more)
    assert code in (None, done.returncode), (
        f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done
