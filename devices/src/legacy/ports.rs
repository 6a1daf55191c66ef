//! Registers of one byte: a wider access reaches successive ports, as on the ISA bus.

use crate::Effect;

/// Fills `data` from the ports at `offset` and after.
pub(super) fn read_each(offset: u64, data: &mut [u8], mut read: impl FnMut(u64) -> u8) {
    for (index, byte) in (0..).zip(data) {
        *byte = read(offset.saturating_add(index));
    }
}

/// Writes `data` to the ports at `offset` and after. All of it is written; the first effect is the one that counts.
pub(super) fn write_each(
    offset: u64,
    data: &[u8],
    mut write: impl FnMut(u64, u8) -> Effect,
) -> Effect {
    let mut first = Effect::None;
    for (index, byte) in (0..).zip(data) {
        let effect = write(offset.saturating_add(index), *byte);
        if first == Effect::None {
            first = effect;
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_access_reaches_successive_ports_low_byte_first() {
        let mut data = [0; 4];
        read_each(3, &mut data, |port| u8::try_from(port).unwrap() * 2);
        assert_eq!(data, [6, 8, 10, 12]);
        let mut seen = Vec::new();
        let effect = write_each(3, &[7, 8], |port, byte| {
            seen.push((port, byte));
            Effect::None
        });
        assert_eq!((seen, effect), (vec![(3, 7), (4, 8)], Effect::None));
    }

    #[test]
    fn first_effect_of_a_wide_write_counts() {
        let effects = [Effect::None, Effect::PowerOff, Effect::Reset];
        let effect = write_each(0, &[0, 1, 2], |_, byte| effects[usize::from(byte)]);
        assert_eq!(effect, Effect::PowerOff);
    }

    #[test]
    fn access_beyond_the_last_port_comes_not_around_to_the_first() {
        read_each(u64::MAX - 1, &mut [0; 8], |port| {
            assert!(port >= u64::MAX - 1);
            0
        });
    }
}
