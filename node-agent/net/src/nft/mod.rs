//! nf_tables: tables of rules, given to the kernel in one transaction.
//!
//! `rules.rs` is what a table is to say, as plain values that print as `nft` would write them; `encode.rs` turns them
//! into netlink messages, an expression at a time; this file sends them. Nothing else in the crate knows of it.
//!
//! A table is replaced as a whole: it is made if it is missing, deleted, and made anew, in one transaction. So packets
//! never meet half a table, and doing it twice is doing it once.

mod encode;
mod rules;

pub(crate) use rules::{Action, Chain, Family, Hook, Match, Rule, Table};

use crate::netlink::{Message, NetlinkError, Protocol, Socket, first, text};

/// A base chain of anybody's that drops what none of its rules accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DroppingChain {
    pub(crate) table: String,
    pub(crate) chain: String,
}

/// Tables that are there as long as this is: the kernel takes them away with the socket, however the process ends.
#[derive(Debug)]
pub(crate) struct OwnedTables {
    #[expect(dead_code, reason = "being open is what it is for")]
    socket: Socket,
}

/// Puts `tables` in the place of those of the same names, and takes `absent` away.
pub(crate) fn replace(tables: &[Table], absent: &[(Family, &str)]) -> Result<(), NetlinkError> {
    let mut messages = Vec::new();
    let names = tables.iter().map(|table| (table.family, table.name.as_str()));
    for (family, name) in names.chain(absent.iter().copied()) {
        // One that is missing cannot be deleted, one that is there can be made again.
        messages.push(encode::new_table(family, name, false));
        messages.push(encode::delete_table(family, name));
    }
    messages.extend(encode::tables(tables, false));
    commit(&mut Socket::open(Protocol::Netfilter)?, messages)
}

/// Makes `tables` for as long as what is returned is kept. Nobody else can change them.
pub(crate) fn own(tables: &[Table]) -> Result<OwnedTables, NetlinkError> {
    let mut socket = Socket::open(Protocol::Netfilter)?;
    commit(&mut socket, encode::tables(tables, true))?;
    Ok(OwnedTables { socket })
}

/// Chains that see forwarded packets of `family` and drop those they do not know: an accept of ours changes nothing there.
pub(crate) fn dropping_forward_chains(family: Family) -> Result<Vec<DroppingChain>, NetlinkError> {
    let mut socket = Socket::open(Protocol::Netfilter)?;
    let mut found = Vec::new();
    // Those of both families stand in tables of a third kind.
    for family in [family.number(), encode::BOTH_FAMILIES] {
        let replies = socket.dump(&encode::list_chains(family))?;
        found
            .extend(replies.iter().filter_map(|reply| encode::dropping_forward_chain(&reply.body)));
    }
    Ok(found)
}

/// Makes a firewall that drops what is forwarded.
#[cfg(test)]
pub(crate) fn make_firewall(name: &str) {
    let mut socket = Socket::open(Protocol::Netfilter).unwrap();
    commit(&mut socket, encode::firewall(name)).unwrap();
}

/// Names of the tables of `family` in the thread's namespace.
#[cfg(test)]
pub(crate) fn table_names(family: Family) -> Vec<String> {
    let mut socket = Socket::open(Protocol::Netfilter).unwrap();
    let replies = socket.dump(&encode::list_tables(family)).unwrap();
    replies.iter().filter_map(|reply| encode::table_name(&reply.body)).collect()
}

/// How many rules each chain of a table has.
#[cfg(test)]
pub(crate) fn rule_counts(
    family: Family,
    table: &str,
) -> std::collections::BTreeMap<String, usize> {
    let mut socket = Socket::open(Protocol::Netfilter).unwrap();
    let mut counts = std::collections::BTreeMap::new();
    for reply in socket.dump(&encode::list_rules(family, table)).unwrap() {
        *counts.entry(encode::chain_of_rule(&reply.body).unwrap()).or_default() += 1;
    }
    counts
}

fn commit(socket: &mut Socket, messages: Vec<Message>) -> Result<(), NetlinkError> {
    socket.transaction(encode::begin(), messages, encode::end())
}

/// A string attribute behind the fixed part of a message.
fn name_in(body: &[u8], kind: u16) -> Option<String> {
    first(body.get(encode::FIXED..)?, kind).and_then(text).map(str::to_owned)
}
