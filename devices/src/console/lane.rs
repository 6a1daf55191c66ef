//! The two queues of a port.

use super::metrics::{Metrics, add, count};
use super::port::{Port, Taken};
use crate::virtio::{BadChain, Buffers, Direction, VirtQueue};

/// Chains taken from a queue before others have their turn.
pub(super) const BATCH: usize = 64;
/// Bytes moved before others have their turn.
const BATCH_BYTES: usize = 64 << 10;

/// To the guest, and from it.
pub(super) struct Lane {
    pub(super) receive: VirtQueue,
    pub(super) transmit: VirtQueue,
}

impl Lane {
    /// Takes what the guest sends.
    pub(super) fn transmit(&mut self, port: &mut Port, buffer: &mut [u8], metrics: &Metrics) {
        if port.is_blocked() {
            return;
        }
        let queue = &mut self.transmit;
        let (mut is_pushed, mut has_more) = (false, true);
        let mut left = BATCH_BYTES;
        for _ in 0..BATCH {
            let Some(chain) = queue.pop() else {
                if queue.resume_doorbell() {
                    continue;
                }
                port.set_drained();
                has_more = false;
                break;
            };
            let head = chain.head_index();
            let chain = Buffers::of(chain, Direction::FromGuest, queue.ram());
            let taken = match chain {
                Ok(chain) if chain.length() > 0 => port.take(&chain, buffer, &mut left, metrics),
                Err(BadChain::Broken) => {
                    count(&metrics.bad_chains);
                    queue.refuse();
                    continue;
                }
                Ok(_) | Err(BadChain::Useless) => {
                    count(&metrics.bad_chains);
                    port.skip();
                    Taken::All
                }
            };
            if taken != Taken::All {
                queue.put_back();
                has_more = taken == Taken::Part;
                break;
            }
            queue.push(head, 0);
            is_pushed = true;
        }
        if has_more {
            queue.ring_doorbell();
        }
        if is_pushed {
            queue.signal();
        }
    }

    /// Gives the guest what there is for it, as long as it has buffers.
    pub(super) fn receive(&mut self, port: &mut Port, buffer: &mut [u8], metrics: &Metrics) {
        let queue = &mut self.receive;
        let (mut is_pushed, mut taken, mut bytes) = (false, 0, 0);
        while port.has_input() {
            if taken == BATCH || bytes >= BATCH_BYTES {
                queue.ring_doorbell();
                break;
            }
            taken += 1;
            let Some(chain) = queue.pop() else {
                if queue.resume_doorbell() {
                    continue;
                }
                break;
            };
            let head = chain.head_index();
            let chain = Buffers::of(chain, Direction::ToGuest, queue.ram());
            let chain = match chain {
                Ok(chain) if chain.length() > 0 => chain,
                Err(BadChain::Broken) => {
                    count(&metrics.bad_chains);
                    queue.refuse();
                    break;
                }
                Ok(_) | Err(BadChain::Useless) => {
                    count(&metrics.bad_chains);
                    queue.push(head, 0);
                    is_pushed = true;
                    continue;
                }
            };
            let most = chain.length().min(buffer.len());
            let Some(length) = port.receive(&mut buffer[..most]) else {
                queue.put_back();
                break;
            };
            // It is there: the chain is in memory, and memory stays.
            let _ = chain.write(0, &buffer[..length]);
            queue.push(head, u32::try_from(length).unwrap_or(0));
            add(&metrics.received_bytes, length as u64);
            bytes += length;
            is_pushed = true;
        }
        if is_pushed {
            queue.signal();
        }
    }
}
