use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};

use super::*;
use crate::oci::testing::{self, INDEX, TestImage, gzip, layer, links};

struct Scene {
    directory: tempfile::TempDir,
    store: ImageStore,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = ImageStore::new(directory.path().join("cache"), RegistryOptions::default());
        Self { store: store.unwrap(), directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    async fn image(&self, path: &Path) -> Result<ImageHandle, ImageError> {
        let name: ImageReference = "test/image".parse().unwrap();
        let mappings = vec![(name.clone(), path.to_owned())];
        let sources = Sources { mappings, directory: None };
        self.store.resolve(&name, PullPolicy::Never, &sources).await
    }

    /// An image of these layers.
    async fn layers(&self, layers: &[Vec<u8>]) -> ImageHandle {
        let image = TestImage::new(layers);
        let path = self.path("layout");
        image.write(&path, std::slice::from_ref(&image.manifest));
        self.image(&path).await.unwrap()
    }

    /// What is in the cache, but locks.
    fn cached(&self) -> Vec<String> {
        let output = std::process::Command::new("find")
            .args(["images", "-type", "f", "-not", "-name", "*.lock"])
            .current_dir(self.path("cache"))
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap().lines().map(Into::into).collect()
    }
}

#[tokio::test]
async fn disk_of_an_archive_is_unpacked_once_and_only_to_be_read() {
    for format in [corten_lab::oci::LayerFormat::Plain, corten_lab::oci::LayerFormat::Gzip] {
        let scene = Scene::new();
        let (disk, archive) = (scene.path("disk.raw"), scene.path("image.tar"));
        let content = [vec![0; 200_000], b"end".to_vec()].concat();
        fs::write(&disk, &content).unwrap();
        let image = corten_lab::oci::Image::container_disk("test/image:latest", &disk, "disk.raw");
        image.layer_format(format).write(&archive).unwrap();
        let handle = scene.image(&archive).await.unwrap();
        let path = handle.disk(None).await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o444);
        assert!(path.ends_with("disk/disk.raw"), "{}", path.display());
        // The second time nothing is read.
        fs::remove_file(&archive).unwrap();
        assert_eq!(handle.disk(None).await.unwrap(), path);
    }
}

#[tokio::test]
async fn layers_of_each_compression_are_merged() {
    let scene = Scene::new();
    let below = gzip(&layer(&[
        ("disk/old.img", b"old"),
        ("boot/kernel", b"kernel 1"),
        ("boot/initrd", b"initrd"),
    ]));
    let zstd = |bytes: &[u8]| compress_to_vec(bytes, CompressionLevel::Fastest);
    let middle = zstd(&layer(&[("disk/.wh.old.img", b""), ("disk/new.img", b"new")]));
    let above = layer(&[("boot/kernel", b"kernel 2")]);
    let handle = scene.layers(&[below, middle, above]).await;
    assert_eq!(fs::read(handle.disk(None).await.unwrap()).unwrap(), b"new");
    let files = handle.files(&["/boot/kernel", "boot/initrd"]).await.unwrap();
    assert_eq!(fs::read(&files[0]).unwrap(), b"kernel 2");
    assert_eq!(fs::read(&files[1]).unwrap(), b"initrd");
    let error = handle.disk(Some("/disk/old.img")).await.unwrap_err().to_string();
    assert!(error.contains("/disk/old.img: there is nothing of that name"), "{error}");
    assert!(error.ends_with("beside it there is /disk/new.img"), "{error}");
}

#[tokio::test]
async fn links_lead_to_files_of_other_directories_but_not_of_the_host() {
    let scene = Scene::new();
    fs::write(scene.path("secret"), "secret").unwrap();
    let out = scene.path("secret").to_str().unwrap().to_owned();
    let files = layer(&[("images/a.img", b"disk")]);
    let handle = scene
        .layers(&[files, links(&[("disk", "/images"), ("out", &out), ("up", "../../secret")])])
        .await;
    assert_eq!(fs::read(handle.disk(None).await.unwrap()).unwrap(), b"disk");
    assert_eq!(fs::read(handle.file("disk/a.img").await.unwrap()).unwrap(), b"disk");
    for path in ["out", "up", "../secret", "/"] {
        assert!(handle.file(path).await.is_err(), "{path}");
    }
}

