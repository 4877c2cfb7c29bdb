"""Open all pages of a folder in headless chromium: python scripts/check_site.py site.

Each page is loaded at widths of 400 and 1,400 pixels, in light and in dark. Errors are: an error of a script, a file
that cannot be loaded, and a page that is wider than the window.
"""

import argparse
import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

WIDTHS = (400, 1400)
SCHEMES = ("default", "slate")
"""Light and dark, by the names of MkDocs Material."""
HARNESS = """<!doctype html><meta charset="utf-8"><title>check</title><body><pre id="found"></pre><script>
const pages = %s, widths = %s, schemes = %s, found = [];
const frame = document.createElement("iframe");
frame.style.height = "900px";
document.body.append(frame);
function load(page) {
  return new Promise(done => { frame.onload = done; frame.src = page; });
}
async function run() {
  for (const page of pages) {
    await load(page);
    const inner = frame.contentWindow, root = inner.document.documentElement;
    for (const image of inner.document.images)
      if (image.complete && !image.naturalWidth && image.src) found.push(page + ": " + image.src + " is not loaded");
    for (const width of widths) for (const scheme of schemes) {
      frame.style.width = width + "px";
      inner.document.body.setAttribute("data-md-color-scheme", scheme);
      if (root.scrollWidth > width) found.push(page + ": is " + root.scrollWidth + " pixels wide at " + width);
      const style = inner.getComputedStyle(inner.document.body);
      if (style.color === style.backgroundColor) found.push(page + ": text has the colour of its ground, " + scheme);
    }
  }
  document.getElementById("found").textContent = JSON.stringify(found);
  document.body.setAttribute("data-done", pages.length);
}
run();
</script>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the folder, and notes what was asked for and is absent."""

    absent: list[str] = []

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Note the path."""
        if not self.path.endswith("favicon.ico"):
            self.absent.append(f"{self.path}: answer {code}")
        super().send_error(code, message, explain)


def check(folder: Path, browser: str, seconds: int = 600, dark: bool = False) -> list[str]:
    """Return what is wrong with the pages below `folder`. Raises RuntimeError if the browser does not finish.

    `dark` is the preference of the system, which pages follow that are not made by MkDocs.
    """
    pages = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.html"))
    harness = folder / "check-site.html"
    harness.write_text(HARNESS % (json.dumps(pages), json.dumps(WIDTHS), json.dumps(SCHEMES)))
    Quiet.absent.clear()
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, tempfile.TemporaryDirectory() as profile:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        command += ["--enable-logging=stderr", "--v=0", "--window-size=1500,1000", "--dump-dom"]
        command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
        command += [f"--virtual-time-budget={20_000 + 3_000 * len(pages)}"]
        command += [f"http://127.0.0.1:{server.server_port}/check-site.html"]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        finally:
            server.shutdown()
            harness.unlink()
    if f'data-done="{len(pages)}"' not in run.stdout:
        raise RuntimeError(f"{browser} has not opened all pages: {run.stderr[-500:]}")
    found = json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', run.stdout, re.S)[1]))
    messages = re.findall(r"CONSOLE[^\]]*\] \"(.*?)\", source: (\S+)", run.stderr)
    return [*found, *Quiet.absent, *(f"{source}: {text}" for text, source in messages if "rror" in text)]


def main(words: Sequence[str] | None = None) -> int:
    """Check the pages and return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with HTML pages, e.g. site or a report")
    parser.add_argument("--browser", default="chromium", help="name of the program (default: chromium)")
    arguments = parser.parse_args(words)
    if shutil.which(arguments.browser) is None:
        parser.error(f"{arguments.browser} is not installed (Debian: apt install chromium)")
    found = check(arguments.folder.resolve(), arguments.browser)
    print(
        "\n".join(found) or f"all pages of {arguments.folder} open, at widths of 400 and 1,400 pixels, light and dark"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
