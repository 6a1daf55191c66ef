//! Networks of Linux guests on Corten's machine, from both sides. These run in a node, in the cage, where `guests` starts
//! them with the TAPs `left`, of two queues, and `right`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_link::{Addressing, Counters, Ipv4Addressing, Ipv6Addressing, Reply, Request};
use corten_tests::guest::ScriptedGuest;
use corten_tests::process::VmProcess;
use corten_tests::threads::threads;

/// A boot takes 5 s in a quiet emulated node.
const BOOT: Duration = Duration::from_secs(180);
const MIB: usize = 1 << 20;

/// Random-looking bytes, the same each time.
fn pattern(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flatten().take(length).collect()
}

/// Sends `bytes` to an echo server and checks what comes back.
fn echo(address: &str, bytes: &[u8]) -> Result<()> {
    let mut stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
    stream.set_read_timeout(Some(BOOT))?;
    stream.set_write_timeout(Some(BOOT))?;
    let mut writer = stream.try_clone()?;
    thread::scope(|scope| {
        let sender = scope.spawn(move || {
            writer.write_all(bytes)?;
            writer.shutdown(Shutdown::Write)
        });
        let mut back = Vec::new();
        stream.read_to_end(&mut back)?;
        sender.join().map_err(|_| anyhow::anyhow!("the sender panicked"))??;
        ensure!(back == bytes, "{} bytes of {} came back, or others", back.len(), bytes.len());
        Ok(())
    })
}

fn echo_datagrams(address: &str) -> Result<()> {
    let socket = UdpSocket::bind("10.100.0.1:0")?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut back = vec![0; 64 << 10];
    for length in [1, 100, 1400, 8000] {
        let sent = pattern(length);
        // Datagrams may be lost, but not all of them.
        let came = (0..10).any(|_| {
            socket.send(&sent).is_ok()
                && socket.recv(&mut back).is_ok_and(|length| back[..length] == sent)
        });
        ensure!(came, "a datagram of {length} bytes does not come back");
    }
    Ok(())
}

fn counters(process: &mut VmProcess) -> Result<Counters> {
    match process.ask(Request::Counters)? {
        (Reply::Counters { counters }, _) => Ok(counters),
        (other, _) => anyhow::bail!("{other:?}"),
    }
}

const ECHO: &str = r#"
echoes TCP-LISTEN:7,reuseaddr &
tool socat UDP-RECVFROM:7,fork PIPE &
until tool socat -u OPEN:/dev/null TCP:127.0.0.1:7; do sleep 0.2; done
"#;

fn echoing(before: &str, after: &str) -> String {
    format!("ip link set lo up\nup eth0 10.100.0.2\n{before}{ECHO}{after}\necho idle >/run/end\n")
}

#[test]
fn ping_tcp_and_udp_go_both_ways_over_two_pairs_of_queues() -> Result<()> {
    let mut process = both_ways(|guest| guest)?;
    let left = counters(&mut process)?.networks["left"];
    ensure!(left.received_bytes > 2 * MIB as u64, "{left:?}");
    ensure!(left.transmitted_bytes > 4 * MIB as u64, "{left:?}");
    ensure!(left.bad_requests == 0 && left.receive_errors == 0, "{left:?}");
    // Offloads: TCP goes in pieces far larger than a packet.
    ensure!(left.transmitted < left.transmitted_bytes / 1500, "no segmentation: {left:?}");
    Ok(())
}

#[test]
fn long_ping_tcp_and_udp_go_both_ways_by_vhost_without_this_process() -> Result<()> {
    let mut process = both_ways(|guest| guest.vhost(1))?;
    let left = counters(&mut process)?.networks["left"];
    ensure!((left.received, left.transmitted, left.bad_requests) == (0, 0, 0), "{left:?}");
    Ok(())
}

