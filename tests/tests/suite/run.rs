//! Every example of resources/examples, run by the `corten` command that is shipped. Runs in a node, as root, where `guests`
//! starts it: the command makes networks and locks the VM process in.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corten_tests::command::{Rig, example, images, status_field};
use corten_tests::guest::{AGENT, PLACE_FOR_AGENT, TOOLS};
use serde_json::Value;

/// From the guest's first words to when it waits for its power button.
const LISTENING: Duration = Duration::from_secs(2);

/// The other side of a pair of links, with addresses that are for documentation.
struct Outside;

/// What listens there.
const ANSWER: &str = "hello from outside";

impl Outside {
    fn new() -> Result<Self> {
        shell(&format!(
            "ip netns add outside
             ip link add near type veth peer name far netns outside
             ip address add 192.0.2.1/24 dev near
             ip address add 2001:db8::1/64 dev near nodad
             ip link set near up
             ip -n outside address add 192.0.2.2/24 dev far
             ip -n outside address add 2001:db8::2/64 dev far nodad
             ip -n outside link set far up
             mkdir -p /tmp/outside
             echo '{ANSWER}' >/tmp/outside/index.html
             ip netns exec outside busybox httpd -p 9000 -h /tmp/outside"
        ))?;
        Ok(Self)
    }

