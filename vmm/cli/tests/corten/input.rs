//! Manifests and command lines, good and bad: one clear message, a status that says so, and nothing left behind.

use std::fs::File;
use std::process::Stdio;

use anyhow::{Result, ensure};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};

use crate::rig::{FOR_EVER, POWER_OFF, Rig, kvm_is_good, read};

/// The VMI of all cases, with something laid over a field.
fn with(pointer: &str, value: Value) -> Value {
    let mut vmi = Rig::vmi("first", POWER_OFF);
    let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
    if let Some(parent) = vmi.pointer_mut(parent) {
        parent[field] = value;
    }
    vmi
}

#[test]
fn bad_objects_are_refused_by_the_path_of_the_field() -> Result<()> {
    let rig = Rig::new()?;
    let disks = json!([{"name": "data", "disk": {}}]);
    let cases = [
        (with("/spec/domain/memory", json!({"guest": "lots"})), 3, "spec.domain.memory.guest: "),
        (with("/spec/domain/memory", json!({})), 3, "spec.domain.memory.guest: "),
        (with("/spec/domain/cpu", json!({"cores": -1})), 3, "spec.domain.cpu.cores"),
        (with("/spec/domain/devices/disks", disks), 3, "spec.domain.devices.disks[0].name: "),
        (
            with("/spec/domain/devices/gpus", json!([{"name": "g", "deviceName": "d"}])),
            3,
            "spec.domain.devices.gpus",
        ),
        (with("/spec/nonsense", json!(1)), 3, "spec.nonsense"),
        (
            with("/metadata/name", json!("Not A Name")),
            3,
            "metadata.name: \"Not A Name\" is no name",
        ),
        (with("/metadata/name", json!("../../etc")), 3, "metadata.name: "),
        (with("/metadata/nonsense", json!({})), 3, "metadata.nonsense: "),
        (with("/spec/nothing", json!({})), 3, "spec.nothing: "),
        (with("/spec/domain/memory", json!({"guest": "15Ei"})), 3, "spec.domain.memory.guest: "),
        (with("/spec/domain/machine", json!({"type": "x"})), 3, "spec.domain.machine.type: "),
        (with("/spec/co\u{1b}lour", json!(1)), 3, "spec.co\\u{1b}lour: "),
        (
            with("/spec/domain/firmware/serial", json!("x".repeat(1025))),
            3,
            "spec.domain.firmware.serial: ",
        ),
        (
            with("/spec/domain/firmware/kernelBoot/kernelArgs", json!("x".repeat(2048))),
            3,
            "spec.domain.firmware.kernelBoot.kernelArgs: ",
        ),
        (with("/spec/dnsConfig", json!({"searches": ["a b"]})), 3, "spec.dnsConfig.searches[0]: "),
        (
            with("/spec/domain/firmware/kernelBoot/container/image", json!("!!")),
            3,
            "spec.domain.firmware.kernelBoot.container.image: ",
        ),
        (with("/spec/domain/devices/rng", json!({"x": 1})), 3, "spec.domain.devices.rng.x: "),
        (with("/metadata/namespace", json!("../..")), 3, "metadata.namespace: "),
    ];
    for (vmi, status, text) in cases {
        let mut running = rig.run(&vmi, &[])?;
        running.close_input();
        let ended = running.end()?.with(status)?.said(text)?;
        ensure!(ended.stdout.is_empty(), "{}", ended.stdout);
        // Both say the same of the object.
        rig.file("object", &vmi.to_string())?;
        let judged = rig.corten(&["validate", "object"])?.with(status)?;
        ensure!(judged.stdout.contains(text), "{}", judged.stdout);
    }
    rig.is_clean(&[])
}

