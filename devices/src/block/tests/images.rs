//! Disks that are made of images, as a driver and the machine's owner drive them.

use std::os::fd::{AsFd, OwnedFd};

use super::*;
use crate::virtio::Device;

const GOLDEN: &str = include_str!("golden-overlay-v1.json");
const SIZE: u64 = 1 << 20;

fn image(bytes: &[u8], format: ImageFormat) -> ImageFile {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    ImageFile { fd: file.into(), format }
}

/// 64 KiB that qemu-img compressed, on a base with nothing behind them.
fn compressed() -> Vec<ImageFile> {
    let bytes = include_bytes!("../images/tests/golden/v3-zstd.qcow2");
    vec![image(bytes, ImageFormat::Qcow2)]
}

/// 1 MiB of one byte.
fn plain(byte: u8) -> Vec<ImageFile> {
    vec![image(&vec![byte; 1 << 20], ImageFormat::Raw)]
}

fn overlay() -> NamedTempFile {
    NamedTempFile::new().unwrap()
}

fn disk(images: Vec<ImageFile>, overlay: &NamedTempFile) -> Disk {
    let fd: OwnedFd = overlay.reopen().unwrap().into();
    ImageDisk::open(images, Some(fd)).unwrap().into()
}

fn quiet(disk: Disk, config: BlockConfig) -> Result<Block, BlockError> {
    Block::new(disk, config, Arc::new(|_| {}))
}

#[test]
fn compressed_image_is_read_and_written_by_a_driver() {
    let overlay = overlay();
    let mut bench = Bench::running(disk(compressed(), &overlay), with(Engine::Auto));
    assert_eq!(bench.function.device(Block::engine), Engine::Pool);
    assert_eq!(bench.ask_on(0, (READ, 3), &[(0x8001, 100), (0x9000, 412)]), (OK, 513));
    assert_eq!(bench.memory(0x8001, 100), [21; 100]);
    bench.fill(DATA, &[0xab; 512]);
    assert_eq!(bench.ask(WRITE, 3, &[(DATA, 512)]), OK);
    assert_eq!(bench.ask(FLUSH, 0, &[]), OK);
    assert_eq!(bench.ask(READ, 2, &[(0x8000, 1536)]), OK);
    assert_eq!(bench.memory(0x8000, 256), [14; 256]);
    assert_eq!(bench.memory(0x8200, 512), [0xab; 512]);
    assert_eq!(bench.memory(0x8400, 256), [28; 256]);
    assert_eq!(content(&overlay, 1536, 512), [0xab; 512]);
    assert_eq!(bench.ask(READ, 128, &[(0x8000, 512)]), IOERR, "the disk ends");
    assert_eq!(bench.counters().bad_requests, 1);
}

#[test]
fn discards_and_zeroes_reach_the_overlay() {
    let overlay = overlay();
    let mut bench = Bench::running(disk(plain(7), &overlay), with(Engine::Pool));
    for (kind, sector, flags) in [(DISCARD, 0, 0), (WRITE_ZEROES, 300, 0), (WRITE_ZEROES, 600, 1)] {
        bench.put_range(sector, 200, flags);
        assert_eq!(bench.ask(kind, 0, &[(DATA, 16)]), OK);
        for (sector, byte) in [(sector, 0), (sector + 199, 0), (sector + 200, 7)] {
            assert_eq!(bench.ask(READ, sector, &[(0x8000, 512)]), OK);
            assert_eq!(bench.memory(0x8000, 512), [byte; 512], "sector {sector}");
        }
    }
}

#[test]
fn read_only_disk_needs_no_overlay() {
    let config = BlockConfig { read_only: true, ..with(Engine::Auto) };
    let disk = || Disk::from(ImageDisk::open(plain(7), None).unwrap());
    let mut bench = Bench::running(disk(), config);
    assert_eq!(bench.ask(READ, 0, &[(0x8000, 512)]), OK);
    assert_eq!(bench.memory(0x8000, 512), [7; 512]);
    assert_eq!(bench.ask(WRITE, 0, &[(0x8000, 512)]), IOERR);
    assert_eq!(bench.ask(FLUSH, 0, &[]), OK);
    assert!(matches!(quiet(disk(), with(Engine::Auto)), Err(BlockError::NoOverlay)));
}

#[test]
fn images_have_no_ring() {
    let error = quiet(disk(plain(7), &overlay()), with(Engine::Ring)).err().unwrap();
    assert!(matches!(error, BlockError::Backend(_)), "{error}");
}

#[test]
fn overlay_is_one_machines() {
    let file = overlay();
    let first = quiet(disk(plain(7), &file), with(Engine::Auto)).unwrap();
    let second = quiet(disk(plain(7), &file), with(Engine::Auto));
    assert!(matches!(second, Err(BlockError::Lock(LockError::HeldByFile))));
    first.unlock().unwrap();
    lock(file.reopen().unwrap().as_fd()).unwrap();
}

