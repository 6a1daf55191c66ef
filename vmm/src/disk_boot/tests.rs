//! Whole disks.

use std::convert::Infallible;
use std::io::{Read, Seek};

use super::partitions::testing::{gpt, mbr};
use super::testing::{Table, fat, unpacked};
use super::*;

const LINUX: u128 = 0x0fc63daf_8483_4772_8e79_3d69d8477de4;

fn partitioned(volumes: &[Vec<u8>]) -> Vec<u8> {
    let mut next = 64;
    let mut partitions = Vec::new();
    for volume in volumes {
        let sectors = volume.len() / 512;
        partitions.push((LINUX, next as u64, (next + sectors) as u64 - 1));
        next += sectors;
    }
    let mut disk = gpt(512, next + 64, &partitions);
    for (volume, (_, first, _)) in volumes.iter().zip(&partitions) {
        let start = usize::try_from(*first).unwrap() * 512;
        disk[start..start + volume.len()].copy_from_slice(volume);
    }
    disk
}

/// What was booted: kernel, initial RAM disk, command line. A kernel that begins with "bad" is none.
type Booted = (Vec<u8>, Option<Vec<u8>>, String);

fn boot(disks: &[(&str, Vec<u8>)], memory: u64) -> Found<Booted> {
    let candidates: Vec<Candidate<'_>> = disks
        .iter()
        .map(|(name, content)| Candidate { name: (*name).into(), sector: 512, content })
        .collect();
    let all = |file: &mut std::fs::File| {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    };
    let Ok(found) = find(&candidates, memory, |source| {
        let kernel = all(&mut source.kernel);
        if kernel.starts_with(b"bad") {
            return Ok::<_, Infallible>(Attempt::Unusable("it is bad".into()));
        }
        let initrd = source.initrd.as_mut().map(all);
        Ok(Attempt::Loaded((kernel, initrd, source.command_line.clone())))
    });
    found
}

fn system(found: Found<Booted>) -> (Booted, BootOrigin) {
    match found {
        Found::System { loaded, origin } => (loaded, origin),
        Found::Nothing { reasons } => panic!("{reasons:#?}"),
    }
}

fn nothing(found: Found<Booted>) -> Vec<String> {
    match found {
        Found::System { origin, .. } => panic!("{origin:?}"),
        Found::Nothing { reasons } => reasons,
    }
}

const MEMORY: u64 = 64 << 20;

#[test]
fn entry_that_cannot_be_booted_is_passed_over_and_told() {
    let files: &[(&str, &[u8])] = &[
        ("/loader/entries/a-3.conf", b"title Third\nlinux /gone\noptions x\n"),
        ("/loader/entries/a-2.conf", b"title Second\nlinux /bad\noptions x\n"),
        (
            "/loader/entries/a-1.conf",
            b"title First\nlinux /good\ninitrd /i1\ninitrd /i2\noptions console=hvc0\n",
        ),
        ("/bad", b"bad kernel"),
        ("/good", b"good kernel"),
        ("/i1", b"12345"),
        ("/i2", b"678"),
    ];
    let empty = fat(Table::Fat16, &[("/nothing", b"here")]);
    let disk = partitioned(&[empty, fat(Table::Fat32, files)]);
    let ((kernel, initrd, line), origin) = system(boot(&[("root", disk)], MEMORY));
    assert_eq!((kernel.as_slice(), line.as_str()), (&b"good kernel"[..], "console=hvc0"));
    assert_eq!(initrd.as_deref(), Some(&b"12345\x00\x00\x00678"[..]));
    let BootOrigin::Disk { disk, partition, kernel, title, passed_over } = origin else { panic!() };
    assert_eq!((disk.as_str(), partition), ("root", 2));
    assert_eq!((kernel.as_str(), title.as_str()), ("/good", "First"));
    assert_eq!(
        passed_over,
        [
            "\"Third\" with /gone on partition 2 of disk root: the kernel: there is no such file",
            "\"Second\" with /bad on partition 2 of disk root: it is bad",
        ]
    );
}

#[test]
fn disks_are_looked_at_in_their_order() {
    let with = |kernel: &[u8]| {
        fat(Table::Fat16, &[("/extlinux/extlinux.conf", b"label l\nlinux /k\n"), ("/k", kernel)])
    };
    let disks = [("one", with(b"bad")), ("two", with(b"second")), ("three", with(b"third"))];
    let ((kernel, _, line), origin) = system(boot(&disks, MEMORY));
    assert_eq!((kernel.as_slice(), line.as_str()), (&b"second"[..], "console=ttyS0"));
    assert!(matches!(origin, BootOrigin::Disk { disk, partition: 0, .. } if disk == "two"));
}

#[test]
fn loader_configuration_of_systemd_boot_comes_before_grub() {
    let files: &[(&str, &[u8])] = &[
        ("/loader/loader.conf", b"default b*\n"),
        ("/loader/entries/c.conf", b"linux /k\noptions c $x\n"),
        ("/loader/entries/b.conf", b"linux /k\noptions b $x\n"),
        ("/grub/grub.cfg", b"menuentry g { linux /k g; }\n"),
        ("/k", b"kernel"),
    ];
    let ((_, _, line), _) = system(boot(&[("root", fat(Table::Fat16, files))], MEMORY));
    assert_eq!(line, "b $x console=ttyS0");
    let ((_, _, line), _) = system(boot(&[("root", fat(Table::Fat16, &files[1..]))], MEMORY));
    assert_eq!(line, "g console=ttyS0");
}

