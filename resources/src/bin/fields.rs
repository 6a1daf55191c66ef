//! Writes `docs/fields.md` of the checkout that is the current directory.

fn main() -> std::io::Result<()> {
    std::fs::write("docs/fields.md", corten_resources::served::page())
}
