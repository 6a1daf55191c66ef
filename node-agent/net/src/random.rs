//! Random bytes: for Ethernet addresses nobody else has, and for where a search begins.

use std::fs::File;
use std::io::Read;

/// Random bytes of the kernel's.
pub(crate) fn bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// An Ethernet address of one's own choice: unicast, locally administered.
pub(crate) fn mac() -> std::io::Result<[u8; 6]> {
    let mut mac = bytes::<6>()?;
    mac[0] = mac[0] & 0xfc | 0x02;
    Ok(mac)
}

#[cfg(test)]
mod tests {
    #[test]
    fn addresses_are_unicast_local_and_differ() {
        let (first, second) = (super::mac().unwrap(), super::mac().unwrap());
        assert_eq!((first[0] & 3, second[0] & 3), (2, 2));
        assert_ne!(first, second);
    }
}