#[tokio::test]
async fn what_is_missing_is_said_with_what_is_there() {
    let scene = Scene::new();
    let handle = scene.layers(&[layer(&[("boot/vmlinuz", b"1")])]).await;
    let error = handle.disk(None).await.unwrap_err().to_string();
    let expected = "image docker.io/test/image:latest has no file under /disk, so it is no container disk: give the \
        disk's path in the image; it has /boot/vmlinuz";
    assert_eq!(error, expected);
    let handle = scene.layers(&[layer(&[("disk/a", b"1"), ("disk/b", b"2")])]).await;
    let error = handle.disk(None).await.unwrap_err().to_string();
    assert!(error.ends_with("say which by its path; it has /disk/a, /disk/b"), "{error}");
    assert_eq!(fs::read(handle.disk(Some("/disk/b")).await.unwrap()).unwrap(), b"2");
}

#[tokio::test]
async fn platform_is_chosen_through_nested_indexes() {
    let scene = Scene::new();
    let mut image = TestImage::new(&[layer(&[("disk/a", b"1")])]);
    let index = image.index();
    let nested = json!({ "schemaVersion": 2, "manifests": [index] });
    let nested = image.add(INDEX, nested.to_string().into_bytes());
    image.write(&scene.path("layout"), &[nested]);
    let handle = scene.image(&scene.path("layout")).await.unwrap();
    assert_eq!(handle.digest().to_string(), image.manifest["digest"].as_str().unwrap());
    assert_eq!(fs::read(handle.disk(None).await.unwrap()).unwrap(), b"1");

    let mut other = image.manifest.clone();
    other["platform"] = json!({ "os": "windows", "architecture": "amd64" });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [other] });
    let index = image.add(INDEX, index.to_string().into_bytes());
    image.write(&scene.path("layout"), &[index]);
    let error = scene.image(&scene.path("layout")).await.err().unwrap().to_string();
    assert!(error.ends_with("is not for linux/amd64; it is for windows/amd64"), "{error}");
}

#[tokio::test]
async fn indexes_without_end_are_given_up() {
    let scene = Scene::new();
    let mut image = TestImage::new(&[]);
    let mut descriptor = image.manifest.clone();
    for _ in 0..10 {
        let index = json!({ "schemaVersion": 2, "manifests": [descriptor] });
        descriptor = image.add(INDEX, index.to_string().into_bytes());
    }
    image.write(&scene.path("layout"), &[descriptor]);
    let error = scene.image(&scene.path("layout")).await.err().unwrap().to_string();
    assert!(error.contains("nested more than 4 deep"), "{error}");
}

#[tokio::test]
async fn image_of_several_is_found_by_name_or_digest() {
    let scene = Scene::new();
    let named = |name: &str, manifest: &Value| {
        let mut entry = manifest.clone();
        entry["annotations"] = json!({ "io.containerd.image.name": name });
        entry
    };
    let (mut one, two) = (
        TestImage::new(&[layer(&[("disk/a", b"1")])]),
        TestImage::new(&[layer(&[("disk/a", b"2")])]),
    );
    one.blobs.extend(two.blobs.clone());
    let entries =
        [named("docker.io/test/one:1", &one.manifest), named("test/two:2", &two.manifest)];
    one.write(&scene.path("images/layout"), &entries);
    fs::write(scene.path("images/notes.txt"), "not an image").unwrap();
    let sources = Sources { mappings: Vec::new(), directory: Some(scene.path("images")) };
    let digest = format!("test/two:2@{}", two.manifest["digest"].as_str().unwrap());
    let bare = format!("test/two@{}", two.manifest["digest"].as_str().unwrap());
    let cases = [
        ("test/one:1", b"1"),
        ("docker.io/test/two:2", b"2"),
        (&digest, b"2"),
        // What it is called does not matter then.
        (&bare, b"2"),
    ];
    for (name, content) in cases {
        let name = name.parse().unwrap();
        let handle = scene.store.resolve(&name, PullPolicy::Never, &sources).await.unwrap();
        assert_eq!(fs::read(handle.disk(None).await.unwrap()).unwrap(), content);
    }
    let name = "test/one:2".parse().unwrap();
    let error = scene.store.resolve(&name, PullPolicy::Never, &sources).await.err().unwrap();
    assert!(matches!(error, ImageError::NotCached { .. }), "{error}");
    let error = scene.image(&scene.path("images/layout")).await.err().unwrap().to_string();
    assert!(error.contains("it has docker.io/test/one:1, test/two:2"), "{error}");
}

