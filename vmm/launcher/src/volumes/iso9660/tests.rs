//! What other programs read of an image: Debian's isoinfo (of genisoimage) and bsdtar (of libarchive-tools).

use std::io::Write;
use std::process::Command;

use super::*;

fn tree(files: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::new(0o600);
    for (path, content) in files {
        tree.add(path, content.as_bytes().to_vec()).unwrap();
    }
    tree
}

/// What a program says of an image; `@` among its arguments is the image.
fn read_by(program: &str, arguments: &[&str], image: &[u8]) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(image).unwrap();
    let path = file.path().to_str().unwrap();
    let arguments = arguments.iter().map(|word| if *word == "@" { path } else { word });
    let output = Command::new(program).args(arguments).env("LC_ALL", "C.UTF-8").output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{program}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> =
        text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn label_stands_in_both_descriptors() {
    let image = image(&tree(&[("meta-data", "{}")]), "cidata").unwrap();
    let primary = read_by("isoinfo", &["-d", "-i", "@"], &image);
    for line in [
        "Volume id: cidata",
        "Joliet with UCS level 3 found",
        "Rock Ridge signatures version 1 found",
    ] {
        assert!(primary.lines().any(|l| l == line), "{line:?} is not in {primary}");
    }
    let joliet = &image[17 * SECTOR + 40..][..32];
    let expected: Vec<u8> = "cidata          ".encode_utf16().flat_map(u16::to_be_bytes).collect();
    assert_eq!(joliet, expected);
}

#[test]
fn names_and_contents_are_read_back_by_rock_ridge() {
    let long = "l".repeat(MAX_NAME);
    let middle = "m".repeat(200);
    let files = [
        ("openstack/latest/meta_data.json", "{\"uuid\":1}"),
        ("openstack/latest/user_data", "#cloud-config\n"),
        ("Grüße", ""),
        (long.as_str(), "long"),
        (middle.as_str(), "middle"),
    ];
    let image = image(&tree(&files), "config-2").unwrap();
    let listed = read_by("bsdtar", &["-t", "-f", "@"], &image);
    let all = ["openstack", "openstack/latest"].into_iter().chain(files.map(|(name, _)| name));
    let mut all: Vec<&str> = all.collect();
    all.push(".");
    all.sort_unstable();
    assert_eq!(lines(&listed), all);
    for (name, content) in files {
        assert_eq!(read_by("bsdtar", &["-x", "-O", "-f", "@", name], &image), content, "{name}");
    }
    let rock_ridge = read_by("isoinfo", &["-R", "-l", "-i", "@"], &image);
    assert!(rock_ridge.contains("drwxr-xr-x   3    0    0"), "{rock_ridge}");
    assert!(
        rock_ridge.contains("-rw-------   1    0    0              14 Jan  1 1970"),
        "{rock_ridge}"
    );
}

#[test]
fn joliet_has_the_same_files() {
    let files = [("openstack/latest/user_data", "data"), ("Grüße", "x"), ("a/b", "y")];
    let image = image(&tree(&files), "config-2").unwrap();
    let all =
        [".", "Grüße", "a", "a/b", "openstack", "openstack/latest", "openstack/latest/user_data"];
    let by_joliet = ["--options", "iso9660:!rockridge", "-f", "@"];
    let listed = read_by("bsdtar", &[&["-t"][..], &by_joliet].concat(), &image);
    assert_eq!(lines(&listed), all);
    let content = [&["-x", "-O"][..], &by_joliet, &["openstack/latest/user_data"]].concat();
    assert_eq!(read_by("bsdtar", &content, &image), "data");
}

#[test]
fn plain_names_are_there_for_those_who_read_nothing_else() {
    let files = [("meta-data", "{}"), ("user-data", ""), ("a.tar.gz", "")];
    let image = image(&tree(&files), "cidata").unwrap();
    let listed = read_by("isoinfo", &["-f", "-i", "@"], &image);
    assert_eq!(lines(&listed), ["/A_TAR.GZ;1", "/META_DAT.;1", "/USER_DAT.;1"]);
}

#[test]
fn directories_of_many_sectors_are_read_whole() {
    let names: Vec<String> =
        (0..500).map(|number| format!("d{}/{number}-{}", number % 7, "n".repeat(150))).collect();
    let files: Vec<(&str, &str)> =
        names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    let image = image(&tree(&files), "cfgdata").unwrap();
    let listed = read_by("bsdtar", &["-t", "-f", "@"], &image);
    assert_eq!(lines(&listed).len(), 1 + 7 + names.len());
    assert_eq!(read_by("bsdtar", &["-x", "-O", "-f", "@", &names[499]], &image), names[499]);
}

#[test]
fn an_empty_tree_is_an_image_too() {
    let image = image(&Tree::new(0o644), "cfgdata").unwrap();
    assert_eq!(lines(&read_by("bsdtar", &["-t", "-f", "@"], &image)), ["."]);
    assert_eq!(image.len() % PADDING, 0);
}

#[test]
fn the_same_files_give_the_same_bytes_in_any_order() {
    let once = image(&tree(&[("a/b", "1"), ("c", "2")]), "cfgdata").unwrap();
    let again = image(&tree(&[("c", "2"), ("a/b", "1")]), "cfgdata").unwrap();
    assert!(once == again);
}

#[test]
fn labels_that_no_descriptor_can_hold_are_refused() {
    for label in ["", "ä", "a\n", &"x".repeat(33)] {
        assert!(matches!(image(&Tree::new(0), label), Err(IsoError::Label(_))), "{label:?}");
    }
    image(&Tree::new(0), &"x".repeat(32)).unwrap();
}

#[test]
fn what_is_larger_than_allowed_is_refused() {
    let mut tree = Tree::new(0o644);
    tree.add("a", vec![0; MAX_SIZE]).unwrap();
    assert_eq!(image(&tree, "x"), Err(IsoError::Size));
}
