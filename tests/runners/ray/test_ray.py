"""The runner ``ray`` on a cluster of this machine: the same verdicts, lost actors, clear words."""

import contextlib
import json
import threading
from types import SimpleNamespace

import psutil
import pytest
from chameleon_core._errors import PluginError, TargetError
from chameleon_core.plugin_api import Contender
from chameleon_runners._ray import payloads
from chameleon_runners._ray.options import RayOptions
from chameleon_runners._ray.runner import RayRunner
from chameleon_runners._ray.worker_pool import RayPool
from chameleon_system._processes.stamps import TOKEN
from fault_devices import FaultDevice, FaultDeviceOptions
from faults import FAULTS, Fault, config

from ..conftest import QUICK, TASK, by_config, eventually, fault_space, folders, job  # noqa: TID252 - tests are no package
from ..faults.conftest import EXPECTED  # noqa: TID252

ray = pytest.importorskip("ray")
Cluster = pytest.importorskip("chameleon_runners._ray.cluster").Cluster
ImpatientHost = pytest.importorskip("impatient_host").ImpatientHost


@pytest.fixture(scope="module")
def cluster():
    ray.init(
        num_cpus=2,
        resources={"device": 2},
        include_dashboard=False,
        configure_logging=False,
        log_to_driver=False,
    )
    yield
    ray.shutdown()


def _workers():
    """Processes that workers of runners on this test's cluster are or started."""
    table = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() != psutil.STATUS_ZOMBIE and TOKEN in process.environ():
                table.add(process.pid)
    return table


def _options(**options):
    quick = {name: value for name, value in QUICK.items() if name != "leader_rounds"}
    base = {"workers": 2, "resources": {"device": 1.0}, "cpus_per_device": 0.0, "probe_after": 0.1}
    return RayOptions(**{**quick, **base, "patience": 240.0, **options})


@pytest.fixture
def make(cluster, tmp_path, monkeypatch, hangs_end_soon):
    monkeypatch.setattr("chameleon_runners._ray.cluster.WorkerActor", ImpatientHost)

    def runner(**options):
        more = options.pop("device_options", {})
        return RayRunner(
            _options(
                device="fault_devices:FaultDevice",
                device_options={"state": str(tmp_path), **more},
                **options,
            )
        )

    yield runner
    assert eventually(lambda: not _workers())
    assert folders() == []


def _good(count):
    return [config(Fault.NONE, number) for number in range(count)]


@pytest.mark.full
def test_every_fault_is_recorded_as_on_this_machine(make):
    # Descriptors are numbered differently in an actor's worker: what it scribbles on is no pipe.
    differs = {Fault.SCRIBBLES}
    faults = [fault for fault in Fault if fault not in differs]
    with make() as runner:
        table = by_config(list(runner.measure(job([config(fault) for fault in faults]))))
        devices = runner.describe()["devices"]
        again = by_config(list(runner.measure(job(_good(8)))))
    assert {FAULTS[c[0]]: m.failure for c, m in table.items()} == {f: EXPECTED[f] for f in faults}
    assert "SIGSEGV" in table[config(Fault.SEGFAULTS)].message
    assert all(m.ok for m in again.values())
    assert len({device["name"] for device in devices}) == 2


@pytest.mark.full
def test_a_killed_actor_is_replaced_and_no_candidate_is_lost(make, tmp_path):
    device = FaultDevice(FaultDeviceOptions(state=str(tmp_path)))
    killed = []

    def kill(pool):
        eventually(lambda: device.count() > 2)
        host = next(h for h in pool._hosts if h.place.name)
        ray.kill(host.actor)
        killed.append(host)

    # Loading takes a second, so that most of the time of a device is at stake.
    with make(device_options={"seconds": 1.0}, retries=4) as runner:
        measurements = runner.measure(job(_good(12)))
        pool = runner._resources.pool
        assert isinstance(pool, RayPool)
        killer = threading.Thread(target=kill, args=(pool,))
        killer.start()
        table = by_config(list(measurements))
        killer.join()
        assert not pool._hosts & set(killed)
        assert killed[0].place in {host.place for host in pool._hosts}
    assert [m.message for m in table.values() if not m.ok] == []
    assert len(table) == 12


@pytest.mark.full
def test_contenders_are_compared(make):
    contenders = [
        Contender(name=name, stage=fault_space(seconds=seconds), config=config(Fault.NONE))
        for name, seconds in {"fast": 0.0005, "slow": 0.1}.items()
    ]
    with make() as runner:
        fast, slow = runner.compare(TASK, contenders)
    assert fast.ok
    assert slow.cost > fast.cost


@pytest.mark.full
def test_an_abandoned_batch_leaves_a_usable_runner(make):
    with make() as runner:
        measurements = runner.measure(job(_good(30)))
        next(iter(measurements))
        measurements.close()
        assert all(m.ok for m in by_config(list(runner.measure(job(_good(3))))).values())


@pytest.mark.full
def test_closing_from_another_thread_ends_a_hang(make, monkeypatch):
    monkeypatch.undo()  # the hang is to last
    with make(run_timeout=900.0, run_floor=900.0) as runner:
        threading.Timer(1.0, runner.close).start()
        assert list(runner.measure(job([config(Fault.HANGS)]))) == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "needs", "hint"),
    [({"gpus_per_device": 1}, "1 GPU", "--num-gpus"), ({"threads": 3}, "3 CPU", "threads")],
)
def test_no_device_in_the_cluster(cluster, options, needs, hint):
    with pytest.raises(TargetError, match=rf"one takes {needs}.*2 CPU, 2 device") as caught:
        RayRunner(RayOptions(**options)).__enter__()
    assert hint in str(caught.value.hint)


