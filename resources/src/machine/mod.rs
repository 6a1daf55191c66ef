//! What a VirtualMachineInstance asks for, with its defaults. Pure: operator, agent, launcher and CLI read it alike.

mod claims;
mod devices;
pub mod limits;
mod source;

pub use devices::{Binding, DISK_SERIAL_LENGTH, guest_disk_name};
pub use source::Source;

use crate::finding::Finding;
use crate::types::{KernelBootContainer, VirtualMachineInstanceSpec};
use std::time::Duration;

/// Between power button and end by force, if the user says nothing.
pub const DEFAULT_GRACE_PERIOD: Duration = Duration::from_secs(30);
/// The most vCPUs of a machine.
pub const MAX_VCPUS: u32 = 254;
/// The least memory of a machine: what a kernel needs to say that it has too little.
pub const MIN_MEMORY: u64 = 1 << 20;
/// The most memory of a machine: what KVM takes in one piece.
pub const MAX_MEMORY: u64 = 8 << 40;

const KERNEL_CONTAINER: &str = "spec.domain.firmware.kernelBoot.container";

/// Processors of a machine. Each number is one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Sockets.
    pub sockets: u16,
    /// Cores of a socket.
    pub cores: u16,
    /// Threads of a core.
    pub threads: u16,
}

impl Topology {
    /// How many processors the guest sees.
    pub fn vcpus(self) -> u32 {
        u32::from(self.sockets)
            .saturating_mul(u32::from(self.cores))
            .saturating_mul(u32::from(self.threads))
    }
}

/// A kernel and what it is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel<'a> {
    /// Image that holds it.
    pub image: &'a str,
    /// Its path in the image.
    pub path: &'a str,
    /// Path of the initial RAM disk in the image.
    pub initrd_path: Option<&'a str>,
    /// Command line.
    pub args: &'a str,
}

impl VirtualMachineInstanceSpec {
    /// Processors: as `cpu` says; without it as many sockets as whole processors are requested, or else one.
    pub fn topology(&self) -> Result<Topology, Finding> {
        let cpu = self.domain.cpu.as_ref();
        let given = [
            ("sockets", cpu.and_then(|cpu| cpu.sockets)),
            ("cores", cpu.and_then(|cpu| cpu.cores)),
            ("threads", cpu.and_then(|cpu| cpu.threads)),
        ];
        let mut numbers = [1; 3];
        for ((name, value), number) in given.iter().zip(&mut numbers) {
            let path = || format!("spec.domain.cpu.{name}");
            // As in KubeVirt, 0 is "not given".
            if let Some(value) = value.filter(|value| *value != 0) {
                *number = u16::try_from(value).map_err(|_| {
                    Finding::invalid(path(), format!("{value} is not between 1 and {MAX_VCPUS}"))
                })?;
            }
        }
        if given.iter().all(|(_, value)| value.is_none_or(|value| value == 0)) {
            numbers[0] = self.requested_processors()?.unwrap_or(1);
        }
        let topology = Topology { sockets: numbers[0], cores: numbers[1], threads: numbers[2] };
        let vcpus = topology.vcpus();
        if vcpus <= MAX_VCPUS {
            return Ok(topology);
        }
        // By the one number that is too large, or where several make too many.
        let mut large = given.iter().zip(numbers).filter(|(_, number)| *number > 1);
        let path = match (large.next(), large.next()) {
            (Some(((name, _), _)), None) => format!("spec.domain.cpu.{name}"),
            _ => "spec.domain.cpu".to_owned(),
        };
        Err(Finding::invalid(path, format!("{vcpus} vCPUs are more than {MAX_VCPUS}")))
    }

    /// Whole processors of `resources`: the limit comes first, as it is what the machine may use.
    fn requested_processors(&self) -> Result<Option<u16>, Finding> {
        let Some(resources) = &self.domain.resources else { return Ok(None) };
        let lists = [("limits", &resources.limits), ("requests", &resources.requests)];
        for (list, amounts) in lists {
            if let Some(amount) = amounts.get("cpu") {
                let path = format!("spec.domain.resources.{list}.cpu");
                let count =
                    amount.units().map_err(|error| Finding::invalid(&path, error.to_string()))?;
                let count = u16::try_from(count).ok().filter(|it| u32::from(*it) <= MAX_VCPUS);
                let count = count.ok_or_else(|| {
                    Finding::invalid(&path, format!("{amount} vCPUs are more than {MAX_VCPUS}"))
                })?;
                return Ok(Some(count.max(1)));
            }
        }
        Ok(None)
    }

