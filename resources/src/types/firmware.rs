//! How a machine boots, and what it says it is.

use super::fields::object;

object! {
    /// Firmware of a machine.
    pub struct Firmware {
        /// Tables of ACPI that the user brings.
        pub acpi: Option<AcpiTables>,
        /// What looks for a system to boot.
        pub bootloader: Option<Bootloader>,
        /// A kernel that is started directly.
        pub kernel_boot: Option<KernelBoot>,
        /// What the guest reads as its serial number.
        pub serial: Option<String>,
        /// What the guest reads as its UUID.
        pub uuid: Option<String>,
    }

    /// Tables of ACPI that the user brings.
    pub struct AcpiTables {
        /// The volume that holds the licence table MSDM.
        pub msdm_name_ref: Option<String>,
        /// The volume that holds the licence table SLIC.
        pub slic_name_ref: Option<String>,
    }

    /// What looks for a system to boot: one of these.
    pub struct Bootloader {
        /// A BIOS.
        pub bios: Option<Bios>,
        /// UEFI.
        pub efi: Option<Efi>,
    }

    /// A BIOS.
    pub struct Bios {
        /// It shows itself on the serial console.
        pub use_serial: Option<bool>,
    }

    /// UEFI.
    pub struct Efi {
        /// Its variables outlive the VM.
        pub persistent: Option<bool>,
        /// It starts only what is signed.
        pub secure_boot: Option<bool>,
    }

    /// A kernel that is started directly.
    pub struct KernelBoot {
        /// Where kernel and initial RAM disk are.
        pub container: Option<KernelBootContainer>,
        /// The kernel's command line. Nothing is added to it.
        pub kernel_args: Option<String>,
    }

    /// An image that holds a kernel.
    pub struct KernelBootContainer {
        /// Name of the image.
        pub image: String,
        /// `Always`, `IfNotPresent` or `Never`.
        pub image_pull_policy: Option<String>,
        /// Secret in the same namespace that lets the image be pulled.
        pub image_pull_secret: Option<String>,
        /// Path of the initial RAM disk in the image.
        pub initrd_path: Option<String>,
        /// Path of the kernel in the image.
        pub kernel_path: Option<String>,
    }
}
