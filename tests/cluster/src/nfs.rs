//! The NFS server of the lab: a user-space one, on the machine, in the cluster's network namespace.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use corten_lab::qemu::Process;

use crate::addresses::MACHINE;
use crate::control_plane::Places;
use crate::storage::{NFS_DIRECTORIES, NFS_EXPORT};

/// The running server. Its files go with the run directory.
#[derive(Debug)]
pub struct Server {
    /// Its process.
    pub process: Process,
}

impl Server {
    /// Starts it with empty directories; clients wait for it by themselves.
    pub fn start(root: &Path, places: &Places) -> Result<Self> {
        let (export, state) = (places.run.join("nfs"), places.run.join("nfs-state"));
        fs::create_dir(&state)?;
        for directory in 1..=NFS_DIRECTORIES {
            let directory = export.join(directory.to_string());
            fs::create_dir_all(&directory)?;
            // For whichever user a Pod runs as.
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o777))?;
        }
        let configuration = places.run.join("nfs.conf");
        fs::write(&configuration, settings(root, &export, &state))?;
        let arguments = [
            // Its libraries are beside it, not where the system's are.
            library_path(root)?,
            root.join("usr/bin/ganesha.nfsd").into(),
            "-F".into(),
            "-f".into(),
            configuration.into(),
            "-p".into(),
            places.run.join("nfs.pid").into(),
            "-L".into(),
            places.logs.join("nfs.log").into(),
        ];
        let output = places.logs.join("nfs-output.log");
        let process = Process::start(Path::new("/usr/bin/env"), &arguments, &[], &output)
            .context("cannot start the NFS server")?;
        Ok(Self { process })
    }
}

fn library_path(root: &Path) -> Result<OsString> {
    let directories = ["usr/lib/ganesha", "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
    let mut assignment = OsString::from("LD_LIBRARY_PATH=");
    assignment.push(std::env::join_paths(directories.map(|directory| root.join(directory)))?);
    Ok(assignment)
}

fn settings(root: &Path, export: &Path, state: &Path) -> String {
    let plugins = root.join("usr/lib/x86_64-linux-gnu/ganesha");
    let (plugins, export, state) = (plugins.display(), export.display(), state.display());
    format!(
        r#"NFS_CORE_PARAM {{
    NFS_Protocols = 4;
    Bind_addr = {MACHINE};
    Enable_NLM = false;
    Enable_RQUOTA = false;
    Plugins_Dir = "{plugins}";
}}
NFSv4 {{
    # Not 2: this version's READ_PLUS shows Linux clients zeros in place of data.
    Minor_Versions = 0, 1;
    Graceless = true;
    Only_Numeric_Owners = true;
    UseGetpwnam = true;
    RecoveryBackend = fs;
    RecoveryRoot = "{state}";
}}
NFS_KRB5 {{ Active_krb5 = false; }}
EXPORT {{
    Export_Id = 1;
    Path = "{export}";
    Pseudo = "{NFS_EXPORT}";
    Access_Type = RW;
    Squash = No_Root_Squash;
    SecType = sys;
    Transports = TCP;
    FSAL {{ Name = VFS; }}
}}
"#
    )
}
