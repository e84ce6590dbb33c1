# SPDX-License-Identifier: GPL-2.0
"""What is compared: our modules, the C driver and nvme-rdma, each a block device in the same guest."""
import dataclasses

from vmlab.machine import Machine

ADDRESS = "10.0.0.1"
# No data is stored: what remains is the transport.
BACKING = "modprobe null_blk nr_devices=1 memory_backed=0 queue_mode=2 submit_queues=2 gb=4 irqmode=0"


@dataclasses.dataclass(frozen=True)
class Setup:
    """One way to reach the backing device over RDMA, and the modules that are to be counted."""

    name: str
    modules: tuple[str, ...]
    up: str
    down: str
    device: str


# The same machine by another address: a second path in a guest of one device. (Not an IPv6 one: the C server takes
# addresses of different families for the same, D18.)
SECOND_ADDRESS = "10.0.0.3"
POLICIES = ("round-robin", "min-inflight", "min-latency")


def rnbd(name: str, module_set: str, invalidate: str, modules: tuple[str, ...], policy: str = "round-robin",
         path_count: int = 1, device: str = "nullb0", options: str = "", server: str = "") -> Setup:
    """A disk of rnbd: of our modules or the C driver's, with the options of `map_device` and of rtrs-server."""
    session = f"bench{invalidate}"
    paths = " ".join(f"path=ip:{address}" for address in (ADDRESS, SECOND_ADDRESS)[:path_count])
    up = f"""
ip addr replace {SECOND_ADDRESS}/24 dev eth0
mods {module_set} rtrs-server always_invalidate={invalidate} {server}
mods {module_set} rnbd-server dev_search_path=/dev
mods {module_set} rnbd-client
echo "sessname={session} {paths} device_path={device} access_mode=rw {options}" \\
    > /sys/class/rnbd-client/ctl/map_device
echo {policy} > /sys/class/rtrs-client/{session}/mpath_policy
"""
    down = "echo normal > /sys/block/rnbd0/rnbd/unmap_device; sleep 1; mods -r"
    return Setup(name, modules, up, down, "/dev/rnbd0")


C = ("rtrs_core", "rtrs_client", "rtrs_server", "rnbd_client", "rnbd_server")
OURS = ("kernel_ext", "block_ext", "rdma_rust")
_NVME_UP = f"""
modprobe nvmet-rdma; modprobe nvme-rdma
mount -t configfs none /sys/kernel/config 2>/dev/null
cd /sys/kernel/config/nvmet
mkdir -p subsystems/bench/namespaces/1 ports/1
echo 1 > subsystems/bench/attr_allow_any_host
echo -n /dev/nullb0 > subsystems/bench/namespaces/1/device_path
echo 1 > subsystems/bench/namespaces/1/enable
echo rdma > ports/1/addr_trtype; echo ipv4 > ports/1/addr_adrfam
echo {ADDRESS} > ports/1/addr_traddr; echo 4420 > ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/bench ports/1/subsystems/bench
nvme connect -t rdma -n bench -a {ADDRESS} -s 4420
for i in 1 2 3 4 5 6 7 8 9 10; do [ -e /dev/nvme0n1 ] && break; sleep 0.5; done
ls /dev/nvme0n1
"""
_NVME_DOWN = """
nvme disconnect -n bench
cd /sys/kernel/config/nvmet
rm -f ports/1/subsystems/bench; echo 0 > subsystems/bench/namespaces/1/enable
rmdir subsystems/bench/namespaces/1 ports/1 subsystems/bench
"""

NVME = Setup("nvme-rdma", ("nvme_rdma", "nvme_fabrics", "nvme_core", "nvmet_rdma", "nvmet"), _NVME_UP, _NVME_DOWN,
             "/dev/nvme0n1")

SETUPS = (
    rnbd("C Y", "c", "Y", C),
    rnbd("Rust Y", "ours", "Y", (*OURS, *C)),
    rnbd("C N", "c", "N", C),
    rnbd("Rust N", "ours", "N", (*OURS, *C)),
    NVME,
)

# Two paths, each policy: what choosing costs.
TWO_PATHS = tuple(rnbd(f"{name} {policy}", modules, "Y", counted, policy, 2) for policy in POLICIES
                  for name, modules, counted in (("C", "c", C), ("Rust", "ours", (*OURS, *C))))

# A server that copies no WRITE: each loses its key, as long ones do.
REVOKED = rnbd("Rust Y write_copy_max=0", "ours", "Y", (*OURS, *C), server="write_copy_max=0")


# With protection information and without, on a disk that keeps what is written; all of it is written first.
PI_MIB = 16


def _pi(name: str, options: str) -> Setup:
    base = rnbd(name, "ours", "Y", (*OURS, *C), device="ram0", options=options)
    fill = f"dd if=/dev/zero of={base.device} bs=1M oflag=direct status=none || true"
    return dataclasses.replace(base, up=f"modprobe brd rd_nr=1 rd_size={PI_MIB * 1024}\n{base.up}\n{fill}",
                               down=f"{base.down}; rmmod brd")


PROTECTION = (_pi("off", ""), _pi("wire, crc64", "pi=crc64"), _pi("wire, t10", "pi=t10"))


def bring_up(machine: Machine, setup: Setup) -> None:
    """Loads the setup's modules and makes its device appear."""
    machine.run(f"set -e\n{setup.up}\nblockdev --getsize64 {setup.device}", 120)


def take_down(machine: Machine, setup: Setup) -> None:
    """Removes the device and the modules again."""
    machine.run(setup.down, 120)