#[test]
fn what_is_missing_on_this_machine_is_said_with_what_to_do() -> Result<()> {
    let rig = Rig::new()?;
    let container = |image: &str, kernel: &str| json!({"image": image, "kernelPath": kernel, "imagePullPolicy": "Never"});
    let boot = "/spec/domain/firmware/kernelBoot/container";
    let volumes = |volume: Value| {
        let mut vmi = with("/spec/volumes", json!([volume]));
        vmi["spec"]["domain"]["devices"]["disks"] = json!([{"name": "data", "disk": {}}]);
        vmi
    };
    let claim = volumes(json!({"name": "data", "persistentVolumeClaim": {"claimName": "c"}}));
    let secret = volumes(json!({"name": "data", "cloudInitNoCloud": {"secretRef": {"name": "s"}}}));
    let cases = [
        (with(boot, container("other", "/boot/kernel")), "; say by --image NAME=PATH where it is"),
        (
            with(boot, container("other", "/boot/kernel")),
            "kernelBoot.container.image: image docker.io/library/other:latest is not in the cache ",
        ),
        (
            with(boot, container("microguest", "/boot/nothing")),
            "kernelPath: cannot open /boot/nothing",
        ),
        (claim, "--volume c=PATH"),
        (secret, "spec.volumes[0].cloudInitNoCloud"),
    ];
    for (vmi, text) in cases {
        let mut running = rig.run(&vmi, &[])?;
        running.close_input();
        running.end()?.with(84)?.said(text)?;
    }
    rig.is_clean(&[])
}

#[test]
fn pipe_among_images_is_passed_over_and_one_in_the_place_of_an_image_refused() -> Result<()> {
    let rig = Rig::new()?;
    std::fs::create_dir(rig.path("images"))?;
    mkfifo(&rig.path("images/pipe"), Mode::S_IRWXU)?;
    let container = "/spec/domain/firmware/kernelBoot/container";
    let image = json!({"image": "other:1", "kernelPath": "/k", "imagePullPolicy": "Never"});
    let vmi = with(container, image);
    let path = "spec.domain.firmware.kernelBoot.container.image: ";
    for (option, value, why) in [
        ("--images", "images", "is not in the cache"),
        ("--image", "other:1=images/pipe", "it is a pipe, not a file"),
    ] {
        let mut running = rig.run(&vmi, &[option, value])?;
        running.close_input();
        running.end()?.with(84)?.said(path)?.said(why)?;
    }
    rig.is_clean(&[])
}

/// What only the VM process finds out is told by its field too.
#[test]
fn what_cannot_be_booted_is_told_by_the_path_of_the_field() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("image/boot/empty", "")?;
    rig.file("image/boot/text", &"no kernel at all\n".repeat(1000))?;
    let kernel = "/spec/domain/firmware/kernelBoot/container/kernelPath";
    let path = "started: spec.domain.firmware.kernelBoot.container.kernelPath: cannot boot: cannot load the kernel: ";
    let memory = "started: spec.domain.memory.guest: cannot boot: ";
    let cases = [
        (with(kernel, json!("/boot/empty")), path, "the file is empty"),
        (with(kernel, json!("/boot/text")), path, "not an ELF kernel"),
        (
            with("/spec/domain/memory", json!({"guest": "1Mi"})),
            memory,
            " MiB of guest memory: give the guest more",
        ),
    ];
    for (vmi, place, why) in cases {
        let mut running = rig.run(&vmi, &[])?;
        running.close_input();
        running.end()?.with(84)?.said(place)?.said(why)?;
    }
    rig.is_clean(&[])
}

#[test]
fn fields_of_a_template_are_told_as_the_document_has_them() -> Result<()> {
    let rig = Rig::new()?;
    let template = |vmi: &Value| {
        let spec = json!({"runStrategy": "Always", "template": {"spec": vmi["spec"]}});
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": vmi["metadata"], "spec": spec})
    };
    let mut map =
        with("/spec/volumes", json!([{"name": "data", "configMap": {"name": "missing"}}]));
    map["spec"]["domain"]["devices"]["disks"] = json!([{"name": "data", "disk": {}}]);
    let cases = [
        (map, "spec.template.spec.volumes[0].configMap: "),
        (
            with("/spec/domain/memory", json!({"guest": "1Mi"})),
            "spec.template.spec.domain.memory.guest: ",
        ),
    ];
    for (vmi, place) in cases {
        let mut running = rig.run(&template(&vmi), &[])?;
        running.close_input();
        running.end()?.with(84)?.said(&format!("started: {place}"))?;
    }
    rig.is_clean(&[])
}

