//! Where on a volume boot entries are looked for.

use super::bls;
use super::entry::{BootEntry, MAX_CONFIGURATION, MAX_ENTRIES, Place};
use super::extlinux;
use super::filesystem::FileSystem;
use super::grub;
use super::volumes::Volumes;

/// systemd-boot's own configuration: where it is, entries are its.
const LOADER: &str = "/loader/loader.conf";
/// Systems in the EFI system partition that are looked at.
const MAX_SYSTEMS: usize = 32;
/// Notes of configurations that are kept.
const MAX_NOTES: usize = 64;
/// Kernel and initial RAM disk, as Debian links them.
const LINKS: [(&str, &str); 2] =
    [("/boot/vmlinuz", "/boot/initrd.img"), ("/vmlinuz", "/initrd.img")];

/// What can be booted from a volume, in the order in which it is to be tried.
///
/// Entries of the Boot Loader Specification come first where systemd-boot is, and after grub.cfg where it is not: there
/// GRUB knows which of them is the default, and what their variables stand for.
pub(super) fn entries(
    volumes: &Volumes<'_>,
    volume: usize,
    passed_over: &mut Vec<String>,
) -> Vec<BootEntry> {
    let Some(files) = volumes.files(volume) else { return Vec::new() };
    let mut found = Vec::new();
    let loader = loader_configuration(volumes, volume);
    if let Some(configuration) = &loader {
        found.extend(specified((volume, files), Some(configuration)));
    }
    for path in grub_paths(files) {
        let (entries, notes) = grub::entries(volumes, volume, &path);
        found.extend(entries);
        passed_over.extend(notes.into_iter().take(MAX_NOTES.saturating_sub(passed_over.len())));
    }
    if loader.is_none() {
        found.extend(specified((volume, files), None));
    }
    for path in extlinux::PATHS.iter().filter(|path| files.is_file(path)) {
        found.extend(extlinux::entries((volume, files), path));
    }
    found.extend(linked(volumes, volume, files));
    found.truncate(MAX_ENTRIES);
    found
}

/// That of systemd-boot, on this volume or on another one of its disk.
fn loader_configuration(volumes: &Volumes<'_>, volume: usize) -> Option<String> {
    let disk = volumes.volumes.get(volume)?.disk;
    let on_same = |(number, _): &(usize, &FileSystem<'_>)| {
        volumes.volumes.get(*number).is_some_and(|other| other.disk == disk)
    };
    let read = |files: &FileSystem<'_>| files.read(LOADER, MAX_CONFIGURATION).ok();
    let own = volumes.files(volume).and_then(read);
    let text =
        own.or_else(|| volumes.readable().filter(on_same).find_map(|(_, files)| read(files)))?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Entries of the Boot Loader Specification, as systemd-boot or a GRUB whose configuration says nothing has them.
fn specified((volume, files): (usize, &FileSystem<'_>), loader: Option<&String>) -> Vec<BootEntry> {
    let mut found = Vec::new();
    // In the files of Fedora and its like there are variables of GRUB's.
    let variables = match loader {
        Some(_) => None,
        None => grub::PATHS.iter().find_map(|path| {
            let path = path.replace("grub.cfg", "grubenv");
            let block = files.read(&path, grub::MAX_ENVIRONMENT).ok()?;
            Some(grub::parse_environment(&block))
        }),
    };
    let expand = |text: &str| match &variables {
        Some(variables) => grub::expand(text, variables),
        None => text.to_owned(),
    };
    for directory in bls::DIRECTORIES {
        let mut entries = bls::entries(files, directory);
        if let Some(configuration) = loader {
            bls::prefer(&mut entries, configuration);
        }
        found.extend(entries.iter().map(|entry| entry.boot((volume, files), &expand)));
    }
    found
}

fn grub_paths(files: &FileSystem<'_>) -> Vec<String> {
    let fixed = grub::PATHS.iter().map(|path| (*path).to_owned());
    let systems = files.list("/EFI").unwrap_or_default().into_iter().take(MAX_SYSTEMS);
    let systems = systems.map(|name| format!("/EFI/{name}/grub.cfg"));
    fixed.chain(systems).filter(|path| files.is_file(path)).collect()
}

/// A root file system whose kernel has a fixed name. What its root is, is this volume: by its UUID if there is an initial
/// RAM disk that can find it, else by that of its partition.
fn linked(volumes: &Volumes<'_>, volume: usize, files: &FileSystem<'_>) -> Option<BootEntry> {
    let is_root = files.is_directory("/etc") && files.is_directory("/dev");
    let (kernel, initrd) = LINKS.iter().find(|(kernel, _)| is_root && files.is_file(kernel))?;
    let place = |path: &str| Place { volume, path: path.into() };
    let partition = volumes.volumes.get(volume).and_then(|found| found.partition.uuid.as_ref());
    let (initrds, root) = if files.is_file(initrd) {
        (vec![place(initrd)], format!("UUID={}", files.uuid()))
    } else {
        (Vec::new(), format!("PARTUUID={}", partition?))
    };
    Some(BootEntry {
        title: format!("{kernel} without a boot entry"),
        kernel: place(kernel),
        initrds,
        command_line: format!("root={root} ro"),
    })
}
