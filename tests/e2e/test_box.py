"""The box of a job: whom it runs as, what it may use, what it sees, and what is left of it.

Each rule of docs/reference/box.md has a test that fails when the rule is taken out of the code:

    user, groups, HOME and the like     as_its_user, supplementary_groups
    who is refused                      root_unknown_and_missing, without_a_default_user, plain_agent
    memory, swap                        eats_memory (by the kernel, watched), swap_is_no_way
    processes and threads               fork_bomb (by the kernel, watched)
    CPU                                 its_own_cores, near_the_gpu, share_the_cores, weight_and_the_most
    devices                             only_granted, operator_allows, without_a_fence
    /dev/shm, /tmp, TMPDIR              shared_memory (own, as large, the machines), tmp_is, temporary_folder
    working directory                   working_directory, may_not_enter
    files                               output_files
    umask, limits, core, memlock        umask_and_limits, limit_above, that_does_not_exist, by_itself
    --oom-score, --allow-set-user-id    end_jobs_first, set_user_id
    environment                         variables_of_the_node, agents_environment, other_devices;
                                        --export: test_cli.py, only_what_is_asked_for
    cgroups                             without_cgroups_where_configured
    what is left, and the time to end   test_box_end.py

Each was tried on a machine whose cgroup controllers are of version 1; where they are of version 2 the same tests look
at its files, and that these fail without the rule was not tried.

What this machine or this user cannot do is skipped by name.
"""

import os
import pathlib
import resource
import shutil
import signal
import stat
import subprocess

import harness
import pytest
from harness import IS_ROOT, read_bytes, wait_until
from security import copy_programs

pytestmark = pytest.mark.shared_world
NEEDS_ROOT = pytest.mark.skipif(not IS_ROOT, reason="needs root: switches users, makes cgroups, mounts or device nodes")
PLAIN = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
EAT = "head -c 400m /dev/zero | tail -n 1 > /dev/null"
EAT_AND_HOLD = "head -c 400m /dev/zero | tail -n 1 | sleep 20"  # For a watcher that looks from time to time.


def cgroups_are_writable():
    mounts = read_bytes("/proc/self/mounts").decode().splitlines()
    places = [line.split()[1] for line in mounts if line.split()[2] in ("cgroup", "cgroup2")]
    return IS_ROOT and any(os.access(f"{place}/cgroup.procs", os.W_OK) for place in places)


NEEDS_CGROUPS = pytest.mark.skipif(not cgroups_are_writable(), reason="needs writable cgroups")


@pytest.fixture(scope="module", name="start_world")
def start_world_fixture():
    def start(new_world, *arguments, settings=None, plain=False, **options):
        world = new_world(SCHEDULER_DRAIN_LIMIT_SECONDS=5, AGENT_HEARTBEAT_INTERVAL_MS=300, **(settings or {}))
        world.folder.chmod(0o755)
        if plain:
            world.folder.chmod(0o777)
            world.scheduler.prefix = PLAIN
        world.scheduler.start()
        world.add_agent("n1", arguments=arguments, prefix=PLAIN if plain else (), **options).start()
        return world

    return start


@pytest.fixture(name="boxed")
def boxed_fixture(request, new_world, start_world):
    """A world whose agent has these arguments; without any the module's, where that is not the test's own."""

    def start(*arguments, **options):
        if arguments or options:
            return start_world(new_world, *arguments, **options)
        return request.getfixturevalue("world")

    return start


@pytest.fixture(name="plain_programs")
def plain_programs_fixture(monkeypatch, tmp_path_factory):
    """The checkout may stand where another user cannot look."""
    if not IS_ROOT:
        pytest.skip("needs root: runs processes of another user")
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    folder = pathlib.Path(subprocess.check_output(["mktemp", "-d", "/var/tmp/gpusched-bin-XXXXXX"], text=True).strip())
    folder.chmod(0o755)
    monkeypatch.setenv("GPUSCHED_BIN_DIR", str(copy_programs(folder / "bin")))
    yield
    shutil.rmtree(folder, ignore_errors=True)


def run(api, script, **fields):
    job_id = api.submit(script, **fields)
    job = api.wait_for(job_id)
    assert job["state"] == "completed", (job, api.output(job_id, "stderr"))
    return api.output(job_id)