#[test]
fn bad_files_and_command_lines_are_refused() -> Result<()> {
    let rig = Rig::new()?;
    let vmi = Rig::vmi("first", POWER_OFF).to_string();
    rig.file("yaml", "a: [1\n")?;
    rig.file("text", "just text\n")?;
    rig.file("none", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n")?;
    rig.file("two", &format!("{vmi}\n---\n{vmi}\n"))?;
    rig.file("good", &vmi)?;
    rig.file("empty", "")?;
    let cases: [(&[&str], i32, &str); 10] = [
        (&["run", "missing"], 3, "cannot read missing"),
        (&["run", "yaml"], 3, "yaml: "),
        (&["run", "text"], 3, "text, document 1: it is no object"),
        (&["run", "none"], 3, "no VirtualMachineInstance or VirtualMachine"),
        (&["run", "empty"], 3, "no VirtualMachineInstance or VirtualMachine"),
        (&["run", "two"], 3, "more than one VM"),
        (&["run", "good", "--vmm", "/nonexistent"], 1, "/nonexistent"),
        (&["run", "good", "--name", "../up"], 1, "is no name"),
        (&["run"], 2, "FILE"),
        (&["walk"], 2, "walk"),
    ];
    for (arguments, status, text) in cases {
        rig.corten(arguments)?.with(status)?.said(text)?;
    }
    rig.is_clean(&[])
}

#[test]
fn machine_whose_kvm_cannot_run_linux_says_so_and_points_to_the_lab() -> Result<()> {
    if kvm_is_good() {
        return Ok(());
    }
    let rig = Rig::new()?;
    rig.file("good", &Rig::vmi("first", POWER_OFF).to_string())?;
    rig.corten(&["run", "good", "--junit", "result.xml"])?.with(4)?.said("scripts/lab")?;
    let xml = read(&rig.path("result.xml"))?;
    ensure!(xml.contains("name=\"first\"") && xml.contains("errors=\"1\""), "{xml}");
    rig.is_clean(&[])
}

#[test]
fn report_says_that_a_manifest_was_refused_or_a_vm_not_started() -> Result<()> {
    let rig = Rig::new()?;
    let report = || read(&rig.path("result.xml"));
    let bad = with("/spec/domain/memory", json!({"guest": "lots"}));
    rig.file("bad", &bad.to_string())?;
    rig.corten(&["run", "bad", "--junit", "result.xml"])?.with(3)?;
    ensure!(
        report()?.contains("name=\"bad\"") && report()?.contains("errors=\"1\""),
        "{}",
        report()?
    );
    ensure!(report()?.contains("&#10;  spec.domain.memory.guest: "), "{}", report()?);
    rig.corten(&["run", "missing", "--junit", "result.xml"])?.with(3)?;
    ensure!(report()?.contains("<error message=\"cannot read missing"), "{}", report()?);
    let image = with("/spec/domain/firmware/kernelBoot/container/image", json!("other:1"));
    let mut running = rig.run(&image, &["--image", "other:1=missing", "--junit", "result.xml"])?;
    running.close_input();
    running.end()?.with(84)?;
    ensure!(report()?.contains("<error message=\"the VM could not be started"), "{}", report()?);
    rig.is_clean(&[])
}

#[test]
fn files_that_cannot_be_written_are_found_out_before_anything_is_started() -> Result<()> {
    let rig = Rig::new()?;
    let vmi = Rig::vmi("first", POWER_OFF);
    for option in ["--junit", "--log"] {
        let mut running = rig.run(&vmi, &[option, "no/such/file"])?;
        running.close_input();
        let ended = running.end()?.with(1)?.said("no/such; make it first")?;
        ensure!(!ended.stderr.contains(" after "), "it was started: {}", ended.stderr);
        let mut running = rig.run(&vmi, &[option, "."])?;
        running.close_input();
        running.end()?.with(1)?.said("cannot write ")?;
    }
    rig.is_clean(&[])
}

#[test]
fn log_that_cannot_be_written_any_more_is_told() -> Result<()> {
    let rig = Rig::new()?;
    let more = ["--log", "/dev/full", "--quiet"];
    let mut running = rig.run(&Rig::vmi("first", POWER_OFF), &more)?;
    running.close_input();
    let ended = running.end()?.with(0)?.said("--log: cannot write /dev/full: No space left")?;
    ensure!(ended.stderr.matches("--log").count() == 1, "{}", ended.stderr);
    rig.is_clean(&[])
}

#[test]
fn vm_whose_console_cannot_be_written_is_gone_before_the_command_is() -> Result<()> {
    let rig = Rig::new()?;
    let arguments = rig.run_arguments(&Rig::vmi("first", FOR_EVER))?;
    let full = File::options().write(true).open("/dev/full")?;
    let mut command = rig.command()?;
    command.args(arguments).stdin(Stdio::null()).stdout(full).stderr(Stdio::piped());
    let output = command.spawn()?.wait_with_output()?;
    let left = std::fs::read_dir(rig.path("run"))?.count();
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && left == 0, "{left} left: {output:?}");
    ensure!(words.contains("cannot write to standard output: No space left"), "{words}");
    rig.is_clean(&[])
}