/// Boots a guest with two pairs of queues and has it send and receive in every way.
fn both_ways(more: impl FnOnce(ScriptedGuest) -> ScriptedGuest) -> Result<VmProcess> {
    let before = r#"
        echo "MAC $(cat /sys/class/net/eth0/address)"
        tool ethtool -l eth0 | awk '/Combined/ { print "PAIRS " $2 }'
        tool ethtool -k eth0 | grep -E '^(tx-checksumming|tcp-segmentation-offload|rx-checksumming):'
        ping -c 3 -i 0.3 10.100.0.1 >/dev/null && echo PINGED
    "#;
    let after = r#"
        echo "SENT $(dd if=/dev/vdb bs=256k count=8 2>/dev/null | sha256sum)"
        dd if=/dev/vdb bs=256k count=8 2>/dev/null | tool socat -u - TCP:10.100.0.1:9000
        echo LISTENING
    "#;
    let listener = TcpListener::bind("10.100.0.1:9000")?;
    let receiver = thread::spawn(move || -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        listener.accept()?.0.read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    let guest = ScriptedGuest::new(2, 256, "virtio_net", &echoing(before, after))?;
    let process = more(guest.network("left", 2)?).boot()?;
    process.wait_for("LISTENING", 1, BOOT)?;
    let console = process.console();
    for line in [
        "MAC 02:c0:47:e4:00:00",
        "PAIRS 2",
        "tx-checksumming: on",
        "rx-checksumming: on",
        "tcp-segmentation-offload: on",
        "PINGED",
    ] {
        ensure!(console.contains(line), "no {line:?} in\n{console}");
    }
    let received = receiver.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))??;
    let sum = <sha2::Sha256 as sha2::Digest>::digest(&received);
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(console.contains(&format!("SENT {sum}")), "{sum} is not in\n{console}");
    echo("10.100.0.2:7", &pattern(2 * MIB))?;
    echo_datagrams("10.100.0.2:7")?;
    Ok(process)
}

#[test]
fn connection_lives_through_two_saves_under_load() -> Result<()> {
    lives_through_saves(0)
}

/// The third process serves the guest itself: what one path saved the other goes on with.
#[test]
fn long_connection_lives_through_two_saves_under_load_by_vhost_and_without() -> Result<()> {
    lives_through_saves(2)
}