def setting_of(world, *files):
    """What the first of these files says, as words, in the group of the one attempt that runs."""
    for group in harness.cgroups_of(world.folder):
        for file in files:
            path = pathlib.Path(group) / file
            if not group.endswith((world.agents()[0].mark(), "/held")) and path.exists():
                return [file, *path.read_text().split()]
    return []


def allowed_cores(api, job_id):
    """The cores of a running job that printed them."""
    wait_until("it printed its cores", lambda: api.output(job_id).endswith("\n"))
    return api.output(job_id).strip()


LOOK_AT_CORES = "grep ^Cpus_allowed_list: /proc/self/status | cut -f 2"


def is_refused(world, text, script="true", **fields):
    """Refused by the node, in a sentence with this text, and tried again by policy: then cancelled."""
    job_id = world.api().submit(script, **fields)
    wait_until(f"the agent says: {text}", lambda: text in world.agents()[0].log_text())
    world.api().cancel(job_id)
    assert world.api().output(job_id) == "" if world.api().job(job_id)["attempts"] else True


@NEEDS_ROOT
def test_a_job_runs_as_its_user_with_that_users_environment(boxed):
    api = boxed().api()
    assert run(api, "id -un; id -u; id -Gn; echo $HOME $USER $LOGNAME $SHELL", user="nobody").splitlines() == [
        "nobody", "65534", "nogroup", "/nonexistent nobody nobody /usr/sbin/nologin"]
    assert run(api, "id -u; echo $USER", user="root").split() == ["0", "root"]
    assert run(api, "echo $HOME", user="nobody", environment={"HOME": "/elsewhere"}) == "/elsewhere\n"


@NEEDS_ROOT
def test_supplementary_groups_are_the_users(boxed):
    name = "gpsbox" + str(os.getpid())
    subprocess.run(["useradd", "--no-create-home", "--groups", "video", name], check=True)
    try:
        assert set(run(boxed().api(), "id -Gn", user=name).split()) == {name, "video"}
    finally:
        subprocess.run(["userdel", name], check=False)


@NEEDS_ROOT
def test_root_unknown_and_missing_users_are_refused_with_a_sentence(boxed):
    world = boxed("--default-user", "nobody", allow_root_jobs=False)
    is_refused(world, "does not run jobs as 'root', which is root: give another user", user="root")
    is_refused(world, "has no user 'no-such-user'", user="no-such-user")
    assert run(world.api(), "id -un") == "nobody\n"


@NEEDS_ROOT
def test_a_root_agent_without_a_default_user_runs_no_nameless_jobs(boxed):
    world = boxed(allow_root_jobs=False)
    status, answer, _ = world.api().call("POST", "/api/v1/jobs", {"script": "id -u"})
    assert (status, answer["field"]) == (422, "user") and "names no user" in answer["error"]
    assert run(world.api(), "id -un", user="nobody") == "nobody\n"


def test_a_plain_agent_runs_as_itself_and_for_nobody_else(boxed, plain_programs):
    world = boxed(plain=True)
    assert run(world.api(), "id -u") == "65534\n"
    assert run(world.api(), "id -u; grep ^NoNewPrivs /proc/self/status", user="nobody").split()[0] == "65534"
    is_refused(world, "cannot run jobs as 'root'", user="root")


@NEEDS_CGROUPS
def test_a_job_that_eats_memory_is_ended_by_the_kernel_and_says_so(boxed):
    api = boxed().api()
    job = api.wait_for(api.submit(EAT, memory_mb=64))
    assert (job["state"], job["cause"]) == ("failed", "out_of_memory"), job
    assert run(api, "echo fine", memory_mb=64) == "fine\n"


@NEEDS_CGROUPS
def test_swap_is_no_way_around_the_memory_limit(boxed):
    world = boxed()
    job_id = world.api().submit("exec sleep 600", memory_mb=64)
    world.api().wait_for(job_id, "running")
    limit = setting_of(world, "memory.swap.max", "memory.memsw.limit_in_bytes")
    world.api().cancel(job_id)
    if not limit:
        pytest.skip("this kernel counts no swap")
    assert limit in (["memory.swap.max", "0"], ["memory.memsw.limit_in_bytes", str(64 << 20)])


