"""Reports in a browser: nothing is wider than the window, of a desk or of a phone; of each picture of curves one form
is shown, whole and with letters that can be read; the console is silent; links and wide tables are reached by
keyboard."""
import os
import re
import shutil
import subprocess

from checks import LESS, require

WIDTHS, HEIGHT = (1280, 360), 900
SCRIPT = """<script>onload = () => { for (const frame of document.querySelectorAll("iframe")) {
  const inside = frame.contentDocument;
  const reached = [...inside.querySelectorAll("a,[tabindex]")].filter(e => e.tabIndex >= 0).length;
  const wide = [...inside.querySelectorAll(".wide")].filter(e => e.scrollWidth > e.clientWidth + 1 && e.tabIndex < 0);
  const takes = inside.documentElement.scrollWidth;
  const sizes = [...inside.querySelectorAll(".drawing")].flatMap(drawing => {
    const shown = [...drawing.children].filter(e => e.getBoundingClientRect().width > 0);
    return shown.map(e => shown.length > 1 || drawing.scrollWidth > drawing.clientWidth ? 0 : Math.min(
      ...[...e.querySelectorAll("text")].map(text => parseFloat(frame.contentWindow.getComputedStyle(text).fontSize) *
          e.getBoundingClientRect().width / e.viewBox.baseVal.width)));
  });
  const cut = [...inside.querySelectorAll(".drawing text")].filter(text => {
    const at = text.getBoundingClientRect(), whole = text.ownerSVGElement.getBoundingClientRect();
    return at.left < whole.left - 1 || at.right > whole.right + 1;
  }).length;
  const least = Math.floor(Math.min(...sizes, 99));
  const stuck = wide.length;
  document.body.append(`${frame.id} takes ${takes} reached ${reached} stuck ${stuck} letters ${least} cut ${cut};`);
}}</script>"""


def look(pages, pictures, least=4):
    """`pages`: name -> path, under the working directory, each with so many things to reach by keyboard. Leaves a
    picture of all in `pictures`."""
    chromium = shutil.which("chromium")
    if LESS:
        return
    if not chromium:
        print("skipped: the reports are not looked at in a browser, as there is no chromium")
        return
    frames = [f'<iframe id="{name}:{width}" src="{path}" style="width:{width}px;height:{HEIGHT}px"></iframe>'
              for name, path in pages.items() for width in WIDTHS]
    with open("look.html", "w") as file:
        file.write(f"<meta charset=utf-8><style>iframe{{border:0}}</style>{''.join(frames)}{SCRIPT}")
    picture = os.path.join(pictures, f"reports-{'-'.join(pages)}.png")
    common = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--hide-scrollbars",
              "--allow-file-access-from-files", "--virtual-time-budget=2000", f"--user-data-dir={os.getcwd()}/profile",
              f"--window-size={sum(WIDTHS) + 40},{(HEIGHT + 10) * len(pages)}"]
    result = subprocess.run([*common, "--dump-dom", f"file://{os.getcwd()}/look.html"], capture_output=True, text=True,
                            timeout=240)
    found = re.findall(r"(\S+):(\d+) takes (\d+) reached (\d+) stuck (\d+) letters (\d+) cut (\d+);",
                       result.stdout)
    require(len(found) == len(frames), "chromium says", result.stdout[-500:], result.stderr[-2000:])
    for name, *numbers in found:
        width, takes, reached, stuck, letters, cut = map(int, numbers)
        require(takes <= width, name, "needs", takes, "pixels, more than", width)
        require(reached >= least and not stuck, name, width, "reached by keyboard:", reached, "not:", stuck)
        require(letters >= 10 and not cut, name, width, "curves with letters of", letters, "pixels, cut off:", cut)
    require("CONSOLE" not in result.stderr, result.stderr)
    subprocess.run([*common, f"--screenshot={picture}", f"file://{os.getcwd()}/look.html"], capture_output=True,
                   timeout=240)
    print("picture:", picture)