@pytest.mark.full
def test_a_cpu_that_measures_leaves_all_its_cores_to_builders(cluster):
    with RayRunner(RayOptions(threads=2)) as runner:
        described = runner.describe()
    assert described["workers"] == 2
    assert len(described["devices"]) == 1


@pytest.fixture
def listed(monkeypatch):
    """Makes a cluster of the named nodes, none of which is started; ``here`` is this machine."""

    def put(nodes):
        rows = [
            {"NodeManagerAddress": name, "NodeID": name, "Resources": resources, "Alive": True}
            for name, resources in nodes.items()
        ]
        total = sum(resources["CPU"] for resources in nodes.values())
        monkeypatch.setattr(ray, "is_initialized", lambda: True)
        monkeypatch.setattr(ray, "nodes", lambda: rows)
        monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": total})
        context = SimpleNamespace(get_node_id=lambda: "here")
        monkeypatch.setattr(ray, "get_runtime_context", lambda: context)

    return put


CPU, GPUS = {"CPU": 4.0}, {"CPU": 4.0, "GPU": 2.0}


@pytest.mark.parametrize(
    ("nodes", "target", "options", "names"),
    [
        ({"a": CPU, "b": CPU, "here": CPU}, "llvm", {}, ["a", "b"]),
        ({"here": GPUS}, "llvm", {}, ["here"]),
        ({"here": GPUS}, "cuda", {}, ["here#1", "here#2"]),
        ({"a": GPUS, "here": CPU}, None, {}, ["a#1", "a#2"]),
        ({"a": CPU, "here": CPU}, "cuda", {}, ["a"]),
        ({"a": GPUS, "here": CPU}, "cuda", {"device": "local"}, ["a"]),
        ({"a": GPUS, "here": CPU}, "cuda", {"gpus_per_device": 0}, ["a"]),
        ({"a": CPU, "here": {"CPU": 8.0}}, "llvm", {"threads": 5}, ["here"]),
        ({"a": GPUS, "here": CPU}, "llvm", {"gpus_per_device": 2}, ["a#1"]),
        ({"a": {**CPU, "npu": 3.0}}, "llvm", {"resources": {"npu": 1.0}}, ["a#1", "a#2", "a#3"]),
        ({"a": GPUS, "here": CPU}, "llvm", {"device": "some:Board"}, ["a#1", "a#2"]),
    ],
)
def test_devices_follow_from_the_target_and_the_nodes(nodes, target, options, names, listed):
    listed(nodes)
    canonical = target and json.dumps({"kind": target})
    device_refs = Cluster(RayOptions(**options)).device_refs(canonical)
    assert [ref.name for ref in device_refs] == names
    local = "#" not in names[0]
    assert [ref.shared for ref in device_refs] == [local] * len(names)
    assert [ref.here for ref in device_refs] == [name == "here" for name in names]
    stage = device_refs[0].device
    if options.get("device") != "some:Board":
        gpu = stage.options["resources"]["num_gpus"] > 0
        assert stage.options["options"] == {"kind": "cuda" if gpu else "cpu"}


def test_reserved_cpus_are_built_on_by_nobody(listed):
    listed({"here": {"CPU": 2.0}})
    (ref,) = Cluster(RayOptions(cpus_per_device=1.0)).device_refs()
    assert not ref.shared
    assert ref.device.options["resources"]["num_cpus"] == 1.0
    assert Cluster(RayOptions(cpus_per_device=1.0, workers=4)).builders() == 1


def test_devices_that_leave_no_processor_to_build_on(listed):
    listed({"here": {"CPU": 2.0, "device": 2.0}})
    with pytest.raises(TargetError, match="none is left to build"):
        RayRunner(_options(cpus_per_device=1.0, workers=None)).__enter__()


def test_nobody_at_the_address(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(TargetError, match=r"no Ray cluster at 127\.0\.0\.1:1: "):
        RayRunner(_options(address="127.0.0.1:1")).__enter__()


def test_ray_is_not_installed(monkeypatch):
    monkeypatch.setattr("chameleon_runners._ray.runner.find_spec", lambda _: None)
    with pytest.raises(PluginError, match="not installed") as caught:
        RayRunner(RayOptions())
    assert "`pip install ray==VERSION`" in str(caught.value.hint)


def test_plugins_are_listed_without_ray(run_python):
    program = "import sys, chameleon_runners.hooks as h; print('ray' in sys.modules)"
    assert run_python(program).strip() == "False"


@pytest.mark.parametrize("bad", [{"GPU": 1.0}, {"device": 0.0}])
def test_resources_that_nobody_declares(bad):
    with pytest.raises(ValueError, match="declare themselves"):
        RayOptions(resources=bad)


def test_parcels_bring_folders(tmp_path):
    (tmp_path / "made" / "sub").mkdir(parents=True)
    (tmp_path / "made" / "sub" / "kernel.so").write_bytes(bytes(range(256)))
    payloads.unpack(payloads.pack(tmp_path / "made"), tmp_path / "got")
    assert (tmp_path / "got" / "sub" / "kernel.so").read_bytes() == bytes(range(256))
