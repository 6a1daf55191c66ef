use std::collections::BTreeMap;

use corten_link::Ipv4Route;
use proptest::prelude::*;

use super::super::testing::{MAC, OTHER, addressing, bytes, ipv4};
use super::*;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const SERVER: [u8; 4] = [10, 0, 2, 1];
const TRANSACTION: [u8; 4] = [0x62, 0xe2, 0x6f, 0x20];

/// Options of real clients' first messages, as they were recorded: busybox udhcpc 1.35, dhclient 4.4.3, systemd-networkd
/// 252 (its identifier changed) and dhcpcd 9.4.1.
const UDHCPC: &str = "350101 39020240 37070103060c0f1c2a 3c0c756468637020312e33352e30 \
    3d070102c047e40000 ff 0000000000000000000000000000000000000000";
const DHCLIENT: &str = "350101 0c02766d 370d011c02030f06770c2c2f1a792a ff 0000000000000000000000";
const NETWORKD: &str = "350101 3d13ffcd5bdfc200020000ab111122334455667788 37090103060c0f212a7879 \
    390205c0 0c02766d ff";
const DHCPCD: &str = "350101 370701031c21333a3b 390205c0 3c366468637063642d392e342e313a4c696e75782d362e\
    31382e34342d66632d763439303a7838365f36343a41757468656e746963414d44 740101 910101 ff";

fn server() -> Dhcp4 {
    Dhcp4::new(MAC, &addressing(), &ipv4()).unwrap()
}

/// A message of the guest with these options, as all of those clients fill in the rest.
fn message(current: Ipv4Addr, options: &[u8]) -> Vec<u8> {
    let mut message = vec![1, 1, 6, 0];
    message.extend(TRANSACTION);
    message.extend([0, 1, 0, 0]);
    message.extend(current.octets());
    message.extend([0; 12]);
    message.extend(MAC);
    message.resize(236, 0);
    message.extend(COOKIE);
    message.extend(options);
    message
}

fn discover(options: &str) -> Vec<u8> {
    message(Ipv4Addr::UNSPECIFIED, &bytes(options))
}

fn request(current: Ipv4Addr, options: &str) -> Vec<u8> {
    message(current, &bytes(&format!("350103 {options} ff")))
}

fn ask(server: &Dhcp4, packet: &[u8]) -> Result<(Vec<u8>, SocketAddrV4), Silence> {
    server.answer(packet, Ipv4Addr::UNSPECIFIED)
}

/// The options of a reply, with those in pieces put together.
fn options_of(reply: &[u8]) -> BTreeMap<u8, Vec<u8>> {
    let mut options = BTreeMap::<u8, Vec<u8>>::new();
    let mut rest = &reply[HEADER..];
    while let [code, length, behind @ ..] = rest
        && *code != option::END
    {
        let (value, behind) = behind.split_at(usize::from(*length));
        options.entry(*code).or_default().extend(value);
        rest = behind;
    }
    assert_eq!(rest[0], option::END);
    assert!(rest[1..].iter().all(|byte| *byte == option::PAD));
    options
}

#[test]
fn first_messages_of_real_clients_get_an_offer_of_what_they_ask_for() {
    use option::{CLIENT, DOMAIN, HOST_NAME, KIND, MASK, MTU, NAME_SERVERS, ROUTER, SEARCH};
    let always = [MASK, ROUTER, option::LEASE, KIND, option::SERVER];
    for (options, more) in [
        (UDHCPC, &[NAME_SERVERS, HOST_NAME, DOMAIN, CLIENT][..]),
        (DHCLIENT, &[NAME_SERVERS, HOST_NAME, DOMAIN, MTU, SEARCH]),
        (NETWORKD, &[NAME_SERVERS, HOST_NAME, DOMAIN, CLIENT]),
        (DHCPCD, &[]),
    ] {
        let (reply, to) = ask(&server(), &discover(options)).unwrap();
        assert_eq!(to, "255.255.255.255:68".parse().unwrap());
        let told = options_of(&reply);
        let expected =
            always.iter().chain(more).copied().collect::<std::collections::BTreeSet<_>>();
        assert!(told.keys().copied().eq(expected), "{options}: {told:?}");
        assert_eq!(told[&KIND], [kind::OFFER]);
    }
}

