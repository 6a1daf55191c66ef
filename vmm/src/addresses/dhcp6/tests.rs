use proptest::prelude::*;

use super::super::testing::{MAC, OTHER, addressing, bytes, ipv6};
use super::*;

/// First messages of real clients, as they were recorded: dhclient 4.4.3, which calls itself by its Ethernet address and a
/// time, and systemd-networkd 252, which does not (its identifier changed), and wants a prefix as well.
const DHCLIENT: &str = "01e08599 0001000e00010001328ed62a02c047e40000 00060008001700180027001f 000800020000 \
    0003000c47e4000000000e1000001518";
const NETWORKD: &str = "01a397e3 000e0000 0003000ccd5bdfc20000000000000000 0019000ccd5bdfc20000000000000000 \
    002700040102766d 000600080017001f00380052 0001000e00020000ab111122334455667788 000800020000";

const CLIENT: &str = "0001000a 0003000102c047e40000";
const ASSOCIATION: &str = "0003000c 47e40000 00000000 00000000";

fn server() -> Dhcp6 {
    Dhcp6::new(MAC, &addressing(), &ipv6()).unwrap()
}

/// One on a link with others.
fn careful() -> Dhcp6 {
    let ipv6 = Ipv6Addressing { is_router: false, ..ipv6() };
    Dhcp6::new(MAC, &addressing(), &ipv6).unwrap()
}

fn ask(packet: &str) -> Result<Vec<u8>, Silence> {
    server().answer(&bytes(packet), link_local(MAC))
}

fn this_server() -> String {
    let duid: String = server().duid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("00020012 {duid}")
}

/// Options by code, in the order in which they stand.
fn options_of(mut options: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some((code, value, rest)) = next_option(options).unwrap() {
        all.push((code, value.to_vec()));
        options = rest;
    }
    all
}

fn told(reply: &[u8], code: u16) -> Option<Vec<u8>> {
    options_of(&reply[4..]).into_iter().find(|(other, _)| *other == code).map(|(_, value)| value)
}

/// Address, how long it is preferred and valid.
fn address_option(address: &str, lease: u32) -> Vec<u8> {
    let mut bytes = address.parse::<Ipv6Addr>().unwrap().octets().to_vec();
    bytes.extend(lease.to_be_bytes());
    bytes.extend(lease.to_be_bytes());
    bytes
}

#[test]
fn first_message_of_dhclient_gets_an_offer() {
    let reply = ask(DHCLIENT).unwrap();
    assert_eq!(reply[..4], [kind::ADVERTISE, 0xe0, 0x85, 0x99]);
    assert_eq!(told(&reply, option::CLIENT).unwrap(), bytes("00010001328ed62a02c047e40000"));
    assert_eq!(told(&reply, option::SERVER).unwrap(), server().duid);
    assert_eq!(told(&reply, option::PREFERENCE).unwrap(), [255]);
    let association = told(&reply, option::ADDRESSES).unwrap();
    assert_eq!(association[..4], bytes("47e40000"));
    assert_eq!(association[4..8], 43_156_800_u32.to_be_bytes());
    assert_eq!(association[8..12], 69_050_880_u32.to_be_bytes());
    let address = address_option("fd10:0:2::2", 86_313_600);
    assert_eq!(options_of(&association[12..]), [(option::ADDRESS, address)]);
    let name_server: Ipv6Addr = "fd10:96::a".parse().unwrap();
    assert_eq!(told(&reply, option::NAME_SERVERS).unwrap(), name_server.octets());
    let domains = b"\x07default\x03svc\x07cluster\x05local\0\x07cluster\x05local\0";
    assert_eq!(told(&reply, option::DOMAINS).unwrap(), domains);
}

#[test]
fn first_message_of_networkd_is_all_it_takes() {
    let reply = ask(NETWORKD).unwrap();
    assert_eq!(reply[0], kind::REPLY);
    assert_eq!(told(&reply, option::RAPID_COMMIT), Some(Vec::new()));
    assert!(told(&reply, option::PREFERENCE).is_none());
    let association = told(&reply, option::ADDRESSES).unwrap();
    assert_eq!(options_of(&association[12..])[0].0, option::ADDRESS);
    let prefixes = told(&reply, option::PREFIXES).unwrap();
    assert_eq!(options_of(&prefixes[12..]), [(option::STATUS, vec![0, 6])]);
    assert!(told(&reply, option::DOMAINS).is_none(), "it did not ask for them");
}

