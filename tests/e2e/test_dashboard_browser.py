"""The dashboard in a real browser, page by page, against a real scheduler and agent with real jobs."""

import pytest
from harness import wait_until
from test_keys import make_key
from web_browser import Browser, skip_or_fail

pytestmark = pytest.mark.shared_world

LOOKS = {"light": {"colorScheme": "light"}, "dark": {"colorScheme": "dark"},
         "phone": {"colorScheme": "light", "viewport": {"width": 390, "height": 844}, "hasTouch": True}}
HOSTILE = ["<img src=x onerror=alert(1)><b>bold</b></script>", "\u202etxt.exe\u202c \u05d0\u05d1\u05d2 \u0645\u0631\u062d\u0628\u0627",
           "n" * 253]
LONG = "# " + "n" * 10_000 + "\n" + HOSTILE[0]


@pytest.fixture(scope="module", name="chromium")
def chromium_fixture():
    skip_or_fail()
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(name="browser")
def browser_fixture(chromium):
    yield chromium
    assert chromium.noise == [], "the page had errors, or ran into its own policy"


def address(world, place=""):
    return f"http://127.0.0.1:{world.scheduler.ports['http']}/{place}"


def sign_in(browser, world, place="", secret=None, **options):
    """At a page of the dashboard, as whoever has the token or key."""
    browser.open(address(world, "#/me"), **options)
    browser.run("await page.getByLabel('API key or token').fill(args.secret);"
                "await page.getByRole('button', { name: 'Sign in' }).click();"
                "await page.getByRole('button', { name: 'Sign out' }).waitFor();"
                "if (args.place) await page.goto(args.url)",
                secret=secret or world.scheduler.token(), url=address(world, place), place=place)


