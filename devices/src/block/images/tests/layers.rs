//! Disks with an overlay, against bytes in memory that had the same done to them.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use libc::{
    EIO, EOPNOTSUPP, EROFS, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, c_int,
    iovec,
};
use proptest::prelude::*;
use tempfile::tempfile;

use super::*;
use crate::block::DiskError;
use crate::block::backend::{Medium, Step};
use crate::block::images::overlay::CLUSTER as PART;
use crate::block::images::{Allocation, ImageDisk, ImageFile, OverlayState};

const HOLE: c_int = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
const ZEROES: c_int = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
/// Three parts of an overlay and a bit.
const SIZE: usize = 3 * 0x1_0000 + 1536;

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn image(bytes: &[u8], format: ImageFormat) -> ImageFile {
    ImageFile { fd: file(bytes).into(), format }
}

/// A disk of `SIZE` bytes with everything in it, and what it reads as.
fn images() -> (Vec<ImageFile>, Vec<u8>) {
    let top = ImageBuilder::new(12, SIZE as u64)
        .on("base")
        .data(1, 1)
        .with(3, Content::Zeroes)
        .with(20, Content::Compressed(pattern(CLUSTER)));
    let base = pattern(SIZE - 5000);
    let mut content = base.clone();
    content.resize(SIZE, 0);
    content[CLUSTER..2 * CLUSTER].fill(1);
    content[3 * CLUSTER..4 * CLUSTER].fill(0);
    content[20 * CLUSTER..21 * CLUSTER].copy_from_slice(&pattern(CLUSTER));
    let images = vec![image(&top.build().0, ImageFormat::Qcow2), image(&base, ImageFormat::Raw)];
    (images, content)
}

struct Disk {
    disk: ImageDisk,
    medium: Arc<dyn Medium>,
    overlay: File,
}

impl Disk {
    fn on(images: Vec<ImageFile>, overlay: File) -> Self {
        let fd = overlay.try_clone().unwrap().into();
        let disk = ImageDisk::open(images, Some(fd)).unwrap();
        Self { medium: disk.medium(), disk, overlay }
    }

    fn new() -> (Self, Vec<u8>) {
        let (images, content) = images();
        (Self::on(images, tempfile().unwrap()), content)
    }

    /// Step after step, as a transfer does it, through buffers of a few sizes.
    fn transfer(&self, offset: usize, bytes: &mut [u8], is_write: bool) -> Result<(), c_int> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &mut bytes[done..];
            let cut = rest.len().min(700);
            let (one, two) = rest.split_at_mut(cut);
            let vector = |bytes: &mut [u8]| iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            };
            let vectors = &[vector(one), vector(two)];
            let offset = (offset + done) as u64;
            let step = if is_write {
                Step::Write { vectors, offset }
            } else {
                Step::Read { vectors, offset }
            };
            match self.medium.call(&step)? {
                0 => return Err(EIO),
                moved => done += moved,
            }
        }
        Ok(())
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.transfer(offset, &mut bytes.to_vec(), true).unwrap();
    }

    fn allocate(&self, mode: c_int, offset: u64, length: u64) -> Result<usize, c_int> {
        self.medium.call(&Step::Allocate { mode, offset, length })
    }

    fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0xee; usize::try_from(self.disk.size()).unwrap()];
        self.transfer(0, &mut bytes, false).unwrap();
        bytes
    }

    fn runs(&self) -> Vec<u64> {
        match self.disk.save().unwrap().allocated {
            Allocation::Runs(runs) => runs,
            Allocation::Bits(bits) => panic!("a few clusters as bits: {bits}"),
        }
    }
}

#[test]
fn part_that_is_written_is_copied_up_alone() {
    let (disk, mut content) = Disk::new();
    assert!(disk.content() == content);
    assert_eq!(disk.runs(), [4]);
    disk.write(0x1_0200, &[0xab; 512]);
    content[0x1_0200..0x1_0400].fill(0xab);
    assert!(disk.content() == content);
    assert_eq!(disk.runs(), [1, 1, 2]);
    // The last one is short.
    disk.write(SIZE - 512, &[0xcd; 512]);
    content[SIZE - 512..].fill(0xcd);
    assert!(disk.content() == content);
    assert_eq!(disk.runs(), [1, 1, 1, 1]);
    assert_eq!(disk.overlay.metadata().unwrap().len(), SIZE as u64);
}

