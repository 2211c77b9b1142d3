"""The page of `report --html`: what it says, that it works alone, and that a browser shows it so.

The tests in a browser need `chromium` (Debian's package) and skip without it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from opwright.workflows import report_page
from opwright.workflows.enable import STAGES
from opwright.workflows.records import LEVELS

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
browser = pytest.mark.skipif(
    BROWSER is None, reason="there is no chromium (Debian: apt-get install chromium)"
)


def row(name: str, state: str = "claimed", level: str = "L2", **more: Any) -> dict[str, Any]:
    stale = state == "stale"
    found: dict[str, Any] = {
        "architecture": name,
        "target": "cpu",
        "dtype": "f32",
        "level": None if stale else level,
        "levels": {n: None if stale else (True if n <= level else None) for n in LEVELS},
        "reasons": {n: "not measured by this version" for n in LEVELS if n > level},
        "seconds": {"captured": 6.0, "supplied": 0.5, "validated": 1.25, "composed": 3.0, "parity": 4.0},
        "supplied": [{"op": "mm", "by": "person", "seconds": 1.5}],
        "missing": [],
        "state": state,
        "reason": {"stale": "changed since: softmax", "claimed": "not yet run again"}.get(state, "at c0ffee"),
        "attempts": 2,
        "supported": False,
        "operators": ["add", "matmul", "softmax"],
        "groups": ["group:0123456789abcdef"],
        "error": {"max": 1.2e-06, "bound": 8.1e-06, "eager": 1.5e-06},
        "sensitivity": {"detected": 172, "total": 172},
        "calls": {"add": 5, "softmax": 2},
        "slowest": [{"op": "softmax", "calls": 2, "seconds": 0.25}],
        "weights": "random",
        "scale": "tiny",
        "clocks": {
            "published": None,
            "first_attempt": "2026-01-01T00:00:00Z",
            "supported": None,
            "wall_s": None,
            "active": {},
        },
    }
    return found | more


def supported(name: str, published: str) -> dict[str, Any]:
    clocks = row(name)["clocks"] | {"published": published, "supported": "2026-03-03T00:00:00Z"}
    return row(name, "verified", "L4", supported=True, clocks=clocks)


ROWS = [
    supported("llama", "2026-03-01T00:00:00Z"),
    supported("gpt2", "2026-03-02T00:00:00Z"),
    row("bert"),
    row("vit", "stale"),
    row(
        "mamba",
        level="L0",
        missing=[{"op": "aten.scan.default", "site": "modeling.py:7", "why": "no <spec>"}],
    ),
]


def grown(name: str, covered: float, new: list[str], registry: int) -> dict[str, Any]:
    when = "2026-01-01T00:00:00Z"
    first = {"architecture": name, "when": when, "published": covered == 0, "operators": 4}
    return first | {"new": new, "covered": covered, "registry": registry}


GROWN = [grown("llama", 0.0, ["add", "exp", "mul", "sum"], 4), grown("bert", 0.75, ["erf"], 5)]


def html(rows: list[dict[str, Any]] | None = None) -> str:
    return report_page.page(
        ROWS if rows is None else rows, LEVELS, STAGES, made="From the records at c0ffee.", grown=GROWN
    )


class Read(HTMLParser):
    """The tags that are open, the ids, what is linked, and all text."""

    VOID = frozenset({"meta", "input", "br", "link", "img"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if tag == "a" else []
        self.loads += [
            v for k, v in attrs if (v and k in ("src", "srcset", "data")) or (k == "href" and tag == "link")
        ]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_first_line_says_it_in_plain_words() -> None:
    assert report_page.first_line(ROWS) == (
        "2 supported, 2 claimed, 1 stale; median from published to supported 36 h."
    )
    assert report_page.first_line(ROWS[2:]).startswith(
        "0 supported, 2 claimed, 1 stale; median active time 15 s;"
    )
    assert report_page.first_line([]) == "0 supported, 0 claimed, 0 stale; no time was measured yet."
    below = row("t5", "verified")
    assert report_page.first_line([below]).startswith("0 supported, 1 verified below support, 0 claimed")


def test_the_page_is_whole_and_loads_nothing() -> None:
    read = Read(html())
    assert read.open == [] and read.loads == []
    assert len(read.ids) == len(set(read.ids))
    assert {link.removeprefix("#") for link in read.links} <= set(read.ids)
    assert not re.search(r"https?://|@import|url\(", html())


def test_every_fact_stands_in_it_without_the_script() -> None:
    text = " ".join(" ".join(Read(html().split("<script>")[0] + "</body></html>").texts).split())
    for r in ROWS:
        assert r["architecture"] in text
    for word in (
        "softmax", "group:0123456789abcdef", "8.1e-06", "172 of 172", "aten.scan.default", "modeling.py:7",
        "changed since: softmax", "mm: person", "published 2026-03-01T00:00:00Z",
        "7 calls before fusion", "softmax × 2", "75 %",
    ):  # fmt: skip
        assert word in text, word
    for words in (
        *report_page.LEVEL_WORDS.values(),
        *report_page.STATE_WORDS.values(),
        *report_page.TERMS.values(),
    ):
        assert words in text, "a term that is not explained"
    assert set(report_page.LEVEL_WORDS) == set(LEVELS) and set(report_page.STAGE_WORDS) >= set(STAGES)


def test_a_level_is_called_the_same_in_the_table_and_below() -> None:
    bert = row("bert", level="L3", reasons={"L4": "it does not apply: the model writes no text"})
    stale = row("vit", "stale")
    assert [report_page.held_words(bert, n) for n in ("L3", "L4", "L5")] == [
        "held",
        "does not apply",
        "not measured",
    ]
    assert report_page.held_words(bert | {"levels": {"L4": False}}, "L4") == "not held"
    assert report_page.held_words(stale, "L0") == "stale"
    text = html([bert])
    assert text.count("does not apply</") == 2  # the table's hidden word, and the list's term
    assert "<dt>L4 does not apply</dt>" in text and "L0 to L2</option>" in text


def test_times_say_whether_kernels_were_compiled_in_them() -> None:
    words = [{}, {"built": 0, "found": 40}, {"built": 12, "found": 28}, {"built": 0, "found": 0}]
    said = [report_page.cache_words(row("x", kernels=k)) for k in words]
    assert said == ["unknown", "warm", "cold (12 of 40 built)", "unknown"]
    assert report_page.cache_words(row("x")) == "unknown"
    assert "kernel cache: cold (12 of 40 built)" in html([row("x", kernels=words[2])])


def test_what_records_say_is_text_not_markup() -> None:
    bad = row("x", reason='<img src=x onerror="alert(1)">')
    text = html([bad])
    assert "<img" not in text and "&lt;img" in text
    assert Read(text).loads == []


def test_an_empty_page_says_what_to_do() -> None:
    assert "opwright enable llama" in html([])
    assert Read(html([])).open == []


def test_the_command_writes_it_whole(ow: Any, tmp_path: Path) -> None:
    out = tmp_path / "support.html"
    ran = ow("report", "--html", out)
    assert (ran.code, ran.out) == (0, f"{out}\n")
    assert Read(out.read_text(encoding="utf-8")).open == []
    again = ow("report", "--json").json
    assert again["summary"].keys() == report_page.summary([]).keys()
    assert ow("report", "--markdown").out.splitlines()[0] == report_page.first_line(again["architectures"])
    page = tmp_path / "support.md"
    ran = ow("report", "--markdown", page)
    assert (ran.code, ran.out) == (0, f"{page}\n") and "| cache |" in page.read_text(encoding="utf-8")
    name = again["architectures"][0]["architecture"]
    assert f"| {name} |" in ow("report", "--markdown", name).out


def run_browser(page: Path, *options: str, width: int = 1280) -> str:
    assert BROWSER is not None
    ran = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={page.parent / 'profile'}",
            f"--window-size={width},900", "--virtual-time-budget=3000", *options, page.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    return ran.stdout


#: A script that works the page as a person does, and writes what it saw into the title.
DRIVE = """
<script>
const say = [], get = id => document.getElementById(id), shown = () =>
  [...get("table").tBodies[0].rows].filter(r => !r.hidden).map(r => r.querySelector("a").textContent).join("+");
