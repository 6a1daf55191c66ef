//! Any JSON either is no object, or one that can be judged, completed and written back.
#![no_main]

use corten_resources::Kind;
use corten_resources::defaults::{Identity, with_defaults};
use corten_resources::served::Scope;
use corten_resources::types::VirtualMachineInstance;
use corten_resources::validate::{admit, validate};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(mut vmi) = serde_json::from_slice::<VirtualMachineInstance>(bytes) {
        validate(&vmi.spec, Scope::Cluster);
        // Not by way of text: a number that is no integer may lose its last bit there.
        let written = serde_json::to_value(&vmi).expect("what was read can be written");
        let read: VirtualMachineInstance = serde_json::from_value(written).expect("and read");
        assert_eq!(read, vmi);
        with_defaults(
            &mut vmi.spec,
            Identity { namespace: "n", name: "m", uid: "" },
            Scope::Standalone,
        );
        validate(&vmi.spec, Scope::Standalone);
    }
    if let Ok(object) = serde_json::from_slice::<Value>(bytes) {
        for kind in Kind::ALL {
            admit(kind, None, &object, Scope::Cluster);
            admit(kind, Some(&Value::Null), &object, Scope::Standalone);
        }
    }
});
