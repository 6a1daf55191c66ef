//! What cannot be read, and what is said about it.

use std::error::Error;

use super::*;
use crate::block::images::qcow2::testing::put;
use crate::block::images::{MAX_IMAGES, MAX_SIZE};

/// The error with its causes.
fn refused(images: Vec<(Bytes, ImageFormat)>) -> String {
    let error = chain(images).err().expect("it is refused");
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A good image of version 3 with these bytes at an offset.
fn changed(at: usize, bytes: &[u8]) -> Vec<(Bytes, ImageFormat)> {
    let mut image = ImageBuilder::new(16, 1 << 20).data(0, 1).build();
    put(&mut image.0, at, bytes);
    vec![(image, ImageFormat::Qcow2)]
}

#[test]
fn headers_that_cannot_be_are_refused_by_what_is_wrong() {
    let u32 = |number: u32| number.to_be_bytes().to_vec();
    let u64 = |number: u64| number.to_be_bytes().to_vec();
    let cases: &[(usize, Vec<u8>, &str)] = &[
        (0, b"QFI\xfa".to_vec(), "does not begin like a qcow2 image"),
        (4, u32(1), "of version 1;"),
        (4, u32(4), "of version 4;"),
        (8, u64(u64::MAX), "0 bytes at 0xffffffffffffffff, is misplaced"),
        (8, [u64(300), u32(1024)].concat(), "1024 bytes at 0x12c, is misplaced or too long"),
        (20, u32(8), "of 2^8 bytes"),
        (20, u32(22), "of 2^22 bytes"),
        (20, u32(u32::MAX), "of 2^4294967295 bytes"),
        (24, u64(0), "its disk has 0 bytes"),
        (24, u64(511), "its disk has 511 bytes"),
        (24, u64(MAX_SIZE + 1), "its disk has 17592186044417 bytes"),
        (24, u64(u64::MAX), "512 bytes to 16 TiB can be read"),
        (24, u64(1 << 30), "its L1 table of 1 entries"),
        (32, u32(1), "it is encrypted (method 1)"),
        (32, u32(2), "it is encrypted (method 2)"),
        (36, u32(0), "its L1 table of 0 entries"),
        (40, u64(0), "its L1 table of 1 entries at 0x0 "),
        (40, u64(0x1_0200), "its L1 table of 1 entries at 0x10200"),
        (40, u64(0x4_0000), "its L1 table of 1 entries at 0x40000"),
        (40, u64(0xffff_ffff_ffff_0000), "its L1 table of 1 entries"),
        (72, u64(2), "it is marked as corrupt"),
        (72, u64(4), "its data are in another file"),
        (72, u64(0x10), "it has extended L2 entries"),
        (72, u64(0x8000_0000_0000_0021), "not known: 0x8000000000000020"),
        (72, u64(8), "its compression type 0 "),
        (104, vec![1], "its compression type 1 "),
        (100, u32(96), "its header is 96 bytes long"),
        (100, u32(109), "its header is 109 bytes long"),
        (100, u32(u32::MAX - 7), "its header is 4294967288 bytes long"),
    ];
    for (at, bytes, text) in cases {
        let error = refused(changed(*at, bytes));
        assert!(error.starts_with("image 0 cannot be read as qcow2: "), "{error}");
        assert!(error.contains(text), "{error} instead of {text}");
    }
    let unknown = [&[0, 0, 0, 0, 0, 0, 0, 8][..], &[0; 24], &[2]].concat();
    let mut both = changed(72, &unknown[..8]);
    put(&mut both[0].0.0, 104, &[2]);
    assert!(refused(both).contains("its compression type 2 "));
}

#[test]
fn what_does_not_matter_for_reading_is_no_reason_to_refuse() {
    let dirty = changed(72, &1_u64.to_be_bytes());
    // Reference counts and snapshots that cannot be.
    let nonsense = changed(48, &[0xff; 24]);
    let features = changed(80, &[0xff; 16]);
    for images in [dirty, nonsense, features] {
        assert_eq!(content(&chain(images).unwrap())[..0x1_0000], [1; 0x1_0000]);
    }
}

#[test]
fn short_files_are_refused() {
    let (Bytes(bytes), _) = qcow2(&ImageBuilder::new(9, 4096).data(0, 1));
    for length in [0, 3, 71, 72, 103, 104] {
        let image = (Bytes(bytes[..length].to_vec()), ImageFormat::Qcow2);
        let error = refused(vec![image]);
        let is_header = length < 104;
        assert_eq!(error.contains("fewer than the header"), is_header, "{length}: {error}");
        assert_eq!(error.contains("its L1 table"), !is_header, "{length}: {error}");
    }
}

#[test]
fn list_and_images_have_to_agree_on_backing_files() {
    let alone = ImageBuilder::new(12, 8192);
    let based = alone.clone().on("base\n.img");
    let base = || raw(vec![0; 8192]);
    assert_eq!(
        refused(vec![qcow2(&based)]),
        "image 0 needs a backing file (it calls it \"base\\n.img\"), and none was given"
    );
    assert_eq!(
        refused(vec![qcow2(&alone), base()]),
        "image 0 has no backing file, but one was given"
    );
    assert_eq!(
        refused(vec![qcow2(&based), base(), base()]),
        "image 1 has no backing file, but one was given"
    );
    assert!(chain(vec![qcow2(&based), base()]).is_ok());
}

#[test]
fn chains_have_limits() {
    assert_eq!(refused(Vec::new()), "a disk is made of 1 to 32 images, not of 0");
    let image = qcow2(&ImageBuilder::new(12, 8192).on("base"));
    let mut images = vec![image; MAX_IMAGES];
    images.push(raw(vec![7; 8192]));
    assert_eq!(refused(images.clone()), "a disk is made of 1 to 32 images, not of 33");
    images.remove(0);
    assert!(content(&chain(images).unwrap()) == [7; 8192]);
    assert_eq!(
        refused(vec![raw(vec![0; 511])]),
        "the disk has 0 bytes; 512 bytes to 16 TiB can be"
    );
}