#[test]
fn reply_has_the_fields_of_its_question() {
    let mut packet = discover(UDHCPC);
    packet[10] = 0x80;
    let (reply, _) = ask(&server(), &packet).unwrap();
    assert_eq!(reply[..4], [2, 1, 6, 0]);
    assert_eq!(reply[4..8], TRANSACTION);
    assert_eq!(reply[8..12], [0, 0, 0x80, 0], "seconds, flags");
    assert_eq!(reply[12..16], [0; 4], "current address");
    assert_eq!(reply[16..20], ADDRESS.octets());
    assert_eq!(reply[20..28], [0; 8], "next server, relay");
    assert_eq!(reply[28..34], MAC);
    assert!(reply[34..236].iter().all(|byte| *byte == 0));
    assert!(reply.len() >= SHORTEST);
}

#[test]
fn content_of_options_is_what_was_described() {
    let all = "350101 37080103060c0f1a7779 ff";
    let (reply, _) = ask(&server(), &discover(all)).unwrap();
    let told = options_of(&reply);
    assert_eq!(told[&option::MASK], [255, 255, 255, 0]);
    assert_eq!(told[&option::ROUTER], SERVER);
    assert_eq!(told[&option::NAME_SERVERS], [10, 96, 0, 10, 10, 96, 0, 11]);
    assert_eq!(told[&option::HOST_NAME], b"vm");
    assert_eq!(told[&option::DOMAIN], b"default.svc.cluster.local");
    assert_eq!(told[&option::MTU], [0x05, 0xaa]);
    assert_eq!(told[&option::SEARCH], b"\x07default\x03svc\x07cluster\x05local\0\xc0\x0c");
    assert_eq!(told[&option::LEASE], 86_313_600_u32.to_be_bytes());
    assert_eq!(told[&option::SERVER], SERVER);
    assert!(!told.contains_key(&option::ROUTES), "the way out is all there is");
}

#[test]
fn request_for_the_guests_address_is_granted_and_for_another_refused() {
    let none = Ipv4Addr::UNSPECIFIED;
    let (ours, theirs) = ("32040a000202", "32040a000203");
    let this_server = "36040a000201";
    for (what, packet, expected) in [
        ("selecting", request(none, &format!("{ours} {this_server}")), kind::ACK),
        ("selecting another", request(none, &format!("{theirs} {this_server}")), kind::NAK),
        ("rebooting", request(none, ours), kind::ACK),
        ("rebooting with another", request(none, theirs), kind::NAK),
        ("renewing", request(ADDRESS, ""), kind::ACK),
        ("renewing another", request([10, 0, 2, 9].into(), ""), kind::NAK),
    ] {
        let (reply, _) = ask(&server(), &packet).unwrap();
        let told = options_of(&reply);
        assert_eq!(told[&option::KIND], [expected], "{what}");
        let given = if expected == kind::ACK { ADDRESS } else { none };
        assert_eq!(reply[16..20], given.octets(), "{what}");
        assert_eq!(told.contains_key(&option::LEASE), expected == kind::ACK, "{what}");
    }
}

#[test]
fn request_to_another_server_is_not_answered() {
    let packet = request(Ipv4Addr::UNSPECIFIED, "32040a000202 36040a0002fe");
    assert_eq!(ask(&server(), &packet), Err(Silence::Ignored));
}

#[test]
fn only_who_uses_the_address_is_sent_to_by_it() {
    let renewal = request(ADDRESS, "");
    let (reply, to) = server().answer(&renewal, ADDRESS).unwrap();
    assert_eq!(to, "10.0.2.2:68".parse().unwrap());
    assert_eq!(reply[12..16], ADDRESS.octets());
    for (current, from) in [(ADDRESS, [10, 0, 2, 9].into()), (Ipv4Addr::UNSPECIFIED, ADDRESS)] {
        let packet = request(current, "32040a000202");
        let (_, to) = server().answer(&packet, from).unwrap();
        assert_eq!(*to.ip(), Ipv4Addr::BROADCAST, "{current} from {from}");
    }
    let other = request(ADDRESS, "32040a000209");
    let (_, to) = server().answer(&other, ADDRESS).unwrap();
    assert_eq!(*to.ip(), Ipv4Addr::BROADCAST, "a refusal");
}

