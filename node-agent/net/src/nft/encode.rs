//! Tables as netlink messages (linux/netfilter/nf_tables.h). Numbers are in the network's order, unlike rtnetlink's.

use std::net::IpAddr;

use super::rules::{Action, Chain, Family, Hook, Match, Rule, Table};
use super::{DroppingChain, name_in};
use crate::cidr::Network;
use crate::netlink::{Message, first};
use crate::plan::Protocol;

/// Length of `struct nfgenmsg`.
pub(super) const FIXED: usize = 4;
/// NFPROTO_INET: tables of both families.
pub(super) const BOTH_FAMILIES: u8 = 1;
/// NFNL_SUBSYS_NFTABLES.
const SUBSYSTEM: u8 = 10;

const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NEW_TABLE: u8 = 0;
const DELETE_TABLE: u8 = 2;
const NEW_CHAIN: u8 = 3;
const LIST_CHAINS: u8 = 4;
const NEW_RULE: u8 = 6;
const NEW_SET: u8 = 9;
const NEW_ELEMENTS: u8 = 12;

const CREATE: u16 = 0x400;
/// Behind the rules that are there.
const APPEND: u16 = 0x800;

const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
/// NFT_TABLE_F_OWNER: it belongs to the socket.
const OWNED: u32 = 2;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_KIND: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_KEY_TYPE: u16 = 4;
const SET_KEY_LENGTH: u16 = 5;
const SET_NUMBER: u16 = 10;
/// NFT_SET_ANONYMOUS and _CONSTANT: it belongs to one rule, goes with it, and does not change.
const SET_OF_RULE: u32 = 1 | 2;
/// What `nft` calls ports when it lists the set; the kernel does not look at it.
const PORT_TYPE: u32 = 13;
/// A name that the kernel completes. Within a transaction a set is known by its number.
const SET_NAMES: &str = "__set%d";
const ELEMENTS_TABLE: u16 = 1;
const ELEMENTS_SET: u16 = 2;
const ELEMENTS: u16 = 3;
const ELEMENTS_NUMBER: u16 = 4;
const ELEMENT_KEY: u16 = 1;
/// Elements in one message: an attribute's length has 16 bits, and each of these takes 16 bytes.
const ELEMENTS_AT_ONCE: usize = 2048;
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;

/// The register that all values go through: sixteen bytes.
const REGISTER: u32 = 1;
/// The register whose value decides.
const VERDICT_REGISTER: u32 = 0;
/// NF_DROP.
const DROP: u32 = 0;

pub(super) fn begin() -> Message {
    Message::new(BATCH_BEGIN, 0, &[0, 0, 0, SUBSYSTEM])
}

pub(super) fn end() -> Message {
    Message::new(BATCH_END, 0, &[0, 0, 0, SUBSYSTEM])
}

pub(super) fn new_table(family: Family, name: &str, owned: bool) -> Message {
    let message = message(NEW_TABLE, CREATE, family.number()).text(TABLE_NAME, name);
    message.big(TABLE_FLAGS, if owned { OWNED } else { 0 })
}

pub(super) fn delete_table(family: Family, name: &str) -> Message {
    message(DELETE_TABLE, 0, family.number()).text(TABLE_NAME, name)
}

pub(super) fn list_chains(family: u8) -> Message {
    message(LIST_CHAINS, 0, family)
}

/// The tables, each with its chains and their rules in that order, and before a rule the sets of ports that it looks into.
pub(super) fn tables(tables: &[Table], owned: bool) -> Vec<Message> {
    let mut messages = Vec::new();
    let mut sets = Sets::default();
    for table in tables {
        messages.push(new_table(table.family, &table.name, owned));
        for chain in &table.chains {
            messages.push(new_chain(table, chain));
            for one in &chain.rules {
                let rule = rule(table, chain, one, &mut sets);
                messages.append(&mut sets.made);
                messages.push(rule);
            }
        }
    }
    messages
}

/// Sets of a transaction.
#[derive(Default)]
struct Sets {
    /// The last one's number.
    number: u32,
    /// Messages that make those that no rule came for yet.
    made: Vec<Message>,
}

impl Sets {
    /// Makes a set of ports in `table`; its number.
    fn add(&mut self, table: &Table, ports: &[u16]) -> u32 {
        self.number += 1;
        let (number, family) = (self.number, table.family.number());
        let set = message(NEW_SET, CREATE, family)
            .text(SET_TABLE, &table.name)
            .text(SET_NAME, SET_NAMES)
            .big(SET_FLAGS, SET_OF_RULE)
            .big(SET_KEY_TYPE, PORT_TYPE)
            .big(SET_KEY_LENGTH, 2)
            .big(SET_NUMBER, number);
        self.made.push(set);
        self.made.extend(ports.chunks(ELEMENTS_AT_ONCE).map(|ports| {
            message(NEW_ELEMENTS, CREATE, family)
                .text(ELEMENTS_TABLE, &table.name)
                .text(ELEMENTS_SET, SET_NAMES)
                .big(ELEMENTS_NUMBER, number)
                .nest(ELEMENTS, |message| ports.iter().fold(message, element))
        }));
        number
    }
}

