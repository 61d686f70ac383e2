"""gpu-sim replay and whatif: recorded work on the scheduler's own engine."""

import gzip
import json
import subprocess
import xml.etree.ElementTree

import harness

TRACE = "job_id,submission_time,duration,num_gpu\na,0,100,3\nb,10,50,2\nc,20,10,1\n"


def sim(*words):
    return subprocess.run([harness.program("gpu-sim"), *words], capture_output=True, text=True, timeout=60, check=False)


def write(folder, text=TRACE, name="trace.csv"):
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


def test_policies_side_by_side_as_json(tmp_path):
    done = sim("replay", write(tmp_path, name="trace.csv.gz"), "--format", "itp", "--pool", "4", "--policy",
               "fifo,fifo+oracle", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["jobs"] == 3
    assert [row["policy"] for row in answer["policies"]] == ["fifo", "fifo+oracle"]
    oracle = answer["policies"][1]
    # b waits until a has ended; c ends before that.
    assert oracle["wait_max_s"] == 90.0
    assert oracle["completion_mean_s"] == 83.3


def test_the_same_replay_has_the_same_digest_and_a_shaken_one_another(tmp_path):
    words = ["replay", write(tmp_path), "--format", "itp", "--nodes", "1x4", "--policy", "fair_share", "--json"]
    digests = [json.loads(sim(*words, *more).stdout)["policies"][0]["digest"]
               for more in ([], [], ["--shake", "--seed", "7"])]
    assert digests[0] == digests[1] != digests[2]


def test_a_chart_is_drawn(tmp_path):
    chart = tmp_path / "waits.svg"
    done = sim("replay", write(tmp_path), "--format", "itp", "--pool", "4", "--chart", str(chart))
    assert done.returncode == 0, done.stderr
    assert xml.etree.ElementTree.parse(chart).getroot().tag.endswith("svg")


def test_what_is_wrong_is_said_in_a_sentence(tmp_path):
    good = write(tmp_path)
    for words, sentence in [
            (["replay", write(tmp_path, TRACE + "d,30\n", "broken.csv"), "--format", "itp", "--pool", "4"], ":5: has 2 fields"),
            (["replay", good, "--format", "itp"], "give --nodes N x G or --pool GPUS"),
            (["replay", good, "--format", "itp", "--pool", "4", "--policy", "sjf"], "there is no policy 'sjf'"),
            (["replay"], "nothing to replay"),
            (["whatif", "--journal", str(tmp_path), "--policy", "fifo"], str(tmp_path))]:
        done = sim(*words)
        assert done.returncode == 1, words
        assert sentence in done.stderr, done.stderr


def test_help_has_each_format_with_its_units():
    done = sim("replay", "--help")
    assert done.returncode == 0
    for word in ["swf", "muri", "itp", "philly", "helios", "openb", "pai", "submit_time in us", "oracle"]:
        assert word in " ".join(done.stdout.split())