#[test]
fn name_of_the_command_line_takes_the_place_of_one_that_is_none() -> Result<()> {
    let rig = Rig::new()?;
    for name in ["Not A Name", ""] {
        let mut running = rig.run(&Rig::vmi(name, POWER_OFF), &["--name", "other"])?;
        running.close_input();
        running.end()?.with(0)?.said("other: the guest powered off")?;
    }
    let mut running = rig.run(&Rig::vmi("first", POWER_OFF), &["--name", "Not A Name"])?;
    running.close_input();
    running.end()?.with(1)?.said("\"Not A Name\" is no name: ")?;
    rig.is_clean(&[])
}

#[test]
fn volumes_and_images_that_are_not_used_are_told() -> Result<()> {
    let rig = Rig::new()?;
    let more = ["--volume", "data=/dev/null", "--image", "microgest=image"];
    let mut running = rig.run(&Rig::vmi("first", POWER_OFF), &more)?;
    running.close_input();
    let ended = running.end()?.with(0)?;
    let ended = ended.said("corten: warning: --volume data is not used: this VM has no claim")?;
    let ended =
        ended.said("corten: warning: --image microgest is not used: ")?.said("but microguest\n")?;
    ensure!(ended.stderr.matches("warning").count() == 2, "{}", ended.stderr);
    rig.is_clean(&[])
}

/// As `head` does once it has what it wants.
#[test]
fn reader_that_goes_away_is_no_error() -> Result<()> {
    let rig = Rig::new()?;
    rig.file("good", &Rig::vmi("first", POWER_OFF).to_string())?;
    let bad = with("/spec/domain/memory", json!({"guest": "lots"}));
    rig.file("bad", &bad.to_string())?;
    rig.detached("first", FOR_EVER)?;
    let cases: [(&[&str], i32); 9] = [
        (&["completion", "fish"], 0),
        (&["--help"], 0),
        (&["ps"], 0),
        (&["info", "first", "--json"], 0),
        (&["logs", "first"], 0),
        (&["logs", "first", "--follow"], 0),
        (&["explain", "spec.domain"], 0),
        (&["validate", "good", "--json"], 0),
        (&["validate", "bad"], 3),
    ];
    for (arguments, status) in cases {
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let mut command = rig.command()?;
        command.args(arguments).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
        let output = command.spawn()?.wait_with_output()?;
        let words = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(status), "{arguments:?}: {output:?}");
        ensure!(!words.contains("panicked") && !words.contains("pipe"), "{arguments:?}: {words}");
    }
    rig.corten(&["kill", "first"])?.with(0)?;
    rig.is_clean(&[])
}