#[test]
fn what_a_client_asks_for_again_it_gets_again() {
    let server = this_server();
    for (what, packet) in [
        ("request", format!("03000001 {CLIENT} {server} {ASSOCIATION}")),
        ("renew", format!("05000001 {CLIENT} {server} {ASSOCIATION}")),
        ("rebind", format!("06000001 {CLIENT} {ASSOCIATION}")),
    ] {
        let reply = ask(&packet).unwrap();
        assert_eq!(reply[..4], [kind::REPLY, 0, 0, 1], "{what}");
        let association = told(&reply, option::ADDRESSES).unwrap();
        let address = address_option("fd10:0:2::2", LEASE);
        assert_eq!(options_of(&association[12..]), [(option::ADDRESS, address)], "{what}");
        assert!(told(&reply, option::DOMAINS).is_some(), "{what}: it did not say what it wants");
    }
}

#[test]
fn other_addresses_are_not_to_be_used_any_more() {
    let had = "00030028 47e40000 00000000 00000000 00050018 fd100000000200000000000000000009 \
        00001000 00001000";
    let reply = ask(&format!("06000001 {CLIENT} {had}")).unwrap();
    let association = told(&reply, option::ADDRESSES).unwrap();
    let expected = [
        (option::ADDRESS, address_option("fd10:0:2::2", LEASE)),
        (option::ADDRESS, address_option("fd10:0:2::9", 0)),
    ];
    assert_eq!(options_of(&association[12..]), expected);
}

#[test]
fn second_and_temporary_associations_get_no_address() {
    let more = "0003000c 00000002 00000000 00000000 00040004 00000003";
    let reply = ask(&format!("01000001 {CLIENT} {ASSOCIATION} {more}")).unwrap();
    let all = options_of(&reply[4..]);
    let second = &all.iter().filter(|(code, _)| *code == option::ADDRESSES).nth(1).unwrap().1;
    assert_eq!(*second, bytes("00000002 00000000 00000000 000d0002 0002"));
    let temporary = told(&reply, option::TEMPORARY_ADDRESSES).unwrap();
    assert_eq!(temporary, bytes("00000003 000d0002 0002"));
}

#[test]
fn confirmation_says_whether_the_addresses_are_the_guests() {
    let confirm = |address: &str| {
        let had = "00030028 47e40000 00000000 00000000 00050018";
        ask(&format!("04000001 {CLIENT} {had} {address} 00001000 00001000"))
    };
    let reply = confirm("fd100000000200000000000000000002").unwrap();
    assert_eq!(told(&reply, option::STATUS).unwrap(), [0, 0]);
    assert!(told(&reply, option::ADDRESSES).is_none());
    let reply = confirm("fd100000000200000000000000000009").unwrap();
    assert_eq!(told(&reply, option::STATUS).unwrap(), [0, 4]);
    let nothing = ask(&format!("04000001 {CLIENT} {ASSOCIATION}"));
    assert_eq!(nothing, Err(Silence::Ignored));
}

#[test]
fn release_and_decline_are_taken_note_of() {
    for kind in ["08", "09"] {
        let packet = format!("{kind}000001 {CLIENT} {} {ASSOCIATION}", this_server());
        let reply = ask(&packet).unwrap();
        assert_eq!(reply[0], kind::REPLY);
        assert_eq!(told(&reply, option::STATUS).unwrap(), [0, 0]);
        assert!(told(&reply, option::ADDRESSES).is_none());
    }
}

#[test]
fn who_asks_for_the_rest_needs_no_name() {
    let reply = ask("0b000001 00060004 0017 0018").unwrap();
    assert_eq!(reply[0], kind::REPLY);
    assert!(told(&reply, option::CLIENT).is_none());
    assert!(
        told(&reply, option::NAME_SERVERS).is_some() && told(&reply, option::DOMAINS).is_some()
    );
}

