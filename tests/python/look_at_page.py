"""Looks at a page in headless Chromium and prints what it saw as JSON. Standard library only.

    look_at_page.py PAGE < LOOKS

PAGE is a file. LOOKS is a JSON list of looks, one answer each: {"width": 360, "dark": true, "print": false,
"evaluate": {"name": "script"}, "screenshot": "file.png"}; all but the width may be left out. An answer holds

    overflow    how many pixels the page is wider than the window
    problems    what the console said and what was thrown
    requests    addresses that the page asked for, besides its own file
    contrast    [ratio, text] of the text that is hardest to read against what is behind it (WCAG 2.2, relative luminance)
    values      what the scripts gave, by name

Chromium is driven through its DevTools pipe: commands on descriptor 3, answers on 4, each ended by a zero byte.
"""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 60  # seconds for one answer of the browser

# Every text on the page against the nearest background behind it. Text in SVG: its fill, against the page unless it stands on a bar.
CONTRAST = """
(() => {
  const parse = colour => (colour.match(/[\\d.]+/g) ?? []).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ratio = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + .05) / (low + .05);
  };
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const onBar = text => {
    let bar = text.previousElementSibling;
    while (bar && !bar.classList.contains('action')) bar = bar.previousElementSibling;
    return parse(getComputedStyle(bar).fill);
  };
  let worst = [99, ''];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].filter(child => child.nodeType === 3).map(child => child.data).join('').trim();
    if (!own || node.getClientRects().length === 0) continue;
    const svg = node instanceof SVGElement, style = getComputedStyle(node);
    const ground = svg && node.classList.contains('inside') ? onBar(node) : behind(svg ? node.closest('svg') : node);
    const found = ratio(parse(svg ? style.fill : style.color), ground);
    if (found < worst[0]) worst = [found, own.slice(0, 60)];
  }
  return worst;
})()
"""


class Browser:
    def __init__(self, folder):
        program = next(filter(None, map(shutil.which, BROWSERS)), None)
        if program is None:
            sys.exit(f"look_at_page: there is none of {', '.join(BROWSERS)}; tools/setup.sh --tests installs chromium")
        command_read, self.command = os.pipe()
        self.answer, answer_write = os.pipe()
        # The browser wants the pipe on 3 and 4, whatever numbers the pipes have here.
        plumbing = f'exec "$@" 3<&{command_read} 4>&{answer_write}'
        self.process = subprocess.Popen(
            ["sh", "-c", plumbing, "sh", program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--hide-scrollbars", "--disable-background-networking", "--remote-debugging-pipe",
             f"--user-data-dir={folder}"],
            pass_fds=(command_read, answer_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(command_read)
        os.close(answer_write)
        self.buffer = b""
        self.last = 0
        self.events = []
        self.session = None

    def _receive(self):
        while b"\0" not in self.buffer:
            if not select.select([self.answer], [], [], PATIENCE)[0]:
                sys.exit(f"look_at_page: chromium was silent for {PATIENCE} s")
            more = os.read(self.answer, 1 << 20)
            if not more:
                sys.exit("look_at_page: chromium ended")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.command, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.last:
                if "error" in answer:
                    sys.exit(f"look_at_page: {method}: {answer['error']}")
                return answer["result"]
            if "method" in answer:
                self.events.append(answer)

    def wait_for(self, method):
        while not any(event["method"] == method for event in self.events):
            answer = self._receive()
            if "method" in answer:
                self.events.append(answer)

    def open(self, address, width, dark, is_printed):
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", media="print" if is_printed else "",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events = []
        failure = self.call("Page.navigate", url=address).get("errorText")
        if failure:
            sys.exit(f"look_at_page: {address}: {failure}")
        self.wait_for("Page.loadEventFired")
        # Two frames: what the page draws when it knows its size is there.
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def evaluate(self, script):
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            sys.exit(f"look_at_page: {answer['exceptionDetails'].get('exception', {}).get('description')}\n  in {script}")
        return answer["result"].get("value")

    def problems(self):
        found = []
        for event in self.events:
            values = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(str(values["exceptionDetails"].get("exception", {}).get("description")))
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(" ".join(str(argument.get("value")) for argument in values["args"]))
            elif event["method"] == "Log.entryAdded":
                found.append(values["entry"]["text"])
        return found

    def requests(self, own):
        addresses = [event["params"]["request"]["url"] for event in self.events
                     if event["method"] == "Network.requestWillBeSent"]
        return [address for address in addresses if address != own and not address.startswith("data:")]

    def close(self):
        self.session = None
        self.call("Browser.close")
        self.process.wait(timeout=PATIENCE)


def look(browser, address, wanted):
    browser.open(address, wanted["width"], wanted.get("dark", False), wanted.get("print", False))
    values = {name: browser.evaluate(script) for name, script in wanted.get("evaluate", {}).items()}
    answer = {
        # Not against innerWidth: a phone zooms out over a page that is too wide.
        "overflow": browser.evaluate("document.documentElement.scrollWidth") - wanted["width"],
        "contrast": browser.evaluate(CONTRAST),
        "values": values,
        "problems": browser.problems(),
        "requests": browser.requests(address),
    }
    if "screenshot" in wanted:
        image = browser.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        pathlib.Path(wanted["screenshot"]).write_bytes(base64.b64decode(image))
    return answer


def main():
    address = pathlib.Path(sys.argv[1]).resolve().as_uri()
    looks = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(folder)
        try:
            print(json.dumps([look(browser, address, wanted) for wanted in looks]))
            browser.close()
        finally:
            browser.process.kill()
            browser.process.wait()


main()