fn element(message: Message, port: &u16) -> Message {
    message.nest(LIST_ELEMENT, |message| {
        message.nest(ELEMENT_KEY, |message| message.bytes(DATA_VALUE, &port.to_be_bytes()))
    })
}

/// The chain in an answer, if it sees forwarded packets and drops what it does not know.
pub(super) fn dropping_forward_chain(body: &[u8]) -> Option<DroppingChain> {
    let attributes = body.get(FIXED..)?;
    let big = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.try_into().ok()?));
    let hook = first(attributes, CHAIN_HOOK)?;
    let is_forward = first(hook, HOOK_NUMBER).and_then(big)? == Hook::Forward.number();
    let drops = first(attributes, CHAIN_POLICY).and_then(big)? == DROP;
    let chain =
        DroppingChain { table: name_in(body, CHAIN_TABLE)?, chain: name_in(body, CHAIN_NAME)? };
    (is_forward && drops).then_some(chain)
}

fn message(kind: u8, flags: u16, family: u8) -> Message {
    Message::new(u16::from_be_bytes([SUBSYSTEM, kind]), flags, &[family, 0, 0, 0])
}

fn new_chain(table: &Table, chain: &Chain) -> Message {
    let hook = chain.hook;
    message(NEW_CHAIN, CREATE, table.family.number())
        .text(CHAIN_TABLE, &table.name)
        .text(CHAIN_NAME, hook.name())
        .nest(CHAIN_HOOK, |message| {
            message
                .big(HOOK_NUMBER, hook.number())
                .big(HOOK_PRIORITY, hook.priority().cast_unsigned())
        })
        .text(CHAIN_KIND, hook.kind())
}

fn rule(table: &Table, chain: &Chain, rule: &Rule, sets: &mut Sets) -> Message {
    let family = table.family;
    message(NEW_RULE, CREATE | APPEND, family.number())
        .text(RULE_TABLE, &table.name)
        .text(RULE_CHAIN, chain.hook.name())
        .nest(RULE_EXPRESSIONS, |message| {
            let matching = |message, one| matching(message, table, one, sets);
            let message = rule.matches.iter().fold(message, matching);
            acting(message, family, rule.action)
        })
}

fn matching(message: Message, table: &Table, one: &Match, sets: &mut Sets) -> Message {
    let family = table.family;
    match one {
        Match::In(link) => compare(meta(message, IN_NAME), EQUAL, &name_bytes(link)),
        Match::Out(link) => compare(meta(message, OUT_NAME), EQUAL, &name_bytes(link)),
        Match::NotOut(link) => compare(meta(message, OUT_NAME), NOT_EQUAL, &name_bytes(link)),
        Match::Source(network) => in_network(message, source_offset(family), *network),
        Match::Destination(network) => {
            let offset = source_offset(family) + address_length(family);
            in_network(message, offset, *network)
        }
        Match::DestinationPorts(protocol, ports) => {
            let message = destination_port(message, *protocol);
            match ports.as_slice() {
                [port] => compare(message, EQUAL, &port.to_be_bytes()),
                ports => is_in(message, sets.add(table, ports)),
            }
        }
        Match::ToSelf => {
            let message = expression(message, "fib", |message| {
                message.big(1, REGISTER).big(2, FIB_ADDRESS_TYPE).big(3, FIB_DESTINATION)
            });
            compare(message, EQUAL, &TYPE_LOCAL.to_ne_bytes())
        }
        Match::Invalid => {
            let message = expression(message, "ct", |message| {
                message.big(1, REGISTER).big(2, CONNECTION_STATE)
            });
            let message = mask(message, &STATE_INVALID.to_ne_bytes());
            compare(message, NOT_EQUAL, &0_u32.to_ne_bytes())
        }
    }
}

/// NFT_META_IIFNAME, _OIFNAME and _L4PROTO.
const IN_NAME: u32 = 6;
const OUT_NAME: u32 = 7;
const TRANSPORT: u32 = 16;
/// NFT_CMP_EQ and _NEQ.
const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;
/// NFT_PAYLOAD_NETWORK_HEADER and _TRANSPORT_HEADER.
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// NFT_FIB_RESULT_ADDRTYPE, NFTA_FIB_F_DADDR, RTN_LOCAL.
const FIB_ADDRESS_TYPE: u32 = 3;
const FIB_DESTINATION: u32 = 2;
const TYPE_LOCAL: u32 = 2;
/// NFT_CT_STATE, NF_CT_STATE_INVALID_BIT.
const CONNECTION_STATE: u32 = 0;
const STATE_INVALID: u32 = 1;
/// NFT_NAT_SNAT and _DNAT.
const SOURCE: u32 = 0;
const DESTINATION: u32 = 1;