#[test]
fn messages_that_lack_or_have_what_they_must_not_are_found() {
    let (server, other) = (this_server(), "0002000a 00030001 020000000009");
    for (packet, expected) in [
        ("01000001".into(), Silence::Malformed),
        (format!("01000001 {CLIENT} {server}"), Silence::Malformed),
        (format!("03000001 {CLIENT}"), Silence::Malformed),
        (format!("03000001 {server}"), Silence::Malformed),
        (format!("06000001 {CLIENT} {server}"), Silence::Malformed),
        (format!("0b000001 {ASSOCIATION}"), Silence::Malformed),
        (format!("03000001 {CLIENT} {other}"), Silence::Ignored),
        (format!("0b000001 {other}"), Silence::Ignored),
        // Servers' and relays'.
        (format!("07000001 {CLIENT} {server}"), Silence::Ignored),
        (format!("0c000001 {CLIENT}"), Silence::Ignored),
        ("ff000001".into(), Silence::Ignored),
        // Cut, too long, too many.
        ("0100".into(), Silence::Malformed),
        ("01000001 0001".into(), Silence::Malformed),
        ("01000001 0001000a 0003".into(), Silence::Malformed),
        ("01000001 00010002 0003".into(), Silence::Malformed),
        (format!("01000001 000100ff {}", "00".repeat(255)), Silence::Malformed),
        (format!("01000001 {CLIENT} 00030008 0000000000000000"), Silence::Malformed),
        (format!("01000001 {CLIENT} 0003000e 000000000000000000000000 0005"), Silence::Malformed),
        (format!("01000001 {CLIENT} {}", ASSOCIATION.repeat(9)), Silence::Malformed),
    ] {
        assert_eq!(ask(&packet), Err(expected), "{packet}");
    }
}

#[test]
fn only_link_local_addresses_are_answered() {
    for from in ["fd10:0:2::2", "::", "ff02::1", "::1"] {
        let answer = server().answer(&bytes(DHCLIENT), from.parse().unwrap());
        assert_eq!(answer, Err(Silence::Ignored), "{from}");
    }
}

#[test]
fn on_a_link_with_others_the_guest_is_known_by_its_ethernet_address() {
    let somewhere: Ipv6Addr = "fe80::1234".parse().unwrap();
    let with_uuid = format!("01000001 00010012 0004{} {ASSOCIATION}", "11".repeat(16));
    for (what, packet, from, is_answered) in [
        ("identifier and time", DHCLIENT, somewhere, true),
        ("identifier", &format!("01000001 {CLIENT} {ASSOCIATION}"), somewhere, true),
        ("address", NETWORKD, link_local(MAC), true),
        ("neither", NETWORKD, somewhere, false),
        ("neither, with a UUID", &with_uuid, link_local(OTHER), false),
    ] {
        let answer = careful().answer(&bytes(packet), from);
        assert_eq!(answer.is_ok(), is_answered, "{what}");
        assert!(server().answer(&bytes(packet), from).is_ok(), "{what}, alone");
    }
    let other = DHCLIENT.replace("02c047e40000", "02c047e40001");
    assert_eq!(careful().answer(&bytes(&other), somewhere), Err(Silence::Ignored));
}

#[test]
fn servers_of_two_interfaces_have_two_names() {
    assert_ne!(server_duid(MAC), server_duid(OTHER));
    assert_eq!(server_duid(MAC), *b"\0\x04corten\x80\0\x80\0\x02\xc0\x47\xe4\0\0");
}

proptest! {
    #[test]
    fn any_bytes_are_survived_and_answers_are_bounded(
        kind in 0..14_u8,
        options in prop::collection::vec(any::<u8>(), 0..1400),
    ) {
        let packet = [&[kind, 1, 2, 3][..], &options].concat();
        if let Ok(reply) = server().answer(&packet, link_local(MAC)) {
            prop_assert!(reply.len() <= IPV6_PAYLOAD);
        }
    }

    #[test]
    fn any_options_that_are_whole_are_survived_and_answers_are_bounded(
        kind in 1..12_u8,
        options in prop::collection::vec(
            (0..30_u16, prop::collection::vec(any::<u8>(), 0..150)), 0..12,
        ),
    ) {
        let mut message = Message(vec![kind, 1, 2, 3]);
        options.iter().for_each(|(code, value)| message.put(*code, value));
        if let Ok(reply) = server().answer(&message.0, link_local(MAC)) {
            prop_assert!(reply.len() <= IPV6_PAYLOAD);
            options_of(&reply[4..]);
        }
    }
}