#[test]
fn validate_judges_every_document_of_every_file() -> Result<()> {
    let rig = Rig::new()?;
    let good = Rig::vmi("first", POWER_OFF);
    let bad = with("/spec/domain/memory", json!({"guest": "lots"}));
    rig.file("good", &format!("{good}\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\n"))?;
    rig.file("bad", &bad.to_string())?;
    rig.file("worse", ": :\n- [\n")?;
    rig.file("empty", "# nothing yet\n")?;
    rig.corten(&["validate", "empty"])?.with(3)?.said("empty: there is no object in it")?;
    let ended = rig.corten(&["validate", "good"])?.with(0)?;
    ensure!(ended.stdout.contains("VirtualMachineInstance first: accepted"), "{}", ended.stdout);
    ensure!(ended.stdout.contains("Pod p: passed over"), "{}", ended.stdout);
    let ended = rig.corten(&["validate", "worse", "bad", "good"])?.with(3)?;
    ensure!(ended.stdout.contains("\n  spec.domain.memory.guest: "), "{}", ended.stdout);
    ensure!(ended.stdout.contains("first: accepted"), "{}", ended.stdout);
    let verdicts = rig.corten(&["validate", "bad", "--json"])?.with(3)?.stdout;
    let verdicts: Value = serde_json::from_str(&verdicts)?;
    ensure!(verdicts[0]["outcome"] == "refused", "{verdicts}");
    ensure!(verdicts[0]["findings"][0]["path"] == "spec.domain.memory.guest", "{verdicts}");
    rig.file("odd", &format!("{good}\n---\napiVersion: v1\nkind: 5\n---\n[1]\n"))?;
    let odd = rig.corten(&["validate", "odd", "missing", "--json"])?.with(3)?;
    let odd = odd.said("odd, document 2: kind: 5 is no text")?.said("cannot read missing")?.stdout;
    let odd: Value = serde_json::from_str(&odd)?;
    let outcomes = ["accepted", "unreadable", "unreadable", "unreadable"];
    for (index, outcome) in outcomes.into_iter().enumerate() {
        ensure!(odd[index]["outcome"] == outcome, "{odd}");
    }
    ensure!(odd[3]["error"].as_str().is_some_and(|error| error.contains("missing")), "{odd}");
    Ok(())
}

#[test]
fn help_version_explanations_and_completion_are_there() -> Result<()> {
    let rig = Rig::new()?;
    ensure!(rig.corten(&["--help"])?.with(0)?.stdout.contains("Examples:"));
    let bare = rig.corten(&[])?.with(2)?.said("Examples:")?;
    ensure!(!bare.stderr.contains("supervise"), "{}", bare.stderr);
    // A variable that is empty says nothing.
    let mut command = rig.command()?;
    command.env("TMPDIR", "").env("CORTEN_RUNTIME", "").env("XDG_RUNTIME_DIR", rig.path("run"));
    let output = command.arg("ps").stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(rig.corten(&["version"])?.with(0)?.stdout.starts_with("corten "));
    let text = rig.corten(&["explain", "spec.domain.memory"])?.with(0)?.stdout;
    ensure!(text.contains("spec.domain.memory\n  .guest: served\n"), "{text}");
    rig.corten(&["explain", "spec.nothing"])?.with(1)?;
    rig.corten(&["explain", "spec.hostname.foo.bar"])?.with(1)?;
    for shell in ["bash", "zsh", "fish"] {
        let script = rig.corten(&["completion", shell])?.with(0)?.stdout;
        ensure!(script.contains("restore") && script.contains("runtime"), "{script}");
        ensure!(!script.contains("supervise"), "{script}");
    }
    Ok(())
}

