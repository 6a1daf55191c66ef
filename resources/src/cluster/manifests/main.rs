//! Writes the manifests: `manifests [FOLDER [IMAGE-PREFIX [IMAGE-TAG]]]`, by default into `resources/manifests`.

use anyhow::Context;
use corten_resources::cluster::manifests::{Images, files, text};
use std::path::PathBuf;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments
        .next()
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("manifests"), PathBuf::from);
    let mut images = Images::default();
    images.prefix = arguments.next().unwrap_or(images.prefix);
    images.tag = arguments.next().unwrap_or(images.tag);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    for (name, objects) in files(&images) {
        let path = folder.join(name);
        let text = text(&objects).with_context(|| format!("cannot make {name}"))?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
