"""Two schedulers race for devices and for pods: nobody ever has what another one has."""

import re

import pytest
from control_plane import harness, run_go
from gpu_world import Bridge, GpuWorld, configuration_of, record_of

RACES = 300
RACES_AT_NIGHT = 10_000


def race(plane, count):
    """What the races' own test says."""
    for name in ("race-a", "race-b"):
        if plane.api("GET", f"/api/v1/namespaces/{name}")[0] == 404:
            plane.namespace(name)
    said = run_go("test", "-count=1", "-v", "-timeout=3600s", "-run=TestOfTwoWhoRaceForDevicesOneHasThem", "./leases/",
                  GPUSCHED_RACE_KUBECONFIG=str(plane.admin), GPUSCHED_RACES=str(count))
    assert re.search(rf"{count} races: \d+ and \d+ won", said), said
    print(said)


def test_of_two_who_race_for_devices_one_has_them(control_plane):
    race(control_plane, RACES)


def test_ten_thousand_races_have_one_winner_each(control_plane):
    race(control_plane, RACES_AT_NIGHT)


@pytest.fixture(name="rivals")
def rivals_fixture(own_control_plane, go_program, session_folder):
    """Two engines with a program each, of which each takes all pods and all nodes for its own: a split brain."""
    first = GpuWorld(own_control_plane, go_program("gpu-scheduler-kube"), session_folder)
    world = harness.World({}, session_folder)
    engine = world.scheduler.start()
    configuration = configuration_of(own_control_plane.user("gpu-scheduler"), f"127.0.0.1:{engine.ports['grpc']}",
                                     engine.data_dir / "token")
    second = Bridge(own_control_plane, first.bridge.program, configuration).start()
    yield first, engine
    second.kill()
    first.end()
    world.end()
    world.remove()


def test_two_schedulers_of_the_same_pods_bind_each_once_and_no_device_twice(rivals):
    cluster, other = rivals
    namespace = cluster.plane.namespace()
    nodes = [cluster.add_node(gpus=4) for _ in range(2)]
    for node in nodes:
        other.api().wait_node(node)
    names = [f"p{i}" for i in range(8)]
    for name in names:
        cluster.claim(namespace, name)
        cluster.pod(namespace, name, name)

    def bound():
        pods = [cluster.get_pod(namespace, name) for name in names]
        return pods if all(pod["spec"].get("nodeName") for pod in pods) else None

    pods = harness.wait_until("all pods are bound", bound)
    held = [(record_of(pod)["node"], one["id"]) for pod in pods for one in record_of(pod)["devices"]]
    assert sorted(held) == sorted((node, gpu) for node in nodes for gpu in range(4)), sorted(held)
    assert all(pod["spec"]["nodeName"] == record_of(pod)["node"] for pod in pods)
    cluster.wait_leases(namespace, {f"gpu-{node}-{gpu}" for node, gpu in held})
    for name in names:
        cluster.finish(namespace, name)
    cluster.wait_leases(namespace, ())
    for node in nodes:
        for engine in (cluster.engine, other):
            harness.wait_until(f"all GPUs of {node} are free", lambda node=node, engine=engine: 4 == sum(
                gpu["state"] == "free" and gpu["condition"] == "ok" for gpu in engine.api().node(node)["gpus"]))
