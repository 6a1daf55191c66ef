//! Guests that the lab brings, booted by a stock VMM on the node's KVM: proof that both are real.

use anyhow::{Context, Result, ensure};
use corten_tests::lab::{in_node, lab, own_tests, own_tests_in_node};

/// A shell function that boots a guest on the node's KVM with Debian's QEMU and shows its console.
const BOOT: &str = r#"
boot() { # boot KERNEL INITRD COMMAND-LINE [further options of QEMU]
    local kernel=$1 initrd=$2 line=$3
    shift 3
    timeout 240 qemu-system-x86_64 -M q35 -accel kvm -cpu host -m 512 -nodefaults -no-user-config -display none \
        -no-reboot -serial stdio -kernel "$kernel" -initrd "$initrd" \
        -append "console=ttyS0 quiet mitigations=off $line" "$@" </dev/null
}
"#;

fn boot_script(script: &str) -> String {
    format!("{BOOT}{script}")
}

#[test]
fn long_stock_kernels_of_both_forms_reach_userspace() -> Result<()> {
    let script = r#"
        for kernel in "$CORTEN_ASSET_KERNEL_6_1_CLOUD" "$CORTEN_ASSET_KERNEL_6_12"; do
            case $kernel in
            *cloud*) initrd=$CORTEN_ASSET_GUEST_INITRD_6_1_CLOUD/initrd ;;
            *) initrd=$CORTEN_ASSET_GUEST_INITRD_6_12/initrd ;;
            esac
            for form in vmlinux vmlinuz; do
                echo "== $form $(cat "$kernel/version")"
                boot "$kernel/$form" "$initrd" corten.end=poweroff
            done
        done"#;
    let assets = [
        "--asset=kernel-6.1-cloud",
        "--asset=kernel-6.12",
        "--asset=guest-initrd-6.1-cloud",
        "--asset=guest-initrd-6.12",
    ];
    let output = in_node(&assets, &boot_script(script))?.success()?;
    assert_eq!(output.matches("CORTEN-GUEST-UP").count(), 4, "{output}");
    Ok(())
}

/// What tests with Linux guests find in the environment. Files for disks lie where the cage can be written to.
const OUR_GUESTS: [&str; 6] = [
    "--env=TMPDIR=/dev/shm",
    "--asset=kernel-6.1-cloud",
    "--asset=kernel-6.12",
    "--asset=guest-initrd-6.1-cloud",
    "--asset=guest-initrd-6.12",
    "--asset=guest-tools-disk",
];

fn on_our_machine(options: &[&str], filter: &str) -> Result<()> {
    own_tests_in_node(&[options, &OUR_GUESTS].concat(), &[filter]).map(drop)
}

const GUEST_DISKS: [&str; 4] =
    ["--cage", "--asset=guest-tiny-disk", "--asset=guest-tiny-qcow2", "--asset=guest-debian-qcow2"];
const TWO_TAPS: [&str; 3] = ["--cage", "--tap=left:2", "--tap=right"];

/// Not in the cage: whoever hands descriptors in opens /dev/vhost-net and makes TAPs.
#[test]
fn vhost_moves_packets_in_a_node_of_each_kernel() -> Result<()> {
    for kernel in ["6.12", "6.1"] {
        own_tests_in_node(&["--kernel", kernel], &["vhost::"])?;
    }
    Ok(())
}

/// Not in the cage: the command is its own launcher. Whoever has root's rights there is the command, not the VM.
const EXAMPLES: [&str; 5] = [
    "--env=TMPDIR=/dev/shm",
    "--asset=guest-tools-disk",
    "--asset=kernel-boot-6.12",
    "--asset=container-disk-tiny",
    "--asset=guest-tiny-disk",
];

fn examples_run(tests: &[&str]) -> Result<()> {
    own_tests_in_node(&[&EXAMPLES[..], &["--isolated"]].concat(), tests).map(drop)
}

/// What one node does within the time of a test: each boots a guest or two, of which an emulated node takes half a
/// minute. Those in a network are apart, and so are those for which an ordinary run has no time.
const ORDINARY: [&str; 3] = ["run::kernel_boot_", "run::container_disk_", "run::nothing_"];
const NETWORKED: [&str; 2] = ["run::guest_behind_", "run::guest_in_the_place_of_a_pod_"];
const OF_HARDWARE: [&str; 4] =
    ["run::disks_are_found_", "run::disk_boots_", "run::four_processors_", "run::another_user_"];
