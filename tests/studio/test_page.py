"""The studio in a browser: questions of a newcomer, every view in every width and theme, and hostile names."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from looks import CHANGED_AT_MOST, changed
from studio_page import ALT, CONTRAST, CTRL, NAMELESS, SHIFT, SMALL, Page, hostile_browser, seconds

from armillary.trace import GraphBuilder, Trace, write_trace

pytestmark = pytest.mark.slow
VIEWS = ("breakdown", "timeline", "memory", "network", "plans", "whatif", "take")
TRACE_VIEWS = ("breakdown", "timeline", "network", "whatif", "take")
PYTORCH = Path(__file__).parents[2] / "examples" / "pytorch" / "traces"
DRAWN = (
    '[{"name":"node","topology":"Switch","size":8,"bandwidth":"450 GB/s","latency":"1 us"},'
    '{"topology":"Torus","shape":[2,2],"bandwidth":"50 GB/s","latency":"2 us"}]'
)


def test_is_tp_8_or_4_better(page: Page) -> None:
    page.open(f"{SMALL}&plan.parallel.tp=8")
    page.click("#tab-whatif")
    page.until("/were predicted/.test(document.querySelector('#whatif-said').textContent)")
    row = next(row for row in page.rows("changes") if row[0] == "tp 4 instead of 8")
    assert re.match(r"[+\u2212][\d.]+ %", row[2])
    assert page.actions <= 3 and not page.problems()


def test_why_is_it_idle(page: Page) -> None:
    page.open(f"{SMALL}&plan.parallel.pp=4")
    waiting = next(row for row in page.rows("parts") if row[0] == "waiting for other ranks")
    assert float(waiting[2].removesuffix(" %")) > 1
    page.click("#tab-timeline")
    page.until("Number(document.querySelector('.timeline').dataset.spans) > 100")
    assert page.actions <= 3 and not page.problems()


def test_what_if_the_fabric_were_twice_as_fast(page: Page) -> None:
    page.open(SMALL)
    before = seconds(page.text("#headline"))
    page.set("#field-fabric", "2")
    assert seconds(page.text("#headline")) < before
    assert "shorter than before" in page.text("#before")
    assert "2 times the bandwidth" in page.browser.value("document.querySelector('#assumptions').textContent")
    assert page.actions <= 3 and not page.problems()


def test_does_it_fit(page: Page) -> None:
    page.open(SMALL)
    assert page.text("#memory").startswith("Memory: fits: ")
    page.set("#field-sequence", "65536")
    page.set("#field-parallel\\.tp", "1")
    assert "DOES NOT FIT" in page.text("#memory")
    assert page.actions <= 3


def test_what_takes_the_memory(page: Page) -> None:
    page.open(SMALL)
    page.click("#tab-memory")
    page.until("document.querySelector('#held')")
    rows = page.rows("held")
    assert {"weights", "gradients", "activations"} < {row[0] for row in rows} and rows[-1][
        0
    ] == "a device has"
    assert page.actions <= 3 and not page.problems()


def test_which_plan_is_fastest(page: Page) -> None:
    page.open(SMALL)
    page.click("#tab-plans")
    page.click("#search")
    page.until("Number(document.querySelector('.plans').dataset.points) > 0")
    page.until("document.querySelector('#search-said').textContent === 'done'")
    best = page.rows("best")[0]
    ready = page.browser.value("document.body.dataset.ready")
    page.click("#best button")
    page.until(f"Number(document.body.dataset.ready) > {ready}")
    assert seconds(page.text("#headline")) == pytest.approx(seconds(f"Step {best[1]}"), rel=0.01)
    assert page.text("#plan") == f"Plan: {best[0]}"
    assert page.actions <= 3 and not page.problems()
    # The search is still there, and was not run again.
    assert page.rows("best")[0][:2] == best[:2]


def test_what_do_twice_as_many_nodes_bring(page: Page) -> None:
    page.open(SMALL)
    before = seconds(page.text("#headline"))
    page.set("#field-count", "8")
    assert "on 64 devices" in page.text("#headline")
    assert seconds(page.text("#headline")) < 0.7 * before
    assert page.actions <= 3


def test_what_does_fp8_bring(page: Page) -> None:
    page.open(SMALL)
    page.set("#choice-numbers\\.compute", "fp8")
    assert re.search(r"[\d.]+ % (longer|shorter) than before", page.text("#before"))
    assert "fp8" in page.text("#plan")
    assert page.actions <= 3


def test_how_busy_is_the_network(page: Page) -> None:
    page.open(SMALL)
    page.click("#tab-network")
    page.until("document.querySelector('#collectives')")
    assert {row[1] for row in page.rows("dimensions")} == {"nvlink", "fabric"}
    assert any(row[0].startswith("all-gather") for row in page.rows("collectives"))
    assert page.actions <= 3 and not page.problems()


def test_how_do_i_run_this_without_the_studio(page: Page) -> None:
    page.open(SMALL)
    page.click("#take")
    page.until("document.querySelector('#command')")
    assert (
        page.text("#command") == "armillary train llama-2-7b --machine 4xdgx-h100 --batch 64 --sequence 2048"
    )
    assert "armillary.train('llama-2-7b', '4xdgx-h100'" in page.text("#python")
    assert "token" not in page.text("#link") and SMALL in page.text("#link")
    assert page.actions <= 3 and not page.problems()


def test_how_long_does_my_own_model_take(page: Page, tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 8, "hidden_size": 1024, "num_attention_heads": 16,
        "vocab_size": 32000, "intermediate_size": 4096, "max_position_embeddings": 2048,
        "_name_or_path": "<img src=x onerror=\"window.__pwned='name'\">",
    }  # fmt: skip
    name = "<img src=x onerror=window.__pwned='file'>.json"
    (tmp_path / name).write_text(json.dumps(config))
    page.open(SMALL)
    before = page.text("#headline")
    page.drop(tmp_path / name)
    assert page.text("#headline") != before
    for view in VIEWS:
        page.click(f"#tab-{view}")
        page.until(f"document.querySelector('#tab-{view}').getAttribute('aria-selected') === 'true'")
    page.until("document.querySelector('#command')")
    assert shlex.quote(f"./{name}") in page.text("#command")
    link = page.browser.value("location.hash")
    assert not page.problems()
    # The link has the whole model.
    after = page.text("#headline")
    page.open(link.removeprefix("#"))
    assert page.text("#headline") == after and not page.problems()


@pytest.fixture
def chakra(tmp_path: Path) -> list[Path]:
    """A trace whose names are hostile; its communication has no recorded time."""
    builder = GraphBuilder()
    first = builder.compute("<img src=x onerror=\"window.__pwned='node'\">", duration_micros=120)
    shared = builder.all_reduce("sum", size="4 MiB", after=[first])
    builder.compute("head", flops=10**12, bytes="2 MiB", after=[shared])
    write_trace(tmp_path / "<b onclick=x>step", Trace.replicate(builder.graph(), ranks=4))
    return sorted(tmp_path.glob("*.et"))


def test_how_long_does_my_chakra_trace_take_on_an_h100(page: Page, chakra: list[Path]) -> None:
    page.open(SMALL)
    page.drop(*chakra)
    assert "on 4 NPUs" in page.text("#headline") and "4 ranks" in page.text("#trace")
    assert page.browser.value("document.querySelector('#choice-machine').value") == "dgx-h100"
    before = seconds(page.text("#headline"))
    page.set("#field-peak", "2")
    assert seconds(page.text("#headline")) < before
    assert "shorter than before" in page.text("#before")
    assert page.actions <= 3 and not page.problems()
    for view in TRACE_VIEWS:
        page.click(f"#tab-{view}")
        page.until("!document.querySelector('.said')?.textContent")
    assert page.text("#command").endswith("--machine machine.yaml")
    assert not page.problems()
    # A model is one step back, and so is the trace from there.
    page.click("#model-again")
    page.until("document.querySelector('#memory').innerText.startsWith('Memory: ')")
    page.click("h1")
    page.key("z", "KeyZ", CTRL, 90)
    page.until(
        "document.querySelector('#trace') && / on 4 NPUs/.test(document.querySelector('#headline').innerText)"
    )
    link = page.browser.value("location.hash")
    page.open(link.removeprefix("#"))
    assert "on 4 NPUs" in page.text("#headline") and not page.problems()


def test_where_does_the_pytorch_step_lose_time(page: Page) -> None:
    page.open(SMALL)
    page.drop(*sorted(PYTORCH.iterdir()))
    assert page.text("#headline").startswith("Step time 24.8 ms")
    assert "Only the CPU works" in page.text("#why")
    page.click("#tab-timeline")
    page.until("Number(document.querySelector('.timeline').dataset.spans) > 100")
    assert page.actions <= 3 and not page.problems()


def test_what_would_one_recorded_rank_do_on_another_machine(page: Page) -> None:
    page.open(SMALL)
    page.choose(PYTORCH / "device_0.json.gz")
    assert "1 rank of 2" in page.text("#trace")
    ready = page.browser.value("document.body.dataset.ready")
    page.click("#one-rank")
    page.until(f"Number(document.body.dataset.ready) > {ready}")
    page.set("#choice-machine", "dgx-h100")
    assert "on 2 NPUs" in page.text("#headline") and seconds(page.text("#headline")) < 0.02
    assert page.actions <= 3 and not page.problems()


def test_a_file_that_is_none_is_refused_on_the_page(page: Page, tmp_path: Path) -> None:
    page.open(SMALL)
    before = page.text("#headline")
    for name, content in {"a.0.et": b"\xff" * 99, "b.json": b"{", "c.pt.trace.json.gz": b"x"}.items():
        (tmp_path / name).write_bytes(content)
        page.choose(tmp_path / name)
        assert page.text("#status").startswith(name), page.text("#status")
    assert page.text("#headline") == before and not page.problems()


@pytest.mark.parametrize("fragment", [
    "model=<script>window.__pwned=1</script>&machine=64xdgx-h100",
    "model=llama-2-7b&machine=<img src=x onerror=alert(1)>",
    "model=llama-2-7b&machine=dgx-h100&plan.batch=x&plan.__proto__.x=1&view=<b>",
    "model=a&config={{{&machine=javascript:alert(1)",
    "model=llama-2-7b&machine=dgx-h100&config=[]&plan.batch=8",
    "model=llama-2-7b&machine=dgx-h100&fabric=NaN&plan.batch=8",
    "model=llama-2-7b&machine=dgx-h100&plan.batch=8&view=constructor",
    "model=a&machine=&trace=../../etc/passwd&trace=<b>&of=<img>,-1,x",
    'model=llama-2-7b&machine=dgx-h100&plan.batch=8&network=[{"name":"<img src=x onerror=alert(1)>",'
    '"topology":"Switch","size":1e9,"bandwidth":"<b>","latency":"1 us"}]',
    'model=llama-2-7b&machine=dgx-h100&plan.batch=8&network=[null,{"shape":"x","size":{}}]',
    'model=llama-2-7b&machine=dgx-h100&plan.batch=8&topology={"kind":"edges","links":[{"from":"npu 0",'
    '"to":"<img src=x onerror=alert(1)>","bandwidth":"<b>","latency":"1 us"}]}',
    'model=llama-2-7b&machine=dgx-h100&plan.batch=8&topology={"kind":"__proto__","links":[null]}',
    'model=llama-2-7b&machine=dgx-h100&plan.batch=8&topology={"kind":"constructor","shape":[{}],"npus":5}',
])  # fmt: skip
def test_a_hostile_link_does_nothing(page: Page, fragment: str) -> None:
    page.open(fragment)
    page.browser.roam(40)
    assert not page.problems()
    # The mouse may have turned light to dark, which a tab keeps.
    page.browser.value("sessionStorage.removeItem('armillary-theme')")
    page.open(SMALL)
    assert page.text("#headline").startswith("Step ")


def test_undo_and_redo_by_keys(page: Page) -> None:
    page.open(SMALL)
    first = page.text("#headline")
    page.set("#field-batch", "128")
    second = page.text("#headline")
    assert second != first
    page.click("h1")
    page.key("z", "KeyZ", CTRL, 90)
    page.until(f"document.querySelector('#headline').innerText === {first!r}")
    assert page.browser.value("document.querySelector('#field-batch').value") == "64"
    page.key("Z", "KeyZ", CTRL | SHIFT, 90)
    page.until(f"document.querySelector('#headline').innerText === {second!r}")


def test_all_can_be_done_by_keys(page: Page) -> None:
    page.open(SMALL)
    for number, view in enumerate(VIEWS, 1):
        page.key(str(number), f"Digit{number}", ALT, 48 + number)
        page.until(f"document.querySelector('#tab-{view}').getAttribute('aria-selected') === 'true'")
    before = page.text("#headline")
    page.browser.value("document.querySelector('#slider-batch').focus()")
    page.key("ArrowRight", "ArrowRight", 0, 39)
    page.until(f"document.querySelector('#headline').innerText !== {before!r}")
    assert page.browser.value("document.activeElement.id") == "slider-batch"


def test_what_a_hand_does_next_is_asked_ahead(page: Page) -> None:
    page.open(SMALL)

    def sent(path: str) -> list[dict[str, object]]:
        requests = [
            each["params"]["request"] for each in page.browser.events if "request" in each.get("params", {})
        ]
        return [json.loads(each["postData"]) for each in requests if each["url"].endswith(path)]

    while not sent("api/ahead"):
        page.browser.pause()
    ahead = sent("api/ahead")[-1]["questions"]
    for slider in ("batch", "sequence", "parallel.tp", "fabric", "count"):
        page.browser.value(f"document.getElementById('slider-{slider}').focus()")
        ready = page.browser.value("document.body.dataset.ready")
        page.key("ArrowRight", "ArrowRight", 0, 39)
        page.until(f"Number(document.body.dataset.ready) > {ready}")
        assert sent("api/headline")[-1] in ahead, slider
        page.click("#undo")
        page.until(f"Number(document.body.dataset.ready) > Number({ready}) + 1")


def test_controls_that_stay_show_what_new_ones_would(page: Page) -> None:
    """A control is made anew only when it would show something else."""
    shown = (
        "JSON.stringify([...document.querySelectorAll('#controls input, #controls select')]"
        ".map((each) => [each.id, each.value, each.max, each.placeholder, each.ariaValueText]))"
    )
    page.open(SMALL)
    page.browser.value(
        "document.getElementById('choice-software').kept = document.getElementById('more').kept = true"
    )
    for slider in ("batch", "count", "parallel.tp", "fabric", "peak"):
        page.browser.value(f"document.getElementById('slider-{slider}').focus()")
        page.key("ArrowRight", "ArrowRight", 0, 39)
    page.set("#field-microbatch", "3")
    page.click("#undo")
    page.set("#choice-recompute", "full")
    page.until("document.querySelector('#plan').innerText.includes('full recomputation')")
    assert page.browser.value(
        "document.getElementById('choice-software').kept && document.getElementById('more').kept"
    )
    kept = page.browser.value(shown)
    page.open(page.browser.value("location.hash").removeprefix("#"))
    assert page.browser.value(shown) == kept


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("trace", [False, True], ids=["model", "trace"])
def test_every_view_can_be_read(page: Page, width: int, dark: bool, trace: bool) -> None:
    page.size(width, 900, dark=dark)
    page.open(SMALL if trace else f"{SMALL}&network={DRAWN}")
    if trace:
        page.drop(PYTORCH / "device_0.json.gz")
    for view in TRACE_VIEWS if trace else VIEWS:
        page.click(f"#tab-{view}")
        # What is recorded has no machine to change, which the view says.
        page.until(
            "!/^(simulating|starting)/.test(document.querySelector('.said')?.textContent ?? '')"
            " && (!document.querySelector('.chart.empty') || document.querySelector('.said').textContent)"
        )
        assert page.browser.value("document.documentElement.scrollWidth") <= width, view
        assert page.browser.value(CONTRAST) == [], view
        assert page.browser.value(NAMELESS) == [], view
        if hostile_browser.AXE.exists():
            assert page.browser.barriers() == [], view
        # Predictions of single changes arrive one by one.
        if (width, dark) in ((1280, False), (400, True)) and view != "whatif":
            name = f"studio-{'trace' if trace else 'model'}-{view}"
            share = changed(page.browser, name, width, "dark" if dark else "light")
            assert share <= CHANGED_AT_MOST, f"{view}: {share:.1%} looks different"
    assert not page.problems()


def test_nothing_is_shown_without_the_token(page: Page) -> None:
    page.browser.ask("Page.navigate", url="about:blank")
    page.browser.ask("Page.navigate", url=page.address.partition("#")[0])
    # The tab has kept the token of the tests before.
    page.until("document.readyState === 'complete'")
    page.browser.value("sessionStorage.clear()")
    page.browser.ask("Page.reload")
    page.until("/has the token/.test(document.querySelector('#status').textContent)")
    assert page.text("#headline") == ""