#[test]
fn damaged_image_is_an_error_of_the_guests_or_holds_the_request() {
    let image = || {
        let mut bytes = include_bytes!("../images/tests/golden/v3-zstd.qcow2").to_vec();
        // The first compressed cluster.
        let last = bytes.len();
        bytes[0x4000..last].fill(0xff);
        vec![image(&bytes, ImageFormat::Qcow2)]
    };
    let file = overlay();
    let config = BlockConfig { lock: false, ..with(Engine::Auto) };
    let mut bench = Bench::running(disk(image(), &file), config.clone());
    assert_eq!(bench.ask(READ, 0, &[(0x8000, 512)]), IOERR);
    assert_eq!(bench.counters().errors, 1);
    let config = BlockConfig { on_error: ErrorPolicy::Stop, ..config };
    let mut bench = Bench::running(disk(image(), &file), config);
    bench.describe(0, 0, (WRITE, 0), &[(DATA, 512)]);
    bench.offer(0, 0);
    bench.pause_after_failures(1);
    let failure = bench.failures.lock().unwrap()[0].clone();
    assert_eq!((failure.operation, failure.number), ("write", Some(libc::EIO)));
    let mut records = bench.save();
    assert_eq!(records.take::<BlockState>("vda").unwrap().held.len(), 1);
    let overlay: OverlayState = records.take("vda").unwrap();
    assert_eq!(overlay.allocated, Allocation::Runs(vec![1]));
}

#[test]
fn saved_disk_goes_on_with_its_overlay() {
    let file = overlay();
    let config = BlockConfig { lock: false, ..with(Engine::Auto) };
    let mut bench = Bench::running(disk(plain(7), &file), config.clone());
    bench.fill(DATA, &[4; 512]);
    assert_eq!(bench.ask(WRITE, 200, &[(DATA, 512)]), OK);
    let status = bench.describe(0, 0, (READ, 200), &[(0x8000, 1024)]);
    bench.offer(0, 0);
    bench.pause();
    let records = bench.save();
    let mut target = Bench::new(disk(plain(7), &file), config);
    target.take_memory(&bench);
    target.load(&records).unwrap();
    assert_eq!(target.save(), records);
    target.resume();
    assert_eq!(target.used(0, 2), [(0, 1), (0, 1025)]);
    assert_eq!(target.status(status), OK);
    assert_eq!(target.memory(0x8000, 1024), [[4; 512], [7; 512]].concat());
}

#[test]
fn overlay_state_of_version_1_reads_as_it_did() {
    let golden: Records = serde_json::from_str(GOLDEN).unwrap();
    let mut block = quiet(disk(plain(7), &overlay()), with(Engine::Auto)).unwrap();
    let mut records = golden.clone();
    block.load("vda", &mut records).unwrap();
    records.finish().unwrap();
    let mut saved = Records::default();
    block.save("vda", &mut saved).unwrap();
    assert_eq!(saved, golden);
}

#[test]
fn overlay_state_that_cannot_be_is_refused() {
    type Change = fn(&mut OverlayState);
    let changes: &[(&str, Change)] = &[
        ("it is of a disk of 512 bytes, this one has 1048576", |state| state.size = 512),
        ("its clusters are of 4096 bytes, here of 65536", |state| state.cluster = 4096),
        ("is not of 16 clusters", |state| state.allocated = Allocation::Runs(vec![17])),
        ("is not of 16 clusters", |state| state.allocated = Allocation::Runs(vec![0, 0, 16])),
        ("is not of 16 clusters", |state| state.allocated = Allocation::Bits("AA==".into())),
        ("is not of 16 clusters", |state| state.allocated = Allocation::Bits("AAA".into())),
    ];
    for (text, change) in changes {
        let mut block = quiet(disk(plain(7), &overlay()), with(Engine::Auto)).unwrap();
        let mut records = Records::default();
        block.save("vda", &mut records).unwrap();
        let mut state: OverlayState = records.take("vda").unwrap();
        assert_eq!(state.size, SIZE);
        change(&mut state);
        records.put("vda", &state).unwrap();
        let error = block.load("vda", &mut records).unwrap_err().to_string();
        assert!(error.contains("block-overlay vda") && error.contains(text), "{error}");
    }
}

#[test]
fn overlay_is_not_loaded_into_a_disk_without_one() {
    let mut records: Records = serde_json::from_str(GOLDEN).unwrap();
    let file = disk_of(7);
    let mut block = Block::new(open(&file), with(Engine::Pool), Arc::new(|_| {})).unwrap();
    block.load("vda", &mut records).unwrap();
    let error = records.finish().unwrap_err().to_string();
    assert_eq!(error, "nothing in this machine takes the record block-overlay vda");
}
