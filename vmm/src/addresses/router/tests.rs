use proptest::prelude::*;

use super::super::testing::{MAC, OTHER, addressing, bytes, ipv6};
use super::*;

/// Linux's own, with the checksum that it had.
const SOLICITATION: &str = "8500e9e500000000 010102c047e40000";

fn router() -> Router {
    Router::new(MAC, &addressing(), &ipv6()).unwrap()
}

/// One on a link with others.
fn careful() -> Router {
    let ipv6 = Ipv6Addressing { is_router: false, ..ipv6() };
    Router::new(MAC, &addressing(), &ipv6).unwrap()
}

#[test]
fn solicitation_of_linux_is_answered_to_who_sent_it() {
    let from = link_local(MAC);
    assert_eq!(from.to_string(), "fe80::c0:47ff:fee4:0");
    let router = router();
    let (advertisement, to) = router.answer(&bytes(SOLICITATION), from).unwrap();
    assert_eq!(to, from);
    let expected = "
        86 00 0000 40 c0 0708 00000000 00000000
        01 01 020000000000
        05 01 0000 000005aa
        03 04 78 80 ffffffff ffffffff 00000000 fd100000000200000000000000000000
        19 03 0000 00000708 fd10009600000000000000000000000a
        1f 07 0000 00000708
            07 64656661756c74 03 737663 07 636c7573746572 05 6c6f63616c 00
            07 636c7573746572 05 6c6f63616c 00 000000 000000";
    assert_eq!(advertisement, bytes(expected));
}

#[test]
fn who_has_no_address_is_answered_by_telling_all() {
    let router = router();
    let (_, to) = router.answer(&bytes("8500000000000000"), Ipv6Addr::UNSPECIFIED).unwrap();
    assert_eq!(to, ALL_NODES);
    assert_eq!(router.unasked().unwrap().1, ALL_NODES);
}

#[test]
fn what_is_not_known_is_left_out() {
    let ipv6 = Ipv6Addressing { router_mac: None, dns: Vec::new(), prefix: 64, ..ipv6() };
    let router = Router::new(MAC, &Addressing::default(), &ipv6).unwrap();
    let expected = "86 00 0000 40 c0 0708 00000000 00000000
        03 04 40 80 ffffffff ffffffff 00000000 fd100000000200000000000000000000";
    assert_eq!(router.unasked().unwrap().0, bytes(expected));
}

#[test]
fn on_a_link_with_others_only_the_guest_is_told_and_no_way_out() {
    let careful = careful();
    assert!(careful.unasked().is_none());
    let somewhere: Ipv6Addr = "fe80::1234".parse().unwrap();
    let (advertisement, to) = careful.answer(&bytes(SOLICITATION), somewhere).unwrap();
    assert_eq!((&advertisement[6..8], to), (&[0, 0][..], somewhere));
    let bare = bytes("8500000000000000");
    assert!(careful.answer(&bare, link_local(MAC)).is_ok());
    for from in [link_local(OTHER), Ipv6Addr::UNSPECIFIED] {
        assert_eq!(careful.answer(&bare, from), Err(Silence::Ignored), "{from}");
    }
}

#[test]
fn odd_solicitations_are_not_answered() {
    let from = link_local(MAC);
    for (packet, from, expected) in [
        ("", from, Silence::Malformed),
        ("85000000000000", from, Silence::Malformed),
        ("8501000000000000", from, Silence::Malformed),
        ("8500000000000000 01", from, Silence::Malformed),
        ("8500000000000000 0100020000000001", from, Silence::Malformed),
        ("8500000000000000 0102020000000001", from, Silence::Malformed),
        (SOLICITATION, Ipv6Addr::UNSPECIFIED, Silence::Malformed),
        ("8600000000000000", from, Silence::Ignored),
        ("8500000000000000", "fd10:0:2::2".parse().unwrap(), Silence::Ignored),
    ] {
        assert_eq!(router().answer(&bytes(packet), from), Err(expected), "{packet}");
    }
}

#[test]
fn longest_lists_fit_into_the_smallest_link() {
    let domain = |number: usize| format!("{}.{number}", "x".repeat(60));
    let addressing = Addressing { search: (0..32).map(domain).collect(), ..addressing() };
    let ipv6 = Ipv6Addressing { dns: vec![Ipv6Addr::LOCALHOST; MAX_SERVERS], ..ipv6() };
    let router = Router::new(MAC, &addressing, &ipv6).unwrap();
    let (advertisement, _) = router.unasked().unwrap();
    assert!((IPV6_PAYLOAD - 72..=IPV6_PAYLOAD).contains(&advertisement.len()));
    assert_eq!(source_of(&advertisement[16..]), Ok(Some(&[2, 0, 0, 0, 0, 0][..])), "whole options");
}

#[test]
fn prefix_longer_than_an_address_is_refused() {
    let ipv6 = Ipv6Addressing { prefix: 129, ..ipv6() };
    assert_eq!(Router::new(MAC, &addressing(), &ipv6).unwrap_err(), AddressingError::Prefix(129));
}

proptest! {
    #[test]
    fn any_bytes_are_survived(
        packet in prop::collection::vec(any::<u8>(), 0..300),
        from in any::<[u8; 16]>(),
    ) {
        for router in [router(), careful()] {
            let _ = router.answer(&packet, from.into());
            let solicitation = [&[133, 0, 0, 0, 0, 0, 0, 0][..], &packet].concat();
            let _ = router.answer(&solicitation, link_local(MAC));
        }
    }
}