#[test]
fn who_has_an_address_is_told_the_rest_without_a_lease() {
    let inform = message(ADDRESS, &bytes("350108 370106 ff"));
    let (reply, to) = server().answer(&inform, ADDRESS).unwrap();
    let told = options_of(&reply);
    assert_eq!(told[&option::KIND], [kind::ACK]);
    assert_eq!(reply[16..20], [0; 4]);
    assert!(!told.contains_key(&option::LEASE) && told.contains_key(&option::NAME_SERVERS));
    assert_eq!(*to.ip(), ADDRESS);
}

#[test]
fn what_wants_no_answer_gets_none() {
    let change = |at: usize, value: u8| {
        let mut packet = discover(UDHCPC);
        packet[at] = value;
        packet
    };
    for (what, packet) in [
        ("decline", discover("350104 ff")),
        ("release", discover("350107 ff")),
        ("reply", change(0, 2)),
        ("not Ethernet", change(1, 6)),
        ("other length of addresses", change(2, 8)),
        ("relayed", change(24, 10)),
        ("BOOTP", change(236, 0)),
        ("somebody else", change(33, OTHER[5])),
    ] {
        assert_eq!(ask(&server(), &packet), Err(Silence::Ignored), "{what}");
    }
}

#[test]
fn broken_messages_are_found() {
    let whole = discover(UDHCPC);
    for (what, packet) in [
        ("nothing", Vec::new()),
        ("half a header", whole[..239].to_vec()),
        ("no kind", discover("ff")),
        ("kind of two bytes", discover("35020101 ff")),
        ("option without length", discover("350101 32")),
        ("option behind the end", discover("350101 32040a00")),
        ("address of three bytes", discover("350103 32030a0002 ff")),
        ("limit of one byte", discover("350101 390102 ff")),
        ("request for nothing", request(Ipv4Addr::UNSPECIFIED, "")),
    ] {
        assert_eq!(ask(&server(), &packet), Err(Silence::Malformed), "{what}");
    }
}

#[test]
fn message_without_an_end_is_taken() {
    assert!(ask(&server(), &discover("350101")).is_ok());
}

/// As RFC 3442 has it: what the prefix has of a destination, and no other word of the way out.
#[test]
fn routes_come_with_the_way_out_among_them() {
    let route = |destination: [u8; 4], prefix, gateway: [u8; 4]| Ipv4Route {
        destination: destination.into(),
        prefix,
        gateway: gateway.into(),
    };
    let mut ipv4 = ipv4();
    ipv4.routes = vec![
        route([192, 168, 37, 9], 20, [10, 0, 2, 5]),
        route([169, 254, 1, 1], 32, [0, 0, 0, 0]),
    ];
    let server = Dhcp4::new(MAC, &addressing(), &ipv4).unwrap();
    let (reply, _) = ask(&server, &discover(DHCLIENT)).unwrap();
    let told = options_of(&reply);
    let expected = "14c0a820 0a000205 20a9fe0101 00000000 00 0a000201";
    assert_eq!(told[&option::ROUTES], bytes(expected));
    assert!(!told.contains_key(&option::ROUTER));
    let (reply, _) = ask(&server, &discover(UDHCPC)).unwrap();
    let told = options_of(&reply);
    assert!(told.contains_key(&option::ROUTER) && !told.contains_key(&option::ROUTES));
}

#[test]
fn way_out_beyond_the_guests_network_gets_a_route_to_it() {
    let mut ipv4 = ipv4();
    (ipv4.prefix, ipv4.gateway) = (32, Some([169, 254, 1, 1].into()));
    let server = Dhcp4::new(MAC, &addressing(), &ipv4).unwrap();
    let (reply, _) = ask(&server, &discover(NETWORKD)).unwrap();
    let expected = bytes("20a9fe0101 00000000 00 a9fe0101");
    assert_eq!(options_of(&reply)[&option::ROUTES], expected);
}

#[test]
fn answer_is_as_large_as_the_client_takes_and_the_link_carries() {
    let mut addressing = addressing();
    let domain = |letter: char| format!("{}.{letter}", ["x".repeat(20).as_str(); 3].join("."));
    addressing.search = ('a'..='z').map(domain).collect();
    let size = |addressing: &Addressing, largest: u16| {
        let server = Dhcp4::new(MAC, addressing, &ipv4()).unwrap();
        let [a, b] = largest.to_be_bytes();
        let packet = discover(&format!("350101 3902{a:02x}{b:02x} 370177 ff"));
        let (reply, _) = ask(&server, &packet).unwrap();
        let told = options_of(&reply);
        assert_eq!(told[&option::SEARCH].len() % 66, 0, "whole names");
        reply.len() + HEADERS
    };
    assert!((510..=576).contains(&size(&addressing, 0)));
    assert!((934..=1000).contains(&size(&addressing, 1000)));
    assert!((1384..=1450).contains(&size(&addressing, 9000)));
    addressing.mtu = None;
    assert!((1384..=MAX_PACKET).contains(&size(&addressing, 9000)));
}