/// The least that is not a manifest, or not one of ours: whoever named the wrong file is told which, and why.
#[test]
fn files_of_every_wrong_kind_are_refused_in_one_message() -> Result<()> {
    let rig = Rig::new()?;
    let vmi = Rig::vmi("first", POWER_OFF).to_string();
    std::fs::create_dir(rig.path("directory"))?;
    std::fs::write(rig.path("binary"), [0x7f, b'E', b'L', b'F', 0xff, 0xfe, 0, 1])?;
    rig.file("huge", &" ".repeat((16 << 20) + 1))?;
    rig.file("other-version", &vmi.replace("kubevirt.io/v1", "kubevirt.io/v9"))?;
    rig.file("indented", "apiVersion: v1\nmetadata:\n  name: a\n  - b\n")?;
    // Small, and 9 to the power of 7 when it is written out.
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..7 {
        let inner = vec![format!("*a{}", level - 1); 9].join(",");
        bomb += &format!("a{level}: &a{level} [{inner}]\n");
    }
    rig.file("bomb", &bomb)?;
    let list = with("/spec/domain/memory", json!({"guest": [256]}));
    rig.file("list", &list.to_string())?;
    let word = with("/spec/domain/cpu", json!({"cores": "many"}));
    rig.file("word", &word.to_string())?;
    let cases = [
        ("directory", "cannot read directory: "),
        ("binary", "binary is no text in UTF-8"),
        ("huge", "huge has more than 16 MiB: is it a manifest?"),
        ("other-version", "no VirtualMachineInstance or VirtualMachine of kubevirt.io/v1"),
        ("indented", "indented: line 4, column "),
        ("bomb", "bomb: line "),
        ("list", "\n  spec.domain.memory.guest: a list is not an amount such as \"256Mi\""),
        ("word", "\n  spec.domain.cpu.cores: \"many\" is not a whole number"),
    ];
    for (file, text) in cases {
        let ended = rig.corten(&["run", file])?.with(3)?.said(text)?;
        ensure!(ended.stdout.is_empty(), "{file}: {}", ended.stdout);
        ensure!(ended.stderr.matches("corten: ").count() == 1, "{file}: {}", ended.stderr);
        // An object of another version is passed over, as it may be somebody else's.
        rig.corten(&["validate", file])?.with(if file == "other-version" { 0 } else { 3 })?;
    }
    rig.is_clean(&[])
}

/// Files that the command line names, and that are not what they should be.
#[test]
fn volumes_and_images_of_every_wrong_kind_are_refused_in_one_message() -> Result<()> {
    let rig = Rig::new()?;
    std::fs::create_dir(rig.path("empty"))?;
    rig.file("text", "just text\n")?;
    let mut vmi =
        with("/spec/volumes", json!([{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]));
    vmi["spec"]["domain"]["devices"]["disks"] = json!([{"name": "d", "disk": {}}]);
    let image = with("/spec/domain/firmware/kernelBoot/container/image", json!("other:1"));
    let claim = "spec.volumes[0].persistentVolumeClaim: ";
    let cases = [
        (&vmi, ["--volume", "c=missing"], claim, "missing: No such file"),
        (&vmi, ["--volume", "c=empty"], claim, "empty/disk.img does not exist"),
        (&image, ["--image", "other:1=missing"], "container.image: ", "missing: No such file"),
        (&image, ["--image", "other:1=text"], "container.image: ", "text is neither an OCI image"),
    ];
    for (vmi, more, path, text) in cases {
        let mut running = rig.run(vmi, &more)?;
        running.close_input();
        let ended = running.end()?.with(84)?.said(path)?.said(text)?;
        ensure!(ended.stderr.matches("could not be started").count() == 1, "{}", ended.stderr);
    }
    rig.is_clean(&[])
}

#[test]
fn service_account_is_a_directory_that_the_command_line_names() -> Result<()> {
    let rig = Rig::new()?;
    std::fs::create_dir(rig.path("account"))?;
    rig.file("account/token", "secret")?;
    let vmi = with(
        "/spec/volumes",
        json!([{"name": "token", "serviceAccount": {"serviceAccountName": "default"}}]),
    );
    let mut running = rig.run(&vmi, &[])?;
    running.close_input();
    let path = "spec.volumes[0].serviceAccount: ";
    running.end()?.with(84)?.said(path)?.said("say by --volume token=DIR")?;
    for name in ["token", "default"] {
        let mut running = rig.run(&vmi, &["--volume", &format!("{name}=account")])?;
        running.close_input();
        running.end()?.with(0)?;
    }
    rig.is_clean(&[])
}
