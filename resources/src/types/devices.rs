//! What is plugged into a machine.

use super::fields::object;
use super::{Disk, FeatureState, Interface, Marker};

object! {
    /// Devices of a machine. Those that are attached unless their user says no have a switch.
    pub struct Devices {
        /// A screen.
        pub autoattach_graphics_device: Option<bool>,
        /// A tablet, to point with.
        pub autoattach_input_device: Option<bool>,
        /// A balloon.
        pub autoattach_mem_balloon: Option<bool>,
        /// An interface on the Pod's network.
        pub autoattach_pod_interface: Option<bool>,
        /// A serial console.
        pub autoattach_serial_console: Option<bool>,
        /// A socket between host and guest.
        #[serde(rename = "autoattachVSOCK")]
        pub autoattach_vsock: Option<bool>,
        /// Disks have a queue for each processor.
        pub block_multi_queue: Option<bool>,
        /// USB devices of whoever looks at the screen.
        pub client_passthrough: Option<Marker>,
        /// Nothing can be plugged in while it runs.
        pub disable_hotplug: Option<bool>,
        /// Disks.
        pub disks: Vec<Disk>,
        /// A port on which the guest reads numbers of its host.
        pub downward_metrics: Option<Marker>,
        /// Folders that are shared with the guest.
        pub filesystems: Vec<Filesystem>,
        /// Graphics processors of the node.
        pub gpus: Vec<Gpu>,
        /// Other devices of the node.
        pub host_devices: Vec<HostDevice>,
        /// What a user types and points with.
        pub inputs: Vec<Input>,
        /// Network interfaces.
        pub interfaces: Vec<Interface>,
        /// The serial console in the Pod's log.
        pub log_serial_console: Option<bool>,
        /// Network interfaces have a queue for each processor.
        pub network_interface_multiqueue: Option<bool>,
        /// Devices by which a guest tells that it has failed.
        pub panic_devices: Vec<PanicDevice>,
        /// A source of random numbers.
        pub rng: Option<Marker>,
        /// Sound.
        pub sound: Option<Sound>,
        /// A trusted platform module.
        pub tpm: Option<Tpm>,
        /// Virtio devices for drivers of before version 1.
        pub use_virtio_transitional: Option<bool>,
        /// The graphics adapter.
        pub video: Option<Video>,
        /// A timer that acts when the guest no longer does.
        pub watchdog: Option<Watchdog>,
    }

    /// A folder that is shared with the guest.
    pub struct Filesystem {
        /// Name of the volume that it shows.
        pub name: String,
        /// It is shared by virtio-fs.
        pub virtiofs: Marker,
    }

    /// A graphics processor of the node.
    pub struct Gpu {
        /// The claim that it comes from.
        pub claim_name: Option<String>,
        /// The resource that stands for it on the node.
        pub device_name: Option<String>,
        /// Its name.
        pub name: String,
        /// Which request of the claim it is.
        pub request_name: Option<String>,
        /// A word that cloud-init passes on with its address.
        pub tag: Option<String>,
        /// What a virtual one can do.
        #[serde(rename = "virtualGPUOptions")]
        pub virtual_gpu_options: Option<VirtualGpuOptions>,
    }

    /// What a virtual graphics processor can do.
    pub struct VirtualGpuOptions {
        /// Its screen.
        pub display: Option<VirtualGpuDisplay>,
    }

    /// Screen of a virtual graphics processor.
    pub struct VirtualGpuDisplay {
        /// It has one unless this says no.
        pub enabled: Option<bool>,
        /// A picture from memory until its driver is loaded.
        #[serde(rename = "ramFB")]
        pub ram_fb: Option<FeatureState>,
    }

    /// A device of the node.
    pub struct HostDevice {
        /// The claim that it comes from.
        pub claim_name: Option<String>,
        /// The resource that stands for it on the node.
        pub device_name: Option<String>,
        /// Its name.
        pub name: String,
        /// Which request of the claim it is.
        pub request_name: Option<String>,
        /// A word that cloud-init passes on with its address.
        pub tag: Option<String>,
    }

    /// What a user types or points with.
    pub struct Input {
        /// `usb` or `virtio`.
        pub bus: Option<String>,
        /// Its name.
        pub name: String,
        /// `tablet` or `keyboard`.
        #[serde(rename = "type")]
        pub kind: String,
    }

    /// A device by which a guest tells that it has failed.
    pub struct PanicDevice {
        /// `hyperv`, `isa` or `pvpanic`.
        pub model: Option<String>,
    }

    /// A sound device.
    pub struct Sound {
        /// `ich9` or `ac97`.
        pub model: Option<String>,
        /// Its name.
        pub name: String,
    }

    /// A trusted platform module.
    pub struct Tpm {
        /// It is there unless this says no.
        pub enabled: Option<bool>,
        /// What it keeps outlives the VM.
        pub persistent: Option<bool>,
    }

    /// A graphics adapter.
    pub struct Video {
        /// `virtio`, `vga`, `bochs`, `cirrus` or `ramfb`.
        #[serde(rename = "type")]
        pub kind: Option<String>,
    }

    /// A timer that acts when the guest no longer does: one of these.
    pub struct Watchdog {
        /// That of s390x.
        pub diag288: Option<WatchdogTimer>,
        /// Intel's 6300ESB.
        pub i6300esb: Option<WatchdogTimer>,
        /// Its name.
        pub name: String,
    }

    /// What a watchdog does.
    pub struct WatchdogTimer {
        /// `poweroff`, `reset` or `shutdown`.
        pub action: Option<String>,
    }
}
