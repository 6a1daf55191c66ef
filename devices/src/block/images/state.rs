//! What is saved of an overlay: which clusters of the disk it has. Not its content.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::bitmap::Bitmap;
use super::overlay::CLUSTER;
use crate::State;

/// A disk's overlay as it was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverlayState {
    /// Bytes of the disk.
    pub size: u64,
    /// Bytes that are in the overlay, or not, together.
    pub cluster: u64,
    /// Which are.
    pub allocated: Allocation,
}

/// Which clusters are in an overlay: in the form that is shorter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Allocation {
    /// How many are not, then how many are, and so on to the last; the first may be none.
    Runs(Vec<u64>),
    /// A bit for each, the first in the lowest of the first byte; base64.
    Bits(String),
}

impl State for OverlayState {
    const KIND: &'static str = "block-overlay";
    const VERSION: u16 = 1;
}

impl Allocation {
    /// A run counts for eight bytes, more than most take, so that neither form is ever much longer than the bits.
    pub(super) fn of(bitmap: &Bitmap) -> Self {
        let bits = bitmap.length().div_ceil(8);
        let most = usize::try_from(bits / 8).unwrap_or(usize::MAX).max(8);
        match bitmap.runs(most) {
            Some(runs) => Self::Runs(runs),
            None => Self::Bits(BASE64.encode(bitmap.bytes())),
        }
    }
}

impl OverlayState {
    /// The bits of a disk of `size` bytes; or what the state says that cannot be.
    pub(super) fn bitmap(&self, size: u64) -> Result<Bitmap, String> {
        if self.size != size {
            return Err(format!("it is of a disk of {} bytes, this one has {size}", self.size));
        }
        if self.cluster != CLUSTER {
            return Err(format!("its clusters are of {} bytes, here of {CLUSTER}", self.cluster));
        }
        let clusters = size.div_ceil(CLUSTER);
        let bitmap = match &self.allocated {
            Allocation::Runs(runs) => Bitmap::from_runs(runs, clusters),
            Allocation::Bits(text) => {
                let bytes = BASE64.decode(text).ok();
                bytes.and_then(|bytes| Bitmap::from_bytes(&bytes, clusters))
            }
        };
        bitmap.ok_or_else(|| format!("what it says is not of {clusters} clusters"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_is_the_shorter_one_and_is_read_back() {
        let clusters = 1 << 14;
        let state = |bitmap: &Bitmap| OverlayState {
            size: clusters * CLUSTER,
            cluster: CLUSTER,
            allocated: Allocation::of(bitmap),
        };
        let mut few = Bitmap::new(clusters);
        few.set(3..900);
        assert_eq!(state(&few).allocated, Allocation::Runs(vec![3, 897, clusters - 900]));
        assert_eq!(state(&few).bitmap(clusters * CLUSTER), Ok(few));
        let mut many = Bitmap::new(clusters);
        (0..clusters).step_by(2).for_each(|bit| many.set(bit..bit + 1));
        let text = serde_json::to_string(&state(&many)).unwrap();
        assert!(text.contains("\"bits\":\"VVVV"), "{text}");
        assert!(text.len() < 2800, "base64 of 2 KiB, not of {} bytes", text.len());
        assert_eq!(state(&many).bitmap(clusters * CLUSTER), Ok(many));
    }
}
