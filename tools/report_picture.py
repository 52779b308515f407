"""The pictures of a report as one PNG, for a page of the documentation. Needs Chromium.

python tools/report_picture.py report.html docs/guides/precision.png        # of the guide's own example
python examples/judge/wrong_kernel.py --report report.html
python tools/report_picture.py report.html examples/judge/report.png
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

WIDTH, HEIGHT, SCALE, MARGIN = 940, 3000, 2, 12
ONLY_PICTURES = """<style>
body > *, details.output > *, details.output ~ details.output, .grid > section { display: none; }
body > details.output, details.output > .grid { display: block; } details.output > .grid { display: grid; margin: 0; }
details.output { margin: 0; } .grid > section:has(svg) { display: block; }
</style></head>"""


def main(report: Path, picture: Path) -> None:
    """Draw the pictures of the first output that the report shows."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("there is no Chromium; Debian has it as `chromium`")
    with tempfile.TemporaryDirectory() as folder:
        page, shot = Path(folder) / "page.html", Path(folder) / "shot.png"
        page.write_text(report.read_text(encoding="utf-8").replace("</head>", ONLY_PICTURES, 1), encoding="utf-8")
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--screenshot={shot}",
                 "--blink-settings=preferredColorScheme=1", f"--force-device-scale-factor={SCALE}",
                 f"--window-size={WIDTH},{HEIGHT}", f"--user-data-dir={folder}/profile"]  # fmt: skip
        subprocess.run([chromium, *words, page.as_uri()], check=True, capture_output=True)  # noqa: S603  fixed words
        image = Image.open(shot).convert("RGB")
    left, top, right, bottom = ImageChops.difference(image, Image.new("RGB", image.size, "white")).getbbox()
    cut = image.crop((left - MARGIN, top - MARGIN, right + MARGIN, bottom + MARGIN))
    cut.quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