    /// Bytes of memory the guest sees: `memory.guest`, else what is requested, else the limit.
    pub fn guest_memory(&self) -> Result<u64, Finding> {
        let resources = self.domain.resources.as_ref();
        let given = [
            (
                "spec.domain.memory.guest",
                self.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref()),
            ),
            (
                "spec.domain.resources.requests.memory",
                resources.and_then(|all| all.requests.get("memory")),
            ),
            (
                "spec.domain.resources.limits.memory",
                resources.and_then(|all| all.limits.get("memory")),
            ),
        ];
        let Some((path, amount)) =
            given.iter().find_map(|(path, amount)| amount.map(|amount| (*path, amount)))
        else {
            return Err(Finding::missing(
                "spec.domain.memory.guest",
                "the machine has no memory: say how much",
            ));
        };
        match amount.units() {
            Ok(bytes) if bytes < MIN_MEMORY => {
                Err(Finding::invalid(path, format!("{amount} is less than 1Mi")))
            }
            Ok(bytes) if bytes > MAX_MEMORY => {
                Err(Finding::invalid(path, format!("{amount} is more than 8Ti")))
            }
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(Finding::invalid(path, error.to_string())),
        }
    }

    /// Between power button and end by force.
    pub fn grace_period(&self) -> Duration {
        let seconds =
            self.termination_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        seconds.map_or(DEFAULT_GRACE_PERIOD, Duration::from_secs)
    }

    /// The image with the kernel.
    pub fn kernel_container(&self) -> Option<&KernelBootContainer> {
        self.domain.firmware.as_ref()?.kernel_boot.as_ref()?.container.as_ref()
    }

    /// The kernel to start.
    pub fn kernel(&self) -> Result<Kernel<'_>, Finding> {
        self.kernel_boot()?.ok_or_else(|| {
            let message = "there is nothing to boot: name an image that holds a kernel";
            Finding::missing(KERNEL_CONTAINER, message)
        })
    }

    /// The kernel to start, if one is named. Without it the system is looked for on disks.
    pub fn kernel_boot(&self) -> Result<Option<Kernel<'_>>, Finding> {
        let boot = self.domain.firmware.as_ref().and_then(|firmware| firmware.kernel_boot.as_ref());
        let args = boot.and_then(|boot| boot.kernel_args.as_deref()).unwrap_or_default();
        let Some(container) = self.kernel_container() else {
            let orphaned = (!args.is_empty()).then(|| {
                Finding::missing(KERNEL_CONTAINER, "kernelArgs need an image that holds a kernel")
            });
            return orphaned.map_or(Ok(None), Err);
        };
        if container.image.is_empty() {
            return Err(Finding::missing(
                format!("{KERNEL_CONTAINER}.image"),
                "name the image that holds the kernel",
            ));
        }
        let path_field = format!("{KERNEL_CONTAINER}.kernelPath");
        let path = in_image(&path_field, container.kernel_path.as_deref())?
            .ok_or_else(|| Finding::missing(path_field, "say where in the image the kernel is"))?;
        let initrd_path =
            in_image(&format!("{KERNEL_CONTAINER}.initrdPath"), container.initrd_path.as_deref())?;
        Ok(Some(Kernel { image: &container.image, path, initrd_path, args }))
    }

    /// UUID that the guest is to read, if its user gives one that can be read.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        parse_uuid(self.domain.firmware.as_ref()?.uuid.as_deref()?)
    }
}

/// A UUID as it is written: five groups of hexadecimal digits.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let groups: Vec<&str> = text.split('-').collect();
    if groups.iter().map(|group| group.len()).ne([8, 4, 4, 4, 12]) {
        return None;
    }
    let digits = groups.concat();
    // A sign before a digit would also be taken as a number.
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    Some(u128::from_str_radix(&digits, 16).ok()?.to_be_bytes())
}