const OF_LIFE: [&str; 4] =
    ["run::guest_tells_", "run::guest_agent_", "run::restored_", "run::saved_"];
const OF_DEBIAN: [&str; 1] = ["run::long_"];

#[test]
fn examples_run_without_a_cluster() -> Result<()> {
    examples_run(&ORDINARY)
}

#[test]
fn examples_with_networks_run_without_a_cluster() -> Result<()> {
    examples_run(&NETWORKED)
}

#[test]
fn long_everything_of_a_guest_without_a_cluster() -> Result<()> {
    examples_run(&OF_HARDWARE)?;
    examples_run(&OF_LIFE)
}

#[test]
fn every_example_is_run_by_one_of_these() -> Result<()> {
    let groups = [&ORDINARY[..], &NETWORKED, &OF_HARDWARE, &OF_LIFE, &OF_DEBIAN].concat();
    let listed = own_tests("run::")?;
    ensure!(!listed.is_empty());
    for test in listed {
        let found = groups.iter().filter(|group| test.starts_with(**group)).count();
        ensure!(found == 1, "{test} is run {found} times");
    }
    Ok(())
}

/// Debian with systemd and cloud-init takes minutes to boot in a guest of an emulated node.
#[test]
fn long_debian_example_runs_without_a_cluster() -> Result<()> {
    let options = [&EXAMPLES[..], &["--isolated", "--asset=container-disk-debian"]].concat();
    own_tests_in_node(&options, &OF_DEBIAN).map(drop)
}

#[test]
fn stock_kernels_boot_on_our_machine_in_the_cage() -> Result<()> {
    on_our_machine(&["--cage"], "linux::")
}

#[test]
fn our_machine_is_as_it_was_described_in_the_cage() -> Result<()> {
    on_our_machine(&["--cage"], "inside::")
}

#[test]
fn disks_work_on_our_machine_in_the_cage() -> Result<()> {
    on_our_machine(&["--cage"], "disks::")
}

#[test]
fn disks_work_on_our_machine_where_the_cage_has_no_rings() -> Result<()> {
    on_our_machine(&["--cage=default"], "disks::both_sides_see_the_same_through")
}

#[test]
fn networks_work_on_our_machine_in_the_cage() -> Result<()> {
    on_our_machine(&TWO_TAPS, "networks::")
}

#[test]
fn disks_of_images_work_on_our_machine_in_the_cage() -> Result<()> {
    on_our_machine(&["--cage", "--asset=guest-tiny-disk", "--asset=guest-tiny-qcow2"], "images::")
}

#[test]
fn volumes_are_found_by_a_guest_on_our_machine_in_the_cage() -> Result<()> {
    on_our_machine(&["--cage", "--asset=guest-tiny-qcow2"], "volumes::")
}

#[test]
fn guests_boot_from_their_disks_on_our_machine_in_the_cage() -> Result<()> {
    on_our_machine(&GUEST_DISKS, "diskboot::")
}

/// Groups of which an ordinary run has no time for every test: the rest runs below.
const DIVIDED: [&str; 5] = ["diskboot::", "disks::", "linux::", "memory::", "networks::"];

#[test]
fn every_test_that_takes_long_is_run_by_one_of_these() -> Result<()> {
    let whole = [
        "agents", "cage", "consoles", "images", "inside", "odyssey", "sockets", "vhost", "volumes",
    ];
    for group in whole {
        let left_out = own_tests(&format!("{group}::long_"))?;
        ensure!(left_out.is_empty(), "{left_out:?} are run by nobody");
    }
    for group in DIVIDED {
        ensure!(!own_tests(&format!("{group}long_"))?.is_empty(), "{group} is not divided");
    }
    Ok(())
}

#[test]
fn long_kernels_end_and_begin_in_every_way_in_the_cage() -> Result<()> {
    on_our_machine(&["--cage"], "linux::long_")?;
    on_our_machine(&["--cage"], "memory::long_")
}

#[test]
fn long_disks_of_every_kind_work_and_boot_in_the_cage() -> Result<()> {
    on_our_machine(&["--cage"], "disks::long_")?;
    on_our_machine(&GUEST_DISKS, "diskboot::long_")
}

#[test]
fn long_networks_work_by_vhost_in_the_cage() -> Result<()> {
    on_our_machine(&TWO_TAPS, "networks::long_")
}

#[test]
fn long_guest_on_our_machine_in_the_cage_loses_nothing_on_its_odyssey() -> Result<()> {
    on_our_machine(&["--cage", "--tap=left", "--asset=guest-tiny-qcow2"], "odyssey::")
}

