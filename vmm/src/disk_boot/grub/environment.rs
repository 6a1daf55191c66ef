//! The environment block: a file of 1024 bytes in which variables outlive a boot.

use std::collections::BTreeMap;

/// Its size is fixed; GRUB writes it in place.
pub(in crate::disk_boot) const MAX_SIZE: u64 = 64 << 10;
const SIGNATURE: &str = "# GRUB Environment Block\n";
const MAX_VARIABLES: usize = 256;

/// The variables in a block; none if it is none.
pub(in crate::disk_boot) fn parse(block: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(block);
    let mut variables = BTreeMap::new();
    let Some(text) = text.strip_prefix(SIGNATURE) else { return variables };
    let mut letters = text.chars();
    let mut line = String::new();
    while let Some(letter) = letters.next() {
        match letter {
            // What follows is taken as it is, also the end of a line.
            '\\' => line.extend(letters.next()),
            '\n' => take(&mut line, &mut variables),
            letter => line.push(letter),
        }
        if variables.len() >= MAX_VARIABLES {
            break;
        }
    }
    variables
}

fn take(line: &mut String, variables: &mut BTreeMap<String, String>) {
    let line = std::mem::take(line);
    if let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
        variables.insert(name.into(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_and_padding_is_not() {
        let mut block =
            b"# GRUB Environment Block\n# WARNING\nsaved_entry=a\\\\b=c\nkernelopts=root=x ro\n"
                .to_vec();
        block.resize(1024, b'#');
        let found = parse(&block);
        assert_eq!(found.get("saved_entry").map(String::as_str), Some("a\\b=c"));
        assert_eq!(found.get("kernelopts").map(String::as_str), Some("root=x ro"));
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn other_files_have_none() {
        assert!(parse(b"saved_entry=a\n").is_empty());
        assert!(parse(b"").is_empty());
        assert!(parse(b"# GRUB Environment Block\n\\").is_empty());
    }
}