#[tokio::test]
async fn digest_of_a_platform_or_of_its_index_is_found_in_a_directory_and_another_is_not() {
    let scene = Scene::new();
    let mut image = TestImage::new(&[layer(&[("disk/a", b"1")])]);
    let index = image.index();
    image.write(&scene.path("images/layout"), std::slice::from_ref(&index));
    let sources = Sources { mappings: Vec::new(), directory: Some(scene.path("images")) };
    for descriptor in [&index, &image.manifest] {
        let name = format!("quay.io/any/name@{}", descriptor["digest"].as_str().unwrap());
        let name = name.parse().unwrap();
        let handle = scene.store.resolve(&name, PullPolicy::Never, &sources).await.unwrap();
        assert_eq!(fs::read(handle.disk(None).await.unwrap()).unwrap(), b"1");
    }
    let name = format!("quay.io/any/name@{}", ContentDigest::of(b"another")).parse().unwrap();
    let error = scene.store.resolve(&name, PullPolicy::Never, &sources).await.err().unwrap();
    assert!(matches!(error, ImageError::NotCached { .. }), "{error}");
}

fn saved(path: &Path, layers: &[(&str, &[u8])], diff_ids: &[&[u8]]) {
    let ids: Vec<String> =
        diff_ids.iter().map(|layer| ContentDigest::of(layer).to_string()).collect();
    let config = json!({ "rootfs": { "type": "layers", "diff_ids": ids } }).to_string();
    let name = format!("{}.json", ContentDigest::of(config.as_bytes()).hex());
    let mut files: Vec<(&str, &[u8])> = vec![(&name, config.as_bytes())];
    files.extend(layers);
    let paths = ["a/layer.tar", "b/layer.tar"];
    let manifest =
        json!([{ "Config": name, "RepoTags": ["test/image:latest"], "Layers": paths }]).to_string();
    files.push(("manifest.json", manifest.as_bytes()));
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = testing::header(tar::EntryType::Regular, content.len());
        builder.append_data(&mut header, path, content).unwrap();
    }
    let mut header = testing::header(tar::EntryType::Symlink, 0);
    builder.append_link(&mut header, "b/layer.tar", "../a/layer.tar").unwrap();
    fs::write(path, builder.into_inner().unwrap()).unwrap();
}

#[tokio::test]
async fn archive_of_docker_save_is_read_and_checked() {
    let scene = Scene::new();
    let layer = layer(&[("disk/a", b"1")]);
    saved(&scene.path("saved.tar"), &[("a/layer.tar", &layer)], &[&layer, &layer]);
    let handle = scene.image(&scene.path("saved.tar")).await.unwrap();
    assert_eq!(fs::read(handle.disk(None).await.unwrap()).unwrap(), b"1");
    saved(&scene.path("bad.tar"), &[("a/layer.tar", &layer)], &[&layer, b"other"]);
    let error = scene.image(&scene.path("bad.tar")).await.unwrap().disk(None).await.unwrap_err();
    assert!(matches!(error, ImageError::Digest { .. }), "{error}");
}

#[tokio::test]
async fn changed_layer_is_found_out_and_nothing_stays() {
    let scene = Scene::new();
    let mut image = TestImage::new(&[layer(&[("disk/a", b"good")])]);
    let blob = image.blobs.values_mut().find(|blob| blob.len() > 1024).unwrap();
    let at = blob.windows(4).position(|window| window == b"good").unwrap();
    blob[at..at + 4].copy_from_slice(b"evil");
    image.write(&scene.path("layout"), std::slice::from_ref(&image.manifest));
    let error = scene.image(&scene.path("layout")).await.unwrap().disk(None).await.unwrap_err();
    assert!(matches!(error, ImageError::Digest { .. }), "{error}");
    assert_eq!(scene.cached(), Vec::<String>::new());
}

