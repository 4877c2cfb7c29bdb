"""Do something as a user whom permissions stop: root, as whom tests run in containers, opens every file."""

import os
from collections.abc import Callable

NOBODY = 65534


def as_nobody(work: Callable[[], object]) -> str:
    """Return the repr of what `work` returns, or of what it raises, in a process of its own without privileges.

    Root becomes nobody in it; another user stays who it is. Everything that `work` imports must have been imported.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # nothing of pytest may run in this process
        answer = ""
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            answer = repr(work())
        except BaseException as err:
            answer = repr(err)
        finally:
            os.write(writing, answer.encode("utf-8", "backslashreplace")[:60_000])
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer
