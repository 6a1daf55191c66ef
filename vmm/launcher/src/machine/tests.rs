//! Many VMIs and the machines that they give: each file of `golden` has a spec and the plan for it.

use serde_json::{Value, json};

use super::*;

const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn vmi(spec: Value) -> VirtualMachineInstance {
    let metadata = json!({"namespace": "default", "name": "first", "uid": UID});
    let mut object = json!({"metadata": metadata});
    object["spec"] = spec;
    serde_json::from_value(object).unwrap()
}

/// What a host would find: container disks in qcow2, claims and the like on a file system with sectors, the rest in memory.
fn found(vmi: &VirtualMachineInstance) -> Resolved {
    let place = |volume: &corten_resources::types::Volume| {
        let container = volume.container_disk.as_ref().map(|_| ImageFormat::Qcow2);
        let image = container.or(volume.ephemeral.as_ref().map(|_| ImageFormat::Raw));
        let is_raw = volume.persistent_volume_claim.is_some()
            || volume.data_volume.is_some()
            || volume.empty_disk.is_some()
            || volume.host_disk.is_some();
        let place = DiskPlace {
            images: image.into_iter().collect(),
            read_only: !is_raw && image.is_none(),
            size: 1 << 30,
            block_size: 512,
            direct: is_raw.then_some(512),
        };
        (volume.name.clone(), place)
    };
    let pairs = vmi.spec.network_queue_pairs().unwrap_or(1);
    let interface = |(number, interface): (usize, &corten_resources::types::Interface)| {
        let mac = [2, 0, 0, 0, 0, number.try_into().unwrap()];
        let place = InterfacePlace { mac, pairs, mtu: Some(1450), addressing: None };
        (interface.name.clone(), place)
    };
    let interfaces = vmi.spec.domain.devices.interfaces.iter().enumerate();
    Resolved {
        disks: vmi.spec.volumes.iter().map(place).collect(),
        interfaces: interfaces.map(interface).collect(),
        guest_cid: Some(7),
    }
}

pub(super) fn planned(spec: Value) -> Result<Plan, PlanError> {
    let vmi = vmi(spec);
    plan(&vmi, &found(&vmi))
}

pub(super) fn shown(plan: &Plan) -> Value {
    json!({
        "machine": plan.machine,
        "kernel": plan.kernel.as_ref().map(|kernel| &kernel.kernel),
        "initrd": plan.kernel.as_ref().and_then(|kernel| kernel.initrd.as_ref()),
        "startPaused": plan.start_paused,
        "graceSeconds": plan.grace_period.as_secs(),
        "logSerialConsole": plan.log_serial_console,
    })
}

fn golden(text: &str) {
    let golden: Value = serde_json::from_str(text).unwrap();
    let plan = shown(&planned(golden["spec"].clone()).unwrap());
    assert!(plan == golden["plan"], "the plan is {}", serde_json::to_string_pretty(&plan).unwrap());
}

#[test]
fn nothing_but_memory_is_a_machine() {
    golden(include_str!("golden/nothing-to-boot.json"));
}

#[test]
fn kernel_with_its_command_line() {
    golden(include_str!("golden/kernel-boot.json"));
}

#[test]
fn container_disk_with_cloud_init() {
    golden(include_str!("golden/container-disk-cloud-init.json"));
}

#[test]
fn twenty_disks_with_queues_for_each_vcpu() {
    golden(include_str!("golden/many-disks.json"));
}

#[test]
fn several_interfaces_with_queues_for_each_vcpu() {
    golden(include_str!("golden/several-interfaces.json"));
}

#[test]
fn cd_roms_are_only_read_and_every_bus_is_virtio() {
    golden(include_str!("golden/cdrom-and-buses.json"));
}

#[test]
fn every_kind_of_volume() {
    golden(include_str!("golden/every-volume.json"));
}

#[test]
fn every_switch_of_a_disk() {
    golden(include_str!("golden/disk-options.json"));
}

#[test]
fn every_device_that_can_be_switched() {
    golden(include_str!("golden/device-switches.json"));
}

#[test]
fn processors_and_memory_from_resources() {
    golden(include_str!("golden/resources.json"));
}

#[test]
fn a_machine_can_be_sent_to_the_vm_process() {
    for text in [include_str!("golden/many-disks.json"), include_str!("golden/every-volume.json")] {
        let golden: Value = serde_json::from_str(text).unwrap();
        let machine = planned(golden["spec"].clone()).unwrap().machine;
        let request = corten_link::Request::Boot { machine, paused: false };
        let bytes = serde_json::to_vec(&request).unwrap();
        assert!(bytes.len() < 32 << 10, "{} bytes", bytes.len());
        assert_eq!(serde_json::from_slice::<corten_link::Request>(&bytes).unwrap(), request);
    }
}

/// A spec with 64 MiB and these devices and volumes.
fn with(devices: Value, volumes: Value) -> Value {
    let mut spec = json!({"domain": {"memory": {"guest": "64Mi"}}});
    spec["domain"]["devices"] = devices;
    spec["volumes"] = volumes;
    spec
}

#[test]
fn what_cannot_be_is_refused_by_its_path() {
    let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": "c"}});
    let disks = |disks: Value| with(json!({"disks": disks}), json!([claim("a"), claim("b")]));
    let disk = "spec.domain.devices.disks";
    let cases = [
        (json!({"domain": {}}), "spec.domain.memory.guest: ".to_owned()),
        (json!({"domain": {"memory": {"guest": "1023Ki"}}}), "spec.domain.memory.guest: ".into()),
        (
            json!({"domain": {"memory": {"guest": "1Gi"}, "cpu": {"sockets": 255}}}),
            "spec.domain.cpu.sockets: ".into(),
        ),
        (
            json!({"domain": {"memory": {"guest": "1Gi"}, "firmware": {"uuid": "+1234567-89ab-cdef-0123-456789abcdef"}}}),
            "spec.domain.firmware.uuid: ".into(),
        ),
        (
            json!({"domain": {"memory": {"guest": "1Gi"}, "firmware": {"kernelBoot": {"container": {"image": "i"}}}}}),
            "spec.domain.firmware.kernelBoot.container".into(),
        ),
        (
            disks(json!([{"name": "a"}, {"name": "c"}])),
            format!("{disk}[1].name: there is no volume"),
        ),
        (
            disks(json!([{"name": "a"}, {"name": "a"}])),
            format!("{disk}[1].name: \"a\" is there twice"),
        ),
        (disks(json!([{"disk": {}}])), format!("{disk}[0].name: it has no name")),
        (disks(json!([{"name": "a", "serial": "ä"}])), format!("{disk}[0].serial: ")),
        (
            disks(json!([{"name": "a", "blockSize": {"custom": {"logical": 1000}}}])),
            format!("{disk}[0].blockSize.custom.logical: 1000"),
        ),
        (
            with(json!({"interfaces": [{"name": "a"}, {"name": ""}]}), json!([])),
            "spec.domain.devices.interfaces[1].name: it has no name".into(),
        ),
    ];
    for (spec, start) in cases {
        let error = planned(spec).unwrap_err().to_string();
        assert!(error.starts_with(&start), "{error} does not begin with {start}");
    }
}

#[test]
fn what_the_host_does_not_have_is_refused_by_the_path_of_what_asks_for_it() {
    let spec = with(json!({"interfaces": [{"name": "red"}]}), json!([]));
    let error = plan(&vmi(spec), &Resolved::default()).unwrap_err().to_string();
    assert!(error.starts_with("spec.domain.devices.interfaces[0]: interface \"red\""), "{error}");
    let spec = with(json!({"autoattachVSOCK": true}), json!([]));
    let error = plan(&vmi(spec), &Resolved::default()).unwrap_err().to_string();
    assert!(error.starts_with("spec.domain.devices.autoattachVSOCK: "), "{error}");
}