#[test]
fn sockets_work_on_our_machine_in_the_cage() -> Result<()> {
    on_our_machine(&["--cage"], "sockets::")
}

#[test]
fn consoles_work_on_our_machine_in_the_cage() -> Result<()> {
    on_our_machine(&["--cage"], "consoles::")
}

#[test]
fn agents_work_on_our_machine_in_the_cage() -> Result<()> {
    on_our_machine(&["--cage", "--tap=left"], "agents::")
}

#[test]
fn memory_comes_back_from_our_machine_in_the_cage() -> Result<()> {
    on_our_machine(&["--cage"], "memory::")
}

#[test]
fn long_stock_kernel_boots_on_our_machine_in_a_node_of_linux_6_1() -> Result<()> {
    on_our_machine(&["--cage", "--kernel=6.1"], "linux::vmlinux_6_12")?;
    on_our_machine(&["--cage", "--kernel=6.1"], "disks::both_sides_see_the_same_through")
}

#[test]
fn guest_runs_the_script_its_command_line_names() -> Result<()> {
    let script = r#"
        cd /tmp
        mkdir scripts
        echo 'echo "kernel $(uname -r), $(nproc) cpu"; exit 5' >scripts/look
        find scripts | busybox cpio -o -H newc 2>/dev/null | cat "$CORTEN_ASSET_GUEST_INITRD_6_12/initrd" - >initrd
        boot "$CORTEN_ASSET_KERNEL_6_12/vmlinux" initrd corten.script=look"#;
    let assets = ["--asset=kernel-6.12", "--asset=guest-initrd-6.12"];
    let output = in_node(&assets, &boot_script(script))?.success()?;
    assert!(output.contains("kernel 6.12.") && output.contains(", 1 cpu"), "{output}");
    assert!(output.contains("CORTEN-SCRIPT-EXIT 5"), "{output}");
    Ok(())
}

#[test]
fn long_tiny_disk_boots_by_its_own_boot_configuration() -> Result<()> {
    let script = r#"
        mount -o ro /dev/sda1 /mnt
        linux=$(sed -n 's/^\s*linux\s*//p' /mnt/boot/grub/grub.cfg | head -n 1)
        initrd=$(sed -n 's/^\s*initrd\s*//p' /mnt/boot/grub/grub.cfg | head -n 1)
        cp "/mnt${linux%% *}" /tmp/kernel
        cp "/mnt$initrd" /tmp/initrd
        boot /tmp/kernel /tmp/initrd "${linux#* } corten.end=poweroff" \
            -drive file="$CORTEN_ASSET_GUEST_TINY_QCOW2/disk.qcow2",format=qcow2,if=virtio,snapshot=on"#;
    let disk = asset("guest-tiny-disk")?;
    let options = ["--asset=guest-tiny-qcow2", "--disk", &format!("{disk}/disk.raw")];
    let output = in_node(&options, &boot_script(script))?.success()?;
    assert!(output.contains("CORTEN-GUEST-UP"), "{output}");
    Ok(())
}

#[test]
fn archives_are_oci_layouts_of_the_guests() -> Result<()> {
    let archives = [
        ("container-disk-tiny", "disk/disk.qcow2"),
        ("kernel-boot-6.12", "boot/vmlinux"),
        ("kernel-boot-6.1-cloud", "boot/initrd"),
    ];
    let mut script = String::new();
    for (name, path) in archives {
        script += &format!(
            "mkdir /tmp/{name}; cd /tmp/{name}; tar -xf {}/image.tar; grep -q imageLayoutVersion oci-layout; \
             for blob in blobs/sha256/*; do echo \"${{blob##*/}}  $blob\"; done | sha256sum --check --quiet; \
             for blob in blobs/sha256/*; do tar -tf $blob 2>/dev/null || true; done | grep -q {path}$ && echo found; \
             cd /; rm -r /tmp/{name}\n",
            asset(name)?
        );
    }
    let output = in_node(&[], &script)?.success()?;
    assert_eq!(output.matches("found").count(), archives.len(), "{output}");
    Ok(())
}

