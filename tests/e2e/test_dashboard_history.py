"""History and Usage of the dashboard in a real browser: filters, pages of the server, charts, files, and no history at all."""

import csv
import io

import pytest
from harness import wait_until
from test_dashboard_browser import HOSTILE, LOOKS, address, browser_fixture, chromium_fixture, sign_in
from test_history import native, past, wait_past

pytestmark = pytest.mark.shared_world
__all__ = ["browser_fixture", "chromium_fixture"]

FORMULA = "=HYPERLINK(\"http://evil.example\")"
READY = "await page.locator('main h1').waitFor(); await page.waitForFunction(() => !document.querySelector('main .loading'));"
# The colour of the first series, as often as the canvas has it.
COLOURED = ("return await page.evaluate(() => { const canvas = document.querySelector('main canvas');"
            "const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data; let found = 0;"
            "for (let i = 0; i < all.length; i += 4) if (all[i] === 0x5b && all[i + 1] === 0x74 && all[i + 2] === 0xff) found += 1;"
            "return found; })")


def go(browser, world, place):
    browser.run("await page.goto(args.url);" + READY, url=address(world, f"#/{place}"))


def file_of(browser):
    """(name, rows) of what Export CSV gives."""
    name, text = browser.run("const [file] = await Promise.all([page.waitForEvent('download'),"
                             "  page.getByRole('button', { name: 'Export CSV' }).click()]);"
                             "let text = ''; for await (const part of await file.createReadStream()) text += part;"
                             "return [file.suggestedFilename(), text]")
    return name, list(csv.DictReader(io.StringIO(text)))


def finish(world, name, script="true", **options):
    job = world.api().submit(script, name=name, gpu_count=1, **options)
    world.api().wait_for(job)
    wait_past(world, job, page_size=1000)
    return job




def test_finished_jobs_are_found_by_the_servers_filters(world, browser):
    good = finish(world, "ends-well", "sleep 1")
    bad = finish(world, "ends-badly", "exit 3")
    sign_in(browser, world, "#/history")
    browser.run("await page.getByRole('link', { name: 'ends-well' }).first().waitFor(); await page.getByText('exit code 3').first().waitFor();"
                "await page.getByLabel('State').selectOption('failed');"
                "await page.waitForFunction(() => !document.querySelector('main').innerText.includes('ends-well'));"
                "await page.getByRole('link', { name: 'ends-badly' }).first().waitFor()")
    assert "state=failed" in browser.run("return page.url()")
    browser.run("await page.getByLabel('State').selectOption(''); await page.getByLabel('Node, in full').fill('elsewhere');"
                "await page.keyboard.press('Enter'); await page.getByText('No finished job is like that').waitFor();"
                "await page.getByLabel('Node, in full').fill('n1'); await page.keyboard.press('Enter');"
                "await page.getByRole('link', { name: 'ends-badly' }).first().waitFor();"
                "await page.getByLabel('Time').selectOption('days'); await page.getByLabel('Last day').fill('2020-01-31');"
                "await page.getByText('No finished job is like that').waitFor();"
                "await page.getByLabel('First day').fill('2020-02-01'); await page.getByText('The first day is after the last one.').waitFor();"
                "await page.getByLabel('Time').selectOption('24h'); await page.getByRole('link', { name: 'ends-well' }).first().waitFor()")
    user = next(job for job in past(world) if job["job_id"] == good)["user"]
    go(browser, world, "history?user=nobody")
    browser.sees("No finished job is like that")
    browser.run("await page.getByLabel('User, in full').fill(args.user); await page.keyboard.press('Enter');"
                "await page.getByRole('link', { name: 'ends-badly' }).first().click(); await page.waitForURL(`**/#/job/${args.job}`)",
                user=user, job=bad)
    go(browser, world, "history?tenant=tenant-99")
    browser.run("await page.locator('main [role=alert]').waitFor()")


def test_history_is_paged_by_the_server_and_exported_whole(world, browser):
    for job in [world.api().submit("true", name=f"many-{n}", gpu_count=1, held=True) for n in range(60)]:
        world.api().cancel(job)
    wait_until("all are in the history", lambda: len(past(world, state="cancelled", page_size=1000)) >= 60)
    sign_in(browser, world, "#/history?state=cancelled")
    browser.run("await page.waitForFunction(() => document.querySelectorAll('main tbody tr').length === 50);"
                "await page.getByRole('link', { name: 'Older' }).click(); await page.getByRole('link', { name: 'Newest' }).waitFor();"
                "await page.waitForFunction(() => [10, 11].includes(document.querySelectorAll('main tbody tr').length))")
    assert "after=" in browser.run("return page.url()")
    name, rows = file_of(browser)
    asked = sorted(job["job_id"] for job in past(world, state="cancelled", page_size=1000))
    assert name == "history.csv"
    assert sorted(row["job_id"] for row in rows) == asked
    assert {row["state"] for row in rows} == {"cancelled"}
    browser.sees("history.csv has")