#[test]
fn what_must_be_said_fits_beside_the_longest_identifier() {
    let client = format!("350101 3dff{} ff", "ab".repeat(255));
    let (reply, _) = ask(&server(), &discover(&client)).unwrap();
    let told = options_of(&reply);
    assert_eq!(told[&option::CLIENT], [0xab; 255]);
    assert!(told.contains_key(&option::ROUTER) && told.contains_key(&option::LEASE));
}

#[test]
fn what_cannot_be_told_is_refused() {
    let mut ipv4 = ipv4();
    ipv4.prefix = 33;
    assert_eq!(Dhcp4::new(MAC, &addressing(), &ipv4).unwrap_err(), AddressingError::Prefix(33));
    let odd = Addressing { hostname: "a b".into(), ..addressing() };
    assert!(Dhcp4::new(MAC, &odd, &super::super::testing::ipv4()).is_err());
    let many = Addressing { search: vec!["a".into(); 33], ..addressing() };
    let error = Dhcp4::new(MAC, &many, &super::super::testing::ipv4()).unwrap_err();
    assert_eq!(error.to_string(), "33 search domains are more than 32");
}

fn with_options(options: DhcpOptions) -> Result<Dhcp4, AddressingError> {
    Dhcp4::new(MAC, &Addressing { options, ..addressing() }, &ipv4())
}

fn private(code: u8, value: &str) -> PrivateOption {
    PrivateOption { code, value: value.into() }
}

#[test]
fn options_of_the_interfaces_user_are_told_to_who_asks_for_them_or_for_nothing() {
    let server = with_options(DhcpOptions {
        boot_file: "pxelinux.0".into(),
        tftp_server: "tftp.example".into(),
        ntp: vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()],
        private: vec![private(240, "site"), private(241, "more")],
    })
    .unwrap();
    let told = |wanted: &str| {
        options_of(&ask(&server, &discover(&format!("350101 {wanted} ff"))).unwrap().0)
    };
    let all = told("37052a4243f0f1");
    assert_eq!(all[&option::TIME_SERVERS], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(all[&option::TFTP_SERVER], b"tftp.example");
    assert_eq!(all[&option::BOOT_FILE], b"pxelinux.0");
    assert_eq!((&*all[&240], &*all[&241]), (&b"site"[..], &b"more"[..]));
    let some = told("370243f1");
    assert!(some.contains_key(&option::BOOT_FILE) && some.contains_key(&241));
    assert!(!some.contains_key(&option::TFTP_SERVER) && !some.contains_key(&240));
    assert!(told("").contains_key(&240));
}

#[test]
fn options_that_are_not_a_sites_own_are_refused() {
    for code in [0, 53, 223, 255] {
        let options = DhcpOptions { private: vec![private(code, "x")], ..DhcpOptions::default() };
        assert_eq!(with_options(options).unwrap_err(), AddressingError::Option(code));
    }
}

proptest! {
    #[test]
    fn any_options_are_survived_and_answers_are_bounded(
        options in prop::collection::vec(any::<u8>(), 0..1300),
        from in any::<[u8; 4]>(),
    ) {
        let packet = message(ADDRESS, &options);
        if let Ok((reply, _)) = server().answer(&packet, from.into()) {
            prop_assert!((SHORTEST..=MAX_PACKET).contains(&reply.len()));
            options_of(&reply);
        }
    }

    #[test]
    fn any_bytes_are_survived(packet in prop::collection::vec(any::<u8>(), 0..MAX_PACKET)) {
        let _ = ask(&server(), &packet);
    }

    #[test]
    fn recorded_message_with_any_bytes_changed_is_survived(
        changes in prop::collection::vec((240..320_usize, any::<u8>()), 1..8),
    ) {
        let mut packet = discover(NETWORKD);
        for (at, value) in changes {
            if let Some(byte) = packet.get_mut(at) {
                *byte = value;
            }
        }
        let _ = ask(&server(), &packet);
    }
}
