//! Ways into the readers for fuzz targets. Whatever is read, they end, keep to their limits and do not panic.

use std::convert::Infallible;

use super::testing::{Table, fat, unpacked, variant};
use super::{Attempt, Candidate, Found, find};

/// A disk: its partition tables, with sectors of either size.
pub fn read_any_partitions(bytes: &Vec<u8>) {
    super::partitions::read_any(bytes, 512);
    super::partitions::read_any(bytes, 4096);
}

/// A volume: the file system on it.
pub fn read_any_volume(bytes: &Vec<u8>) {
    super::filesystem::read_any(bytes);
}

/// A text: as grub.cfg, as an entry of the Boot Loader Specification and as extlinux.conf.
pub fn read_any_configuration(text: &str) {
    super::grub::run_any(text);
    super::extlinux::parse_any(text);
    let _ = super::bls::Entry::parse("fuzz+1-1.conf", text);
}

/// File systems with and without something in their journals, to begin with.
pub fn example_volumes() -> Vec<Vec<u8>> {
    let ext4 = unpacked(include_bytes!("filesystem/golden/ext4.img.gz"));
    let logged = [
        &include_bytes!("filesystem/golden/ext4-again.gz")[..],
        include_bytes!("filesystem/golden/ext4-escaped.gz"),
    ];
    let logged = logged.map(|blocks| variant(&ext4, blocks));
    let ext3 = unpacked(include_bytes!("filesystem/golden/ext3.img.gz"));
    let wrapped = variant(&ext3, include_bytes!("filesystem/golden/ext3-wrapped.gz"));
    let files: [(&str, &[u8]); 3] = [
        ("/loader/entries/a.conf", b"title A\nlinux /k\n"),
        ("/extlinux.conf", b"label l\nlinux /k\n"),
        ("/k", &[7; 5000]),
    ];
    let fat = [Table::Fat12, Table::Fat16, Table::Fat32].map(|table| fat(table, &files));
    [ext4, ext3, wrapped].into_iter().chain(logged).chain(fat).collect()
}

/// A disk, all of it.
pub fn boot_any(bytes: Vec<u8>) {
    let disks = [Candidate { name: "fuzz".into(), sector: 512, content: &bytes }];
    let attempt = |_: &mut _| Ok::<_, Infallible>(Attempt::<()>::Unusable("it is a test".into()));
    let Ok(found) = find(&disks, 1 << 20, attempt);
    assert!(matches!(found, Found::Nothing { .. }));
}
