//! Tables as netlink messages (linux/netfilter/nf_tables.h). Numbers are in the network's order, unlike rtnetlink's.

use std::net::IpAddr;

use super::rules::{Action, Chain, Family, Hook, Match, Rule, Table};
use super::{DroppingChain, name_in};
use crate::cidr::Network;
use crate::netlink::{Message, first};

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

/// The table, its chains and their rules, in that order.
pub(super) fn table(table: &Table, owned: bool) -> Vec<Message> {
    let mut messages = vec![new_table(table.family, &table.name, owned)];
    for chain in &table.chains {
        messages.push(new_chain(table, chain));
        messages.extend(chain.rules.iter().map(|one| rule(table, chain, one)));
    }
    messages
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

fn rule(table: &Table, chain: &Chain, rule: &Rule) -> Message {
    let family = table.family;
    message(NEW_RULE, CREATE | APPEND, family.number())
        .text(RULE_TABLE, &table.name)
        .text(RULE_CHAIN, chain.hook.name())
        .nest(RULE_EXPRESSIONS, |message| {
            let message =
                rule.matches.iter().fold(message, |message, one| matching(message, family, one));
            acting(message, family, rule.action)
        })
}

fn matching(message: Message, family: Family, one: &Match) -> Message {
    match one {
        Match::In(link) => compare(meta(message, IN_NAME), EQUAL, &name_bytes(link)),
        Match::Out(link) => compare(meta(message, OUT_NAME), EQUAL, &name_bytes(link)),
        Match::NotOut(link) => compare(meta(message, OUT_NAME), NOT_EQUAL, &name_bytes(link)),
        Match::Source(network) => in_network(message, source_offset(family), *network),
        Match::Destination(network) => {
            let offset = source_offset(family) + address_length(family);
            in_network(message, offset, *network)
        }
        Match::DestinationPort(port) => {
            let message = compare(meta(message, TRANSPORT), EQUAL, &[port.protocol.number()]);
            // Source and destination port stand first, in TCP as in UDP.
            let message = payload(message, TRANSPORT_HEADER, 2, 2);
            compare(message, EQUAL, &port.number.to_be_bytes())
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
