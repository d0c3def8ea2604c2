"""The page in a real browser, opened from the disk."""

import json
import os
import shutil
import time

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from sheafed.report import read_runs, write_report
from tests.helpers.run_directories import HOSTILE, METRICS, NAMES, write_run

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --disable-dev-shm-usage"
)
pytestmark = pytest.mark.skipif(
    (CHROMIUM is None or DRIVER is None) and not os.environ.get("CI"),
    reason="needs a browser; on Debian: apt-get install chromium chromium-driver",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    assert CHROMIUM, "there is no chromium; on Debian: apt-get install chromium"
    assert DRIVER, "there is no chromedriver; on Debian: apt-get install chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    top = tmp_path_factory.mktemp("report")
    summaries = [write_run(top / name, seed=k) for k, name in enumerate(("one", "two"))]
    write_run(top / "hostile", HOSTILE, seed=2)
    write_run(top / "unfinished", seed=3, finished=False)
    write_report(
        read_runs([top / n for n in ("one", "two", "hostile", "unfinished")]), top / "r.html"
    )
    return top / "r.html", summaries


@pytest.fixture(scope="module")
def page(browser, report):
    """The page, drawn; it needs no other file."""
    resize(browser, 1366)
    for log in ("browser", "performance"):  # of the page that a browser starts with
        browser.get_log(log)
    browser.get(report[0].as_uri())
    assert requests(browser) == {report[0].as_uri()}
    chosen = browser.find_elements(By.CSS_SELECTOR, "input:checked")
    assert [c.get_attribute("value") for c in chosen] == ["communication", "epochs"]
    return browser


@pytest.fixture
def opened(page):
    """The page as at first; at the end no error was logged, no request sent, no script injected."""
    resize(page, 1366)
    show(page, "one")
    choose(page, "quantity", "communication")
    choose(page, "over", "epochs")
    yield page
    assert page.get_log("browser") == []
    assert requests(page) == set()
    assert page.execute_script("return window.broken") is None


def requests(browser):
    """What the page has asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    return {url for url in urls if not url.startswith("data:")}


def resize(browser, width, height=900):
    settings = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", settings)


def data_of(browser, figure, expression):
    """Evaluate an expression of `data`, the traces that a place of the page draws."""
    script = (
        "const data = document.querySelector(`[data-figure^='${arguments[0]}']`).data;"
        f"return {expression};"
    )
    return browser.execute_script(script, figure)


def hover(browser, figure, trace, point, wanted):
    """Move the mouse to a point of a scatter trace; return what the page shows: `wanted`, soon."""
    x, y = browser.execute_script(
        """
        const plot = document.querySelector(`[data-figure^='${arguments[0]}']`);
        plot.scrollIntoView({block: "center"});
        const box = plot.getBoundingClientRect(), layout = plot._fullLayout;
        const trace = plot.data.find((t) => t.name === arguments[1]);
        return [
          box.x + layout.xaxis._offset + layout.xaxis.l2p(trace.x[arguments[2]]),
          box.y + layout.yaxis._offset + layout.yaxis.l2p(trace.y[arguments[2]]),
        ];
        """,
        figure,
        trace,
        point,
    )
    for dx in (-2, 0):
        event = {"type": "mouseMoved", "x": x + dx, "y": y}
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)
    shown, deadline = None, time.monotonic() + 10
    while time.monotonic() < deadline:
        shown = browser.execute_script(
            "return document.querySelector(`[data-figure^='${arguments[0]}'] .hovertext`)"
            "?.textContent",
            figure,
        )
        if shown is not None and wanted in shown:
            return shown
        time.sleep(0.05)
    return pytest.fail(f"hovering over {figure} shows {shown!r}, not {wanted!r}")


def choose(browser, name, value):
    chosen = browser.find_element(By.CSS_SELECTOR, f"input[name={name}][value={value}]")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", chosen)
    chosen.find_element(By.XPATH, "following-sibling::span").click()


def show(browser, run):
    Select(browser.find_element(By.NAME, "run")).select_by_visible_text(run)


def test_the_figures_are_drawn_and_the_numbers_are_those_of_the_summary(opened, report):
    drawn = opened.execute_script(
        "return [...document.querySelectorAll('.plot')].map((p) => !!p.querySelector('.main-svg'))"
    )
    assert len(drawn) == 2 + 6 + len(NAMES) + 2
    assert all(drawn)
    for label, summary in zip(("one", "two"), report[1], strict=True):
        show(opened, label)
        visible = opened.find_elements(By.CSS_SELECTOR, "#summary [data-run]:not([hidden]) data")
        row = opened.find_elements(By.CSS_SELECTOR, f"tr[data-label='{label}'] data")
        for found in (visible, row):
            values = {f.get_attribute("data-key"): f for f in found}
            for key in (*METRICS, "bytes_sent", "epochs", "seconds"):
                assert json.loads(values[key].get_attribute("value")) == summary[key]
            for key in METRICS:
                assert values[key].text == f"{summary[key]:.3f}"
            assert values["bytes_sent"].text == f"{summary['bytes_sent'] / 2**20:.2f}"


def test_hovering_shows_details(opened, report):
    summary = report[1][0]
    text = hover(opened, "network", "agents", 0, "ada")
    assert f"private {summary['agents']['ada']['private_accuracy']:.3f}" in text
    text = hover(opened, "network", "edges", 1, "ada — bo")
    edge = summary["edges"][0]
    assert f"misalignment {edge['misalignment']:.3f}" in text
    assert f"communication {edge['communication_accuracy']:.3f}" in text
    assert f"oracle encoder {edge['oracle_accuracy']:.3f}" in text
    hover(opened, "curve/{over}/3", "one", 5, f"{summary['misalignment']:.4f}")


def test_the_heat_map_shows_three_quantities(opened, report):
    cell = "data.map((t) => t.z[1][0]).find((z) => z !== null)"
    edge = next(e for e in report[1][0]["edges"] if (e["sender"], e["receiver"]) == ("bo", "ada"))
    assert data_of(opened, "heatmap", cell) == edge["communication_accuracy"]
    choose(opened, "quantity", "oracle")
    assert data_of(opened, "heatmap", cell) == edge["oracle_accuracy"]
    assert "when it encodes" in opened.find_element(By.ID, "heatmap").text
    choose(opened, "quantity", "gap")
    assert (
        data_of(opened, "heatmap", cell) == edge["oracle_accuracy"] - edge["communication_accuracy"]
    )


def test_curves_go_over_epochs_or_bytes(opened, report):
    x = "data[0].x[data[0].x.length - 1]"
    title = "#curves .xtitle"
    assert data_of(opened, "curve", x) == 6
    assert opened.find_element(By.CSS_SELECTOR, title).text == "epoch"
    choose(opened, "over", "bytes")
    assert data_of(opened, "curve", x) == report[1][0]["bytes_sent"] / 2**20
    assert opened.find_element(By.CSS_SELECTOR, title).text == "MiB sent by all agents"
    assert data_of(opened, "curve", "data.length") == 4


def test_every_agent_has_its_curves(opened, report):
    show(opened, "one")
    agent = "agent/{run}/{over}/2"
    assert data_of(opened, agent, "data.map((t) => t.name)") == ["Private", "Communication"]
    assert data_of(opened, agent, "data[0].x.length") == 6
    title = opened.execute_script(
        "return document.querySelector(`[data-figure='agent/{run}/{over}/2'] .gtitle`).textContent"
    )
    assert title == NAMES[2]
    last = data_of(opened, agent, "data[0].y[5]")
    assert last == report[1][0]["agents"][NAMES[2]]["private_accuracy"]


def test_the_verdict_is_that_of_the_shown_run(opened, report):
    for label, summary in zip(("one", "two"), report[1], strict=True):
        show(opened, label)
        (shown,) = opened.find_elements(By.CSS_SELECTOR, "[data-run]:not([hidden]) > .verdict")
        assert f"accuracy {summary['communication_accuracy']:.3f}, 0.100 below" in shown.text


def test_another_run_can_be_shown(opened, report):
    diagonal = "data.map((t) => t.z[0][0]).find((z) => z !== null)"
    for label, summary in zip(("one", "two"), report[1], strict=True):
        show(opened, label)
        assert data_of(opened, "heatmap", diagonal) == summary["agents"]["ada"]["private_accuracy"]
        assert f"{label}:" in opened.find_element(By.ID, "summary").text
    show(opened, "unfinished (unfinished)")
    assert "has not finished" in opened.find_element(By.ID, "summary").text


def test_hostile_names_are_inert(opened):
    show(opened, "hostile")
    for k, name in enumerate(HOSTILE):
        hover(opened, "network", "agents", k, name)
    assert opened.find_elements(By.CSS_SELECTOR, "img, main script, main b b") == []


@pytest.mark.parametrize(("width", "theme"), [(1366, "light"), (390, "dark")])
def test_the_page_fits_and_is_legible(opened, width, theme):
    feature = {"name": "prefers-color-scheme", "value": theme}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    resize(opened, width)
    for run in ("hostile", "unfinished (unfinished)"):
        show(opened, run)
        opened.execute_script(
            "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
        )
        page_width, window = opened.execute_script(
            "return [document.documentElement.scrollWidth, innerWidth]"
        )
        assert page_width <= window == width
    ink, card = opened.execute_script(
        """
        const text = document.querySelector("#curves .xtick text");
        const section = getComputedStyle(text.closest("section"));
        return [getComputedStyle(text).fill, section.backgroundColor];
        """
    )
    assert contrast(ink, card) > 7
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def contrast(one, other):
    """The ratio of WCAG between two CSS colours."""
    lights = []
    for colour in (one, other):
        parts = [float(part) / 255 for part in colour.split("(")[1].rstrip(")").split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)
