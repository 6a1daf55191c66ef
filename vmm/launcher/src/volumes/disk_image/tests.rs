use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::PathBuf;

use super::super::holder::testing::lock;
use super::*;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// The path of a directory as the system sees it: no link on the way.
fn real(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().canonicalize().unwrap()
}

fn raw_file(disk: &DiskImage) -> &File {
    match &disk.content {
        DiskContent::Raw(file) => file,
        DiskContent::Image { .. } => panic!("it is made of images"),
    }
}

fn text(error: Result<DiskImage, DiskImageError>) -> String {
    error.unwrap_err().to_string()
}

#[test]
fn an_empty_disk_is_sparse_and_has_no_name() {
    let place = directory();
    let disk = empty_disk(&Scratch::Nameless(place.path().into()), "data", (5 << 20) + 1).unwrap();
    assert_eq!(disk.size, 6 << 20);
    let metadata = raw_file(&disk).metadata().unwrap();
    assert_eq!((metadata.len(), metadata.blocks(), metadata.nlink()), (6 << 20, 0, 0));
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn an_empty_disk_with_a_name_is_emptied_at_each_start() {
    let place = directory();
    let scratch = Scratch::Named(place.path().into());
    let disk = empty_disk(&scratch, "data", 1 << 20).unwrap();
    raw_file(&disk).write_all_at(b"old", 0).unwrap();
    drop(disk);
    let disk = empty_disk(&scratch, "data", 2 << 20).unwrap();
    assert_eq!(disk.size, 2 << 20);
    let mut first = [1; 3];
    raw_file(&disk).read_exact_at(&mut first, 0).unwrap();
    assert_eq!(first, [0; 3]);
    assert!(place.path().join("data.img").exists());
}

#[test]
fn less_than_a_mebibyte_is_no_disk() {
    let place = directory();
    let disk = empty_disk(&Scratch::Nameless(place.path().into()), "data", (1 << 20) - 1);
    assert_eq!(text(disk), "a disk of 1048575 bytes cannot be made; the least is 1 MiB");
}

#[test]
fn a_host_disk_is_made_once_and_found_again() {
    let place = directory();
    let path = real(&place).join("disk.img");
    assert_eq!(
        text(host_disk(&path, None, Access::Write)),
        format!("{} does not exist", path.display())
    );
    assert_eq!(host_disk(&path, Some(3 << 20), Access::Write).unwrap().size, 3 << 20);
    assert_eq!(path.metadata().unwrap().mode() & 0o777, MODE);
    // One that exists keeps its size.
    assert_eq!(host_disk(&path, Some(9 << 20), Access::Write).unwrap().size, 3 << 20);
    assert_eq!(host_disk(&path, None, Access::Read).unwrap().size, 3 << 20);
}

#[test]
fn a_host_disk_is_not_reached_by_links() {
    let place = directory();
    let real = real(&place);
    fs::create_dir(real.join("there")).unwrap();
    fs::write(real.join("there/disk.img"), vec![0; 512]).unwrap();
    symlink(real.join("there/disk.img"), real.join("link.img")).unwrap();
    symlink("there", real.join("here")).unwrap();
    for path in ["link.img", "here/disk.img"] {
        let error = text(host_disk(&real.join(path), Some(1 << 20), Access::Write));
        assert!(error.starts_with("there is a symbolic link in"), "{path}: {error}");
    }
    for path in ["disk.img", "/a/../disk.img", ""] {
        let error = text(host_disk(Path::new(path), None, Access::Write));
        assert!(error.ends_with("is no absolute path without `..`"), "{path}: {error}");
    }
    host_disk(&real.join("there/disk.img"), None, Access::Write).unwrap();
}

#[test]
fn what_is_no_file_or_of_an_odd_size_is_refused() {
    let place = directory();
    let real = real(&place);
    nix::unistd::mkfifo(&real.join("pipe"), Mode::S_IRWXU).unwrap();
    fs::write(real.join("odd"), [0; 700]).unwrap();
    fs::write(real.join("none"), []).unwrap();
    assert!(
        text(host_disk(&real.join("pipe"), None, Access::Write)).ends_with("nor a block device")
    );
    assert!(text(host_disk(&real, None, Access::Read)).ends_with("nor a block device"));
    let error = text(host_disk(Path::new("/"), None, Access::Write));
    assert_eq!(error, "/ is neither a regular file nor a block device");
    let error = text(host_disk(&real.join("odd"), None, Access::Write));
    assert!(error.contains("which is no multiple of 512"), "{error}");
    fs::write(real.join("odd"), [b"QFI\xfb".as_slice(), &[0; 700]].concat()).unwrap();
    let error = text(host_disk(&real.join("odd"), None, Access::Write));
    assert!(error.contains("odd is a qcow2 image") && !error.contains("truncate"), "{error}");
    let error = text(host_disk(&real.join("none"), None, Access::Write));
    assert!(error.contains("none is empty; make it as large"), "{error}");
}

#[test]
fn a_host_disk_in_a_directory_that_is_missing_is_refused_by_it() {
    let place = directory();
    fs::write(real(&place).join("file"), []).unwrap();
    for name in ["there", "file"] {
        let there = real(&place).join(name);
        let error = text(host_disk(&there.join("disk.img"), Some(1 << 20), Access::Write));
        assert_eq!(error, format!("there is no directory {}", there.display()));
    }
}

#[test]
fn a_disk_that_no_file_system_can_have_is_refused_by_its_size() {
    let place = directory();
    let error = text(empty_disk(&Scratch::Nameless(place.path().into()), "data", u64::MAX));
    let size = u64::MAX - u64::MAX % (1 << 20);
    let expected = format!("a disk of {size} bytes cannot be made in {}", place.path().display());
    assert_eq!(error, expected);
}

#[test]
fn the_disk_of_a_claim_is_made_and_grows_with_it() {
    let place = directory();
    let made = claim(place.path(), Some((4 << 20) + 4096), Access::Write).unwrap();
    assert_eq!(made.size, 4 << 20);
    drop(made);
    assert_eq!(claim(place.path(), Some(6 << 20), Access::Write).unwrap().size, 6 << 20);
    assert_eq!(claim(place.path(), Some(2 << 20), Access::Write).unwrap().size, 6 << 20);
    assert_eq!(claim(place.path(), Some(8 << 20), Access::Read).unwrap().size, 6 << 20);
    assert_eq!(claim(place.path(), None, Access::Write).unwrap().size, 6 << 20);
}

#[test]
fn a_claim_without_its_file_needs_a_capacity_and_the_room() {
    let place = directory();
    assert!(text(claim(place.path(), None, Access::Write)).ends_with("disk.img does not exist"));
    let error = text(claim(place.path(), Some(1 << 60), Access::Write));
    assert!(error.contains("too little for a disk of 1152921504606846976"), "{error}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn the_file_of_a_claim_is_within_it() {
    let place = directory();
    let outside = tempfile::NamedTempFile::new().unwrap();
    outside.as_file().set_len(512).unwrap();
    symlink(outside.path(), place.path().join("disk.img")).unwrap();
    assert!(
        text(claim(place.path(), None, Access::Read)).starts_with("there is a symbolic link in")
    );
    fs::remove_file(place.path().join("disk.img")).unwrap();
    fs::write(place.path().join("other.img"), [0; 512]).unwrap();
    symlink("other.img", place.path().join("disk.img")).unwrap();
    assert_eq!(claim(place.path(), None, Access::Write).unwrap().size, 512);
}

#[test]
fn an_ephemeral_disk_reads_the_claim_and_writes_elsewhere() {
    let (place, other) = (directory(), directory());
    fs::write(place.path().join("disk.img"), vec![7; 1024]).unwrap();
    let base = claim(place.path(), None, Access::Read).unwrap();
    let disk = ephemeral(base, &Scratch::Nameless(other.path().into()), "root").unwrap();
    assert_eq!(disk.size, 1024);
    let DiskContent::Image { image, format, overlay } = disk.content else { panic!("it is raw") };
    assert_eq!(format, ImageFormat::Raw);
    assert!(image.write_all_at(b"x", 0).is_err());
    assert_eq!(overlay.unwrap().metadata().unwrap().blocks(), 0);
}

/// An image with these files in its directory for disks.
fn container(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let root = directory();
    fs::create_dir(root.path().join("disk")).unwrap();
    for (name, content) in files {
        fs::write(root.path().join("disk").join(name), content).unwrap();
    }
    root
}

#[test]
fn the_only_file_of_an_image_is_its_disk() {
    let mut qcow2 = vec![0; (1 << 16) + 16];
    qcow2[..4].copy_from_slice(b"QFI\xfb");
    qcow2[7] = 3;
    qcow2[23] = 16;
    qcow2[24..32].copy_from_slice(&(1_u64 << 30).to_be_bytes());
    qcow2[39] = 2;
    qcow2[40..48].copy_from_slice(&(1_u64 << 16).to_be_bytes());
    let scratch = directory();
    let scratch = Scratch::Nameless(scratch.path().into());
    for (content, size, expected) in
        [(&qcow2[..], 1 << 30, ImageFormat::Qcow2), (&[0; 1024], 1024, ImageFormat::Raw)]
    {
        // Its name says nothing.
        let root = container(&[("disk.raw", content)]);
        let disk = container_disk(root.path(), None, Some(&scratch), "root").unwrap();
        assert_eq!(disk.size, size);
        let DiskContent::Image { format, overlay, .. } = disk.content else { panic!("it is raw") };
        assert_eq!(format, expected);
        assert_eq!(overlay.unwrap().metadata().unwrap().len(), size);
    }
}

#[test]
fn an_image_with_several_files_needs_a_path() {
    let root = container(&[("a", &[0; 512]), ("b", &[0; 1024])]);
    let error = text(container_disk(root.path(), None, None, "root"));
    assert!(error.starts_with("the image has 2 files in /disk"), "{error}");
    for path in ["/disk/b", "disk/b"] {
        assert_eq!(container_disk(root.path(), Some(path), None, "root").unwrap().size, 1024);
    }
    let empty = container(&[]);
    assert!(text(container_disk(empty.path(), None, None, "root")).starts_with("the image has 0"));
    assert!(text(container_disk(directory().path(), None, None, "r")).ends_with("does not exist"));
}

#[test]
fn links_of_an_image_end_at_its_root() {
    let root = container(&[("a", &[0; 512])]);
    symlink("/disk/a", root.path().join("link")).unwrap();
    symlink("/etc/hostname", root.path().join("out")).unwrap();
    assert_eq!(container_disk(root.path(), Some("/link"), None, "r").unwrap().size, 512);
    for path in ["out", "../../etc/hostname", "/disk"] {
        assert!(container_disk(root.path(), Some(path), None, "r").is_err(), "{path}");
    }
}

#[test]
fn what_is_no_image_is_refused_with_the_reason_behind_it() {
    let root = container(&[("disk.vmdk", b"KDMV")]);
    let error = container_disk(root.path(), None, None, "root").unwrap_err();
    assert_eq!(error.to_string(), "disk/disk.vmdk in the image cannot be used as a disk");
    let reason = std::error::Error::source(&error).unwrap().to_string();
    assert!(reason.starts_with("it is a VMDK image"), "{reason}");
}

#[test]
fn a_disk_that_is_written_to_is_refused_by_its_holder() {
    let place = directory();
    let path = real(&place).join("disk.img");
    let first = host_disk(&path, Some(1 << 20), Access::Write).unwrap();
    lock(raw_file(&first));
    let error = text(host_disk(&path, None, Access::Write));
    let start = format!("disk {} is in use by ", path.display());
    assert!(error.starts_with(&start), "{error}");
    assert!(text(host_disk(&path, None, Access::Share)).starts_with(&start));
    // What is written while it is read is not what was there at any time.
    assert!(text(host_disk(&path, None, Access::Read)).starts_with(&start));
    assert!(hold_for_reading(&File::open(&path).unwrap(), &path).is_err());
}

#[test]
fn a_disk_that_is_read_is_shared_with_readers_only() {
    let place = directory();
    let path = real(&place).join("disk.img");
    fs::write(&path, [0; 512]).unwrap();
    let first = host_disk(&path, None, Access::Read).unwrap();
    hold_for_reading(raw_file(&first), &path).unwrap();
    let second = host_disk(&path, None, Access::Read).unwrap();
    hold_for_reading(raw_file(&second), &path).unwrap();
    drop(first);
    assert!(text(host_disk(&path, None, Access::Write)).contains("disk.img is in use by "));
    drop(second);
    host_disk(&path, None, Access::Write).unwrap();
}

#[test]
fn files_that_were_made_for_nothing_go_again_and_others_stay() {
    let place = directory();
    let path = real(&place).join("disk.img");
    let make = || {
        let mut files = MadeFiles::default();
        files.add(claim(&real(&place), Some(1 << 20), Access::Write).unwrap().made);
        assert!(path.exists());
        files
    };
    drop(make());
    assert!(!path.exists());
    // Another one of the name is somebody else's.
    let files = make();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "x").unwrap();
    drop(files);
    assert_eq!(fs::read(&path).unwrap(), b"x");
    fs::remove_file(&path).unwrap();
    make().keep();
    assert!(path.exists());
    // This time it was there before.
    drop(make());
    assert!(path.exists());
}