#[test]
fn long_node_is_saved_and_restored_with_a_guest_running_in_it() -> Result<()> {
    let name = format!("--name=guest-{}", std::process::id());
    let saved = format!("guest-{}", std::process::id());
    // Nothing the guest uses may lie on the host's directories, which a saved node has left.
    let start = r#"
        cp "$CORTEN_ASSET_KERNEL_6_12/vmlinux" "$CORTEN_ASSET_GUEST_INITRD_6_12/initrd" /tmp
        cd /tmp
        boot vmlinux initrd corten.end=tick >/tmp/console 2>&1 &
        until grep -q CORTEN-TICK /tmp/console; do kill -0 $! || { cat /tmp/console; exit 1; }; sleep 0.2; done"#;
    let assets = ["--asset=kernel-6.12", "--asset=guest-initrd-6.12"];
    lab(&["up", &name, "--isolated"])?.success()?;
    let start = boot_script(start);
    let started = lab(&[&["exec", &name], &assets[..], &["--", "bash", "-euc", &start]].concat());
    let result = started.and_then(|outcome| {
        outcome.success()?;
        lab(&["save", &name, &saved])?.success()
    });
    if result.is_err() {
        let _ = lab(&["down", &name]);
    }
    result?;
    for _ in 0..2 {
        let script = "ticks() { grep -c CORTEN-TICK /tmp/console; }; before=$(ticks); \
                      until [ $(ticks) -gt $((before + 2)) ]; do sleep 0.2; done; echo $before $(ticks)";
        let output = in_node(&["--from", &saved], script)?.success()?;
        let counts: Vec<u32> =
            output.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        ensure!(counts[0] >= 1 && counts[1] > counts[0], "{output}");
    }
    lab(&["forget", &saved])?.success()?;
    assert_eq!(lab(&["run", "--from", &saved, "--", "true"])?.status, 125);
    Ok(())
}

/// Debian with systemd and cloud-init takes minutes to boot in a guest of an emulated node.
#[test]
fn long_debian_disk_boots_to_a_login_by_its_own_boot_configuration() -> Result<()> {
    let script = r#"
        mount -o ro /dev/sda1 /mnt
        grep -q "^menuentry 'Debian GNU/Linux'" /mnt/boot/grub/grub.cfg
        test -x /mnt/usr/bin/cloud-init && test -x /mnt/usr/sbin/qemu-ga
        linux=$(sed -n 's/^\s*linux\s*//p' /mnt/boot/grub/grub.cfg | head -n 1)
        initrd=$(sed -n 's/^\s*initrd\s*//p' /mnt/boot/grub/grub.cfg | head -n 1)
        cp "/mnt${linux%%[[:space:]]*}" /tmp/kernel
        cp "/mnt$initrd" /tmp/initrd
        # A seed for cloud-init, as a VMI's cloudInitNoCloud volume is one.
        mkdir /tmp/seed
        mkfs.vfat -n CIDATA -C /tmp/seed.img 4096 >/dev/null
        mount -o loop /tmp/seed.img /tmp/seed
        echo 'instance-id: lab' >/tmp/seed/meta-data
        printf '#cloud-config\nhostname: seeded\nruncmd:\n- [sh, -c, "echo agent $(systemctl is-active qemu-guest-agent) >/dev/ttyS0"]\n' >/tmp/seed/user-data
        umount /tmp/seed
        timeout 500 qemu-system-x86_64 -M q35 -accel kvm -cpu host -m 1024 -nodefaults -no-user-config -display none \
            -no-reboot -serial stdio -kernel /tmp/kernel -initrd /tmp/initrd -append "${linux#*[[:space:]]}" \
            -drive file="$CORTEN_ASSET_GUEST_DEBIAN_QCOW2/disk.qcow2",format=qcow2,if=virtio,snapshot=on \
            -drive file=/tmp/seed.img,format=raw,if=virtio,readonly=on -device virtio-serial-pci \
            -chardev null,id=agent -device virtserialport,chardev=agent,name=org.qemu.guest_agent.0 \
            </dev/null >/tmp/console 2>&1 &
        until grep -q 'Cloud-init .* finished' /tmp/console && grep -q 'agent ' /tmp/console; do
            kill -0 $! || { cat /tmp/console; exit 1; }
            sleep 1
        done
        cat /tmp/console"#;
    let disk = asset("guest-debian-disk")?;
    let disk = format!("{disk}/disk.raw");
    let options = ["--asset=guest-debian-qcow2", "--disk", &disk, "--time-limit", "540"];
    let output = in_node(&options, script)?.success()?;
    assert!(output.contains("seeded login:") || output.contains("debian login:"), "{output}");
    assert!(output.contains("agent active"), "{output}");
    Ok(())
}

fn asset(name: &str) -> Result<String> {
    let output = lab(&["assets", name])?.success()?;
    let path = output.split_whitespace().nth(1).context("no path")?;
    Ok(path.into())
}
