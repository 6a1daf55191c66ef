//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  corten run vm.yaml                          boot it; Ctrl-] leaves it running, Ctrl-C powers it off
  corten run vm.yaml secrets.yaml --volume data=/srv/data.img
  corten run vm.yaml --exit-status --timeout 300 --junit result.xml < /dev/null
  corten validate manifests/*.yaml            what of them Corten runs, and what not
  corten ps                                   the VMs of this user
  corten console first                        back to a console that was left

Exit status: 0 if all went well, 1 for errors, 2 for a wrong command line, 3 for a refused manifest, 4 where KVM cannot
run the guest; of `run` and `restore` also how the VM ended: 80 killed, 81 guest panic, 82 triple fault, 83 KVM error,
84 not started, 85 and 86 errors of the VM process, 87 saved, 124 timed out; with --exit-status the guest's own, or 88
if it told none.";

const RUN_EXAMPLES: &str = "\
Examples:
  corten run vm.yaml --images images/         images by the names that archives in that directory have
  corten run vm.yaml --image registry/disk:1=disk.tar --volume data=/dev/sdb1
  corten run vm.yaml secrets.yaml --detach    what it refers to comes from another file
  corten run vm.yaml --bridge lan=br0         its network lan is the bridge br0 of this machine
  cat vm.yaml | corten run - --no-network
  corten run job.yaml --exit-status --timeout 300 --junit result.xml </dev/null

At the terminal Ctrl-] leaves the VM running, Ctrl-C presses its power button, and once more kills it.";

const PS_EXAMPLES: &str = "\
Examples:
  corten ps                                   those of this user
  corten ps --json | jq -r '.[].name'";

const CONSOLE_EXAMPLES: &str = "\
Examples:
  corten console first                        Ctrl-] leaves it again
  corten console first --take                 though somebody else has the keyboard";

const INFO_EXAMPLES: &str = "\
Examples:
  corten info first
  corten info first --json | jq .state";

const STOP_EXAMPLES: &str = "\
Examples:
  corten stop first                           it has as long as its manifest says
  corten stop first --grace 60";

const KILL_EXAMPLES: &str = "\
Example:
  corten kill first                           as if its power was cut; `corten stop` lets the guest shut down";

const PAUSE_EXAMPLES: &str = "\
Example:
  corten pause first                          then: corten resume first";

const RESUME_EXAMPLES: &str = "\
Example:
  corten resume first                         also of one that was started paused, or for a disk that failed";

const FREEZE_EXAMPLES: &str = "\
Example:
  corten freeze first && cp --reflink=always data.img copy.img; corten thaw first

It takes a guest that runs the QEMU guest agent; `corten info first` says whether it is connected.";

const THAW_EXAMPLES: &str = "\
Example:
  corten thaw first                           after corten freeze first, before its time is over";

const SAVE_EXAMPLES: &str = "\
Examples:
  corten save first /var/tmp/first            then: corten restore /var/tmp/first
  corten save first /var/tmp/first --keep-running";

const RESTORE_EXAMPLES: &str = "\
Examples:
  corten restore /var/tmp/first               what `corten save first /var/tmp/first` wrote
  corten restore /var/tmp/first --name second --detach
  corten restore /var/tmp/first --force-disk data   though data was written to since";

const LOGS_EXAMPLES: &str = "\
Examples:
  corten logs first                           what it has said
  corten logs first --follow | grep login:    and what it says from now on";

const VALIDATE_EXAMPLES: &str = "\
Examples:
  corten validate vm.yaml manifests/*.yaml    status 0 only if nothing is refused
  corten validate vm.yaml --json | jq '.[].findings'
  kubectl get vmi first -o yaml | corten validate -";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  corten explain spec.domain.memory
  corten explain spec.domain.devices.disks.cache";

const COMPLETION_EXAMPLES: &str = "\
Examples:
  corten completion bash >/etc/bash_completion.d/corten
  source <(corten completion zsh)             for this shell only";

const VERSION_EXAMPLES: &str = "\
Example:
  corten version                              the same as corten --version";

/// Runs VirtualMachineInstances on this machine, without a cluster.
#[derive(Debug, Parser)]
#[command(name = "corten", version, after_help = EXAMPLES)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
pub struct Options {
    /// Directory in which VMs have their run directories [default: /run/corten, or $XDG_RUNTIME_DIR/corten]
    #[arg(long, global = true, value_name = "DIR")]
    pub runtime: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Options {
    /// The command line; what it leaves open is as the environment says.
    pub fn of_this_process() -> Self {
        let mut options = Self::parse();
        options.complete(|name| std::env::var_os(name));
        options
    }

    /// What a shell completes: all but commands that are nobody's to type, which would be offered otherwise.
    pub fn shown() -> clap::Command {
        let all = Self::command();
        let commands = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
        let about = all.get_about().cloned().unwrap_or_default();
        clap::Command::new("corten")
            .version(env!("CARGO_PKG_VERSION"))
            .about(about)
            .disable_help_subcommand(true)
            .args(all.get_arguments().cloned())
            .subcommands(commands)
    }

    /// Fills in what `environment` says of it. A variable that is empty is as good as none, as shells have it.
    fn complete(&mut self, environment: impl Fn(&str) -> Option<OsString>) {
        let fill = |option: &mut Option<PathBuf>, name| {
            let said = || environment(name).filter(|said| !said.is_empty()).map(PathBuf::from);
            *option = option.take().or_else(said);
        };
        fill(&mut self.runtime, "CORTEN_RUNTIME");
        let how = match &mut self.command {
            Command::Run(run) => {
                fill(&mut run.cache, "CORTEN_IMAGE_CACHE");
                &mut run.how
            }
            Command::Restore(restore) => &mut restore.how,
            _ => return,
        };
        fill(&mut how.scratch, "TMPDIR");
        fill(&mut how.vmm, "CORTEN_VMM");
    }
}

/// A command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Boot the VM of a manifest and show its console
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<Run>),
    /// List the VMs that run
    #[command(after_help = PS_EXAMPLES)]
    Ps(Listing),
    /// Attach to the console of a VM; Ctrl-] leaves it
    #[command(after_help = CONSOLE_EXAMPLES)]
    Console(Console),
    /// Tell how a VM is
    #[command(after_help = INFO_EXAMPLES)]
    Info(OfOne),
    /// Press the power button, and kill the VM when its grace period is over
    #[command(after_help = STOP_EXAMPLES)]
    Stop(Stop),
    /// End a VM at once
    #[command(after_help = KILL_EXAMPLES)]
    Kill(Named),
    /// Stop the processors of a VM
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(Named),
    /// Let a paused VM go on
    #[command(after_help = RESUME_EXAMPLES)]
    Resume(Named),
    /// Have the guest's agent hold its file systems still, so that copies of its disks are consistent
    #[command(after_help = FREEZE_EXAMPLES)]
    Freeze(Freeze),
    /// Let the guest's file systems go on
    #[command(after_help = THAW_EXAMPLES)]
    Thaw(Named),
    /// Write a VM to a directory and end it
    #[command(after_help = SAVE_EXAMPLES)]
    Save(Save),
    /// Go on with a saved VM
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(Box<Restore>),
    /// Print what a VM said on its console
    #[command(after_help = LOGS_EXAMPLES)]
    Logs(Logs),
    /// Check manifests without running anything
    #[command(after_help = VALIDATE_EXAMPLES)]
    Validate(Validate),
    /// Say what a field of a manifest is for, and whether Corten does it
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(Explain),
    /// Print a completion script
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion {
        /// For which shell
        shell: Shell,
    },
    /// Print the version
    #[command(after_help = VERSION_EXAMPLES)]
    Version,
    /// Keep a VM: what `run` starts
    #[command(hide = true)]
    Supervise,
}

/// `corten run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Manifests: one VirtualMachineInstance or VirtualMachine among all of them, and Secrets, ConfigMaps and claims that it
    /// refers to; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Name to run it under, instead of its own
    #[arg(long)]
    pub name: Option<String>,
    /// File or block device in the place of a claim, data volume or disk of the host; directory in the place of a service
    /// account's
    #[arg(long = "volume", value_name = "NAME=PATH")]
    pub volumes: Vec<Assignment>,
    /// Directory, OCI layout or archive that has the image of this name
    #[arg(long = "image", value_name = "NAME=PATH")]
    pub images: Vec<Assignment>,
    /// Directory with OCI layouts and archives, in which images are looked for by name
    #[arg(long = "images", value_name = "DIR")]
    pub image_dir: Option<PathBuf>,
    /// Directory in which what was unpacked of images is kept [default: /var/cache/corten, or ~/.cache/corten]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// How it runs.
    #[command(flatten)]
    pub how: How,
}

/// How a VM is run.
#[derive(Debug, Args)]
pub struct How {
    /// Leave it running in the background once it runs
    #[arg(long, short, conflicts_with_all = ["exit_status", "junit"])]
    pub detach: bool,
    /// Bridge of this machine that takes the place of the network of this name, which Multus' need; without a name, of all
    /// networks that no other one names
    #[arg(long = "bridge", value_name = "[NETWORK=]BRIDGE", conflicts_with = "no_network")]
    pub bridges: Vec<BridgeOf>,
    /// Leave out all network interfaces
    #[arg(long)]
    pub no_network: bool,
    /// Directory for empty disks and what a guest writes to images, which end with it [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub scratch: Option<PathBuf>,
    /// End with the guest's own status, which it writes to /dev/virtio-ports/org.corten.exit
    #[arg(long)]
    pub exit_status: bool,
    /// Kill the VM after so many seconds, and end with status 124
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub timeout: Option<u32>,
    /// Write the outcome to this file, as a test case
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Also write the console to this file
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// No line for each phase
    #[arg(long, short)]
    pub quiet: bool,
    /// What becomes of system calls that the VM process should not make: `log` lets them pass
    #[arg(long, value_enum, default_value_t = Seccomp::Enforce, value_name = "MODE")]
    pub seccomp: Seccomp,
    /// Program of the VM process [default: corten-vmm beside this one, or in the PATH]
    #[arg(long, value_name = "PATH")]
    pub vmm: Option<PathBuf>,
    /// Take any KVM, also one that cannot run Linux
    #[arg(long, hide = true)]
    pub any_kvm: bool,
}

/// What becomes of forbidden system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Seccomp {
    /// They end the VM.
    Enforce,
    /// The kernel logs them.
    Log,
}

/// `corten ps`.
#[derive(Debug, Args)]
pub struct Listing {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A command about one VM.
#[derive(Debug, Args)]
pub struct Named {
    /// Name of the VM
    pub name: String,
}

/// `corten info`.
#[derive(Debug, Args)]
pub struct OfOne {
    /// Name of the VM
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `corten console`.
#[derive(Debug, Args)]
pub struct Console {
    /// Name of the VM
    pub name: String,
    /// Take the keyboard from whoever has it
    #[arg(long)]
    pub take: bool,
}

/// `corten stop`.
#[derive(Debug, Args)]
pub struct Stop {
    /// Name of the VM
    pub name: String,
    /// Seconds until it is killed [default: the manifest's terminationGracePeriodSeconds]
    #[arg(long, value_name = "SECONDS")]
    pub grace: Option<u32>,
}

/// `corten freeze`.
#[derive(Debug, Args)]
pub struct Freeze {
    /// Name of the VM
    pub name: String,
    /// Seconds until they are thawed if nobody does it before [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub limit: Option<u32>,
}

/// `corten save`.
#[derive(Debug, Args)]
pub struct Save {
    /// Name of the VM
    pub name: String,
    /// Directory to write to; it is made
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Let the VM go on afterwards: what is saved then fits only disks that are not written to any more
    #[arg(long)]
    pub keep_running: bool,
}

/// `corten restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// Directory that `corten save` wrote
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Name to run it under, instead of its own
    #[arg(long)]
    pub name: Option<String>,
    /// Disk that is taken as it is, though it may have been written to since; a block device has to be
    #[arg(long = "force-disk", value_name = "VOLUME")]
    pub force_disks: Vec<String>,
    /// Leave it paused
    #[arg(long)]
    pub paused: bool,
    /// How it runs.
    #[command(flatten)]
    pub how: How,
}

/// `corten logs`.
#[derive(Debug, Args)]
pub struct Logs {
    /// Name of the VM
    pub name: String,
    /// Go on until the VM ends
    #[arg(long, short)]
    pub follow: bool,
}

/// `corten validate`.
#[derive(Debug, Args)]
pub struct Validate {
    /// Manifests, each with any number of documents; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `corten explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// Path of the field, from `spec.` on
    #[arg(value_name = "PATH")]
    pub path: String,
}

/// A name and what stands for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The name.
    pub name: String,
    /// What stands for it.
    pub path: PathBuf,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Names of images have no `=`, paths may.
        match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => {
                Ok(Self { name: name.into(), path: path.into() })
            }
            _ => Err("it is not NAME=PATH".into()),
        }
    }
}

/// A bridge of this machine, and what it takes the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeOf {
    /// The network; none for all that no other bridge is named for.
    pub network: Option<String>,
    /// The bridge.
    pub bridge: String,
}

impl FromStr for BridgeOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (network, bridge) = match text.split_once('=') {
            Some((network, bridge)) => (Some(network), bridge),
            None => (None, text),
        };
        if network == Some("") || bridge.is_empty() {
            return Err("it is neither BRIDGE nor NETWORK=BRIDGE".into());
        }
        Ok(Self { network: network.map(Into::into), bridge: bridge.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from([&["corten"], arguments].concat())
    }

    #[test]
    fn command_line_is_consistent() {
        Options::command().debug_assert();
    }

    #[test]
    fn every_command_shows_how_it_is_used() {
        for mut command in Options::command().get_subcommands().cloned() {
            let help = command.render_help().to_string();
            let is_shown = help.contains(&format!("\n  corten {} ", command.get_name()))
                || help.contains(&format!("\n  corten {}\n", command.get_name()));
            assert!(is_shown || command.is_hide_set(), "{help}");
        }
    }

    #[test]
    fn hidden_command_is_not_shown_to_whoever_names_none() {
        let text = parse(&[]).unwrap_err().to_string();
        assert!(text.contains("corten run") && !text.contains("supervise"), "{text}");
    }

    #[test]
    fn empty_variable_is_as_good_as_none() {
        let completed = |arguments: &[&str], value: &'static str| {
            let mut options = parse(arguments).unwrap();
            options.complete(|name| Some(format!("{value}{}", &name[..value.len()]).into()));
            let Command::Run(run) = options.command else { unreachable!() };
            (options.runtime, run.cache, run.how.scratch, run.how.vmm)
        };
        assert_eq!(completed(&["run", "a.yaml"], ""), (None, None, None, None));
        let (runtime, cache, scratch, vmm) =
            completed(&["run", "a.yaml", "--vmm", "v", "--runtime", "r"], "/");
        assert_eq!((runtime, vmm), (Some("r".into()), Some("v".into())));
        assert_eq!((cache, scratch), (Some("/C".into()), Some("/T".into())));
    }

    #[test]
    fn assignments_have_a_name_and_a_path() {
        let assignment: Assignment = "registry/a:1=/x=y".parse().unwrap();
        assert_eq!(assignment.name, "registry/a:1");
        assert_eq!(assignment.path, PathBuf::from("/x=y"));
        for text in ["", "a", "=x", "a="] {
            assert!(text.parse::<Assignment>().is_err(), "{text}");
        }
    }

    #[test]
    fn bridges_are_of_one_network_or_of_all_others() {
        let of = |text: &str| text.parse::<BridgeOf>().unwrap();
        assert_eq!(of("br0"), BridgeOf { network: None, bridge: "br0".into() });
        let named = BridgeOf { network: Some("ns/lan".into()), bridge: "br1".into() };
        assert_eq!(of("ns/lan=br1"), named);
        for text in ["", "=br0", "lan="] {
            assert!(text.parse::<BridgeOf>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for arguments in [
            &["run"][..],
            &["run", "a.yaml", "--detach", "--exit-status"],
            &["run", "a.yaml", "--timeout", "0"],
            &["run", "a.yaml", "--bridge", "br0", "--no-network"],
            &["stop"],
            &["freeze", "first", "--limit", "0"],
            &["freeze", "first", "--limit", "3601"],
            &["validate"],
            &["completion", "cmd"],
        ] {
            assert!(parse(arguments).is_err(), "{arguments:?}");
        }
        assert!(parse(&["run", "a.yaml", "--detach"]).is_ok());
    }
}