@NEEDS_ROOT
def test_without_cgroups_where_configured_limits_are_watched(boxed):
    world = boxed("--no-cgroups")
    assert "gpusched-" not in run(world.api(), "cat /proc/self/cgroup")
    job = world.api().wait_for(world.api().submit(EAT_AND_HOLD, memory_mb=64))
    assert (job["state"], job["cause"]) == ("failed", "out_of_memory"), job


def test_without_cgroups_a_job_that_eats_memory_is_ended_and_says_so(boxed, plain_programs):
    world = boxed(plain=True)
    job = world.api().wait_for(world.api().submit(f"{EAT} & sleep 600 & ({EAT}; sleep 600) | tail -n 1; wait", memory_mb=64))
    assert (job["state"], job["cause"]) == ("failed", "out_of_memory"), job


@NEEDS_CGROUPS
def test_a_fork_bomb_stays_within_its_limit(boxed):
    api = boxed("--processes-max", "40").api()
    bomb = "i=0; while [ $i -lt 200 ]; do sleep 600 & i=$((i + 1)); done; wait"
    job = api.wait_for(api.submit(bomb))
    assert (job["state"], job["cause"]) == ("failed", "exited"), job
    assert run(api, "echo fine") == "fine\n"


def test_without_cgroups_a_fork_bomb_is_ended(boxed, plain_programs):
    api = boxed("--processes-max", "40", plain=True).api()
    job = api.wait_for(api.submit("i=0; while [ $i -lt 200 ]; do sleep 600 & i=$((i + 1)); done; wait"))
    assert (job["state"], job["cause"]) == ("failed", "over_limit"), job


@NEEDS_CGROUPS
def test_only_granted_device_nodes_can_be_opened(boxed, tmp_path):
    # Made-up GPUs: nodes of devices that root may open and that no job needs.
    nodes = [tmp_path / "gpu0", tmp_path / "gpu1"]
    try:
        for node, device in zip(nodes, (os.makedev(1, 11), os.makedev(10, 237))):
            os.mknod(node, 0o666 | stat.S_IFCHR, device)
            node.open("rb").close()
    except OSError as error:
        pytest.skip(f"cannot make and open device nodes: {error}")
    given = ["--gpu-node", f"0={nodes[0]}", "--gpu-node", f"1={nodes[1]}"]
    look = "; ".join(f"(: < {node}) 2> /dev/null && echo {node.name}" for node in nodes) + "; echo end > /dev/null; echo fence $GPU_SCHEDULER_DEVICE_FENCE"
    world = boxed(*given, sim_gpus="2xA100-SXM4-80GB")
    api = world.api()
    assert run(api, look, gpu_count=0) == "fence cgroup\n"
    assert run(api, look, gpu_count=2) == "gpu0\ngpu1\nfence cgroup\n"
    hold = world.folder / "hold"
    first = api.submit(f"{look}; while [ ! -e {hold} ]; do sleep 0.05; done", gpu_count=1)
    job = api.wait_for(first, "running")
    mine = job["allocated_gpus"][0].rpartition("-")[2]
    other = "1" if mine == "0" else "0"
    assert run(api, look, gpu_count=1) == f"gpu{other}\nfence cgroup\n"
    hold.touch()
    api.wait_for(first)
    assert api.output(first) == f"gpu{mine}\nfence cgroup\n"


@NEEDS_CGROUPS
def test_a_device_that_the_operator_allows_can_be_opened_by_all(boxed, tmp_path):
    node = tmp_path / "device"
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 11))
        node.open("rb").close()
    except OSError as error:
        pytest.skip(f"cannot make and open device nodes: {error}")
    look = f"(: < {node}) 2> /dev/null && echo open; echo fence $GPU_SCHEDULER_DEVICE_FENCE"
    assert run(boxed().api(), look) == "fence cgroup\n"
    assert run(boxed("--device-allow", "c 1:11 r").api(), look) == "open\nfence cgroup\n"
    assert run(boxed("--device-allow", str(node)).api(), look) == "open\nfence cgroup\n"


@NEEDS_ROOT
def test_without_a_fence_the_job_is_told_so(boxed):
    assert run(boxed("--no-device-fence").api(), "echo $GPU_SCHEDULER_DEVICE_FENCE") == "advisory\n"