    /// The first page of a server, asked for from there.
    fn get(host: &str) -> Result<String> {
        let script = format!(
            r"exec 3<>/dev/tcp/{host}; printf 'GET / HTTP/1.0\r\n\r\n' >&3; timeout 30 cat <&3"
        );
        let mut command = Command::new("ip");
        let output = command.args(["netns", "exec", "outside", "bash", "-c", &script]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = shell(
            "ip netns pids outside | xargs -r kill
             ip link del near
             ip netns del outside",
        );
    }
}

fn shell(script: &str) -> Result<()> {
    let output = Command::new("bash").args(["-euc", script]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// From the start in the background to the power button, with a look at what the VM process may do meanwhile.
#[test]
fn kernel_boot_runs_in_the_background_locked_in_and_is_stopped() -> Result<()> {
    let rig = Rig::new()?;
    let started = rig.run_through("vmi-kernel-boot", &["--detach"])?.with(0)?;
    ensure!(started.stdout == "first\n", "{}", started.stdout);
    for phase in ["images after ", "disks after ", "VM process after ", "running after "] {
        let line = format!("first: {phase}");
        ensure!(started.stderr.contains(&line), "no {line:?} in:\n{}", started.stderr);
    }
    rig.wait_for_log("first", "CORTEN-GUEST-UP")?;
    let listed = rig.corten(&["ps"])?.with(0)?.stdout;
    ensure!(listed.contains("\nfirst  running  1 "), "{listed}");
    rig.start(&["run", &example("vmi-kernel-boot")])?
        .end()?
        .with(84)?
        .said("first runs already")?;

    let process = rig.info("first")?["process"].as_i64().context("no VM process")?;
    for (field, expected) in [
        ("Uid", "107\t107\t107\t107"),
        ("Gid", "107\t107\t107\t107"),
        ("Groups", ""),
        ("CapInh", "0000000000000000"),
        ("CapPrm", "0000000000000000"),
        ("CapEff", "0000000000000000"),
        ("CapBnd", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ] {
        let found = status_field(process, field)?;
        ensure!(found == expected, "{field}: {found:?}, not {expected:?}");
    }
    ensure!(fs::read_dir(format!("/proc/{process}/root/"))?.count() == 0, "its root has files");

    let console = rig.start(&["console", "first"])?;
    console.wait_for("CORTEN-GUEST-UP")?;
    std::thread::sleep(LISTENING);
    rig.corten(&["stop", "first"])?.with(0)?;
    console.end()?.with(0)?.has_line("CORTEN-BUTTON")?.said("the guest powered off")?;
    rig.corten(&["stop", "first"])?.with(1)?.said("no VM \"first\" runs")?;
    rig.is_clean(&[])
}

#[test]
fn container_disk_is_made_what_its_user_data_says() -> Result<()> {
    let rig = Rig::new()?;
    rig.run_through("vmi-container-disk-cloud-init", &[])?
        .with(0)?
        .said("greeter: boots from after ")?
        .said("greeter: the guest powered off")?
        .has_line("USER uid=1000(ada)")?
        .has_line("FILE written at the first boot")?
        .has_line("HOST greeter")?;
    rig.is_clean(&[])
}

/// What the guest's own cloud-init made of it, and the status that it told.
#[test]
fn long_debian_is_made_what_its_cloud_config_says() -> Result<()> {
    let rig = Rig::new()?;
    let mut running = rig.run("vmi-debian-cloud-init", &["--exit-status", "--timeout", "500"])?;
    running.close_input();
    running
        .end_within(Duration::from_secs(520))?
        .with(0)?
        .said("it told status 0")?
        .has_line("USER uid=1000(ada)")?
        .has_line("FILE written by cloud-init")?
        .has_line("HOST greeter")?;
    rig.is_clean(&[])
}

#[test]
fn disk_boots_by_itself_and_is_one_vms_alone() -> Result<()> {
    let rig = Rig::new()?;
    let asset = std::env::var("CORTEN_ASSET_GUEST_TINY_DISK")?;
    let disk = rig.path("tiny.raw").display().to_string();
    shell(&format!("cp --sparse=always {asset}/disk.raw {disk}"))?;
    let volume = format!("tiny={disk}");
    let started = rig.run_through("vmi-disk-boot", &["--volume", &volume, "--detach"])?.with(0)?;
    ensure!(started.stderr.contains(" of root, partition 1)"), "{}", started.stderr);
    rig.wait_for_log("tiny", "CORTEN-GUEST-UP")?;
    rig.run_through("vmi-disk-boot", &["--volume", &volume, "--name", "other"])?
        .with(84)?
        .said("spec.volumes[0].persistentVolumeClaim: ")?
        .said("VM tiny (process ")?;
    std::thread::sleep(LISTENING);
    rig.corten(&["stop", "tiny"])?.with(0)?;
    rig.is_clean(&["tiny.raw"])
}

#[test]
fn disks_are_found_by_their_serials_and_data_stay() -> Result<()> {
    let rig = Rig::new()?;
    let data = rig.path("data.raw");
    fs::File::create(&data)?.set_len(8 << 20)?;
    let volume = format!("data={}", data.display());
    rig.run_through("vmi-two-disks", &["--volume", &volume])?
        .with(0)?
        .has_line("DISK root ")?
        .has_line("DISK data 8 MiB")?
        .has_line("DISK scratch 64 MiB")?
        .has_line("WRITTEN yes")?;
    ensure!(fs::read(&data)?.starts_with(b"the guest was here\n"), "nothing was written");
    rig.is_clean(&["data.raw"])
}

#[test]
fn guest_behind_this_machine_reaches_out_and_is_reached() -> Result<()> {
    let _outside = Outside::new()?;
    let rig = Rig::new()?;
    let mut running = rig.run("vmi-masquerade", &[])?;
    running.wait_for("SERVING 10.0.2.2/24")?;
    for host in ["192.0.2.1/8080", "2001:db8::1/8080"] {
        let page = Outside::get(host)?;
        ensure!(page.ends_with("hello from the guest\n"), "{host} from outside: {page:?}");
    }
    for host in ["127.0.0.1:8080", "[::1]:8080"] {
        let mut stream =
            TcpStream::connect(host).with_context(|| format!("cannot reach {host}"))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        ensure!(page.ends_with("hello from the guest\n"), "{host}: {page:?}");
    }
    // Its console is a shell. What is typed comes back, so the marks are no part of it.
    running.write("echo 4-$(wget -qO- http://192.0.2.2:9000/)\n")?;
    running.wait_for(&format!("\n4-{ANSWER}"))?;
    running.write("echo 6-$(wget -qO- http://[2001:db8::2]:9000/)\n")?;
    running.wait_for(&format!("\n6-{ANSWER}"))?;
    running.write("exit\n")?;
    running.end()?.with(0)?;
    rig.is_clean(&[])
}

/// A guest in the place of a Pod, whose manifest says what it is told with its address.
const NAMED: &str = r#"apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: named}
spec:
  dnsPolicy: None
  dnsConfig: {nameservers: [192.0.2.53], searches: [example.org]}
  hostname: guest
  subdomain: web
  domain:
    memory: {guest: 256Mi}
    devices:
      interfaces:
        - name: default
          bridge: {}
          ports: [{port: 8080}]
          dhcpOptions: {bootFileName: pxelinux.0, tftpServerName: tftp.example, ntpServers: [192.0.2.123]}
    firmware:
      kernelBoot:
        kernelArgs: console=ttyS0 quiet corten.modules=virtio_net corten.script=cidata corten.end=shell
        container:
          image: corten.test/kernel-boot-6.12:1
          kernelPath: /boot/vmlinux
          initrdPath: /boot/initrd
  networks:
    - name: default
      pod: {}
  volumes:
    - name: seed
      cloudInitNoCloud:
        userData: |
          #!/bin/sh
          ip link set lo up
          ip link set eth0 up
          udhcpc -i eth0 -n -q >/dev/null 2>&1
          cat >/tmp/told <<'END'
          #!/bin/sh
          [ "$1" != bound ] || echo "TOLD $hostname.$domain by $dns, $ntpsrv $tftp $bootfile"
          END
          chmod +x /tmp/told
          udhcpc -i eth0 -n -q -s /tmp/told -O hostname -O ntpsrv -O tftp -O bootfile 2>/dev/null
          mkdir -p /tmp/www
          echo 'hello from the guest' >/tmp/www/index.html
          httpd -p 8080 -h /tmp/www
          echo "SERVING $(ip -4 address show dev eth0 | awk '/inet / { print $2 }')"
"#;

#[test]
fn guest_in_the_place_of_a_pod_is_told_names_and_reached() -> Result<()> {
    let _outside = Outside::new()?;
    let rig = Rig::new()?;
    let file = rig.path("named.yaml").display().to_string();
    fs::write(&file, NAMED)?;
    let mut running = rig.run_file(&file, &[])?;
    running.wait_for(
        "TOLD guest.web.example.org by 192.0.2.53, 192.0.2.123 tftp.example pxelinux.0",
    )?;
    // Of whichever private network was free.
    running.wait_for("SERVING 1")?;
    let page = Outside::get("192.0.2.1/8080")?;
    ensure!(page.ends_with("hello from the guest\n"), "from outside: {page:?}");
    running.write("echo 4-$(wget -qO- http://192.0.2.2:9000/)\n")?;
    running.wait_for(&format!("\n4-{ANSWER}"))?;
    running.write("exit\n")?;
    running.end()?.with(0)?;
    rig.is_clean(&["named.yaml"])
}

#[test]
fn four_processors_are_there_in_the_topology_that_was_asked_for() -> Result<()> {
    let rig = Rig::new()?;
    rig.run_through("vmi-four-vcpus", &[])?
        .with(0)?
        .has_line("PROCESSORS 4")?
        .has_line("THREADS 0-1")?;
    rig.is_clean(&[])
}

#[test]
fn nothing_to_boot_is_said_and_can_be_stopped() -> Result<()> {
    let rig = Rig::new()?;
    rig.run_through("vmi-nothing-to-boot", &["--detach"])?.with(0)?;
    rig.wait_for_log("nothing", "Nothing to boot")?;
    rig.wait_for_log("nothing", "The machine waits for its power button.")?;
    rig.corten(&["stop", "nothing"])?.with(0)?;
    rig.is_clean(&[])
}

/// A guest that does its work as user data of the tiny disk, then waits for its button or ends as it says.
fn work(name: &str, script: &str) -> String {
    let script: String =
        script.lines().map(|line| format!("          {}\n", line.trim())).collect();
    format!(
        "apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {{name: {name}}}
spec:
  domain:
    memory: {{guest: 256Mi}}
    devices: {{autoattachPodInterface: false}}
  volumes:
    - name: root
      containerDisk: {{image: 'corten.test/container-disk-tiny:1'}}
    - name: work
      cloudInitNoCloud:
        userData: |
          #!/bin/sh
{script}"
    )
}

#[test]
fn guest_tells_a_status_of_its_own() -> Result<()> {
    let rig = Rig::new()?;
    // Without udev the stream is found by its name in sysfs.
    let script = r#"modprobe virtio_console
        for port in /sys/class/virtio-ports/*; do
        [ "$(cat "$port/name" 2>/dev/null)" != org.corten.exit ] || echo 7 >"/dev/${port##*/}"
        done
        echo poweroff >/run/end"#;
    let file = rig.path("work.yaml").display().to_string();
    fs::write(&file, work("work", script))?;
    let report = rig.path("result.xml").display().to_string();
    let more = ["--exit-status", "--timeout", "170", "--junit", &report];
    let mut running = rig.run_file(&file, &more)?;
    running.close_input();
    running.end()?.with(7)?.said("it told status 7")?;
    let report = fs::read_to_string(report)?;
    ensure!(report.contains("it told status 7") && report.contains("CORTEN-GUEST-UP"), "{report}");
    rig.is_clean(&["work.yaml", "result.xml"])
}

/// The QEMU guest agent in the guest, on the disk of tools, behind the one of the script.
fn with_agent() -> String {
    let disks = "modprobe virtio_console\ntools=/dev/vdc\nscratch=/dev/vdd\n";
    let script =
        format!("{disks}{TOOLS}{PLACE_FOR_AGENT}hostname greeter\n{AGENT}echo \"AGENT STARTED\"");
    script.replace('\n', "\n        ")
}

/// What the agent tells, and what it is asked to do, by the command.
#[test]
fn guest_agent_is_shown_holds_file_systems_still_and_sets_the_clock() -> Result<()> {
    let rig = Rig::new()?;
    let file = rig.path("work.yaml").display().to_string();
    let disks = "    - name: tools
      persistentVolumeClaim: {claimName: tools, readOnly: true}
    - name: scratch
      emptyDisk: {capacity: 32Mi}
";
    fs::write(&file, work("work", &with_agent()) + "\n" + disks)?;
    let tools = format!("tools={}/disk.raw", std::env::var("CORTEN_ASSET_GUEST_TOOLS_DISK")?);
    let mut running = rig.run_file(&file, &["--volume", &tools, "--detach"])?;
    running.close_input();
    running.end()?.with(0)?;
    rig.wait_for_log("work", "AGENT STARTED")?;
    let info = rig.wait_for_info("work", |info| {
        let guest = &info["guest-agent"]["guest"];
        guest["userList"].is_array() && guest["fsInfo"].is_object() && guest["hostname"].is_string()
    })?;
    let agent = &info["guest-agent"];
    ensure!(agent["connected"] == true && agent["since"].as_u64() > Some(0), "{info:#}");
    ensure!(agent["guest"]["os"]["id"] == "debian", "{info:#}");
    ensure!(agent["guest"]["hostname"] == "greeter", "{info:#}");
    ensure!(agent["guest"]["userList"][0]["userName"] == "person", "{info:#}");
    let disks = agent["guest"]["fsInfo"]["disks"].as_array().context("no file systems")?;
    let home = disks.iter().find(|disk| disk["mountPoint"] == "/home");
    ensure!(home.is_some_and(|home| home["fileSystemType"] == "ext4"), "{info:#}");
    let described = rig.corten(&["info", "work"])?.with(0)?;
    let described = described.has_line("guest agent   connected for ")?;
    described.has_line("host name     greeter")?.has_line("user          person")?;

    rig.corten(&["freeze", "work"])?.with(0)?.said("frozen")?;
    ensure!(rig.info("work")?["guest-agent"]["guest"]["fsFreezeStatus"] == "frozen");
    rig.corten(&["thaw", "work"])?.with(0)?;
    ensure!(rig.info("work")?["guest-agent"]["guest"]["fsFreezeStatus"] == "thawed");
    rig.corten(&["freeze", "work", "--limit", "1"])?.with(0)?;
    let thawed = |info: &Value| info["guest-agent"]["guest"]["fsFreezeStatus"] == "thawed";
    rig.wait_for_info("work", thawed)?;

    let clock_is_set = |info: &Value| info["guest-agent"]["clock-set"].is_u64();
    ensure!(!clock_is_set(&rig.info("work")?), "nobody has set the clock yet");
    rig.corten(&["pause", "work"])?.with(0)?;
    rig.corten(&["freeze", "work"])?.with(1)?.said("the guest is paused")?;
    // A clock that stood for less than 100 ms is left as it is.
    std::thread::sleep(Duration::from_millis(200));
    rig.corten(&["resume", "work"])?.with(0)?;
    rig.wait_for_info("work", clock_is_set)?;
    rig.corten(&["save", "work", "saved"])?.with(0)?;
    let restored = ["restore", "saved", "--detach", "--force-disk", "tools"];
    rig.corten(&restored)?.with(0)?;
    rig.wait_for_info("work", clock_is_set)?;
    rig.corten(&["stop", "work"])?.with(0)?;
    rig.is_clean(&["work.yaml", "saved"])
}

/// A guest that goes on after it was saved tells its status as before.
#[test]
fn restored_guest_tells_a_status_of_its_own() -> Result<()> {
    let rig = Rig::new()?;
    let script = r#"modprobe virtio_console
        for port in /sys/class/virtio-ports/*; do
        [ "$(cat "$port/name" 2>/dev/null)" != org.corten.exit ] || stream=/dev/${port##*/}
        done
        echo 3 >"$stream"
        echo "SAVE-ME"
        while [ ! -e /run/end ]; do
        read -r line; [ "$line" != go ] || echo poweroff >/run/end
        done </dev/ttyS0
        echo 7 >"$stream""#;
    let file = rig.path("work.yaml").display().to_string();
    fs::write(&file, work("work", script))?;
    let running = rig.run_file(&file, &["--exit-status"])?;
    running.wait_for("SAVE-ME")?;
    rig.corten(&["save", "work", "saved"])?.with(0)?;
    running.end()?.with(87)?;
    let job: Value = serde_json::from_slice(&fs::read(rig.path("saved/job.json"))?)?;
    ensure!(job["guest-status"] == 3, "{job:#}");
    let mut restored = rig.start(&["restore", "saved", "--exit-status"])?;
    restored.write("go\n")?;
    restored.end()?.with(7)?.said("it told status 7")?;
    rig.is_clean(&["work.yaml", "saved"])
}

/// What a guest wrote to the disk of an image, and has in its memory, is there when it is gone on with.
#[test]
fn saved_guest_goes_on_with_its_memory_and_its_disk() -> Result<()> {
    let rig = Rig::new()?;
    let script = r#"mount -o remount,rw /
        echo "on the disk" >/written; sync
        echo "SAVE-ME"
        while [ ! -e /run/end ]; do
        read -r line; [ "$line" != go ] || echo poweroff >/run/end
        done </dev/ttyS0
        echo 3 >/proc/sys/vm/drop_caches
        echo "AGAIN $(cat /written)""#;
    let file = rig.path("work.yaml").display().to_string();
    fs::write(&file, work("work", script))?;
    let mut running = rig.run_file(&file, &["--detach"])?;
    running.close_input();
    running.end()?.with(0)?;
    rig.wait_for_log("work", "SAVE-ME")?;
    rig.corten(&["save", "work", "saved"])?.with(0)?;
    ensure!(rig.path("saved/overlay-root").exists());
    for name in ["work", "copy"] {
        let mut restored = rig.start(&["restore", "saved", "--name", name])?;
        restored.write("go\n")?;
        restored.end()?.with(0)?.has_line("AGAIN on the disk")?;
    }
    rig.is_clean(&["work.yaml", "saved"])
}

#[test]
fn another_user_runs_a_vm_in_a_user_namespace() -> Result<()> {
    const USER: u32 = 12345;
    let rig = Rig::new()?;
    let home = rig.path("home");
    fs::create_dir(&home)?;
    chown(&home, Some(USER), Some(USER))?;
    for path in [rig.path("."), std::env::temp_dir()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    fs::set_permissions("/dev/kvm", fs::Permissions::from_mode(0o666))?;
    let corten = |arguments: &[&str]| -> Result<std::process::Output> {
        let mut command = rig.command(arguments)?;
        command.env("CORTEN_RUNTIME", home.join("run")).env("TMPDIR", &home);
        command.env("CORTEN_IMAGE_CACHE", home.join("images"));
        Ok(command.uid(USER).gid(USER).output()?)
    };
    let (file, images) = (example("vmi-kernel-boot"), images());
    let images = images.iter().flat_map(|image| ["--image", image.as_str()]);
    let arguments: Vec<&str> = ["run", &file, "--detach"].into_iter().chain(images).collect();
    let output = corten(&arguments)?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{words}");
    ensure!(words.contains("not enforced: the VM process has this user's id 12345"), "{words}");
    ensure!(!words.contains("no namespaces"), "{words}");
    let info: Value = serde_json::from_slice(&corten(&["info", "first", "--json"])?.stdout)?;
    let process = info["process"].as_i64().context("no VM process")?;
    for field in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        ensure!(status_field(process, field)? == "0000000000000000", "{field}");
    }
    ensure!(
        status_field(process, "NoNewPrivs")? == "1" && status_field(process, "Seccomp")? == "2"
    );
    ensure!(status_field(process, "Uid")?.starts_with("12345\t12345"));
    ensure!(fs::read_dir(format!("/proc/{process}/root/"))?.count() == 0, "its root has files");
    ensure!(corten(&["kill", "first"])?.status.success());
    ensure!(fs::read_dir(home.join("run"))?.count() == 0, "a run directory is left");
    rig.is_clean(&["home"])
}