#[test]
fn images_are_never_written_to() {
    let (images, content) = images();
    let files: Vec<File> =
        images.iter().map(|image| image.fd.try_clone().unwrap().into()).collect();
    let bytes = |file: &File| {
        let mut bytes = Vec::new();
        let mut reader =
            File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file)));
        reader.as_mut().unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    let before: Vec<_> = files.iter().map(bytes).collect();
    let disk = Disk::on(images, tempfile().unwrap());
    disk.write(0, &vec![0xab; SIZE]);
    disk.allocate(HOLE, 0, SIZE as u64).unwrap();
    assert!(disk.content() == vec![0; content.len()]);
    assert!(files.iter().map(bytes).collect::<Vec<_>>() == before);
}

#[test]
fn discarded_clusters_are_zeroes_and_take_no_space() {
    let (disk, _) = Disk::new();
    disk.write(0, &vec![1; SIZE]);
    disk.overlay.sync_all().unwrap();
    disk.allocate(HOLE, 0, SIZE as u64).unwrap();
    assert!(disk.content() == vec![0; SIZE]);
    assert_eq!(disk.runs(), [0, 4]);
    // The file system's last block has a part behind the file's end, which is no part of the range.
    assert!(disk.overlay.metadata().unwrap().blocks() <= 8);
}

#[test]
fn zeroes_on_zeroes_copy_nothing_up() {
    let (disk, content) = Disk::new();
    let cluster = 3 * CLUSTER as u64;
    disk.allocate(HOLE, cluster + 512, 1024).unwrap();
    assert_eq!(disk.runs(), [4]);
    disk.allocate(HOLE, cluster - 512, 1024).unwrap();
    assert_eq!(disk.runs(), [0, 1, 3]);
    let mut expected = content;
    expected[3 * CLUSTER - 512..3 * CLUSTER].fill(0);
    assert!(disk.content() == expected);
}

#[test]
fn disk_without_an_overlay_is_not_written_to() {
    let (images, content) = images();
    let disk = ImageDisk::open(images, None).unwrap();
    assert!(!disk.is_writable() && disk.save().is_none());
    let medium = disk.medium();
    let disk = Disk { disk, medium, overlay: tempfile().unwrap() };
    assert!(disk.content() == content);
    assert_eq!(disk.transfer(0, &mut [0; 512], true), Err(EROFS));
    assert_eq!(disk.allocate(HOLE, 0, 512), Err(EROFS));
    assert_eq!(disk.medium.call(&Step::Sync), Ok(0));
}

#[test]
fn nothing_is_behind_the_end() {
    let (disk, content) = Disk::new();
    for offset in [SIZE, SIZE + 512, usize::MAX & !511] {
        assert_eq!(disk.transfer(offset, &mut [0; 512], false), Err(EIO));
        assert_eq!(disk.transfer(offset, &mut [0; 512], true), Err(EIO));
        assert_eq!(disk.allocate(HOLE, offset as u64, 512), Err(EIO));
    }
    assert_eq!(disk.transfer(SIZE - 512, &mut [0; 1024], false), Err(EIO));
    assert!(disk.content() == content);
}

#[test]
fn damaged_image_fails_what_needs_it_and_changes_nothing() {
    let image = ImageBuilder::new(16, 2 * PART).data(0, 1).data(1, 2);
    let mut bytes = image.build().0;
    // The second entry of the table, which is in the third cluster of the file.
    bytes[2 * 0x1_0000 + 9] = 0xff;
    let disk = Disk::on(
        vec![ImageFile { fd: file(&bytes).into(), format: ImageFormat::Qcow2 }],
        tempfile().unwrap(),
    );
    let part = usize::try_from(PART).unwrap();
    let mut sector = [0; 512];
    assert_eq!(disk.transfer(part, &mut sector, false), Err(EIO));
    assert_eq!(disk.transfer(part, &mut sector, true), Err(EIO));
    assert_eq!(disk.allocate(HOLE, PART + 512, 512), Err(EIO));
    assert_eq!(disk.runs(), [2]);
    // What is written whole does not need it.
    disk.write(part, &vec![7; part]);
    disk.transfer(part, &mut sector, false).unwrap();
    assert_eq!(sector, [7; 512]);
}

