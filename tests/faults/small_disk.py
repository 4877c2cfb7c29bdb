"""Run a command on a disk that is too small for it, and again after the disk has grown.

python small_disk.py BYTES FOLDER SCRIPT WORDS...: FOLDER is copied to a tmpfs of that size, which only this process and
its children see. What is on the disk in the end replaces FOLDER, and FOLDER.json holds both exit codes. Ends with 77
where the machine allows no mount.
"""

import ctypes
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

NEW_USERS, NEW_MOUNTS = 0x10000000, 0x00020000
PRIVATE, AGAIN = 0x40000 | 0x4000, 0x20
NOT_ALLOWED = 77
libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)


def enter_namespace() -> None:
    """Become root of an own user namespace, with mounts of its own."""
    user, group = os.getuid(), os.getgid()
    call("unshare", NEW_USERS | NEW_MOUNTS)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        Path(f"/proc/self/{name}").write_text(text)
    call("mount", b"none", b"/", None, PRIVATE, None)


def run(words: list[str], folder: Path, output: Path) -> int:
    """Do the command in a forked process, which has what this one imported."""
    from fork_server import do

    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), 1)
        os.dup2(1, 2)
        os.chdir(folder)
        sys.exit(do(words))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(size: int, folder: Path, words: list[str]) -> int:
    disk = Path(tempfile.mkdtemp())
    try:
        enter_namespace()
        call("mount", b"tmpfs", bytes(disk), b"tmpfs", 0, b"size=%d" % size)
    except OSError as err:
        sys.stdout.write(f"no mount here: {err}\n")
        return NOT_ALLOWED
    work = disk / folder.name
    shutil.copytree(folder, work)
    codes = [run(words, work, folder.with_suffix(".first"))]
    call("mount", b"tmpfs", bytes(disk), b"tmpfs", AGAIN, b"size=%d" % (1 << 26))
    codes.append(run(words, work, folder.with_suffix(".second")))
    shutil.rmtree(folder)
    shutil.copytree(work, folder)
    folder.with_suffix(".json").write_text(json.dumps(codes))
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
