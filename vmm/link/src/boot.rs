//! What a guest was booted from.

use serde::{Deserialize, Serialize};

/// What a guest was booted from. Names and reasons may be what a disk says: one line of printable text each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case", deny_unknown_fields)]
pub enum BootOrigin {
    /// The kernel that was granted.
    Kernel,
    /// A kernel that was found on a disk.
    Disk {
        /// Name of the disk.
        disk: String,
        /// Number of the partition; 0 is the whole disk.
        partition: u32,
        /// Path of the kernel there.
        kernel: String,
        /// What the boot entry is called.
        title: String,
        /// What was found before it and could not be booted, and why.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        passed_over: Vec<String>,
    },
    /// Nothing was found: the guest is told so on its console, and waits for the power button.
    Nothing {
        /// What there is on the disks instead, and why it cannot be booted.
        reasons: Vec<String>,
    },
}

/// What of a boot is at fault, for whoever knows which field of an object that comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootFault {
    /// The kernel is none, or damaged.
    Kernel,
    /// The initial RAM disk cannot be read.
    Initrd,
    /// The command line is more than the kernel takes.
    CommandLine,
    /// Guest memory is too small for what is booted.
    Memory,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Info, MachineDescription, Message};

    #[test]
    fn event_is_read_as_it_was_written() {
        let text = r#"{"kind":"event","event":{"what":"booting","from":{"what":"disk","disk":"root","partition":1,"kernel":"/vmlinuz","title":"Linux"}}}"#;
        let Message::Event { event } = Message::decode(text.as_bytes(), 0).unwrap() else {
            panic!("{text}")
        };
        let Event::Booting { from: BootOrigin::Disk { disk, partition: 1, .. } } = &event else {
            panic!("{event:?}")
        };
        assert_eq!(disk, "root");
        assert_eq!(Message::Event { event }.encode().unwrap(), text.as_bytes());
    }

    #[test]
    fn end_says_what_was_at_fault_only_if_something_was() {
        for (text, expected) in [
            (r#"{"what":"ended","reason":"killed","detail":""}"#, None),
            (
                r#"{"what":"ended","reason":"not-started","detail":"no","fault":"memory"}"#,
                Some(BootFault::Memory),
            ),
        ] {
            let event: Event = serde_json::from_str(text).unwrap();
            assert!(
                matches!(&event, Event::Ended { fault, .. } if *fault == expected),
                "{event:?}"
            );
            assert_eq!(serde_json::to_string(&event).unwrap(), text);
        }
    }

    #[test]
    fn messages_of_before_are_read() {
        let info = r#"{"machine-version":1,"state":"running","vcpus":1,"memory":4096,"resets":0}"#;
        assert_eq!(serde_json::from_str::<Info>(info).unwrap().boot, None);
        let machine = r#"{"memory":4096,"sockets":1,"cores":1,"threads":1,"command-line":"","uuid":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"serial":""}"#;
        let machine: MachineDescription = serde_json::from_str(machine).unwrap();
        assert!(machine.boot_order.is_empty());
        assert!(!serde_json::to_string(&machine).unwrap().contains("boot-order"));
    }
}
