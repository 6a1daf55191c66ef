//! Compiles the guest with gcc, after making its header of `src/protocol.rs`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const PROTOCOL: &str = "src/protocol.rs";
const LINKER_SCRIPT: &str = "guest/guest.ld";

/// General registers only, no red zone (interrupts come on the same stack), nothing that wants a C library.
const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-march=x86-64",
    "-ffreestanding",
    "-fno-pie",
    "-no-pie",
    "-mno-red-zone",
    "-mgeneral-regs-only",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables",
    "-fno-tree-loop-distribute-patterns",
    "-O2",
    "-nostdlib",
    "-static",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wl,--build-id=none",
];

fn main() -> Result<(), String> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=guest");
    println!("cargo:rerun-if-changed={PROTOCOL}");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let constants = constants(&text_of(PROTOCOL)?)?;
    write_header(&out.join("protocol.h"), &constants)?;
    compile(&out, &constants)
}

/// Names and numbers of the protocol.
fn constants(protocol: &str) -> Result<Vec<(String, String)>, String> {
    let lines = protocol.lines().filter_map(|line| line.strip_prefix("pub const "));
    lines.map(|line| constant(line).ok_or(format!("{PROTOCOL}: no plain number: {line}"))).collect()
}

fn constant(line: &str) -> Option<(String, String)> {
    let (name, rest) = line.split_once(": u")?;
    let (_, number) = rest.strip_suffix(';')?.split_once(" = ")?;
    let number = number.replace('_', "");
    let digits = number.strip_prefix("0x").unwrap_or(&number);
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| (name.to_owned(), number))
}

fn write_header(path: &Path, constants: &[(String, String)]) -> Result<(), String> {
    let defines = constants.iter().map(|(name, number)| format!("#define {name} {number}\n"));
    let text = format!("/* Made of {PROTOCOL}. */\n{}", defines.collect::<String>());
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The linker script learns the borders of the image from the same constants.
fn compile(out: &Path, constants: &[(String, String)]) -> Result<(), String> {
    let borders = constants.iter().filter(|(name, _)| name.starts_with("IMAGE_"));
    let status = Command::new("gcc")
        .args(FLAGS)
        .args(borders.map(|(name, number)| format!("-Wl,--defsym,{name}={number}")))
        .arg("-I")
        .arg(out)
        .args(["-T", LINKER_SCRIPT, "-o"])
        .arg(out.join("microguest.elf"))
        .args(sources()?)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("gcc could not build the microguest: {status}")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err("gcc is not installed: the microguest needs it".into())
        }
        Err(error) => Err(format!("cannot start gcc: {error}")),
    }
}

fn sources() -> Result<Vec<PathBuf>, String> {
    let unreadable = |error| format!("cannot list guest: {error}");
    let mut sources = Vec::new();
    for entry in fs::read_dir("guest").map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let source = path.extension().is_some_and(|extension| extension == "c" || extension == "S");
        sources.extend(source.then_some(path));
    }
    // A directory has no order of its own; the image is to be the same each time.
    sources.sort();
    Ok(sources)
}

fn text_of(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))
}
