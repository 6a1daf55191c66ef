//! The order of versions (the UAPI group's Version Format Specification): 6.10 is newer than 6.9, 6.9~rc1 older than 6.9.

use std::cmp::Ordering;

/// Which of two versions is newer: the greater one.
pub(super) fn compare(left: &str, right: &str) -> Ordering {
    let (mut left, mut right) = (left.as_bytes(), right.as_bytes());
    loop {
        (left, right) = (skip_others(left), skip_others(right));
        // Before anything, also before the end.
        if let Some(order) = separator(b'~', &mut left, &mut right) {
            return order;
        }
        if left.is_empty() || right.is_empty() {
            return left.len().min(1).cmp(&right.len().min(1));
        }
        // Before anything but the end.
        for mark in [b'-', b'^', b'.'] {
            if let Some(order) = separator(mark, &mut left, &mut right) {
                return order;
            }
        }
        let starts_with = |part: &[u8], is: fn(&u8) -> bool| part.first().is_some_and(is);
        let order =
            if starts_with(left, u8::is_ascii_digit) || starts_with(right, u8::is_ascii_digit) {
                let numbers =
                    (take(&mut left, u8::is_ascii_digit), take(&mut right, u8::is_ascii_digit));
                let (left, right) = (without_zeroes(numbers.0), without_zeroes(numbers.1));
                left.len().cmp(&right.len()).then_with(|| left.cmp(right))
            } else {
                let words = (
                    take(&mut left, u8::is_ascii_alphabetic),
                    take(&mut right, u8::is_ascii_alphabetic),
                );
                words.0.cmp(words.1)
            };
        if order.is_ne() {
            return order;
        }
    }
}

/// If only one of them has the mark here, that one is older. If both have it, it is passed.
fn separator(mark: u8, left: &mut &[u8], right: &mut &[u8]) -> Option<Ordering> {
    match (left.strip_prefix(&[mark]), right.strip_prefix(&[mark])) {
        (Some(_), None) => Some(Ordering::Less),
        (None, Some(_)) => Some(Ordering::Greater),
        (Some(behind_left), Some(behind_right)) => {
            (*left, *right) = (behind_left, behind_right);
            None
        }
        (None, None) => None,
    }
}

fn skip_others(text: &[u8]) -> &[u8] {
    let counts = |byte: &u8| byte.is_ascii_alphanumeric() || b"-.~^".contains(byte);
    let start = text.iter().position(counts).unwrap_or(text.len());
    &text[start..]
}

/// Takes the letters in front for which `is` is true.
fn take<'a>(text: &mut &'a [u8], is: impl Fn(&u8) -> bool) -> &'a [u8] {
    let end = text.iter().position(|byte| !is(byte)).unwrap_or(text.len());
    let (taken, rest) = text.split_at(end);
    *text = rest;
    taken
}

fn without_zeroes(number: &[u8]) -> &[u8] {
    let start = number.iter().position(|digit| *digit != b'0').unwrap_or(number.len());
    &number[start..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn newer_versions_are_greater() {
        let rising = [
            "~1",
            "",
            "a",
            "122",
            "122.1",
            "123~rc1-1",
            "123",
            "123-a",
            "123-a.1",
            "123-1",
            "123-1.1",
            "123^post1",
            "123.a-1",
            "123.1-1",
            "123a-1",
            "124-1",
        ];
        for (at, older) in rising.iter().enumerate() {
            assert_eq!(compare(older, older), Ordering::Equal, "{older}");
            for newer in &rising[at + 1..] {
                assert_eq!(compare(older, newer), Ordering::Less, "{older} < {newer}");
                assert_eq!(compare(newer, older), Ordering::Greater, "{newer} > {older}");
            }
        }
        assert_eq!(compare("6.9.0-1", "6.10.0-1"), Ordering::Less);
        assert_eq!(compare("6.1.0-18-amd64", "6.1.0-9-amd64"), Ordering::Greater);
        assert_eq!(compare("007", "7"), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn order_is_the_same_from_both_sides(left in "[0-9a-c.~^_-]{0,12}", right in "[0-9a-c.~^_-]{0,12}") {
            prop_assert_eq!(compare(&left, &right), compare(&right, &left).reverse());
        }
    }
}