#[test]
fn debian_is_booted_by_its_links_if_there_is_nothing_else() {
    let volume = unpacked(include_bytes!("filesystem/golden/ext4.img.gz"));
    let with_dev = |path: &'static str| (path, &b"x"[..]);
    assert!(
        !nothing(boot(&[("root", partitioned(&[volume]))], MEMORY)).is_empty(),
        "it is no root"
    );
    let files =
        [with_dev("/etc/x"), with_dev("/dev/x"), with_dev("/vmlinuz"), with_dev("/initrd.img")];
    let ((_, _, line), _) =
        system(boot(&[("root", partitioned(&[fat(Table::Fat16, &files)]))], MEMORY));
    assert_eq!(line, "root=UUID=1234-ABCD ro console=ttyS0");
    let ((_, _, line), _) =
        system(boot(&[("root", partitioned(&[fat(Table::Fat16, &files[..3])]))], MEMORY));
    assert_eq!(line, "root=PARTUUID=00000000-0000-0000-0000-00000000abcd ro console=ttyS0");
}

#[test]
fn kernel_that_does_not_fit_is_not_read() {
    let kernel = vec![7; 100_000];
    let files: &[(&str, &[u8])] = &[("/extlinux.conf", b"label l\nlinux /k\n"), ("/k", &kernel)];
    let reasons = nothing(boot(&[("root", fat(Table::Fat16, files))], 50_000));
    let last = reasons.last().unwrap();
    assert!(last.contains("it has 100000 bytes, and there is room for 50000"), "{last}");
}

#[test]
fn what_is_there_instead_is_named() {
    let mut xfs = vec![1; 1 << 17];
    xfs[..4].copy_from_slice(b"XFSB");
    let mut luks = vec![1; 1 << 17];
    luks[..6].copy_from_slice(b"LUKS\xba\xbe");
    let mut broken = unpacked(include_bytes!("filesystem/golden/ext4.img.gz"));
    broken[1024 + 0x20..1024 + 0x24].fill(0);
    let disk = partitioned(&[xfs, luks, broken, vec![9; 1 << 17], fat(Table::Fat16, &[])]);
    let reasons = nothing(boot(&[("root", disk), ("swap", vec![0; 1 << 16])], MEMORY));
    let expected = [
        "disk root: GPT",
        "  partition 1: an xfs file system: not read here, boot files have to be on ext4 or FAT",
        "  partition 2: an encrypted volume (LUKS): not read here, boot files have to be on ext4 or FAT",
        "  partition 3: the file system is damaged: its superblock cannot be",
        "  partition 4: of no kind that is known here",
        "  partition 5: FAT16, without a boot entry that works",
        "disk swap: no partitions",
        "  the whole disk: nothing (zeroes): not read here, boot files have to be on ext4 or FAT",
    ];
    assert_eq!(reasons, expected);
}

#[test]
fn configuration_that_cannot_be_read_is_named_with_the_reason() {
    let large = vec![b'#'; (1 << 20) + 1];
    let files: &[(&str, &[u8])] = &[("/boot/grub/grub.cfg", &large)];
    let reasons = nothing(boot(&[("root", fat(Table::Fat16, files))], MEMORY));
    let expected = "  the whole disk: FAT16, without a boot entry that works; /boot/grub/grub.cfg: it has 1048577 bytes, and \
                    there is room for 1048576";
    assert_eq!(reasons, ["disk root: no partitions", expected]);
}

#[test]
fn small_files_in_inodes_are_booted_from() {
    let volume = unpacked(include_bytes!("filesystem/golden/inline.img.gz"));
    let ((kernel, ..), _) = system(boot(&[("root", volume)], MEMORY));
    assert_eq!(kernel, b"k");
}

#[test]
fn volumes_of_an_mbr_are_read() {
    let volume =
        fat(Table::Fat16, &[("/extlinux.conf", b"label l\nlinux /k\n"), ("/k", b"kernel")]);
    let sectors = u32::try_from(volume.len() / 512).unwrap();
    let mut disk = mbr(&[(0x80, 0x0e, 64, sectors)]);
    disk.resize(64 * 512, 0);
    disk.extend(volume);
    let (_, origin) = system(boot(&[("root", disk)], MEMORY));
    assert!(matches!(origin, BootOrigin::Disk { partition: 1, .. }), "{origin:?}");
}

#[test]
fn machine_without_disks_has_nothing() {
    assert_eq!(nothing(boot(&[], MEMORY)), ["there is no disk to boot from"]);
}

#[test]
fn reasons_fit_into_a_message() {
    let told = bounded(vec!["\"".repeat(700); 64]);
    assert!(told.iter().map(String::len).sum::<usize>() <= MAX_REASONS + 20);
    assert_eq!(told.last().map(String::as_str), Some("and 53 more"));
    assert_eq!(bounded(vec!["one".into()]), ["one"]);
}
