//! Writes the manifests: `manifests [FOLDER [IMAGE-PREFIX [IMAGE-TAG]]]`, by default into `resources` of the checkout that is
//! the current directory.

use anyhow::Context;
use corten_resources::cluster::manifests::{Images, files};
use std::path::PathBuf;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().map_or_else(|| PathBuf::from("resources"), PathBuf::from);
    let mut images = Images::default();
    images.prefix = arguments.next().unwrap_or(images.prefix);
    images.tag = arguments.next().unwrap_or(images.tag);
    for (name, text) in files(&images).context("cannot make the manifests")? {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("cannot make the folder {}", parent.display()))?;
        }
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