#[test]
fn blocks_are_no_smaller_than_the_volume_has_them_and_the_cache_is_passed_where_they_fit() {
    let spec = |disk: Value| {
        let volumes = json!([{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}]);
        vmi(with(json!({"disks": [disk]}), volumes))
    };
    let resolved = |block_size, direct| {
        let (images, size) = (Vec::new(), 1 << 30);
        let place = DiskPlace { images, read_only: false, size, block_size, direct };
        Resolved { disks: [("a".to_owned(), place)].into(), ..Resolved::default() }
    };
    let plain = || json!({"name": "a"});
    let custom = |size: u32| json!({"name": "a", "blockSize": {"custom": {"logical": size, "physical": size}}});
    let matching = || json!({"name": "a", "blockSize": {"matchVolume": {}}});
    let unmatched = || {
        let mut disk = custom(4096);
        disk["blockSize"]["matchVolume"] = json!({"enabled": false});
        disk
    };
    let cases = [
        (plain(), resolved(512, Some(512)), (Some(512), true)),
        // A partition table for sectors is of no use in blocks of 4096 bytes.
        (plain(), resolved(512, Some(4096)), (Some(512), false)),
        (plain(), resolved(512, None), (Some(512), false)),
        (plain(), resolved(4096, Some(4096)), (Some(4096), true)),
        (custom(4096), resolved(512, Some(4096)), (Some(4096), true)),
        (matching(), resolved(512, Some(4096)), (Some(4096), true)),
        (matching(), resolved(512, None), (Some(512), false)),
        (unmatched(), resolved(512, Some(4096)), (Some(4096), true)),
    ];
    for (disk, resolved, expected) in cases {
        let plan = plan(&spec(disk.clone()), &resolved).unwrap();
        let described = &plan.machine.disks[0];
        assert_eq!((described.block_size, described.host.direct), expected, "{disk} {resolved:?}");
    }
    let error = plan(&spec(custom(512)), &resolved(4096, Some(4096))).unwrap_err().to_string();
    assert!(error.contains("blockSize.custom.logical: the volume has blocks of 4096"), "{error}");
    for (disk, field) in [(custom(4096), "custom.logical"), (matching(), "matchVolume")] {
        let mut odd = resolved(512, Some(4096));
        odd.disks.get_mut("a").unwrap().size = 5120;
        let error = plan(&spec(disk), &odd).unwrap_err().to_string();
        let text = format!("blockSize.{field}: the volume has 5120 bytes, which is no multiple");
        assert!(error.contains(&text), "{error}");
    }
}

#[test]
fn an_interface_that_nobody_named_is_there_if_it_was_connected() {
    let vmi = vmi(with(json!({}), json!([])));
    let place = InterfacePlace { mac: [2; 6], pairs: 1, mtu: None, addressing: None };
    let interfaces = [("default".to_owned(), place)].into();
    let resolved = Resolved { interfaces, ..Resolved::default() };
    assert_eq!(plan(&vmi, &resolved).unwrap().machine.networks[0].name, "default");
    assert_eq!(plan(&vmi, &Resolved::default()).unwrap().machine.networks, []);
}

#[test]
fn memory_is_cut_to_whole_pages() {
    let spec = json!({"domain": {"memory": {"guest": "1G"}}});
    assert_eq!(planned(spec).unwrap().machine.memory, 1_000_000_000 / 4096 * 4096);
}

#[test]
fn what_is_not_served_is_found_before_anything_is_opened() {
    let kernel = json!({"container": {"image": "i", "kernelPath": "/k"}});
    let spec = json!({"domain": {"memory": {"guest": "64Mi"}, "firmware": {"kernelBoot": kernel}}});
    let mut object = vmi(spec.clone());
    assert_eq!(check(&object, Scope::Cluster).unwrap(), []);
    object.metadata.annotations.insert("kubevirt.io/ignitiondata".into(), "{}".into());
    let error = check(&object, Scope::Cluster).unwrap_err();
    assert!(error.to_string().starts_with("metadata.annotations[kubevirt.io/ignitiondata]: "));
    assert!(error.findings()[0].is_refusal());
    let mut spec = spec;
    spec["domain"]["devices"] = json!({"gpus": [{"name": "g"}]});
    let error = check(&vmi(spec), Scope::Standalone).unwrap_err().to_string();
    assert!(error.starts_with("spec.domain.devices.gpus"), "{error}");
}