const put = (id, v) => { get(id).value = v; get(id).dispatchEvent(new Event("input")); };
say.push(shown(), get("count").textContent);
put("search", "Scan"); say.push(shown()); put("search", "");
put("state", "stale"); say.push(shown()); put("state", "");
put("level", "L4"); say.push(shown(), get("count").textContent); put("level", "");
const heads = get("table").tHead.rows[0].cells;
heads[0].querySelector("button").click(); say.push(shown(), heads[0].getAttribute("aria-sort"));
heads[0].querySelector("button").click(); say.push(shown());
location.hash = "#vit-cpu-f32";
addEventListener("hashchange", () => {
  say.push(get("vit-cpu-f32").open, document.activeElement.tagName, get("bert-cpu-f32").open);
  say.push(document.documentElement.scrollWidth <= innerWidth);
  document.title = JSON.stringify(say);
});
</script>
"""


@browser
@pytest.mark.parametrize("width", [1280, 500])
def test_in_a_browser_it_filters_sorts_and_opens(tmp_path: Path, width: int) -> None:
    import json

    page = tmp_path / "report.html"
    page.write_text(html().replace("</body>", DRIVE + "</body>"), encoding="utf-8")
    found = re.search(r"<title>(.*?)</title>", run_browser(page, "--dump-dom", width=width), re.DOTALL)
    assert found is not None and found[1].startswith("["), "the script did not end"
    said = json.loads(found[1].replace("&amp;", "&"))
    assert said == [
        "llama+gpt2+bert+vit+mamba", "5 of 5 shown", "mamba", "vit", "llama+gpt2", "2 of 5 shown",
        "bert+gpt2+llama+mamba+vit", "ascending", "vit+mamba+llama+gpt2+bert",
        True, "SUMMARY", False,
        True,
    ]  # fmt: skip