def test_usage_is_drawn_and_its_numbers_are_the_apis(world, browser):
    finish(world, "uses-a-gpu", "sleep 4")
    finish(world, "loses-a-gpu", "sleep 1; exit 1")
    rows = wait_until("it is counted", lambda: [row for row in native(world, "/usage?by=day,model&since=30d")["rows"] if row["attempts"] >= 2])
    sign_in(browser, world, "#/usage?by=model")
    browser.run(READY + "await page.getByRole('img', { name: /^GPU-hours by day and gpu model/ }).waitFor();"
                "await page.getByRole('cell', { name: args.model }).waitFor()", model=rows[0]["model"])
    assert browser.run(COLOURED) > 500, "the bar of the first series is not drawn"
    browser.run("await page.getByRole('heading', { name: 'Usage' }).waitFor(); await page.locator('main .plot .u-over').hover();"
                "await page.getByText(`${args.day}: `).waitFor();"
                "await page.getByText('The same by day as numbers').focus(); await page.keyboard.press('Enter');"
                "await page.getByRole('cell', { name: args.day }).waitFor()", day=rows[0]["day"])
    name, table = file_of(browser)
    assert name == "usage-by-day-and-model.csv"
    assert {(row["day"], row["model"]) for row in table} == {(row["day"], row["model"]) for row in rows}
    now = sum(row["gpu_seconds"] for row in native(world, "/usage?by=day,model&since=30d")["rows"]) / 3600
    told = sum(float(row["gpu_hours"]) for row in table)
    assert 5 / 3600 < told <= now
    assert 1 / 3600 < sum(float(row["lost_gpu_hours"]) for row in table) < told
    browser.run("await page.getByLabel('A bar is').selectOption('month'); await page.getByRole('heading', { name: 'GPU-hours by month' }).waitFor();"
                "await page.getByRole('combobox', { name: 'By', exact: true }).selectOption('user'); await page.locator('main td a').first().click();"
                "await page.waitForURL('**/#/history?user=*'); await page.getByRole('link', { name: 'uses-a-gpu' }).first().waitFor()")
    go(browser, world, "usage?user=nobody")
    browser.sees("Nothing was used in that time")


@pytest.mark.parametrize("look", LOOKS)
def test_history_and_usage_are_readable_for_everybody(look, world, browser):
    """By axe, in each look and width, with hostile names in them, which are text; and nothing is wider than the window."""
    for name in HOSTILE:
        if not any(job.get("name") == name for job in past(world, page_size=1000)):
            finish(world, name, "exit 3")
    sign_in(browser, world, **LOOKS[look])
    wrong = {}
    for place in ("history", "history?range=days&from=2020-01-01", "history?user=nobody", "usage", "usage?by=user&per=month", "usage?user=nobody"):
        go(browser, world, place)
        wrong[place] = browser.run("return await axe()")
        if not browser.run("return await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)"):
            wrong[place].append("wider than the window")
    assert {place: found for place, found in wrong.items() if found} == {}
    go(browser, world, "history")
    for name in HOSTILE[:2]:
        browser.run("await page.getByText(args.name, { exact: true }).first().waitFor()", name=name)
    assert browser.run("return await page.locator('main img, main b:text-is(\"bold\")').count()") == 0


def test_no_cell_of_a_file_is_a_formula(world, browser):
    job = finish(world, FORMULA)
    sign_in(browser, world, "#/history")
    browser.run(READY)
    _, rows = file_of(browser)
    assert next(row["name"] for row in rows if row["job_id"] == job) == "'" + FORMULA


def test_what_was_cut_is_asked_for_again(world, browser):
    sign_in(browser, world, "#/now")
    browser.run("await page.getByText('Live', { exact: true }).waitFor(); await context.setOffline(true);"
                "await page.getByRole('link', { name: 'History', exact: true }).click();"
                "await page.getByText('This does not work at the moment.').waitFor(); await page.getByText('Reconnecting', { exact: true }).waitFor()")
    job = finish(world, "while-it-was-cut")
    browser.run("await context.setOffline(false); await page.getByRole('link', { name: 'while-it-was-cut' }).waitFor()")
    later = finish(world, "appears-by-itself")
    browser.run("await page.getByRole('link', { name: 'appears-by-itself' }).waitFor()")
    assert job != later


@pytest.mark.own_world
def test_empty_ones_and_a_scheduler_without_a_history_say_so(new_world, browser):
    world = new_world()
    world.scheduler.start()
    sign_in(browser, world, "#/history")
    browser.run("await page.getByText('No job has ended yet').waitFor(); await page.keyboard.press('g'); await page.keyboard.press('u');"
                "await page.getByText('Nothing was used in the last 30 days').waitFor()")
    assert browser.run("return await axe()") == []
    world.scheduler.stop()
    world.scheduler.settings["HISTORY_ENABLED"] = "false"
    world.scheduler.start()
    sign_in(browser, world, "#/history")
    browser.run("await page.getByText('This scheduler keeps no history').waitFor(); await page.getByText('history.enabled: true').waitFor()")
    assert browser.run("return await axe()") == []
    go(browser, world, "usage")
    browser.sees("This scheduler keeps no history")
    assert browser.run("return await page.locator('main [role=alert]').count()") == 0, "it is no failure"


@pytest.mark.own_world
def test_callers_without_the_right_are_told_so_and_an_ended_credential_asks_for_another(new_world, browser):
    world = new_world()
    world.scheduler.start()
    browser.open(address(world, "#/usage"))
    browser.sees("This is not yours to see or do.")
    world.scheduler.stop()
    world.scheduler.settings["API_TOKEN_REQUIRED"] = "true"
    world.scheduler.start()
    browser.run("await page.getByRole('heading', { name: 'Sign in' }).waitFor()")
