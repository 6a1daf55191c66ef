//! Writes `docs/fields.md`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/fields.md");
    std::fs::write(path, corten_resources::served::page())
}