/// A path in an image, which may not lead out of it; an empty one is none.
fn in_image<'a>(field: &str, path: Option<&'a str>) -> Result<Option<&'a str>, Finding> {
    let Some(path) = path.filter(|path| !path.is_empty()) else { return Ok(None) };
    if path.split('/').any(|part| part == "..") || path.contains('\0') {
        return Err(Finding::invalid(field, format!("{path:?} is not a path inside the image")));
    }
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn spec(domain: &Value) -> VirtualMachineInstanceSpec {
        serde_json::from_value(json!({ "domain": domain })).unwrap()
    }

    #[test]
    fn processors_come_from_the_topology_or_else_from_the_resources() {
        let table = [
            (json!({}), (1, 1, 1)),
            (json!({ "cpu": { "cores": 2 } }), (1, 2, 1)),
            (json!({ "cpu": { "sockets": 2, "cores": 3, "threads": 2 } }), (2, 3, 2)),
            (json!({ "cpu": { "cores": 0 } }), (1, 1, 1)),
            (json!({ "resources": { "requests": { "cpu": 2 } } }), (2, 1, 1)),
            (
                json!({ "resources": { "requests": { "cpu": "1500m" }, "limits": { "cpu": 4 } } }),
                (4, 1, 1),
            ),
            (json!({ "resources": { "requests": { "cpu": "1500m" } } }), (2, 1, 1)),
            (json!({ "resources": { "requests": { "cpu": 0 } } }), (1, 1, 1)),
            (json!({ "cpu": { "cores": 2 }, "resources": { "limits": { "cpu": 4 } } }), (1, 2, 1)),
        ];
        for (domain, (sockets, cores, threads)) in table {
            assert_eq!(
                spec(&domain).topology(),
                Ok(Topology { sockets, cores, threads }),
                "{domain}"
            );
        }
    }

    #[test]
    fn impossible_processors_are_refused_by_path() {
        let table = [
            (json!({ "cpu": { "cores": -1 } }), "spec.domain.cpu.cores"),
            (json!({ "cpu": { "sockets": 70000 } }), "spec.domain.cpu.sockets"),
            (json!({ "cpu": { "sockets": 16, "cores": 16 } }), "spec.domain.cpu"),
            (json!({ "cpu": { "cores": 255 } }), "spec.domain.cpu.cores"),
            (json!({ "cpu": { "threads": 300, "cores": 1 } }), "spec.domain.cpu.threads"),
            (
                json!({ "resources": { "requests": { "cpu": 300 } } }),
                "spec.domain.resources.requests.cpu",
            ),
            (
                json!({ "resources": { "limits": { "cpu": "x" } } }),
                "spec.domain.resources.limits.cpu",
            ),
            (
                json!({ "resources": { "requests": { "cpu": "1M" } } }),
                "spec.domain.resources.requests.cpu",
            ),
        ];
        for (domain, path) in table {
            assert_eq!(spec(&domain).topology().unwrap_err().path, path);
        }
    }

    #[test]
    fn memory_is_that_of_the_guest_then_requested_then_the_limit() {
        let all = json!({ "memory": { "guest": "256Mi" }, "resources": {
            "requests": { "memory": "1Gi" }, "limits": { "memory": "2Gi" } } });
        let mut requested = all.clone();
        requested["memory"] = json!({});
        let limited = json!({ "resources": { "limits": { "memory": "2Gi" } } });
        let found = [all, requested, limited].map(|domain| spec(&domain).guest_memory());
        assert_eq!(found, [Ok(256 << 20), Ok(1 << 30), Ok(2 << 30)]);
    }

    #[test]
    fn memory_that_is_missing_wrong_or_too_small_is_refused_by_path() {
        let table = [
            (json!({}), "spec.domain.memory.guest"),
            (json!({ "memory": { "guest": "1000k" } }), "spec.domain.memory.guest"),
            (json!({ "memory": { "guest": "-1Gi" } }), "spec.domain.memory.guest"),
            (json!({ "memory": { "guest": "15Ei" } }), "spec.domain.memory.guest"),
            (
                json!({ "resources": { "requests": { "memory": "much" } } }),
                "spec.domain.resources.requests.memory",
            ),
        ];
        for (domain, path) in table {
            assert_eq!(spec(&domain).guest_memory().unwrap_err().path, path);
        }
    }

    #[test]
    fn the_kernel_is_read_whole() {
        let domain = json!({ "firmware": { "kernelBoot": { "kernelArgs": "console=ttyS0", "container": {
            "image": "kernels:1", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd" } } } });
        let kernel = Kernel {
            image: "kernels:1",
            path: "/boot/vmlinuz",
            initrd_path: Some("/boot/initrd"),
            args: "console=ttyS0",
        };
        assert_eq!(spec(&domain).kernel(), Ok(kernel));
    }

    #[test]
    fn a_kernel_that_is_missing_or_outside_its_image_is_refused_by_path() {
        let boot =
            |container: Value| json!({ "firmware": { "kernelBoot": { "container": container } } });
        let table = [
            (json!({}), "container"),
            (boot(json!({ "kernelPath": "/k" })), "container.image"),
            (boot(json!({ "image": "i" })), "container.kernelPath"),
            (boot(json!({ "image": "i", "kernelPath": "" })), "container.kernelPath"),
            (boot(json!({ "image": "i", "kernelPath": "/a/../../k" })), "container.kernelPath"),
            (
                boot(json!({ "image": "i", "kernelPath": "/k", "initrdPath": ".." })),
                "container.initrdPath",
            ),
        ];
        for (domain, end) in table {
            assert_eq!(
                spec(&domain).kernel().unwrap_err().path,
                format!("spec.domain.firmware.kernelBoot.{end}")
            );
        }
    }

    #[test]
    fn a_machine_without_a_kernel_is_one_and_arguments_without_a_kernel_are_not() {
        assert_eq!(spec(&json!({})).kernel_boot(), Ok(None));
        let orphaned = spec(&json!({ "firmware": { "kernelBoot": { "kernelArgs": "quiet" } } }));
        assert_eq!(orphaned.kernel_boot().unwrap_err().path, KERNEL_CONTAINER);
    }

    #[test]
    fn a_uuid_is_read_in_one_spelling_only() {
        let text = "01234567-89ab-cdef-0123-456789ABCDEF";
        let bytes = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes();
        assert_eq!(parse_uuid(text), Some(bytes));
        for wrong in ["", &text.replace('-', ""), &text.replacen('0', "+", 1), &text[1..]] {
            assert_eq!(parse_uuid(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_grace_period_has_a_default() {
        let mut spec = spec(&json!({}));
        assert_eq!(spec.grace_period(), DEFAULT_GRACE_PERIOD);
        spec.termination_grace_period_seconds = Some(0);
        assert_eq!(spec.grace_period(), Duration::ZERO);
    }
}