def test_the_temporary_folder_is_the_jobs_own_and_goes_at_the_end(boxed):
    world = boxed()
    user = {"user": "nobody"} if IS_ROOT else {}
    folder = pathlib.Path(run(world.api(), "touch $TMPDIR/x; mkdir -p $TMPDIR/a/b; chmod 0 $TMPDIR/a; echo $TMPDIR", **user).strip())
    assert str(folder).startswith(str(world.folder))
    wait_until("it is gone", lambda: not folder.exists())


@pytest.mark.own_world
@pytest.mark.parametrize("agent_dies", [False, True])
def test_the_temporary_folder_goes_also_when_the_shim_is_killed(boxed, agent_dies):
    world = boxed()
    api, agent = world.api(), world.agents()[0]
    job_id = api.submit("touch $TMPDIR/x; echo $TMPDIR; sleep 600")
    api.wait_for(job_id, "running")
    wait_until("it printed", lambda: api.output(job_id).endswith("\n"))
    folder = pathlib.Path(api.output(job_id).strip())
    assert folder.exists()
    shim = agent.shim_of(job_id)
    if agent_dies:
        agent.kill()
    os.kill(shim, signal.SIGKILL)
    if agent_dies:
        agent.start()
    wait_until("it is gone", lambda: not folder.exists())
    api.cancel(job_id)


@NEEDS_ROOT
def test_shared_memory_is_the_jobs_own(boxed):
    name = f"/dev/shm/gpusched-box-{os.getpid()}"
    api = boxed().api()
    assert run(api, f"touch {name}; ls /dev/shm", user="nobody").split() == [os.path.basename(name)]
    assert not os.path.exists(name)


@NEEDS_ROOT
def test_shared_memory_is_as_large_as_configured(boxed):
    assert run(boxed("--shm-mb", "8").api(), "df -k --output=size /dev/shm").split()[-1] == str(8 << 10)


@NEEDS_ROOT
def test_shared_memory_is_the_machines_where_configured(boxed):
    path = pathlib.Path(f"/dev/shm/gpusched-box-{os.getpid()}")
    try:
        run(boxed("--shared-shm").api(), f"touch {path}")
        assert path.exists()
    finally:
        path.unlink(missing_ok=True)


@NEEDS_ROOT
def test_tmp_is_the_jobs_own_where_configured(boxed):
    name = f"/tmp/gpusched-box-{os.getpid()}"
    look = f"touch {name}; ls /tmp; ls /var/tmp; echo $TMPDIR"
    assert run(boxed("--private-tmp").api(), look, user="nobody").split() == [
        os.path.basename(name), os.path.basename(name), "/tmp"]
    assert not os.path.exists(name)


def test_the_working_directory_is_the_jobs_own_unless_it_names_one(boxed):
    world = boxed()
    user = {"user": "nobody"} if IS_ROOT else {}
    own = pathlib.Path(run(world.api(), "touch here && pwd", **user).strip())
    assert own.name == "work" and str(own).startswith(str(world.folder))
    assert run(world.api(), "pwd", working_directory="/usr/share", **user) == "/usr/share\n"


def test_umask_and_limits_are_as_asked(boxed):
    api = boxed("--limit", "nofile=900").api()
    assert run(api, "umask; ulimit -n; ulimit -c", umask=0o027, limits={"nofile": 300}).split() == ["0027", "300", "0"]
    assert run(api, "ulimit -n; ulimit -Hn").split() == ["900", "900"]


@pytest.fixture(name="soft_limits")
def soft_limits_fixture():
    """Gives what is started meanwhile other soft limits."""
    before = {}

    def set_soft(kind, soft):
        before.setdefault(kind, resource.getrlimit(kind))
        resource.setrlimit(kind, (soft, before[kind][1]))

    yield set_soft
    for kind, limits in before.items():
        resource.setrlimit(kind, limits)


@pytest.mark.own_world
def test_by_itself_a_job_has_no_core_dumps_and_all_the_locked_memory_that_there_is(boxed, soft_limits):
    hard_core, hard_memory = (resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK))
    if hard_core == 0 or hard_memory in range(0, 65537):
        pytest.skip("the hard limits of core dumps or locked memory leave nothing to see")
    soft_limits(resource.RLIMIT_CORE, hard_core)
    soft_limits(resource.RLIMIT_MEMLOCK, 65536)
    core, memory, memory_most = run(boxed().api(), "ulimit -Sc; ulimit -Sl; ulimit -Hl").split()
    assert core == "0"
    assert memory == memory_most != "64"


