//! For the fuzz target: all that looks at a driver's chains, without a TAP.

use virtio_queue::desc::split::Descriptor;

use super::buffers::{GuestBuffers, MAX_PACKET, Writer};
use super::control::{Command, read};
use crate::virtio::GuestRam;

/// Reads a chain, of descriptors by address, length and flags, as each queue would, and asserts what holds of any.
pub fn look_at_chain(ram: &GuestRam, descriptors: &[(u64, u32, u16)], features: u64) {
    let chain = || {
        let descriptor = |(address, length, flags): &(u64, u32, u16)| {
            Descriptor::new(*address, *length, *flags, 0)
        };
        descriptors.iter().map(descriptor)
    };
    for writer in [Writer::Device, Writer::Driver] {
        let mut buffers = GuestBuffers::new(ram.clone());
        // The second one lies behind the first.
        for _ in 0..2 {
            let Ok(shape) = buffers.add(chain(), writer) else { break };
            assert!(shape.length <= MAX_PACKET, "a packet is not longer");
            let mut bytes = vec![0; shape.length];
            buffers.read(0, &mut bytes);
            buffers.write(0, &bytes);
            buffers.mark_written(0..shape.length);
        }
    }
    if let Some((Some(bytes), _)) = read(chain(), ram)
        && let Some(Command::Tables { unicast, multicast }) = Command::parse(&bytes, features)
    {
        assert!(unicast.can_be() && multicast.can_be(), "tables that are kept are bounded");
    }
}