#[tokio::test]
async fn zeros_take_no_room_and_too_many_are_refused() {
    let mut scene = Scene::new();
    let zeros = vec![0; 16 << 20];
    let handle = scene.layers(&[gzip(&layer(&[("disk/a", &zeros)]))]).await;
    let metadata = fs::metadata(handle.disk(None).await.unwrap()).unwrap();
    assert_eq!(metadata.len(), 16 << 20);
    assert!(metadata.blocks() < 1024, "{}", metadata.blocks());

    scene.store = scene.store.clone().with_limit(8 << 20);
    let handle = scene.layers(&[gzip(&layer(&[("disk/b", &zeros)]))]).await;
    let error = handle.disk(None).await.unwrap_err();
    assert!(matches!(error, ImageError::TooLarge { limit: 8_388_608, .. }), "{error}");
}

#[tokio::test]
async fn two_at_once_get_the_same_and_leftovers_are_cleared() {
    let scene = Scene::new();
    let handle = scene.layers(&[layer(&[("disk/a", b"1")])]).await;
    let place = Place::new(&scene.path("cache"), handle.digest(), String::new());
    fs::create_dir_all(place.directory.join(".staging-dead")).unwrap();
    fs::write(place.directory.join(".staging-dead/0-0"), "half").unwrap();
    let (one, two) = tokio::join!(handle.disk(None), handle.disk(None));
    assert_eq!(one.unwrap(), two.unwrap());
    assert_eq!(scene.cached().len(), 1, "{:?}", scene.cached());
}

#[tokio::test]
async fn what_is_no_image_is_refused_with_a_reason() {
    let scene = Scene::new();
    fs::write(scene.path("text"), "x".repeat(2000)).unwrap();
    fs::write(scene.path("image.tar.gz"), gzip(&layer(&[("index.json", b"{}")]))).unwrap();
    fs::write(scene.path("other.tar"), layer(&[("file", b"1")])).unwrap();
    fs::create_dir(scene.path("empty")).unwrap();
    for (name, reason) in [
        ("text", "checksum is wrong"),
        ("image.tar.gz", "has to be decompressed first"),
        ("other.tar", "neither index.json nor manifest.json"),
        ("empty", "neither index.json nor manifest.json"),
        ("missing", "cannot open"),
    ] {
        let error = scene.image(&scene.path(name)).await.err().unwrap().to_string();
        assert!(error.contains(reason), "{name}: {error}");
    }
}

#[tokio::test]
async fn cache_that_others_can_write_to_is_not_used() {
    let scene = Scene::new();
    scene.layers(&[layer(&[("disk/a", b"1")])]).await;
    fs::set_permissions(scene.path("cache"), Permissions::from_mode(0o777)).unwrap();
    let error = scene.image(&scene.path("layout")).await.unwrap_err();
    assert!(matches!(error, ImageError::SharedCache { .. }), "{error}");
}

#[test]
fn names_in_the_cache_mean_nothing() {
    for (path, name) in [
        ("disk/a.qcow2", "a.qcow2"),
        ("disk/..hidden", "hidden"),
        ("disk/a b\n", "a_b_"),
        ("disk/..", "file"),
        ("", "file"),
    ] {
        assert_eq!(file_name(path.as_bytes()), name);
    }
}

#[test]
fn cache_is_made_with_the_directory_it_is_in_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    make_trusted(&path("a/b")).unwrap();
    make_trusted(&path("a/b")).unwrap();
    assert!(path("a/b").is_dir());
    let error = make_trusted(&path("no/such/place/cache")).unwrap_err();
    let missing = format!("there is no directory {}; make it", path("no/such").display());
    assert!(error.to_string().contains(&missing), "{error}");
    assert!(!path("no").exists());
}
