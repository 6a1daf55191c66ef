//! What a VM process counts.
//!
//! Agents read it of launchers that may be of a later release: a number that they do not know is passed over, and one that
//! an older release does not count is missing, not 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::FillCounters;

/// Numbers since the VM started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Counters {
    /// Exits to the VM process for ports.
    pub port_exits: u64,
    /// Exits to the VM process for memory that is not RAM.
    pub memory_exits: u64,
    /// Exits because somebody wanted the vCPU's thread.
    pub kicks: u64,
    /// Bytes that the guest's console did not take.
    pub console_bytes_dropped: u64,
    /// Events that were not told, because the peer did not read the ones before.
    pub events_dropped: u64,
    /// What processors were used for; none where an older release does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuCounters>,
    /// How memory was filled in.
    #[serde(default)]
    pub fill: FillCounters,
    /// Bytes of guest memory in huge pages that were made of small ones.
    #[serde(default)]
    pub huge_bytes: u64,
    /// Those of each disk, by name.
    pub disks: BTreeMap<String, DiskCounters>,
    /// Those of each network interface, by name.
    pub networks: BTreeMap<String, NetworkCounters>,
    /// Those of the console device.
    pub console: ConsoleCounters,
    /// Those of the entropy device.
    pub entropy: EntropyCounters,
    /// Those of the balloon.
    pub balloon: BalloonCounters,
    /// Those of the socket device.
    pub vsock: VsockCounters,
}

/// Time that a VM process had processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CpuCounters {
    /// Of all its threads, in nanoseconds, since it started.
    pub process_nanoseconds: u64,
    /// Of each vCPU's thread, behind its number: in the guest, and on the guest's behalf in KVM and the VM process. From 0 again
    /// after a reset. Pairs, as in a message no map can have numbers for names.
    pub vcpu_nanoseconds: Vec<(u32, u64)>,
}

/// Numbers of one disk, over all of its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DiskCounters {
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes they gave the guest.
    pub read_bytes: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes they took from the guest.
    pub written_bytes: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Requests to discard that succeeded.
    pub discards: u64,
    /// Requests to write zeroes that succeeded.
    pub write_zeroes: u64,
    /// Requests that the host failed, whether the guest was told or the request is held.
    pub errors: u64,
    /// Requests that the guest got wrong.
    pub bad_requests: u64,
    /// Times that a queue waited for its rate limit.
    pub throttled: u64,
}

/// Numbers of one network interface, over all of its queues. Received is what the guest received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NetworkCounters {
    /// Frames given to the guest.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames for the guest that it did not get: for others, too large for its buffers, or not finished as it needs them.
    pub receive_dropped: u64,
    /// Times that the TAP could not be read.
    pub receive_errors: u64,
    /// Frames taken from the guest.
    pub transmitted: u64,
    /// Their bytes.
    pub transmitted_bytes: u64,
    /// Frames of the guest that the TAP refused.
    pub transmit_dropped: u64,
    /// What the guest got wrong.
    pub bad_requests: u64,
    /// Times that a queue waited for its rate limit.
    pub throttled: u64,
    /// What its guest asked about its addresses.
    #[serde(default)]
    pub addresses: AddressCounters,
    /// The kernel moves its packets (vhost-net), so that the VM process sees none: frames and bytes are for whoever has the
    /// TAP to fill in.
    #[serde(default)]
    pub by_kernel: bool,
}

/// Numbers of DHCP, DHCPv6 and router advertisements on one network interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct AddressCounters {
    /// Questions that were answered.
    pub answered: u64,
    /// Router advertisements that nobody asked for.
    pub advertised: u64,
    /// Packets that want no answer, or none of this process.
    pub ignored: u64,
    /// Packets that are against the protocol.
    pub malformed: u64,
    /// Times that questions waited because there were too many.
    pub throttled: u64,
    /// Packets that the host did not receive or send.
    pub errors: u64,
}

/// Numbers of the console device, over all of its ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ConsoleCounters {
    /// Bytes that the guest sent.
    pub sent_bytes: u64,
    /// Bytes that the guest was sent.
    pub received_bytes: u64,
    /// Bytes that nobody took.
    pub dropped_bytes: u64,
    /// What the guest got wrong.
    pub bad_requests: u64,
}

/// Numbers of the entropy device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct EntropyCounters {
    /// Requests that were answered.
    pub requests: u64,
    /// Random bytes that the guest got.
    pub bytes: u64,
    /// What the guest got wrong.
    pub bad_requests: u64,
    /// Times that a request waited for the rate limit.
    pub throttled: u64,
}

