//! `corten-lab oci`: writes an image from the command line.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use thiserror::Error;

use super::{Config, Image, ImageError, LayerFormat};

/// Write an OCI image archive of some files, without a container engine.
#[derive(Clone, Debug, Args)]
pub struct OciArgs {
    /// Name of the image, with its tag.
    #[arg(long)]
    pub name: String,
    /// Archive to write.
    #[arg(long)]
    pub output: PathBuf,
    /// Program that a container of the image starts, or one of its arguments; may be repeated.
    #[arg(long, allow_hyphen_values = true)]
    pub entrypoint: Vec<String>,
    /// Environment variable, as NAME=VALUE; may be repeated.
    #[arg(long)]
    pub env: Vec<String>,
    /// User of containers, as UID or UID:GID.
    #[arg(long, default_value = "")]
    pub user: String,
    /// Symbolic link; may be repeated.
    #[arg(long = "link", value_name = "TARGET=/DST", value_parser = parse_link)]
    pub links: Vec<(String, String)>,
    /// Compress the layer.
    #[arg(long)]
    pub gzip: bool,
    /// Files: SRC=/DST, or SRC=/DST:MODE:UID:GID (MODE octal). Without the latter a file belongs to root and has mode
    /// 755 if it can be executed, 644 otherwise.
    #[arg(required = true, value_name = "SRC=/DST")]
    pub files: Vec<FileArg>,
}

/// A file for the image, as said on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileArg {
    source: PathBuf,
    path: String,
    /// Mode, uid, gid.
    access: Option<(u32, u32, u32)>,
}

/// Why an argument names no file.
#[derive(Debug, Error)]
#[error("{0:?} is neither SRC=/DST nor SRC=/DST:MODE:UID:GID")]
pub struct FileArgError(String);

impl FromStr for FileArg {
    type Err = FileArgError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| FileArgError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<FileArg> {
    // The first "=/": a source may have "=" in its name, a target starts with a slash.
    let (source, target) = text.split_at(text.find("=/")?);
    let mut parts = target[1..].split(':');
    let path = parts.next()?.to_owned();
    let access = match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (None, ..) => None,
        (Some(mode), Some(uid), Some(gid), None) => {
            let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777)?;
            Some((mode, uid.parse().ok()?, gid.parse().ok()?))
        }
        _ => return None,
    };
    (!source.is_empty()).then(|| FileArg { source: source.into(), path, access })
}

fn parse_link(text: &str) -> Result<(String, String), FileArgError> {
    let (target, path) = text.split_once('=').ok_or_else(|| FileArgError(text.to_owned()))?;
    Ok((target.to_owned(), path.to_owned()))
}

/// Writes the image and returns the digest of its manifest.
pub fn run(args: &OciArgs) -> Result<String, ImageError> {
    let config = Config {
        entrypoint: args.entrypoint.clone(),
        env: args.env.clone(),
        user: args.user.clone(),
    };
    let format = if args.gzip { LayerFormat::Gzip } else { LayerFormat::Plain };
    let mut image = Image::new(&args.name).config(config).layer_format(format);
    for file in &args.files {
        let (mode, uid, gid) = match file.access {
            Some(access) => access,
            None => (usual_mode(&file.source)?, 0, 0),
        };
        image = image.file(&file.source, &file.path, mode, uid, gid);
    }
    for (target, path) in &args.links {
        image = image.link(target, path);
    }
    image.write(&args.output)
}

fn usual_mode(source: &Path) -> Result<u32, ImageError> {
    let metadata = fs::metadata(source)
        .map_err(|error| ImageError::Read { path: source.to_owned(), source: error })?;
    Ok(if metadata.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        oci: OciArgs,
    }

    fn file(source: &str, path: &str, access: Option<(u32, u32, u32)>) -> FileArg {
        FileArg { source: source.into(), path: path.to_owned(), access }
    }

    #[test]
    fn file_arguments_are_understood() {
        for (text, expected) in [
            ("a=/b", file("a", "/b", None)),
            ("/x=y/a=/b/c", file("/x=y/a", "/b/c", None)),
            ("a=/b:0440:107:108", file("a", "/b", Some((0o440, 107, 108)))),
        ] {
            assert_eq!(text.parse::<FileArg>().unwrap(), expected);
        }
    }

    #[test]
    fn other_file_arguments_are_refused() {
        for text in
            ["", "a", "a=b", "=/b", "a=/b:644", "a=/b:9:0:0", "a=/b:644:0:0:0", "a=/b:10000:0:0"]
        {
            assert!(text.parse::<FileArg>().is_err(), "{text}");
        }
    }

    #[test]
    fn command_writes_the_image() {
        let directory = tempfile::tempdir().unwrap();
        let (source, output) = (directory.path().join("s"), directory.path().join("image.tar"));
        fs::write(&source, b"content").unwrap();
        let file = format!("{}=/bin/s", source.display());
        let output = output.display().to_string();
        let arguments = [
            "oci",
            "--name",
            "n:1",
            "--output",
            &output,
            "--entrypoint",
            "/bin/s",
            "--gzip",
            &file,
        ];
        let digest = run(&Command::parse_from(arguments).oci).unwrap();
        assert!(digest.starts_with("sha256:"));
        assert!(fs::metadata(&output).unwrap().len() > 2048);
    }
}