def test_a_limit_above_the_nodes_is_refused(boxed):
    is_refused(boxed("--limit", "nofile=900"), "allows at most 900", limits={"nofile": 1000})


@pytest.mark.own_world
def test_a_limit_that_does_not_exist_is_refused_by_name(boxed):
    world = boxed()
    status, answer, _ = world.api().call("POST", "/api/v1/jobs", {"script": "true", "limits": {"nofil": 900}})
    assert status == 400 and "has a name that is not a resource limit: nofil;" in str(answer), (status, answer)
    other = world.add_agent("n2", arguments=["--limit", "nofil=900"])
    other.launch()
    assert other.ended() != 0
    assert "--limit 'nofil' is not a resource limit" in other.log_text()


def test_the_kernel_is_told_to_end_jobs_first(boxed):
    look = "cat /proc/self/oom_score_adj"
    assert run(boxed().api(), look) == "300\n"
    assert run(boxed("--oom-score", "700").api(), look) == "700\n"


@NEEDS_ROOT
def test_output_files_are_opened_as_the_user_and_appended_to(boxed):
    world = boxed()
    home = world.folder / "home"
    home.mkdir(mode=0o700)
    (home / "in").write_text("word\n")
    os.chown(home, 65534, 65534)
    for _ in range(2):
        job_id = world.api().submit("cat; echo error >&2", user="nobody", working_directory=str(home),
                                    stdin_path=f"{home}/in", stdout_path=f"{home}/out", stderr_path=f"{home}/err")
        assert world.api().wait_for(job_id)["exit_code"] == 0
    assert (home / "out").read_text() == "word\nword\n"
    assert (home / "err").read_text() == "error\nerror\n"
    assert (home / "out").stat().st_uid == 65534
    api = world.api()
    refused = api.submit("true", user="nobody", stdout_path="/root/no")
    wait_until("it says why", lambda: "cannot open '/root/no' for standard output as the user" in api.job(refused)["message"])
    api.cancel(refused)


@NEEDS_ROOT
def test_a_folder_that_the_user_may_not_enter_fails_to_start_with_a_sentence(boxed):
    world = boxed()
    closed = world.folder / "closed"
    closed.mkdir(mode=0o700)
    is_refused(world, f"cannot enter the working directory '{closed}' as the user", user="nobody",
               working_directory=str(closed))


def test_variables_of_the_node_come_before_the_jobs_own(boxed, tmp_path):
    listed = tmp_path / "variables"
    listed.write_text("# of this class of nodes\nNCCL_IB_HCA=mlx5_0\nUCX_TLS=rc\n")
    api = boxed("--node-env", "NCCL_SOCKET_IFNAME=eth0", "--node-env-file", str(listed)).api()
    assert run(api, "echo $NCCL_IB_HCA $UCX_TLS $NCCL_SOCKET_IFNAME", environment={"UCX_TLS": "tcp"}) == "mlx5_0 tcp eth0\n"


@pytest.mark.own_world
def test_nothing_of_the_agents_environment_reaches_a_job(boxed, monkeypatch):
    monkeypatch.setenv("GPUSCHED_BOX_SECRET", "hidden")
    api = boxed().api()
    assert run(api, "echo ${GPUSCHED_BOX_SECRET-none}") == "none\n"
    assert run(api, "echo $GPUSCHED_BOX_SECRET", environment={"GPUSCHED_BOX_SECRET": "mine"}) == "mine\n"


def test_a_job_cannot_name_itself_other_devices(boxed):
    names = ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"]
    look = "env | grep -E '^[A-Z]+_(VISIBLE_DEVICES|DEVICE_ORDINAL)=' | sort"
    ours = "CUDA_VISIBLE_DEVICES=\nNVIDIA_VISIBLE_DEVICES=void\n"
    assert run(boxed().api(), look, environment=dict.fromkeys(names, "0,1")) == ours
    # Nor can its node.
    assert run(boxed(*[f"--node-env={name}=0,1" for name in names]).api(), look) == ours


