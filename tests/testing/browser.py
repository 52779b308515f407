"""Pages as a browser shows them: headless Chromium, where there is one."""

import html
import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
NEEDS_BROWSER = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium; Debian has it as `chromium`")

LOOK = """
<script>
addEventListener("load", () => setTimeout(() => {
  const page = document.getElementById("page").contentDocument, root = page.documentElement;
  const text = page.body.innerText;
  const style = getComputedStyle.call(page.defaultView, page.body);
  const drawn = [...page.querySelectorAll("svg")].filter(svg => svg.getBoundingClientRect().height > 20).length;
  const scrolled = [...page.querySelectorAll(".scroll")].filter(part => part.scrollWidth > part.clientWidth);
  document.body.textContent = "SEEN" + JSON.stringify({
    width: root.scrollWidth, room: root.clientWidth, drawn, text, background: style.backgroundColor,
    scrolled: scrolled.map(part => part.firstElementChild.className),
  }) + "SEEN";
}, 50));
</script>
"""


def seen(path, folder, width, dark=False):
    """What a browser makes of a page in a window of some width: its width, colour, text and the pictures it drew."""
    page = html.escape(path.read_text(encoding="utf-8"))
    frame = folder / f"frame-{width}-{dark}.html"
    frame.write_text(
        f'<!doctype html><body style="margin:0"><iframe id="page" srcdoc="{page}" '
        f'style="width:{width}px;height:800px;border:0"></iframe>{LOOK}</body>',
        encoding="utf-8",
    )
    done = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         f"--user-data-dir={folder / 'profile'}", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
         "--virtual-time-budget=2000", "--dump-dom", frame.as_uri()],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    found = re.search(r"SEEN(.*)SEEN", done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return json.loads(html.unescape(found[1]))