fn lives_through_saves(by_vhost: u16) -> Result<()> {
    let script = echoing("", "echo LISTENING").replace("10.100.0.2", "10.100.1.2");
    let guest = ScriptedGuest::new(1, 256, "virtio_net", &script)?;
    let guest = guest.network("right", 1)?.vhost(by_vhost);
    let mut process = guest.boot()?;
    process.wait_for("LISTENING", 1, BOOT)?;
    let done = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    let worker = {
        let (done, rounds) = (Arc::clone(&done), Arc::clone(&rounds));
        thread::spawn(move || -> Result<()> {
            let mut stream = TcpStream::connect("10.100.1.2:7")?;
            stream.set_read_timeout(Some(BOOT))?;
            let (sent, mut back) = (pattern(32 << 10), vec![0; 32 << 10]);
            while !done.load(Ordering::Acquire) {
                stream.write_all(&sent)?;
                stream.read_exact(&mut back)?;
                ensure!(back == sent, "other bytes came back");
                rounds.fetch_add(1, Ordering::AcqRel);
            }
            Ok(())
        })
    };
    let more = |process: &VmProcess| {
        let goal = rounds.load(Ordering::Acquire) + 3;
        let deadline = std::time::Instant::now() + BOOT;
        while rounds.load(Ordering::Acquire) < goal {
            ensure!(std::time::Instant::now() < deadline, "no more echoes:\n{}", process.console());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    };
    more(&process)?;
    for _ in 0..2 {
        process = guest.reborn(process)?;
        more(&process)?;
    }
    done.store(true, Ordering::Release);
    worker.join().map_err(|_| anyhow::anyhow!("the worker panicked"))?
}

/// With one vCPU there is one I/O thread, which serves both interfaces and the disk. Its driver uses one of the two pairs of the
/// first: packets must not go to the other.
#[test]
fn flood_on_one_interface_leaves_disk_and_the_other_interface_going() -> Result<()> {
    let script = r#"
        ip link set lo up
        up eth0 10.100.0.2
        up eth1 10.100.1.2
        echoes TCP-LISTEN:7,bind=10.100.1.2,reuseaddr &
        until tool socat -u OPEN:/dev/null TCP:10.100.1.2:7; do sleep 0.2; done
        echo LISTENING
        until ping -c 1 10.100.0.1 >/dev/null; do sleep 0.2; done
        echo READY
        until [ "$(cat /sys/class/net/eth0/statistics/rx_packets)" -gt 2000 ]; do sleep 0.1; done
        tool fio --name=verify --filename=/dev/vdc --rw=randwrite --bs=4k --size=1m --direct=1 --verify=crc32c \
            --ioengine=psync --output=/dev/null
        echo VERIFIED
        echo idle >/run/end
    "#;
    let disk = tempfile::tempfile()?;
    disk.set_len(8 << 20)?;
    let guest = ScriptedGuest::new(1, 256, "virtio_net", script)?.disk("data", &disk)?;
    let mut process = guest.network("left", 2)?.network("right", 1)?.boot()?;
    process.wait_for("READY", 1, BOOT)?;
    let workers = threads(process.id())?.into_iter().filter(|(name, _)| name.starts_with("io-"));
    ensure!(workers.count() == 1, "the flood has a worker of its own");
    let done = Arc::new(AtomicBool::new(false));
    let flood = {
        let done = Arc::clone(&done);
        thread::spawn(move || -> Result<u64> {
            let socket = UdpSocket::bind("10.100.0.1:0")?;
            // To everybody: nobody is told that nobody listens, which would keep the guest busier than the VM process.
            socket.set_broadcast(true)?;
            let (packet, mut sent) = ([0; 64], 0);
            while !done.load(Ordering::Acquire) {
                sent += u64::from(socket.send_to(&packet, "10.100.0.255:4000").is_ok());
            }
            Ok(sent)
        })
    };
    let echoed = echo("10.100.1.2:7", &pattern(MIB / 8));
    let verified = process.wait_for("VERIFIED", 1, BOOT);
    let before = counters(&mut process)?.networks["left"];
    done.store(true, Ordering::Release);
    let sent = flood.join().map_err(|_| anyhow::anyhow!("the flood panicked"))??;
    echoed?;
    verified?;
    ensure!(sent > 2000 && before.received > 2000, "{sent} packets were no flood: {before:?}");
    Ok(())
}

/// Asks by busybox, by the kernel's own solicitation and by dhclient; then again and again, so that a lease can be seen to be
/// renewed. What dhclient is told its script takes over; it keeps its notes where the tools can be written to.
const ASKING: &str = r#"
ip link set lo up
ip link set eth0 up
udhcpc -i eth0 -n -q -O mtu -O search
echo "IPV4 $(ip -4 address show dev eth0 | awk '/inet / { print $2 }')"
echo "VIA $(ip route | awk '/^default/ { print $3 }') MTU $(cat /sys/class/net/eth0/mtu)"
echo "DNS $(cat /run/resolv.conf)"
ping -c 1 10.100.1.1 >/dev/null && echo PINGED
until ip -6 route show default | grep -q 'via fe80'; do sleep 0.2; done
echo "ON LINK $(ip -6 route | awk '/^fd10:/ { print $1 }')"
cat >/mnt/dev/told <<'END'
#!/bin/bash
[ "$reason" = BOUND6 ] || exit 0
ip -6 address replace "$new_ip6_address/128" dev "$interface"
echo "IPV6 $new_ip6_address DNS $new_dhcp6_name_servers SEARCH $new_dhcp6_domain_search"
END
chmod +x /mnt/dev/told
tool dhclient -6 -1 -lf /dev/leases -pf /dev/number -sf /dev/told eth0
ip -6 address show dev eth0 scope global | awk '/inet6/ { print "HAS " $2 }'
while udhcpc -i eth0 -n -q >/dev/null 2>&1; do echo AGAIN; sleep 1; done
"#;

#[test]
fn guest_is_told_its_addresses_by_the_process_it_runs_in() -> Result<()> {
    let told = Addressing {
        ipv4: Some(Ipv4Addressing {
            address: [10, 100, 1, 2].into(),
            prefix: 24,
            server: [10, 100, 1, 1].into(),
            gateway: Some([10, 100, 1, 1].into()),
            routes: Vec::new(),
            dns: vec![[10, 96, 0, 10].into()],
        }),
        ipv6: Some(Ipv6Addressing {
            address: "fd10:0:2::2".parse()?,
            prefix: 120,
            is_router: true,
            router_mac: None,
            dns: vec!["fd10:96::a".parse()?],
        }),
        hostname: "guest".into(),
        search: vec!["svc.cluster.local".into()],
        mtu: Some(1400),
        ..Addressing::default()
    };
    let guest = ScriptedGuest::new(1, 256, "virtio_net", ASKING)?;
    let guest = guest.network("right", 1)?.addressing(told)?;
    let mut process = guest.boot()?;
    process.wait_for("AGAIN", 1, BOOT)?;
    let console = process.console();
    for line in [
        "IPV4 10.100.1.2/24",
        "VIA 10.100.1.1 MTU 1400",
        "DNS nameserver 10.96.0.10",
        "PINGED",
        "ON LINK fd10:0:2::/120",
        "IPV6 fd10:0:2::2 DNS fd10:96::a SEARCH svc.cluster.local",
        "HAS fd10:0:2::2/128",
    ] {
        ensure!(console.contains(line), "no {line:?} in\n{console}");
    }
    let counters = counters(&mut process)?.networks["right"].addresses;
    // The first advertisement may have come before the TAP's own address was usable.
    ensure!(counters.answered >= 6 && counters.malformed == 0, "{counters:?}");
    let process = guest.reborn(process)?;
    process.wait_for("AGAIN", 2, BOOT)
}