#[test]
fn overlay_that_cannot_be_is_refused() {
    let refused = |overlay: File| match ImageDisk::open(images().0, Some(overlay.into())).err() {
        Some(ImageError::Overlay(error)) => error,
        other => panic!("{other:?}"),
    };
    let named = tempfile::NamedTempFile::new().unwrap();
    let reader = File::open(named.path()).unwrap();
    assert!(matches!(refused(reader), DiskError::NotWritable));
    let writer = File::options().write(true).open(named.path()).unwrap();
    assert!(matches!(refused(writer), DiskError::NotWritable));
    let appender = File::options().read(true).append(true).open(named.path()).unwrap();
    assert!(matches!(refused(appender), DiskError::Appends));
    let device = File::options().read(true).write(true).open("/dev/null").unwrap();
    assert!(matches!(refused(device), DiskError::Kind));
    let image = ImageFile { fd: File::open("/dev/zero").unwrap().into(), format: ImageFormat::Raw };
    let error = ImageDisk::open(vec![image], None).err().unwrap();
    assert_eq!(error.to_string(), "the descriptor of image 0 cannot be used");
}

#[test]
fn what_was_in_the_file_before_does_not_count() {
    let (images, content) = images();
    let disk = Disk::on(images, file(&vec![0xff; SIZE + 1000]));
    assert!(disk.content() == content);
    disk.allocate(HOLE, 0, PART).unwrap();
    let mut expected = content;
    expected[..0x1_0000].fill(0);
    assert!(disk.content() == expected);
}

#[test]
fn threads_that_write_to_one_part_lose_nothing() {
    for _ in 0..50 {
        let (disk, mut content) = Disk::new();
        let disk = &disk;
        std::thread::scope(|scope| {
            for number in 0..8_u8 {
                let offset = 0x1_0000 + usize::from(number) * 4096;
                scope.spawn(move || disk.write(offset, &[number | 0x80; 4096]));
            }
            scope.spawn(|| disk.allocate(HOLE, 0x1_8000, 0x1_0000).unwrap());
        });
        for number in 0..8_u8 {
            let offset = 0x1_0000 + usize::from(number) * 4096;
            content[offset..offset + 4096].fill(number | 0x80);
        }
        content[0x1_8000..0x2_8000].fill(0);
        assert!(disk.content() == content);
    }
}

/// What is done to a disk.
#[derive(Clone, Debug)]
enum Deed {
    Write { sector: usize, sectors: usize, byte: u8 },
    Zero { sector: usize, sectors: usize, mode: c_int },
    SaveAndLoad,
}

fn deed() -> impl Strategy<Value = Deed> {
    let sectors = || (0..SIZE / 512, 1_usize..200);
    prop_oneof![
        4 => (sectors(), any::<u8>())
            .prop_map(|((sector, sectors), byte)| Deed::Write { sector, sectors, byte }),
        2 => (sectors(), prop_oneof![Just(HOLE), Just(ZEROES)])
            .prop_map(|((sector, sectors), mode)| Deed::Zero { sector, sectors, mode }),
        1 => Just(Deed::SaveAndLoad),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn disk_is_what_was_done_to_it(deeds in prop::collection::vec(deed(), 1..24)) {
        let (mut disk, mut model) = Disk::new();
        for deed in deeds {
            match deed {
                Deed::Write { sector, sectors, byte } => {
                    let (start, end) = (sector * 512, SIZE.min((sector + sectors) * 512));
                    model[start..end].fill(byte);
                    disk.write(start, &vec![byte; end - start]);
                }
                Deed::Zero { sector, sectors, mode } => {
                    let (start, end) = (sector * 512, SIZE.min((sector + sectors) * 512));
                    let zeroed = disk.allocate(mode, start as u64, (end - start) as u64);
                    // File systems may not have it; then a transfer writes zeroes.
                    if zeroed == Err(EOPNOTSUPP) {
                        disk.write(start, &vec![0; end - start]);
                    }
                    model[start..end].fill(0);
                }
                Deed::SaveAndLoad => {
                    let saved = disk.disk.save().unwrap();
                    let text = serde_json::to_string(&saved).unwrap();
                    let read: OverlayState = serde_json::from_str(&text).unwrap();
                    disk = Disk::on(images().0, disk.overlay);
                    disk.disk.load(&read).unwrap();
                    prop_assert_eq!(disk.disk.save().unwrap(), saved);
                }
            }
            prop_assert!(disk.content() == model);
        }
    }
}
