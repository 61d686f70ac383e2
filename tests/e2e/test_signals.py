"""The end of a scheduler by signal."""

import pathlib
import signal


def test_no_thread_of_a_scheduler_has_the_end_signals_open(world):
    # A signal to the process goes to any thread that does not block it; its default action would be a kill.
    pid = world.scheduler.pid()
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        if status.parent.name == str(pid):
            continue  # It waits for them, which shows as open.
        fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        blocked = int(fields["SigBlk"], 16)
        for end in (signal.SIGTERM, signal.SIGINT):
            assert blocked & (1 << (end - 1)), f"{end.name} is open in thread {fields['Name']}"


def test_a_scheduler_that_serves_ends_orderly_however_early_the_signal(new_world):
    # Its ports are told by the last step of a start: from then on a signal must find the orderly end.
    scheduler = new_world().scheduler
    for _ in range(30):
        scheduler.launch()
        while scheduler.served_ports() is None:
            assert scheduler.alive(), scheduler.log_since_start()
        assert scheduler.stop() == 0
        assert '"scheduler_stopped"' in scheduler.log_since_start()
