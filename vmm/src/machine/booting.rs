//! The owner's part in booting: a kernel that was granted, or what is found on disks, or a notice that there is nothing.

use corten_devices::Records;
use corten_devices::block::DiskReader;
use corten_link::{BootOrigin, Event, MachineDescription};

use super::{AnyDevice, Devices, Machine, MachineError, Owner, OwnerError, chain};
use crate::disk_boot::{self, Attempt, Candidate, Found};

/// A notice is for people: no more of it than they read.
const MAX_NOTICE: usize = 16 << 10;

/// Whether the machine has all disks that it is to boot from.
pub(super) fn check_boot_order(description: &MachineDescription) -> Result<(), OwnerError> {
    let has = |name: &String| description.disks.iter().any(|disk| disk.name == *name);
    match description.boot_order.iter().find(|name| !has(name)) {
        Some(name) => Err(OwnerError::BootOrder(name.clone())),
        None => Ok(()),
    }
}

impl Owner {
    /// Readers of the disks to boot from, in their order; none if a kernel was granted.
    pub(super) fn boot_disks(&self, devices: &Devices) -> Vec<(String, DiskReader)> {
        if self.descriptors.kernel.is_some() {
            return Vec::new();
        }
        let reader = |name: &String| match devices.get(&format!("disk/{name}")) {
            Some(AnyDevice::Disk(disk)) => Some((name.clone(), disk.reader())),
            _ => None,
        };
        self.boot_order.iter().filter_map(reader).collect()
    }

    /// The records of a machine about to boot. What is on its disks is looked at now.
    pub(super) fn first_records(
        &mut self,
        machine: &Machine,
        disks: &[(String, DiskReader)],
    ) -> Result<Records, OwnerError> {
        self.found = None;
        if let Some(mut source) = self.boot_source()? {
            return Ok(machine.first_records(&mut source)?);
        }
        // From here on nobody else writes to them.
        machine.lock_disks()?;
        let mut candidates = Vec::new();
        for (name, content) in disks {
            candidates.push(Candidate {
                name: name.clone(),
                sector: content.block_size(),
                content,
            });
        }
        let memory = machine.blueprint().slots.first().map_or(0, |slot| slot.size);
        let attempt = |source: &mut _| match machine.first_records(source) {
            Ok(records) => Ok(Attempt::Loaded(records)),
            Err(MachineError::Boot(error)) => {
                // What was loaded of it does not stay.
                machine.ram().empty()?;
                Ok(Attempt::Unusable(chain(&error)))
            }
            Err(error) => Err(OwnerError::from(error)),
        };
        let (records, found) = match disk_boot::find(&candidates, memory, attempt)? {
            Found::System { loaded, origin } => (loaded, origin),
            Found::Nothing { reasons } => {
                (machine.notice_records(&notice(&reasons))?, BootOrigin::Nothing { reasons })
            }
        };
        self.found = Some(found);
        Ok(records)
    }

    /// Tells what was found on disks, if it was looked for.
    pub(super) fn tell_found(&self) {
        if let Some(from) = &self.found {
            self.tell(Event::Booting { from: from.clone() });
        }
    }
}

/// What a guest with nothing to boot shows.
fn notice(reasons: &[String]) -> String {
    let mut text = String::from(
        "\r\nNothing to boot: no kernel was given to this machine, and none was found on its disks.\r\n\r\n",
    );
    for reason in reasons {
        if text.len() + reason.len() > MAX_NOTICE {
            break;
        }
        text += &format!("  {reason}\r\n");
    }
    text += "\r\nLooked for, on ext4 and FAT: entries of the Boot Loader Specification, grub.cfg, extlinux.conf,\r\n\
        syslinux.cfg, /boot/vmlinuz. The machine waits for its power button.\r\n";
    text
}

#[cfg(test)]
mod tests {
    use corten_link::DiskDescription;

    use super::*;

    #[test]
    fn boot_order_names_disks_of_the_machine() {
        let disk = serde_json::from_str::<DiskDescription>(r#"{"name":"root"}"#).unwrap();
        let machine = |order: &[&str]| MachineDescription {
            disks: vec![disk.clone()],
            boot_order: order.iter().map(|name| (*name).into()).collect(),
            ..MachineDescription::default()
        };
        assert!(check_boot_order(&machine(&[])).is_ok());
        assert!(check_boot_order(&machine(&["root"])).is_ok());
        let error = check_boot_order(&machine(&["root", "data"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the disk \"data\" of the boot order is none of the machine's"
        );
    }

    #[test]
    fn notice_has_the_reasons_and_an_end() {
        let text = notice(&["disk root: no partitions".into()]);
        assert!(text.contains("  disk root: no partitions\r\n"), "{text}");
        let long = notice(&vec!["x".repeat(150); 1000]);
        assert!(long.len() < MAX_NOTICE + 1024 && long.ends_with("power button.\r\n"));
    }
}