def fill(world, count=1):
    """Jobs that hold all GPUs, and one that waits; the waiting one's id."""
    running = [world.api().submit("echo begin; sleep 600", name=f"train-{n}", gpu_count=4 // count) for n in range(count)]
    for job in running:
        world.api().wait_for(job, "running")
    return running, world.api().submit("true", name="waits-its-turn", gpu_count=4)


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_readable_for_everybody(look, world, browser):
    """By axe, in each look and width, with data in it; and nothing is wider than the window."""
    running, waiting = fill(world)
    sign_in(browser, world, **LOOKS[look])
    wrong = {}
    for place in ("now", "queue", f"queue?job={waiting}", "jobs", f"job/{waiting}", f"job/{running[0]}", "submit", "me",
                  "now?by=use&node=n1", "now?by=tenant", "job/job-99999", "gpus?gpu=n1-gpu-0", "nodes?node=n1", "tenants", "services",
                  "leases", "reservations", "keys"):
        browser.run("await page.goto(args.url); await page.locator('main h1, main h2').first().waitFor({ state: 'attached' });"
                    "await page.waitForFunction(() => !document.querySelector('main .loading'))", url=address(world, f"#/{place}"))
        wrong[place] = browser.run("return await axe()")
        if not browser.run("return await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)"):
            wrong[place].append("wider than the window")
    assert {place: found for place, found in wrong.items() if found} == {}


def test_now_shows_every_gpu_and_follows_what_changes(world, browser):
    sign_in(browser, world, "#/now")
    browser.run("await page.getByText('free 4').waitFor()")
    job = world.api().submit("sleep 600", name="appears by itself", gpu_count=3)
    browser.run("await page.getByText('in use 3').waitFor(); await page.getByRole('link', { name: 'appears by itself' }).waitFor()")
    browser.run("await page.getByRole('application').focus(); await page.keyboard.press('ArrowRight');"
                "await page.locator('#map-said', { hasText: args.job }).waitFor({ state: 'attached' });"
                "await page.keyboard.press('Enter'); await page.waitForURL(`**/#/job/${args.job}`)", job=job)
    world.api().cancel(job)
    browser.run("await page.getByText('cancelled', { exact: true }).first().waitFor();"
                "await page.getByRole('link', { name: 'Now' }).click(); await page.getByText('free 4').waitFor()")


def test_a_stranger_finds_why_a_job_waits_in_two_clicks(world, browser):
    _, waiting = fill(world)
    sign_in(browser, world, "#/now")
    browser.run("await page.getByRole('link', { name: 'Queue', exact: true }).click();"
                "await page.getByRole('button', { name: `Why ${args.job} waits` }).click();"
                "await page.getByText('Nine times in ten by (p90)').waitFor();"
                "await page.getByText('What may start it').waitFor()", job=waiting)
    assert f"job={waiting}" in browser.run("return page.url()")
    browser.run("await page.reload(); await page.getByText('Nine times in ten by (p90)').waitFor()")


def test_the_queue_is_paged_by_the_server_and_filtered_by_name(world, browser):
    running, _ = fill(world)
    world.cli("submit", "--array", "0-119", "--name", "many", "--gpus", "4", "--", "true", expected=0)
    sign_in(browser, world, "#/queue")
    browser.run("await page.getByText('1 to 50 of').waitFor(); await page.getByRole('link', { name: 'Next 50' }).click();"
                "await page.getByText('51 to 100 of').waitFor();"
                "await page.getByRole('searchbox', { name: 'Name' }).fill('its-turn'); await page.getByText('waits-its-turn').waitFor();"
                "await page.waitForFunction(() => document.querySelectorAll('main tbody tr').length === 1)")
    assert running


def test_a_jobs_page_follows_its_output_and_its_state(world, browser):
    job = world.api().submit("echo begin; while [ ! -e go ]; do sleep 0.1; done; echo end", name="speaks", gpu_count=1)
    world.api().wait_for(job, "running")
    sign_in(browser, world, f"#/job/{job}")
    browser.run("const log = page.getByRole('log'); await log.getByText('begin').waitFor();"
                "await page.getByText('running', { exact: true }).first().waitFor();"
                "await page.getByText(\"this job's GPU\").first().waitFor({ state: 'attached' })")
    world.cli("exec", job, "--", "touch", "go", expected=0)
    browser.run("await page.getByRole('log').getByText('end').waitFor(); await page.getByText('completed').first().waitFor();"
                "await page.getByText('Exit code').waitFor()")


DIALOG = ("for (const [label, value] of Object.entries(args.fields ?? {})) {"
          "  const field = page.getByRole('dialog').getByLabel(label).first();"
          "  if (await field.evaluate((one) => one.tagName === 'SELECT')) await field.selectOption(value); else await field.fill(value);"
          "}"
          "await page.getByRole('dialog').getByRole('button', { name: args.then }).click();"
          "await page.getByRole('dialog').waitFor({ state: 'hidden' })")


def press(browser, button, then, **fields):
    """A button, and what its dialog asks for."""
    browser.run("await page.getByRole('button', { name: args.button, exact: true }).click();" + DIALOG, button=button, then=then, fields=fields)


def test_jobs_are_held_released_requeued_cancelled_and_run_again(world, browser):
    running, waiting = fill(world)
    sign_in(browser, world, f"#/job/{waiting}")
    press(browser, "Hold", "Hold it")
    browser.sees("held")
    assert world.api().job(waiting)["held"]
    press(browser, "Release", "Release it")
    browser.run("await page.getByRole('button', { name: 'Hold', exact: true }).waitFor()")
    press(browser, "Cancel", "Cancel it")
    browser.run("await page.getByText('cancelled', { exact: true }).first().waitFor()")
    assert world.api().job(waiting)["state"] == "cancelled"

    browser.run("await page.goto(args.url); await page.getByRole('button', { name: 'Requeue' }).waitFor()", url=address(world, f"#/job/{running[0]}"))
    press(browser, "Requeue", "Requeue it")
    browser.run("await page.getByRole('combobox', { name: 'Attempt' }).waitFor()")
    wait_until("it runs again", lambda: world.api().job(running[0])["state"] == "running")

    browser.run("await page.getByRole('link', { name: 'Run again' }).click();"
                "await page.waitForFunction(() => document.querySelector('textarea').value === 'echo begin; sleep 600');"
                "await page.getByLabel('Name', { exact: true }).fill('a second time');"
                "await page.getByRole('button', { name: 'Submit', exact: true }).click(); await page.waitForURL('**/#/job/*');"
                "await page.getByRole('heading', { name: 'a second time' }).waitFor()")
    again = browser.run("return page.url()").rpartition("/")[2]
    assert world.api().job(again)["gpu_count"] == 4
    press(browser, "Cancel", "Cancel it")
    wait_until("it is cancelled", lambda: world.api().job(again)["state"] == "cancelled")


@pytest.mark.own_world
def test_operators_act_on_nodes_tenants_keys_services_leases_and_reservations(new_world, browser):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    api = world.api()
    sign_in(browser, world, "#/nodes?node=n1")
    press(browser, "Drain", "Drain it", **{"Reason, shown to everybody": "a new disk"})
    browser.run("await page.getByText('drained', { exact: true }).first().waitFor(); await page.getByText('a new disk').first().waitFor()")
    press(browser, "Resume", "Resume it")
    browser.run("await page.getByText('ready', { exact: true }).first().waitFor()")
    press(browser, "Take out GPU 1", "Take it out", Reason="noisy fan")
    browser.run("await page.getByText('out of use: unhealthy').waitFor()")
    assert api.gpu("n1", 1)["state"] == "quarantined"
    browser.run("await page.goto(args.url); await page.getByText('noisy fan').first().waitFor()", url=address(world, "#/gpus?gpu=n1-gpu-1"))
    browser.run("await page.goto(args.url)", url=address(world, "#/nodes?node=n1"))
    press(browser, "Put back GPU 1", "Put it back")
    wait_until("it is back", lambda: api.gpu("n1", 1)["state"] != "quarantined")

    browser.run("await page.goto(args.url)", url=address(world, "#/tenants"))
    press(browser, "Create a tenant", "Create it", Name="vision", **{"GPUs at most": "3", "GPUs that are guaranteed": "1"})
    browser.run("await page.getByText('may be lent').waitFor()")
    press(browser, "Change vision", "Change them", **{"GPUs at most": "2"})
    wait_until("the limit is changed", lambda: api.get("/tenants/vision")["max_gpus"] == 2)

    browser.run("await page.goto(args.url)", url=address(world, "#/keys"))
    press(browser, "Make a key", "Make it", Name="ci", Tenant="tenant-" + api.get("/tenants/vision")["id"].rpartition("-")[2], **{"Expires in": "30d"})
    browser.run("await page.getByText('The secret of ci.').waitFor()")
    secret = browser.run("return await page.locator('.made code').innerText()")
    assert world.scheduler.api(token=secret).call("GET", "/v1/whoami")[1]["roles"]
    press(browser, "Revoke ci", "Revoke it")
    assert world.scheduler.api(token=secret).call("GET", "/v1/whoami")[0] == 401

    browser.run("await page.goto(args.url)", url=address(world, "#/reservations"))
    press(browser, "Reserve nodes", "Reserve them", Name="upkeep", Lasts="2h", Reason="firmware", **{"Nodes, separated": "n*", "Begins in": "3h"})
    browser.run("await page.getByText('firmware').waitFor()")
    press(browser, "Cancel upkeep", "Cancel it")
    browser.run("await page.getByText('Nothing is reserved').waitFor()")

    world.cli("service", "create", "web", "--replicas", "1", "--", "sleep", "600", expected=0)
    browser.run("await page.goto(args.url)", url=address(world, "#/services"))
    press(browser, "Scale web", "Scale it", Replicas="2")
    browser.run("await page.getByText('2 of 2').waitFor()")
    press(browser, "Delete web", "Delete it")

    status, lease, _ = api.call("POST", "/api/gpuscheduler/v1/allocate", {"count": 1, "lease_minutes": 5})
    assert status == 202, lease
    browser.run("await page.goto(args.url); await page.getByText('held, idle').waitFor()", url=address(world, "#/leases"))
    browser.run("await page.getByRole('button', { name: /^Renew/ }).click();" + DIALOG, then="Renew it", fields={"Minutes": "90"})
    browser.run("await page.getByText('in 1 h').first().waitFor(); await page.getByRole('button', { name: /^Release/ }).click();" + DIALOG, then="Release it")
    browser.run("await page.getByText('over', { exact: true }).waitFor()")


def test_the_form_says_what_would_happen_before_anything_is_submitted(world, browser):
    before = len(world.api().jobs())
    sign_in(browser, world, "#/submit")
    browser.run("await page.getByLabel('What runs, by /bin/sh').fill('echo from the form');"
                "await page.getByLabel('GPUs', { exact: true }).fill('2'); await page.getByLabel('Time limit').fill('2h');"
                "await page.getByText('Would start now on node n1').waitFor(); await page.getByText('4 GPU-hours').first().waitFor()")
    browser.run("await page.getByLabel('GPUs', { exact: true }).fill('64');"
                "await page.waitForFunction(() => !document.querySelector('aside').innerText.includes('Would start now'))")
    browser.run("await page.getByLabel('GPUs', { exact: true }).fill('two'); await page.getByText('A whole number').waitFor();"
                "await page.getByRole('button', { name: 'Submit', exact: true }).click()")
    assert len(world.api().jobs()) == before
    browser.run("await page.getByLabel('GPUs', { exact: true }).fill('1');"
                "await page.getByRole('button', { name: 'Submit', exact: true }).click(); await page.waitForURL('**/#/job/*');"
                "await page.getByRole('log').getByText('from the form').waitFor()")


def test_everything_is_reached_by_the_keyboard(world, browser):
    _, waiting = fill(world)
    sign_in(browser, world, "#/now")
    browser.run("await page.keyboard.press('/'); await page.keyboard.type('its-turn');"
                "await page.getByRole('option', { name: 'waits-its-turn' }).first().waitFor(); await page.keyboard.press('Enter');"
                "await page.waitForURL(`**/#/job/${args.job}`);"
                "await page.keyboard.press('g'); await page.keyboard.press('s'); await page.waitForURL('**/#/submit');"
                "await page.keyboard.press('/'); await page.keyboard.type(args.job); await page.keyboard.press('Enter');"
                "await page.waitForURL(`**/#/job/${args.job}`)", job=waiting)


def test_hostile_names_are_text(world, browser):
    fill(world)
    jobs = [world.api().submit(LONG, name=name, gpu_count=4) for name in HOSTILE]
    sign_in(browser, world, "#/queue")
    for name in HOSTILE[:2]:
        browser.run("await page.getByText(args.name, { exact: true }).first().waitFor()", name=name)
    assert browser.run("return await page.locator('main img, main b:text-is(\"bold\")').count()") == 0
    for place in ("queue", "now", *(f"job/{job}" for job in jobs)):
        browser.run("await page.goto(args.url); await page.locator('main h1').first().waitFor({ state: 'attached' });"
                    "await page.waitForFunction(() => !document.querySelector('main .loading'))", url=address(world, f"#/{place}"))
        assert browser.run("return await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)"), place
    browser.run("await page.goto(args.url); await page.reload(); await page.getByText(args.name).first().waitFor()",
                url=address(world, f"#/job/{jobs[0]}"), name=HOSTILE[0])


@pytest.mark.own_world
def test_signing_in_and_what_happens_when_a_credential_ends(new_world, browser):
    world = new_world(API_TOKEN_REQUIRED="true")
    world.scheduler.start()
    world.add_agent("n1").start()
    world.cli("tenant", "create", "--name", "vision", expected=0)
    key_id, secret = make_key(world, "ci", "--tenant", "vision")
    browser.open(address(world, "#/queue"))
    browser.run("await page.getByLabel('API key or token').fill('wrong'); await page.getByRole('button', { name: 'Sign in' }).click();"
                "await page.locator('main [role=alert]').waitFor()")
    assert browser.run("return await axe()") == []
    browser.run("await page.getByLabel('API key or token').fill(args.secret); await page.getByRole('button', { name: 'Sign in' }).click();"
                "await page.getByText('Nobody waits').waitFor(); await page.getByText('Live', { exact: true }).waitFor()", secret=secret)
    assert browser.run("return await page.evaluate(() => [document.cookie, localStorage.length])") == ["", 0]
    world.cli("key", "revoke", key_id, expected=0)
    browser.run("await page.getByRole('heading', { name: 'Sign in' }).waitFor(); await page.getByText('Signed out', { exact: true }).waitFor()")
    browser.run("await page.getByLabel('API key or token').fill(args.secret); await page.getByRole('button', { name: 'Sign in' }).click();"
                "await page.getByText('Nobody waits').waitFor()", secret=world.scheduler.token())


@pytest.mark.own_world
def test_a_scheduler_that_restarts_is_said_and_come_back_from(new_world, browser):
    world = new_world()
    world.scheduler.start()
    world.add_agent("n1").start()
    job = world.api().submit("sleep 600", name="outlives it", gpu_count=2)
    world.api().wait_for(job, "running")
    sign_in(browser, world, "#/now")
    browser.run("await page.getByText('in use 2').waitFor(); await page.getByText('Live', { exact: true }).waitFor()")
    world.scheduler.kill()
    browser.run("await page.getByText('Reconnecting', { exact: true }).waitFor();"
                "await page.getByText('The scheduler does not answer.').waitFor(); await page.getByText('What you see is from').waitFor()")
    assert browser.run("return await axe()") == []
    browser.run("await page.getByText('in use 2').waitFor()")
    world.scheduler.start()
    later = world.api().submit("sleep 600", name="after the restart", gpu_count=1)
    browser.run("await page.getByText('Live', { exact: true }).waitFor(); await page.getByText('in use 3').waitFor();"
                "await page.getByRole('link', { name: 'after the restart' }).waitFor()")
    assert later
    assert browser.run("return await page.locator('main .banner').count()") == 0


def test_a_network_that_is_cut_is_said_and_come_back_from(world, browser):
    sign_in(browser, world, "#/now")
    browser.run("await page.getByText('Live', { exact: true }).waitFor(); await context.setOffline(true);"
                "await page.getByText('Reconnecting', { exact: true }).waitFor(); await page.getByRole('button', { name: 'Try now' }).waitFor()")
    job = world.api().submit("sleep 600", name="while it was cut", gpu_count=1)
    world.api().wait_for(job, "running")
    browser.run("await context.setOffline(false); await page.getByText('Live', { exact: true }).waitFor();"
                "await page.getByText('in use 1').waitFor()")


@pytest.mark.own_world
def test_empty_pages_teach_the_next_command(new_world, browser):
    world = new_world()
    world.scheduler.start()
    sign_in(browser, world, "#/now")
    for text in ("No node has joined yet", "gpu-agent --node n1", "Nobody waits", "Nothing runs"):
        browser.sees(text)
    assert browser.run("return await axe()") == []
    browser.run("await page.getByRole('link', { name: 'Jobs', exact: true }).click(); await page.getByText('No job has been submitted yet').waitFor()")
