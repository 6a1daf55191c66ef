//! Any text either is a manifest, whose VM is accepted or refused by the paths of fields, or is no manifest.
#![no_main]

use corten_cli::manifest::{Selection, documents, examine};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(documents) = documents::parse("input", text) else { return };
    for document in documents.iter().filter(|document| document.is_machine()) {
        let examined = examine(document);
        assert!(examined.vmi.is_some() || !examined.findings.is_empty());
    }
    let _ = Selection::of(documents);
});