fn acting(message: Message, family: Family, action: Action) -> Message {
    match action {
        Action::ToAddress(address) => translate(message, family, DESTINATION, address),
        Action::FromAddress(address) => translate(message, family, SOURCE, address),
        Action::Masquerade => expression(message, "masq", |message| message),
        Action::Drop => expression(message, "immediate", |message| {
            message.big(1, VERDICT_REGISTER).nest(2, |message| {
                message.nest(DATA_VERDICT, |message| message.big(VERDICT_CODE, DROP))
            })
        }),
    }
}

fn translate(message: Message, family: Family, kind: u32, to: IpAddr) -> Message {
    let message = expression(message, "immediate", |message| {
        message.big(1, REGISTER).nest(2, |message| message.address(DATA_VALUE, to))
    });
    expression(message, "nat", |message| {
        message.big(1, kind).big(2, family.number().into()).big(3, REGISTER)
    })
}

fn expression(message: Message, name: &str, data: impl FnOnce(Message) -> Message) -> Message {
    message.nest(LIST_ELEMENT, |message| {
        message.text(EXPRESSION_NAME, name).nest(EXPRESSION_DATA, data)
    })
}

fn meta(message: Message, key: u32) -> Message {
    expression(message, "meta", |message| message.big(1, REGISTER).big(2, key))
}

fn payload(message: Message, base: u32, offset: u32, length: u32) -> Message {
    expression(message, "payload", |message| {
        message.big(1, REGISTER).big(2, base).big(3, offset).big(4, length)
    })
}

fn mask(message: Message, mask: &[u8]) -> Message {
    let length = u32::try_from(mask.len()).expect("a register has sixteen bytes");
    expression(message, "bitwise", |message| {
        message
            .big(1, REGISTER)
            .big(2, REGISTER)
            .big(3, length)
            .nest(4, |message| message.bytes(DATA_VALUE, mask))
            .nest(5, |message| message.bytes(DATA_VALUE, &vec![0; mask.len()]))
    })
}

fn compare(message: Message, how: u32, with: &[u8]) -> Message {
    expression(message, "cmp", |message| {
        message.big(1, REGISTER).big(2, how).nest(3, |message| message.bytes(DATA_VALUE, with))
    })
}

/// The port in the register, of packets of that protocol.
fn destination_port(message: Message, protocol: Protocol) -> Message {
    let message = compare(meta(message, TRANSPORT), EQUAL, &[protocol.number()]);
    // Source and destination port stand first, in TCP as in UDP.
    payload(message, TRANSPORT_HEADER, 2, 2)
}

fn is_in(message: Message, set: u32) -> Message {
    expression(message, "lookup", |message| message.text(1, SET_NAMES).big(2, REGISTER).big(4, set))
}

fn in_network(message: Message, offset: u32, network: Network) -> Message {
    let (address, ones) = match network.address {
        IpAddr::V4(address) => (address.octets().to_vec(), [0xff; 4].to_vec()),
        IpAddr::V6(address) => (address.octets().to_vec(), [0xff; 16].to_vec()),
    };
    let length = u32::try_from(address.len()).expect("an address has sixteen bytes at most");
    let message = payload(message, NETWORK_HEADER, offset, length);
    if usize::from(network.prefix) == address.len() * 8 {
        return compare(message, EQUAL, &address);
    }
    let bits = ones.iter().enumerate().map(|(at, _)| {
        let kept = usize::from(network.prefix).saturating_sub(at * 8).min(8);
        u8::try_from(0xff00_u32 >> kept & 0xff).expect("masked to a byte")
    });
    compare(mask(message, &bits.collect::<Vec<_>>()), EQUAL, &address)
}

/// Where the source address stands in the header; the destination's follows.
fn source_offset(family: Family) -> u32 {
    match family {
        Family::Ipv4 => 12,
        Family::Ipv6 => 8,
    }
}

fn address_length(family: Family) -> u32 {
    match family {
        Family::Ipv4 => 4,
        Family::Ipv6 => 16,
    }
}

/// A link's name as the register has it.
fn name_bytes(name: &str) -> [u8; libc::IFNAMSIZ] {
    let mut bytes = [0; libc::IFNAMSIZ];
    for (to, from) in bytes.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    bytes
}

/// A table whose chain drops what is forwarded, as firewalls have it.
#[cfg(test)]
pub(super) fn firewall(name: &str) -> Vec<Message> {
    let table = Table { family: Family::Ipv4, name: name.into(), chains: Vec::new() };
    let chain = Chain { hook: Hook::Forward, rules: Vec::new() };
    let chain = new_chain(&table, &chain).big(CHAIN_POLICY, DROP);
    vec![new_table(table.family, name, false), chain]
}

#[cfg(test)]
pub(super) fn list_tables(family: Family) -> Message {
    message(1, 0, family.number())
}

#[cfg(test)]
pub(super) fn table_name(body: &[u8]) -> Option<String> {
    name_in(body, TABLE_NAME)
}

#[cfg(test)]
pub(super) fn list_rules(family: Family, table: &str) -> Message {
    message(7, 0, family.number()).text(RULE_TABLE, table)
}

#[cfg(test)]
pub(super) fn chain_of_rule(body: &[u8]) -> Option<String> {
    name_in(body, RULE_CHAIN)
}