/// Numbers of the balloon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BalloonCounters {
    /// Bytes put into the balloon.
    pub inflated: u64,
    /// Bytes that the driver said it took out again.
    pub deflated: u64,
    /// Bytes of free pages that the guest reported.
    pub reported: u64,
    /// Pieces of memory that the host did not take back.
    pub failures: u64,
    /// What the guest got wrong.
    pub bad_requests: u64,
}

/// Numbers of the socket device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct VsockCounters {
    /// Connections that the guest asked for and got.
    pub from_guest: u64,
    /// Connections from the host that the guest accepted.
    pub from_host: u64,
    /// Connections that came to nothing.
    pub refused: u64,
    /// Bytes that the guest sent.
    pub sent_bytes: u64,
    /// Bytes that the guest was sent.
    pub received_bytes: u64,
    /// What the guest got wrong.
    pub bad_requests: u64,
}

/// How the memory of a VM is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Memory {
    /// Bytes of guest memory that take room on the host.
    pub allocated: u64,
    /// Bytes that are to be in the balloon.
    pub balloon_target: u64,
    /// Bytes that the driver says are in it. It can say anything.
    pub balloon_actual: u64,
    /// What the guest said last of its use, if it did.
    pub guest: Option<GuestMemoryUse>,
}

/// A guest's own word about its memory. None of what it did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GuestMemoryUse {
    /// Milliseconds since it said so.
    pub age: u64,
    /// Bytes that there are.
    pub total: Option<u64>,
    /// Bytes that are used for nothing.
    pub free: Option<u64>,
    /// Bytes that could be had without swapping.
    pub available: Option<u64>,
    /// Bytes of files, which could be had at once.
    pub caches: Option<u64>,
    /// Bytes read back from swap.
    pub swap_in: Option<u64>,
    /// Bytes written to swap.
    pub swap_out: Option<u64>,
    /// Page faults that waited for a disk.
    pub major_faults: Option<u64>,
    /// Page faults that waited for none.
    pub minor_faults: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, Reply};

    const FIRST: &str = r#"{
        "port-exits": 1, "memory-exits": 2, "kicks": 3, "console-bytes-dropped": 0, "events-dropped": 0,
        "disks": {"a": {
            "reads": 1, "read-bytes": 2, "writes": 3, "written-bytes": 4, "flushes": 5, "discards": 6,
            "write-zeroes": 7, "errors": 8, "bad-requests": 9, "throttled": 10
        }},
        "networks": {},
        "console": {"sent-bytes": 0, "received-bytes": 0, "dropped-bytes": 0, "bad-requests": 0},
        "entropy": {"requests": 0, "bytes": 0, "bad-requests": 0, "throttled": 0},
        "balloon": {"inflated": 0, "deflated": 0, "reported": 0, "failures": 0, "bad-requests": 0},
        "vsock": {
            "from-guest": 0, "from-host": 0, "refused": 0, "sent-bytes": 0, "received-bytes": 0, "bad-requests": 0
        }
    }"#;

    #[test]
    fn what_an_older_release_does_not_count_is_missing() {
        let counters: Counters = serde_json::from_str(FIRST).unwrap();
        assert_eq!((counters.cpu, counters.disks["a"].throttled), (None, 10));
    }

    #[test]
    fn what_a_later_release_counts_is_passed_over() {
        let mut later: serde_json::Value = serde_json::from_str(FIRST).unwrap();
        later["later"] = 1.into();
        later["disks"]["a"]["later"] = 1.into();
        later["cpu"] =
            serde_json::json!({"process-nanoseconds": 7, "vcpu-nanoseconds": [[0, 5]], "later": 1});
        let counters: Counters = serde_json::from_value(later).unwrap();
        assert_eq!(counters.cpu.unwrap().vcpu_nanoseconds, [(0, 5)]);
    }

    #[test]
    fn what_is_counted_is_read_from_a_message_as_it_was_written() {
        let cpu = CpuCounters { process_nanoseconds: 7, vcpu_nanoseconds: vec![(0, 5), (1, 2)] };
        let counters = Counters {
            cpu: Some(cpu),
            disks: [("a".into(), DiskCounters { reads: 1, ..DiskCounters::default() })].into(),
            ..Counters::default()
        };
        let reply = Reply::Counters { counters };
        let message = Message::Reply { id: 1, reply, roles: Vec::new() };
        assert_eq!(Message::decode(&message.encode().unwrap(), 0).unwrap(), message);
    }
}