@NEEDS_CGROUPS
@pytest.mark.parametrize("flags", [[], ["--cpu-quota"]])
def test_cores_are_a_weight_and_where_configured_the_most(boxed, flags):
    world = boxed(*flags)
    job_id = world.api().submit("exec sleep 600", cpu_cores=0.5)
    world.api().wait_for(job_id, "running")
    weight = setting_of(world, "cpu.weight", "cpu.shares")
    most = setting_of(world, "cpu.max", "cpu.cfs_quota_us")
    world.api().cancel(job_id)
    assert weight in (["cpu.weight", "20"], ["cpu.shares", "512"])
    if flags:
        assert most in (["cpu.max", "50000", "100000"], ["cpu.cfs_quota_us", "50000"])
    else:
        assert most in (["cpu.max", "max", "100000"], ["cpu.cfs_quota_us", "-1"])


def test_jobs_share_the_cores_where_configured(boxed):
    own = run(boxed("--share-cores", cpus=os.cpu_count()).api(), LOOK_AT_CORES, cpu_cores=1).strip()
    assert f"Cpus_allowed_list:\t{own}\n" in read_bytes("/proc/self/status").decode()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_cores_are_those_near_the_gpu(boxed):
    # Simulated GPUs share the cores in equal parts, in their order.
    cores = sorted(os.sched_getaffinity(0))
    near = [cores[:len(cores) // 2], cores[len(cores) // 2:]]
    api = boxed(cpus=len(cores), sim_gpus="2xA100-SXM4-80GB").api()
    holder = None
    for _ in near:  # Each GPU in turn is the only free one, and all cores are free.
        other = api.submit("exec sleep 600", gpu_count=1, cpu_cores=0)
        taken = api.wait_for(other, "running")["allocated_gpus"][0]
        if holder is not None:
            api.cancel(holder)
            api.wait_for(holder, "cancelled")
        holder = other
        core = run(api, LOOK_AT_CORES, gpu_count=1, cpu_cores=1).strip()
        assert int(core) in near[1 - int(taken.rpartition("-")[2])]
    api.cancel(holder)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two cores")
def test_each_job_has_its_own_cores_also_after_a_restart_of_the_agent(boxed):
    world = boxed(cpus=os.cpu_count())
    api, agent = world.api(), world.agents()[0]
    first = api.submit(f"{LOOK_AT_CORES}; exec sleep 600", cpu_cores=1)
    api.wait_for(first, "running")
    mine = allowed_cores(api, first)
    agent.restart()
    for _ in range(2):
        second = run(api, LOOK_AT_CORES, cpu_cores=1).strip()
        assert second.isdigit() and second != mine
    api.cancel(first)


@pytest.mark.parametrize("options, bit", [([], "1"), (["--no-new-privileges"], "1"), (["--allow-set-user-id"], "0")])
def test_set_user_id_programs_have_no_effect_unless_that_is_allowed(boxed, options, bit):
    assert run(boxed(*options).api(), "grep ^NoNewPrivs /proc/self/status").split() == ["NoNewPrivs:", bit]


@NEEDS_ROOT
def test_a_full_disk_of_the_agent_is_a_problem_of_the_node_and_stops_nothing_else(new_world):
    world = new_world(AGENT_HEARTBEAT_INTERVAL_MS=300, SCHEDULER_NODE_LEASE_MS=3000)
    data = world.folder / "n1"
    data.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "disk", str(data)], check=False).returncode != 0:
        pytest.skip("cannot mount a small disk")
    try:
        world.scheduler.start()
        agent = world.add_agent("n1").start()
        api = world.api()
        gate = world.folder / "gate"
        running = api.submit(f"while [ ! -e {gate} ]; do sleep 0.05; done; exit 3")
        api.wait_for(running, "running")
        filler = data / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        # Each refusal is a record of some length: soon the last page is full.
        refused = [api.submit("true", user="u" * 32) for _ in range(48)]
        wait_until("the agent says so", lambda: '"disk_full"' in agent.log_text())
        heartbeat = api.node("n1")
        assert heartbeat["state"] != "unreachable", heartbeat
        wait_until("the node says so", lambda: "is full" in str(api.node("n1")))
        following = api.submit("exit 4")
        filler.unlink()
        for job_id in refused:
            api.cancel(job_id)
        gate.touch()
        assert api.wait_for(running)["exit_code"] == 3
        assert api.wait_for(following)["exit_code"] == 4
    finally:
        for daemon in world.daemons:
            daemon.kill()
        harness.kill_processes_of(world.folder)
        harness.remove_cgroups_of(world.folder)
        subprocess.run(["umount", "-l", str(data)], check=False)
